"The models in the page compute what the package computes, and the page can be used by everybody."

import functools
import itertools
import random
import re
import time
from codecs import getincrementaldecoder
from contextlib import ExitStack
from pathlib import Path

import live
import numpy as np
import pytest
import torch
from chapter_widgets import FIRST, INTRO, chapter_widgets

from transformer_lit import load
from transformer_lit.course.data import load_pairs
from transformer_lit.inference.beam import beam_search
from transformer_lit.inference.sampling import keep_top_p
from transformer_lit.models.interpret import attentions, cut, lens, watch

SENTENCE = "A man is riding a bike."
CAPTIONS = [
    SENTENCE,
    "  Two dogs are playing in the snow.\n",
    "A young woman in a red dress is singing on a stage in front of many people.",
    "Three children with buckets sit in a sandpit and look at a yellow excavator behind them.",
    "xyz 漢字 😀",
]
# Both round what is between two parts to float32: 8 layers, sums of up to 344 products.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="session")
def captions():
    "The translator of captions, which most widgets open."
    return load(live.CAPTIONS)


@pytest.fixture(scope="session")
def translator():
    "The translator of the first page."
    return load(FIRST)


@pytest.fixture
def engine(page, address):
    "A page with all modules of `live/` in the variable `live`, and `opened(name)`."
    page.goto(address)
    page.evaluate(
        """async () => {
            const base = new URL(document.querySelector("script[src*='page.js']").src);
            const names = "tensors layers models tokenizer beam sampling lens client".split(" ");
            window.live = {};
            for (const name of names) {
                Object.assign(live, await import(new URL(`live/${name}.js`, base)));
            }
            window.opened = async (name) => {
                const at = (file) => fetch(new URL(`live/models/${name}/${file}`, base));
                const config = await (await at("config.json")).json();
                const described = await (await at("tokenizer.json")).json();
                const weights = await (await at("model.safetensors")).arrayBuffer();
                const tree = live.asTree(live.readTensors(weights));
                const model = new live.MODELS[config.family ?? "transformer"](tree, config.model);
                return { model, tokenizer: live.readTokenizer(described) };
            };
        }"""
    )
    return page


# --- the same numbers ---------------------------------------------------------------------------


def test_every_half_is_read_as_numpy_reads_it(engine):
    found = engine.evaluate("Array.from({ length: 65536 }, (_, bits) => String(live.half(bits)))")
    expected = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float64)
    found = np.array([float(text.replace("Infinity", "inf")) for text in found])
    np.testing.assert_array_equal(found, expected)


def test_an_unknown_type_of_weights_is_named(engine):
    asked = """() => {
        const header = '{"w":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}';
        const bytes = new Uint8Array(10 + header.length);
        bytes[0] = header.length;
        bytes.set(new TextEncoder().encode(header), 8);
        try { live.readTensors(bytes.buffer); } catch (error) { return error.message; }
    }"""
    assert "w is stored as BF16" in engine.evaluate(asked)


def strings():
    "Texts of all kinds: captions, signs and spaces of many scripts, any characters at all."
    rng = random.Random(0)
    odd = "abc DE  \t\n'sß漢字é\u0085\ufeff\u2003😀12½٣!?-\u00a0\u200b’'re"
    texts = [*CAPTIONS, "", " ", "I'll say: they've got 3 bikes!", "<eos> is no token"]
    texts += ["".join(rng.choices(odd, k=rng.randrange(40))) for _ in range(500)]
    every = [*range(1, 0xD800), *range(0xE000, 0x110000)]
    return texts + ["".join(map(chr, rng.choices(every, k=20))) for _ in range(200)]


@pytest.mark.parametrize("name", ["multi30k-en-de", "stories"])
def test_the_tokenizer_gives_the_same_ids_and_texts(engine, name):
    tokenizer, texts, rng = load(name).tokenizer, strings(), random.Random(1)
    ids = [tokenizer.encode(text) for text in texts]
    drawn = [rng.choices(range(tokenizer.vocab_size), k=23) for _ in range(300)]
    asked = """async ([name, texts, drawn]) => {
        const { tokenizer } = await opened(name);
        const ids = texts.map((text) => tokenizer.encode(text));
        return [ids, ...[ids, drawn].map((rows) => rows.map((row) => tokenizer.decode(row)))];
    }"""
    found = engine.evaluate(asked, [name, texts, drawn])
    assert found == [ids, texts, [tokenizer.decode(one) for one in drawn]]


def added(tokenizer, ids):
    "What each token adds to a text as it is read: whole characters, and ◌ where one is open."
    decoder = getincrementaldecoder("utf-8")("replace")
    texts = (decoder.decode(tokenizer.decode_bytes([id])) for id in ids)
    return [text + "◌" * bool(decoder.getstate()[0]) for text in texts]


def test_a_token_shows_the_character_that_it_ends_and_a_mark_for_one_that_it_begins(engine):
    tokenizer, rng = load("stories").tokenizer, random.Random(2)
    rows = [tokenizer.encode(text) for text in ["漢字", *strings()] if text]
    assert added(tokenizer, rows[0]) == ["◌", "◌", "漢", "◌", "◌", "字"]
    drawn = [[3 + rng.randrange(256) for _ in range(23)] for _ in range(300)]  # bytes
    asked = """async (rows) => {
        const { tokenizer } = await opened("stories");
        const ends = (row) => row.map((_, n) => row.slice(0, n + 1));
        return rows.map((row) => ends(row).map((ids) => tokenizer.added(ids)));
    }"""
    assert engine.evaluate(asked, rows) == [added(tokenizer, row) for row in rows]
    for row, told in zip(drawn, engine.evaluate(asked, drawn), strict=True):
        open_ = told[-1].endswith("◌")
        assert "".join(told).replace("◌", "") + "�" * open_ == tokenizer.decode(row)


def test_the_writer_tells_of_a_character_at_its_last_token(engine):
    "Its tokens are put in one by one; what is opened has the whole character too."
    asked = """async (ids) => {
        const model = await live.openModel("stories", () => {});
        const asked = { prompt: "Clara", maxNew: 4, choice: { temperature: 0 } };
        const [told, opened] = [[], []];
        await model.ask("write", asked);
        for (const [at, token] of ids.entries()) {
            const heard = [];
            const from = { at, token };
            await model.ask("write", { ...asked, from }, ({ piece }) => heard.push(piece));
            told.push(heard[0]);
            opened.push((await model.ask("look", { at })).piece);
        }
        model.close();
        return [told, opened];
    }"""
    told, opened = engine.evaluate(asked, load("stories").tokenizer.encode("漢"))
    assert told == ["◌", "◌", "漢"]
    assert opened == [r"\xe6", r"\xbc", "漢"]


def test_half_a_character_and_an_unknown_one_are_refused(engine):
    asked = """async () => {
        const said = [];
        for (const [name, text] of [["stories", "a\\ud800"], ["shakespeare", "ROMEO 漢"]]) {
            const { tokenizer } = await opened(name);
            try { tokenizer.encode(text); } catch (error) { said.push(error.message); }
        }
        return said;
    }"""
    half, unknown = engine.evaluate(asked)
    assert "half a character" in half
    assert "“漢”" in unknown


def test_logits_of_the_translator(engine, captions):
    src = [*captions.tokenizer.encode(CAPTIONS[2]), captions.tokenizer.eos_id]
    tgt_in = [captions.tokenizer.bos_id, *captions.tokenizer.encode("Eine Frau singt.")]
    asked = """async ([src, tgtIn]) => {
        const { model } = await opened("multi30k-en-de");
        const state = model.start(src);
        const logits = tgtIn.map((id) => [...model.step([id], state)[0]]);
        return logits;
    }"""
    logits = torch.tensor(engine.evaluate(asked, [src, tgt_in]))
    with torch.inference_mode():
        expected = captions.model(torch.tensor([src]), torch.tensor([tgt_in]))[0]
    torch.testing.assert_close(logits, expected, **CLOSE)


def said_greedily(translator, text):
    "A source, and the ids of its greedy translation behind `bos`."
    tokenizer = translator.tokenizer
    src = torch.tensor([tokenizer.encode(text.strip(), eos=True)])
    special = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    how = {"max_len": 2 * src.shape[1] + 8, "beam": 1}
    ((best,),) = beam_search(translator.model, src, **how, **special)
    return src, torch.tensor([[tokenizer.bos_id, *best.ids]])


ASK = """async ([task, questions]) => {
    const model = await live.openModel("multi30k-en-de", () => {});
    const found = [];
    for (const question of questions) found.push(await model.ask(task, question));
    return found;
}"""


def test_the_maps_and_the_german_with_heads_cut(engine, captions):
    "A hundred cuts over five captions, from no head to two thirds of them."
    rng, names = random.Random(2), list(attentions(captions.model))
    questions = []
    for count in range(100):
        chosen = rng.sample(list(itertools.product(names, range(4))), count * 32 // 99)
        cuts = {name: [h for other, h in chosen if other == name] for name in names}
        questions.append({"text": CAPTIONS[count % 5], "cut": cuts})
    found, different = engine.evaluate(ASK, ["heads", questions]), 0
    whole = dict(zip(CAPTIONS, captions.translate(CAPTIONS, beam=1)))
    for question, answer in zip(questions, found, strict=True):
        with ExitStack() as stack:
            for name, heads in question["cut"].items():
                stack.enter_context(cut(captions.model.get_submodule(name), heads))
            src, tgt_in = said_greedily(captions, question["text"])
            with watch(captions.model) as seen, torch.inference_mode():
                captions.model(src, tgt_in)
        assert answer["text"] == captions.tokenizer.decode(tgt_in[0, 1:].tolist())
        assert answer["whole"] == whole[question["text"]]
        different += answer["text"] != answer["whole"]
        assert set(answer["weights"]) == set(names)
        for name, weights in answer["weights"].items():
            expected = seen[name][0]  # H T S
            read = torch.ones_like(expected[0], dtype=torch.bool)
            read = read.tril() if re.fullmatch(r"decoder\.\d\.attn", name) else read
            flat = torch.tensor([w for head in weights for row in head for w in row])
            torch.testing.assert_close(flat, expected[:, read].flatten(), **CLOSE)
    assert different > 50  # else nothing was cut


def boxes(model, src, tgt_in):
    "What each part gives when `model` reads a pair, by the names that the page uses: T C each."
    given = {}
    for side, ids in (("src", src), ("tgt", tgt_in)):
        given[side], given[f"{side}.tok_emb"] = model.embed(ids), model.tok_emb(ids)
        given[f"{side}.position"] = model.position(torch.arange(ids.shape[1]))[None]
    named = r"(en|de)coder\.\d\.\w+(\.norm)?|(en|de)coder_norm|lm_head"
    with ExitStack() as stack:
        for name, part in model.named_modules():
            if re.fullmatch(named, name):
                keep = functools.partial(lambda name, part, _, out: given.update({name: out}), name)
                stack.callback(part.register_forward_hook(keep).remove)
        model(src, tgt_in)
    return {name: tensor[0] for name, tensor in given.items()}


def test_every_box_holds_the_package_s_tensor(engine, captions):
    "A hundred sentences of words that captions have, and of each seven boxes, all in turn."
    rng, model = random.Random(3), captions.model
    words = " ".join(CAPTIONS[:4]).split()
    texts = [" ".join(rng.choices(words, k=rng.randrange(3, 12))) for _ in range(95)] + CAPTIONS
    with torch.inference_mode():
        read = [said_greedily(captions, text) for text in texts]
        expected = [boxes(model, *pair) for pair in read]
    names = sorted(expected[0])
    assert len(names) == 2 * 3 + 4 * (6 + 9) + 3
    turn = itertools.cycle(names)
    questions = [[text, [next(turn) for _ in range(7)]] for text in texts]
    asked = """async (questions) => {
        const model = await live.openModel("multi30k-en-de", () => {});
        const found = [];
        for (const [text, names] of questions) {
            const { heard, next } = await model.ask("walk", { text });
            const kept = names.map((name) => [name, heard[name].map((row) => [...row])]);
            found.push({ names: Object.keys(heard).sort(), kept, next });
        }
        return found;
    }"""
    for tensors, answer in zip(expected, engine.evaluate(asked, questions), strict=True):
        assert answer["names"] == names
        for name, tensor in answer["kept"]:
            torch.testing.assert_close(torch.tensor(tensor), tensors[name], **CLOSE)
        likely = tensors["lm_head"].softmax(-1).topk(5).values.tolist()
        for five, shares in zip(answer["next"], likely, strict=True):
            assert [share for _, share in five] == pytest.approx(shares, abs=1e-4)


@pytest.mark.parametrize("name", ["shakespeare", "stories"])
def test_logits_and_greedy_text_of_the_writers(engine, name):
    writer, prompt = load(name), "What is a"
    ids = writer.tokenizer.encode(f"\n{prompt}" if writer.lines else prompt)
    asked = """async ([name, ids]) => {
        const { model, tokenizer } = await opened(name);
        const state = model.start();
        const logits = ids.map((id) => [...model.step([id], state)[0]]);
        const choice = () => ({ temperature: 0 });
        const how = { maxNew: 149, maxLen: model.config.max_len, choice };
        const tokens = [...live.stream(model, ids, how)].map(({ token }) => token);
        return [logits, tokenizer.decode(tokens)];
    }"""
    logits, text = engine.evaluate(asked, [name, ids])
    with torch.inference_mode():
        expected = writer.model(torch.tensor([ids]))[0]
    torch.testing.assert_close(torch.tensor(logits), expected, **CLOSE)
    # 149 tokens are more than the context holds: it was left for its last half
    if writer.lines:
        text = text.partition("\n")[0]
    assert text == "".join(writer.stream(prompt, max_new_tokens=149, temperature=0))


@pytest.mark.parametrize("name", ["shakespeare", "stories"])
def test_the_top_ten_the_entropy_and_the_lens_at_100_places(engine, name):
    writer, drawn = load(name), torch.Generator().manual_seed(0)
    V, T = writer.tokenizer.vocab_size, 50
    texts = torch.randint(V, (2, T), generator=drawn)
    texts[0] = torch.tensor(writer.tokenizer.encode(" ".join(CAPTIONS[:4]))[:T])
    asked = """async ([name, texts]) => {
        const { model } = await opened(name);
        return texts.map((ids) => {
            const state = model.start();
            return ids.map((id, t) => {
                model.step([id], state);
                const rows = state.heights[0].map((x) => model.read(x));
                return [rows.map((row) => [...row]), live.opened(rows, ids[t + 1] ?? 0)];
            });
        });
    }"""
    found = engine.evaluate(asked, [name, texts.tolist()])
    with torch.inference_mode():
        expected = lens(writer.model, texts)  # N B T V
    places, sure = 0, 0
    for b, t in itertools.product(range(2), range(T)):
        rows, shown = found[b][t]
        logits = expected[:, b, t]
        torch.testing.assert_close(torch.tensor(rows), logits, **CLOSE)
        # from here on with the page's logits: what they differ by may change the order of two
        logits = torch.tensor(rows, dtype=torch.float64)
        p, token = logits.softmax(-1), texts[b, t + 1].item() if t + 1 < T else 0
        order = logits[-1].argsort(descending=True, stable=True).tolist()
        ten = order[:10]
        assert [one["id"] for one in shown["top"]] == ten + [token] * (token not in ten)
        for one in shown["top"]:
            assert one["chances"] == pytest.approx(p[:, one["id"]].tolist(), rel=1e-9)
        bits = torch.distributions.Categorical(probs=p).entropy() / np.log(2)
        assert [one["bits"] for one in shown["lens"]] == pytest.approx(bits.tolist(), abs=1e-6)
        firsts = logits.argmax(-1).tolist()
        assert [one["first"] for one in shown["lens"]] == firsts
        assert shown["rank"] == order.index(token) + 1
        stays = [set(firsts[n:]) == {firsts[-1]} for n in range(len(firsts))]
        assert shown["since"] == stays.index(True)
        places, sure = places + 1, sure + (shown["since"] < len(firsts) - 1)
    assert places == 100 and 0 < sure < 100


def test_what_the_next_token_is_drawn_from(engine):
    logits = torch.randn(101, dtype=torch.float64) * 3
    asked = "([logits, choice]) => [...live.probabilities(Float64Array.from(logits), choice)]"
    for temperature, top_p in itertools.product((0, 0.3, 1, 1.7), (0.001, 0.5, 0.9, 1)):
        choice = {"temperature": temperature, "topP": top_p}
        found = engine.evaluate(asked, [logits.tolist(), choice])
        if temperature == 0:
            expected = torch.nn.functional.one_hot(logits.argmax(), 101).double()
        else:
            expected = keep_top_p(logits / temperature, top_p).softmax(-1)
        torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected)


def test_tokens_are_drawn_as_often_as_they_are_probable(engine):
    asked = """() => {
        const logits = Float64Array.from([0.2, 0.3, 0.5], Math.log);
        const n = 1000; // as many numbers, evenly spread over [0, 1)
        const counts = [0, 0, 0];
        for (let i = 0; i < n; i++) counts[live.nextToken(logits, {}, () => (i + 0.5) / n)] += 1;
        return counts;
    }"""
    assert engine.evaluate(asked) == [200, 300, 500]


# --- the same German ----------------------------------------------------------------------------

TRANSLATE = """async ([texts, beam, name = "multi30k-en-de"]) => {
    const model = await live.openModel(name, () => {});
    const found = [];
    for (const text of texts) found.push(await model.ask("translate", { text, beam }));
    return found.map(({ text, best, steps, finished }) => ({ text, best, steps, finished }));
}"""


@pytest.mark.parametrize("beam", [1, 3, 5])
def test_the_same_german_at_any_width(engine, translator, beam):
    found = engine.evaluate(TRANSLATE, [CAPTIONS, beam, FIRST])
    assert [one["text"] for one in found] == translator.translate(CAPTIONS, beam=beam)


@pytest.mark.needs("multi30k")
def test_the_same_german_for_100_captions(engine, captions):
    texts = [pair[0] for pair in load_pairs("multi30k", "en", "de", "test_2016_flickr")[:100]]
    found = engine.evaluate(TRANSLATE, [texts, 5])
    assert [one["text"] for one in found] == captions.translate(texts)


def test_the_tree_is_the_search(engine, captions):
    (found,) = engine.evaluate(TRANSLATE, [[CAPTIONS[2]], 5])
    tokenizer, steps = captions.tokenizer, found["steps"]
    src = torch.tensor([tokenizer.encode(CAPTIONS[2], eos=True)])
    special = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    ((best,),) = beam_search(captions.model, src, max_len=2 * src.shape[1] + 8, **special)
    assert tuple(found["best"]["ids"]) == best.ids
    assert found["best"]["logProb"] == pytest.approx(best.log_prob, abs=1e-4)
    assert found["best"]["score"] == pytest.approx(best.score, abs=1e-4)
    assert found["best"] == max(
        ({key: one[key] for key in ("ids", "logProb", "score")} for one in found["finished"]),
        key=lambda one: one["score"],
    )
    for before, step in zip([[], *steps], steps):
        assert sum(not node["ends"] for node in step) == 5
        assert [node["logProb"] for node in step] == sorted(
            (node["logProb"] for node in step), reverse=True
        )
        for node in step:
            begun = before[node["parent"]] if before else {"ids": [], "logProb": 0, "ends": False}
            assert node["ids"] == [*begun["ids"], node["token"]] and not begun["ends"]
            assert node["logProb"] < begun["logProb"]


def test_what_cannot_be_translated_is_said(engine):
    asked = """async (texts) => {
        const model = await live.openModel("multi30k-en-de", () => {});
        const said = [];
        for (const text of texts) {
            const answer = model.ask("translate", { text, beam: 5 });
            await answer.catch((error) => said.push(error.message));
        }
        return said;
    }"""
    empty, long = engine.evaluate(asked, [" \u0085\x1c", "漢" * 300])
    assert "nothing to translate" in empty
    assert "900 tokens, the model takes 255" in long


# --- the page -----------------------------------------------------------------------------------


def loaded(page, address, name="translate"):
    "The widget's element on the first page, loaded by its button."
    if not page.url.startswith("http"):
        page.goto(address)
    root = page.locator(f"[data-widget={name}]")
    root.locator("button").first.click()
    root.locator("form").wait_for()
    return root


def test_nothing_is_loaded_before_it_is_asked_for_and_then_little(page, address):
    page.goto(address, wait_until="networkidle")
    assert not [url for url in page.asked if "/live/" in url or "/widgets/" in url]
    weights = []
    page.on("response", lambda answer: weights.append(int(answer.headers["content-length"])))
    loaded(page, address)
    loaded(page, address, "write")
    assert any("shakespeare/model.safetensors" in url for url in page.asked)
    assert sum(weights) < 8e6  # bytes, uncompressed


@pytest.mark.slow  # a time says nothing on a machine that has other work
def test_the_first_translation_is_soon(page, address):
    seconds = []
    while len(seconds) < 3 and min(seconds, default=2) >= 2:  # another program may be in the way
        page.goto(address)  # a new worker: nothing is warm
        root = loaded(page, address)
        started = time.perf_counter()
        root.locator("output:not(:empty)").wait_for()
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 2


def test_what_stands_there_first_is_what_comes_alive(page, address):
    page.goto(address)
    root = page.locator("[data-widget=translate]")
    read = "(table) => [...table.querySelectorAll('td, th')].map((cell) => cell.textContent.trim())"
    german = root.locator(".widget-result").inner_text()
    before = root.locator("table").evaluate(read)
    loaded(page, address).locator("table").wait_for()
    after = root.locator("table").evaluate(read)
    assert root.locator("output").inner_text() == german == live.translated(SENTENCE, FIRST)[0]
    _, rows, columns, _ = live.translated(SENTENCE, FIRST)
    assert len(before) == len(after) == (len(rows) + 1) * (len(columns) + 1)
    for one, other in zip(before, after):
        if re.fullmatch(r"\d*", one):
            assert abs(int(one or 0) - int(other or 0)) <= 1  # rounded
        else:
            assert one == other


FOCUSED = "(it) => it === document.activeElement"


def example(root, number, translator):
    "The German of an example, which is pressed."
    button = root.locator(".widget-example").nth(number)
    german = translator.translate([button.inner_text()])[0]
    button.click()
    root.locator("output", has_text=german).wait_for()
    return german


def test_by_mouse(page, address, translator):
    root = loaded(page, address)
    root.locator("table").wait_for()
    first = root.locator("table").inner_text()
    root.get_by_label("Layer", exact=True).select_option("1")
    assert root.locator("table").inner_text() != first
    root.get_by_label("Head", exact=True).select_option("4")
    assert "layer 1, head 4" in root.locator("caption").inner_text()
    german = example(root, 1, translator)
    assert "layer 1, head 4" in root.locator("caption").inner_text()  # the choice stays
    root.get_by_text("How it chose").click()
    tree = root.locator("svg.widget-tree")
    tree.locator("g.won").last.wait_for(state="attached")  # it is drawn when the fold is open
    assert tree.locator("path.won").count() == tree.locator("g.won").count() > 5
    assert german in root.locator(".widget-table").inner_text()
    root.get_by_label("Beam", exact=True).select_option("1")
    page.wait_for_function("document.querySelectorAll('.widget-tree g.dropped').length === 0")


def test_a_long_caption_can_be_stopped_and_one_too_long_is_not_cut(page, address):
    root = loaded(page, address)
    german, status = root.locator("output"), root.locator("[role=status]")
    root.locator("output:not(:empty)").wait_for()
    field = root.get_by_label("English sentence")
    for text, said in (
        ("", "nothing to translate"),
        ("a " * 300, "300 tokens, the model takes 255"),
    ):
        field.fill(text)
        field.press("Enter")
        root.locator("[role=status]", has_text=said).wait_for()
        assert german.inner_text() == "" and not root.locator("table").is_visible()
    field.fill("A man " * 80)
    field.press("Enter")
    root.get_by_role("button", name="Stop").click()
    root.locator("[role=status]", has_text="Stopped.").wait_for()
    assert german.inner_text() == "" and root.get_by_role("button", name="Stop").is_disabled()
    field.fill("A dog runs.")
    field.press("Enter")
    root.locator("output", has_text="Hund").wait_for()
    assert root.locator("table").first.is_visible() and "steps in" in status.inner_text()


def test_by_keyboard(page, address, translator):
    page.goto(address)
    root = page.locator("[data-widget=translate]")
    root.locator("button").focus()
    page.keyboard.press("Enter")
    root.locator("output:not(:empty)").wait_for()
    assert root.get_by_label("English sentence").evaluate(FOCUSED)
    page.keyboard.press("Control+A")
    page.keyboard.type("A dog runs.")
    page.keyboard.press("Enter")
    root.locator("output", has_text=translator.translate(["A dog runs."])[0]).wait_for()
    root.get_by_label("Layer", exact=True).focus()
    page.keyboard.press("ArrowDown")
    root.locator("caption", has_text="layer 4").wait_for()
    root.locator("summary", has_text="How it chose").focus()
    page.keyboard.press("Enter")
    root.locator("summary", has_text="as a list").focus()
    page.keyboard.press("Enter")
    assert "(best, log-probability" in root.locator(".widget-list").inner_text()


def test_it_says_how_sure_it_was(page, address, translator):
    root, tokenizer = loaded(page, address), translator.tokenizer
    said = r"pieces (\d+) % on average"
    for text in ("A man is riding a bike.", "Attention is all you need."):
        root.get_by_label("English sentence").fill(text)
        page.keyboard.press("Enter")
        root.locator("output", has_text=translator.translate([text])[0]).wait_for()
        src = torch.tensor([tokenizer.encode(text, eos=True)])
        special = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
        ((best,),) = beam_search(translator.model, src, max_len=2 * src.shape[1] + 8, **special)
        sure = 100 * np.exp(best.log_prob / (len(best.ids) + 1))
        note = root.locator("[role=status]").inner_text()
        assert abs(int(re.search(said, note)[1]) - sure) <= 1


def test_what_changes_is_read_aloud(page, address):
    root = loaded(page, address)
    assert root.locator("output").get_attribute("aria-live") == "polite"
    assert root.locator("output").get_attribute("lang") == "de"
    assert root.locator("[role=status]").count() == 1
    for control in root.locator("input, select").all():
        assert control.evaluate("(it) => it.labels.length") == 1


WRITTEN = "document.querySelector('[data-widget=write] output').textContent.length > 40"


def silenced(page, address):
    "The writer, loaded; it begins to write at once and is stopped."
    root = loaded(page, address, "write")
    assert root.get_by_role("button", name="Stop").evaluate(FOCUSED)
    page.keyboard.press("Enter")
    root.locator(".widget-note", has_text="Stopped after").wait_for()
    assert root.get_by_role("button", name="Write").evaluate(FOCUSED)
    return root


def test_the_writer_writes_slides_and_stops(page, address):
    root = silenced(page, address)
    root.get_by_label("Temperature").focus()
    page.keyboard.press("Home")
    assert root.get_by_label("Temperature").get_attribute("aria-valuetext").startswith("0 ")
    root.get_by_role("button", name="Write").click()
    text = root.locator("output").first
    page.wait_for_function(WRITTEN)
    assert text.get_attribute("aria-busy") == "true"  # so that letters are not read one by one
    root.get_by_label("Temperature").press("End")  # now the text goes wild
    assert root.get_by_label("Temperature").get_attribute("aria-valuetext") == "2.0"
    root.get_by_role("button", name="Stop").click()
    root.locator(".widget-note", has_text="Stopped after").wait_for()
    assert text.get_attribute("aria-busy") == "false"
    written = text.text_content()
    greedy = "".join(load("shakespeare").stream("ROMEO:", max_new_tokens=30, temperature=0))
    assert written.startswith("ROMEO:" + greedy)
    assert root.get_by_role("button", name="Stop").is_disabled()
    page.wait_for_timeout(200)
    assert text.text_content() == written


def test_the_writer_changes_its_book_and_names_what_it_has_never_seen(page, address):
    root = silenced(page, address)
    root.get_by_label("Beginning").fill("ROMEO 7")
    page.keyboard.press("Enter")
    root.locator(".widget-note", has_text="never seen the character “7”").wait_for()
    root.get_by_label("It has read").select_option("stories")
    root.locator("select:enabled").wait_for()
    assert root.get_by_label("Beginning").input_value() == "Clara lives by the sea."
    root.get_by_label("Top-p").press("Home")
    root.get_by_role("button", name="Write").click()
    page.wait_for_function(WRITTEN)


def greedily(root, length):
    "A text of the likeliest tokens, of `length` at least; and what the package writes."
    root.get_by_label("Temperature").press("Home")
    root.get_by_role("button", name="Write").click()
    root.locator(f".widget-tokens > span:nth-of-type({length})").wait_for()
    root.get_by_role("button", name="Stop").click()
    root.locator(".widget-note", has_text="Stopped after").wait_for()
    return "".join(load("shakespeare").stream("ROMEO:", max_new_tokens=length, temperature=0))


def spoken(root, pattern):
    "What the widget says of a token, once it is this."
    said = root.locator("output").nth(1).and_(root.get_by_text(re.compile(pattern)))
    said.wait_for()
    return said.inner_text()


def told_of(writer, ids, token):
    "What the widget says of a token after these ids, and the probabilities of all."
    logits = lens(writer.model, torch.tensor([ids]))[:, 0, -1]
    p, firsts = logits.softmax(-1), logits.argmax(-1).tolist()
    since = next(n for n in range(len(firsts)) if set(firsts[n:]) == {firsts[-1]})
    rank = (p[-1] > p[-1][token]).sum() + 1
    bits = torch.distributions.Categorical(probs=p[-1]).entropy() / np.log(2)
    height = f"block {since}" if since else "the embedding"
    told = f": the model gave it {100 * p[-1][token]:.1f} %, number {rank} of {len(p[-1])}. "
    return told + f"The entropy is {bits:.2f} bits. Its first choice was .*, from {height} on", p


@pytest.mark.parametrize("at", [0, 17, 99])  # 6 + 99 are more than the context holds
def test_a_token_is_opened_and_another_chosen(page, address, at):
    writer, root = load("shakespeare"), silenced(page, address)
    text = greedily(root, at + 1)
    root.locator(".widget-tokens > span").nth(at).click()
    sentence = spoken(root, f"^Token {at + 1}, ")
    seen = int(re.search(r"the last (\d+) tokens", sentence)[1])
    assert (seen == 6 + at) if at < 50 else (32 <= seen <= 64)
    ids = writer.tokenizer.encode("ROMEO:" + text)
    told, p = told_of(writer, ids[6 + at - seen : 6 + at], ids[6 + at])
    assert re.search(told, sentence)
    best = p[-1].topk(10).indices.tolist()
    rows = root.locator("table.widget-heat tbody tr:has(button)").all()
    assert len(rows) == 10  # what is written is the likeliest
    for row, token in zip(rows, best, strict=True):
        shown = row.locator("td").all_inner_texts()
        expected = (100 * p[:, token]).tolist()
        assert [float(one) for one in shown[:-1]] == pytest.approx(expected[:-1], abs=0.51)
        assert float(shown[-1]) == pytest.approx(expected[-1], abs=0.051)
    # the second best; the text goes on from it
    rows[1].locator("button").press("Enter")
    chosen = root.locator(".widget-heat button[aria-pressed=true]")
    spoken(root, "number 2 of 65")
    assert chosen.evaluate(FOCUSED)
    begun = "ROMEO:" + text[:at] + writer.tokenizer.decode([best[1]])
    more = "".join(writer.stream(begun, max_new_tokens=11, temperature=0))
    whole = root.locator(".widget-tokens")
    page.wait_for_function(
        "(n) => document.querySelector('.widget-tokens').textContent.length >= n",
        arg=len(begun + more),
    )
    assert whole.text_content().startswith(begun + more)


def test_tokens_are_walked_through_by_keyboard(page, address):
    root = silenced(page, address)
    greedily(root, 7)
    text = root.locator(".widget-tokens")
    buttons = {name: root.get_by_role("button", name=name) for name in ("Earlier", "Later")}
    for press, place in (
        (lambda: text.press("ArrowRight"), 2),
        (lambda: buttons["Later"].press("Enter"), 3),
        (lambda: text.press("ArrowLeft"), 2),
        (lambda: buttons["Earlier"].press("Enter"), 1),
        (lambda: buttons["Earlier"].press("Enter"), 1),  # the first
    ):
        press()
        spoken(root, f"^Token {place}, ")
        assert text.locator(".chosen").count() == 1
    assert buttons["Earlier"].get_attribute("aria-disabled") == "true"
    assert buttons["Later"].get_attribute("aria-disabled") == "false"
    assert root.locator("output").nth(1).get_attribute("aria-live") == "polite"


def test_the_end_of_a_story_is_a_token_too(page, address):
    root = silenced(page, address)
    root.get_by_label("It has read").select_option("stories")
    root.locator("select:enabled").wait_for()
    assert not root.locator(".widget-heat").is_visible()  # nothing is written yet
    root.get_by_role("button", name="Write").click()
    root.locator(".widget-note", has_text="Done").wait_for()
    written = root.locator(".widget-tokens > span")
    count = written.count()
    assert f"Done: {count} tokens." in root.locator("[role=status]").all_inner_texts()
    written.last.click()
    spoken(root, f"^Token {count}, a new line")
    assert root.get_by_role("button", name="Later").get_attribute("aria-disabled") == "true"
    # another token in its place, and the story is longer; the end again, and it is over at once
    root.locator(".widget-heat button[aria-pressed=false]").first.click()
    root.locator(f".widget-tokens > span:nth-of-type({count + 1})").wait_for()
    root.get_by_role("button", name="a new line").click()
    root.locator(".widget-note", has_text="Done: 1 token.").wait_for()
    assert written.count() == count


@pytest.mark.parametrize("place", chapter_widgets()["write"], ids=lambda place: place.page)
def test_the_writer_stands_in_chapters(page, address, place):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/".join(address.split("/")[:3]) + f"/{place.page}.html")
    root = page.locator("[data-widget=write]")
    root.get_by_role("button", name=place.ask).click()
    root.locator(".widget-heat").wait_for()
    root.get_by_role("button", name="Stop").click()
    assert root.get_attribute("role") == "group"
    wide = """(root) => [...root.querySelectorAll("*")].filter((it) =>
        !it.closest(".widget-scroll, .widget-tokens")
        && it.getBoundingClientRect().right > root.getBoundingClientRect().right).length"""
    assert root.evaluate(wide) == 0
    for button in root.locator("button:visible").all():
        assert button.bounding_box()["height"] >= 44


def test_a_failed_load_is_said_and_can_be_tried_again(page, address):
    page.goto(address)
    page.route("**/model.safetensors", lambda route: route.abort())
    root = page.locator("[data-widget=translate]")
    root.locator("button").click()
    root.locator("[role=status]", has_text="did not load").wait_for()
    assert root.locator("table").count() == 1  # what stood there still does
    page.said.clear()  # the browser's own line about it
    page.unroute("**/model.safetensors")
    loaded(page, address)


def test_without_javascript_there_is_something_to_read(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    root = page.locator("[data-widget=translate]")
    assert live.translated(SENTENCE, FIRST)[0] in root.inner_text()
    assert root.locator("table").is_visible() and not root.locator("button").count()
    assert page.locator("[data-widget=write]").inner_text()
    context.close()


def test_a_page_that_was_opened_as_a_file_says_what_to_do(page, folder):
    page.goto(Path(*folder).as_uri())
    root = page.locator("[data-widget=translate]")
    root.locator("button").click()
    status = root.locator("[role=status]", has_text="make serve")
    status.wait_for()
    assert status.is_visible()
    page.said.clear()  # the theme's own requests may fail there


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_overflows(page, address, scheme, translator):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    root = loaded(page, address)
    root.get_by_label("English sentence").fill(CAPTIONS[2])  # a long one
    page.keyboard.press("Enter")
    root.locator("output", has_text=translator.translate([CAPTIONS[2]])[0]).wait_for()
    for fold in root.locator("summary").all()[1:]:
        fold.click()
    loaded(page, address, "write")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    small = """(root) => [...root.querySelectorAll("*")].filter((it) => it.childNodes.length
        && [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
        && parseFloat(getComputedStyle(it).fontSize) < 9).length"""
    assert root.evaluate(small) == 0


# --- the text around it -------------------------------------------------------------------------


def test_the_first_page_names_widgets_that_exist():
    names = re.findall(r"`{3,}\{widget\} (\S+)", INTRO)
    assert names == ["translate", "write"]
    assert all(f'data-widget="{name}"' in live.opening(name) for name in names)


def test_a_widget_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="no widget 'translat'"):
        live.opening("translat")
