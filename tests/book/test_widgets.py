"""Each widget on its page: by keyboard, on a phone, and what it says is what the package computes.

A walk gives what is done to the controls of a widget, by their labels, and what it then says.
"""

import contextlib
import functools
import html
import itertools
import json
import math
import re
from pathlib import Path

import make_widgets
import pytest
import torch
from built_book import SITE
from chapter_widgets import FIRST, chapter_widgets
from playwright.sync_api import TimeoutError
from torch import tensor

from transformer_lit import load
from transformer_lit.assistant.instructions import is_right
from transformer_lit.assistant.reward import advantages
from transformer_lit.attention.attend import attention_weights
from transformer_lit.attention.grouped import cache_bytes
from transformer_lit.attention.masks import causal_mask
from transformer_lit.block.norm import LayerNorm, RMSNorm
from transformer_lit.course.records import read_measurement
from transformer_lit.inference.beam import beam_search
from transformer_lit.inference.sampling import keep_min_p, keep_top_k, keep_top_p
from transformer_lit.models.interpret import lens, watch
from transformer_lit.position.rope import RoPE
from transformer_lit.position.scaling import make_scaling

weekly = pytest.mark.weekly
PLACES = chapter_widgets()
# each loads a model, when its button is pressed
ASKED = {"heads", "reinforce", "translate", "walk", "write"}
INTRO = "book/intro"
FOCUSED = "(it) => it === document.activeElement"


@pytest.fixture(autouse=True)
def doubles():
    "The page computes in doubles; models are float32."
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def begin(page, name, path=""):
    "A widget on its page, once it runs."
    page.goto(f"{path or PLACES[name][0].page}.html")
    root = page.locator(f"[data-widget={name}]")
    if name in ASKED:
        early = rf"/live/(models|worker)|/widgets/{name}\.js"  # nothing before it is asked for
        assert not [url for url in page.asked if re.search(early, url)]
        assert path == INTRO or "Load it, and you can" in root.inner_text()
        root.get_by_role("button", name="Load").press("Enter")
    root.locator("output:not(:empty)").first.wait_for()
    return root


def said(root):
    return root.locator("output").first.text_content()


def found(root, label):
    button = root.get_by_role("button", name=label, exact=True)
    return root.get_by_label(label, exact=True).or_(button).first


def put(root, label, how):
    "Press a button, choose an option, write a text, or move a slider by its keys."
    control = found(root, label)
    kind = control.evaluate("(it) => it.type")
    if kind == "select-one":
        control.select_option(how)
    elif kind in ("text", "number"):
        control.fill(how.removesuffix("\n"))
        if how.endswith("\n"):
            control.press("Enter")
    elif how == "click":
        control.click()
    for key in how.split() if kind in ("range", "button", "submit") and how != "click" else ():
        control.press(key)
    return kind == "range" and control.get_attribute("aria-valuetext")


def shows(root, expected):
    "Whether the widget says this: at once, or when a model has run."
    with contextlib.suppress(TimeoutError):
        root.locator("output", has_text=expected).first.wait_for(timeout=20_000)
    if isinstance(expected, re.Pattern):
        assert expected.search(said(root))
    else:
        assert expected in said(root)


def numbers(cells):
    return [float(text.replace("−", "-").split(" ")[0]) for text in cells.all_inner_texts()]


# --- what is so of every widget -----------------------------------------------------------------

WIDE = """(root) => [...root.querySelectorAll("*")].filter((it) =>
    (!it.closest(".widget-scroll, .widget-tokens")
        && it.getBoundingClientRect().right > root.getBoundingClientRect().right)
    || ([...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
        && parseFloat(getComputedStyle(it).fontSize) < 9)).map((it) => it.outerHTML.slice(0, 80))"""
UNNAMED = """(root) => [...root.querySelectorAll("input, select, button, svg, [role=img]")]
    .filter((it) => !(it.labels?.length || (it.tagName === "BUTTON" && it.innerText.trim())
        || it.getAttribute("aria-label")?.length > (it.matches("svg, [role=img]") ? 15 : 0)))
    .map((it) => it.outerHTML.slice(0, 80))"""
THIN = """(root) => [...root.querySelectorAll("button, select, input")].filter((it) => {
    const { width, height } = it.getBoundingClientRect();
    return width && Math.min(width, height) < 24; // a finger hits it
}).map((it) => it.outerHTML.slice(0, 80))"""
SEEN = """() => {
    const it = document.activeElement;
    const style = getComputedStyle(it);
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return it.closest(".widget") ? outlined : null;
}"""


def tabbed(page, root):
    "Through every control by the tab key, as somebody comes who has no mouse: the focus is seen."
    root.locator("input:visible, select:visible, button:visible").first.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    count = 0
    while (outlined := page.evaluate(SEEN)) is not None and count < 60:
        assert outlined
        count += 1
        page.keyboard.press("Tab")
    controls = "input:visible, select:visible, button:visible, summary:visible"
    tabbable = root.locator(controls).and_(root.locator(":not([tabindex='-1'])")).count()
    assert tabbable <= count < 60


def look(page, root, name, path):
    page.wait_for_load_state("networkidle")
    scripts = {Path(url).stem for url in page.asked if re.search(r"/widgets/\w+\.js$", url)}
    here = {other for other, place in EVERY if place == path}
    assert name in scripts and scripts - {"parts", "tree", "chart", "heat", "lens"} <= here
    if name not in ASKED:
        assert not [url for url in page.asked if url.endswith((".safetensors", "worker.js"))]
    assert root.locator(".widget-hint").inner_text().startswith("Try: ")
    title = root.locator(".widget-title").get_attribute("id")
    assert (root.get_attribute("role"), root.get_attribute("aria-labelledby")) == ("group", title)
    assert root.locator("output").first.get_attribute("aria-live") == "polite"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.getAnimations().length") == 0
    assert [root.evaluate(what) for what in (WIDE, UNNAMED, THIN)] == [[], [], []]
    tabbed(page, root)
    for width in (1024, 1440):  # a tablet has a sidebar beside the frame
        page.set_viewport_size({"width": width, "height": 844})
        assert root.evaluate(WIDE) == []


def written(path, name):
    "What stands in the page where the widget cannot run: its paragraphs."
    text = (SITE / path).read_text(encoding="utf-8")
    inside = re.search(rf'data-widget="{name}".*?>\n?(.*?)</div>', text, re.S)[1]
    assert not re.search("<button|<input", inside)
    found = re.findall(r"<p[^>]*>(.*?)</p>", inside, re.S)
    return [html.unescape(re.sub("<.*?>", "", one)).strip() for one in found]


# --- walks --------------------------------------------------------------------------------------


def softmax(root):
    weights = root.locator("td.widget-bar")
    yield {"Divided by": "root"}, "D = 64, divided by 8: “bike” has the weight 0.463"
    matches = tensor([float(it.input_value()) for it in root.locator("td input").all()])
    expected = attention_weights(torch.ones(1, 1, 1, 1), matches.view(1, 1, -1, 1)).flatten()
    at_64 = [f"{weight:.3f}" for weight in expected]
    assert weights.all_inner_texts() == at_64
    yield {"Head size D": "End"}, "D = 1024, divided by 32"
    assert weights.all_inner_texts() == at_64  # with the scale nothing depends on D
    assert not root.get_by_label("Temperature").is_visible()
    yield {"Divided by": "one"}, "divided by 1: “bike” has the weight 1.000"
    match = "How well “a” matches, in standard deviations"
    yield (
        {"Head size D": "Home ArrowRight", match: "End"},
        "D = 8, divided by 1: “a” has the weight",
    )
    yield {"Divided by": "own", "Temperature": "End"}, "divided by 64"
    assert "saturated" not in said(root)


def masks(root):
    cell = root.get_by_label(": query man may attend to key sleeps")
    table, rows = (root.locator(f"table.widget-{kind} tbody tr") for kind in ("grid", "bars"))
    scores, sees, weights = (rows.locator(f"td:nth-of-type({n})") for n in (1, 2, 3))
    for text, pressed in (("0", "false"), ("1", "true")):
        assert (cell.inner_text(), cell.get_attribute("aria-pressed")) == (text, pressed)
        if text == "0":
            cell.click()
    seen = tensor([shown == "True" for shown in sees.all_inner_texts()])
    assert seen.tolist() == [True] * 3 + [False] * 4
    q, k = torch.ones(1, 1, 1, 1), tensor(numbers(scores)).view(1, 1, 7, 1)
    expected = attention_weights(q, k, mask=seen.view(1, 1, 1, 7), scale=1.0).flatten()
    assert weights.all_inner_texts() == [f"{weight:.3f}" for weight in expected]
    one = "“A” may attend to A 1.000."
    nothing = "“A” may attend to no key. By the rule of zeros, all the weights of this row are 0."
    # arrows move, up to the edge, and the space bar turns
    keys = {"ArrowUp": one, "ArrowLeft ArrowLeft Space": nothing, "ArrowLeft Space": one}
    for pressed, told in keys.items():
        for key in pressed.split():
            root.page.keyboard.press(key)
        yield {}, told
        assert numbers(weights) == [told == one] + [0] * 6
    yield {"causal": "Enter"}, ""
    shown = [row.locator("button").all_inner_texts() for row in table.all()]
    assert shown == [[str(int(seen)) for seen in row] for row in causal_mask(7)]
    on = root.locator("button.widget-small[aria-pressed=true]")
    assert on.all_inner_texts() == ["causal"]
    table.nth(6).locator("th").click()
    yield {}, "“PAD 3” may attend to A "


def rope(root):
    names = make_widgets.run_cells("nbs/position/04_rope.ipynb", "imports", "scratch", "loops")
    q, k = (tensor(names[name]).view(1, 1, 1, 4) for name in "qk")

    def told(t, s):
        a, b = RoPE(4).rotate(q, tensor([t])), RoPE(4).rotate(k, tensor([s]))
        score = f"{(a * b).sum():.6f}".replace("-", "−")
        return f"Positions {t} and {s}, distance {s - t}: the score is {score}."

    hands, lines = "(all) => all.map((it) => it.outerHTML)", root.locator(".widget-dials line")
    before = lines.evaluate_all(hands)
    yield {}, told(2, 5)
    yield {"Move both by +100": "Enter"}, told(102, 105)
    assert len(before) == 4 and not {*before} & {*lines.evaluate_all(hands)}
    yield {"Move both by +100": "Enter"}, "Both moved by 15"  # as far as both can go
    query, key = "Position t of the query", "Position s of the key"
    yield {query: "Home", key: "Home ArrowRight ArrowRight"}, told(0, 2)
    yield {"Move both by −1": "click"}, "Positions 0 and 2"


def merges(root):
    names = make_widgets.run_cells("nbs/text/01_tokenizer.ipynb", "captions")
    tokenizer = make_widgets.BPETokenizer.train(names["captions"], 259 + make_widgets.MERGES)
    text = "A man is riding a bike."
    one = r"Merge 1: .+ \+ .+, number \d+ of the 61 that were learned\. \d+ pieces"
    yield {"Merge": "Enter"}, re.compile(one)
    assert root.locator(".widget-piece.fresh").count() >= 1
    pieces = "|".join(piece.replace(" ", "␣") for piece in tokenizer.tokens(text))
    yield {"Merges done": "End"}, f"9 pieces: {pieces} No other merge applies."
    ids = root.locator(".widget-piece small").all_inner_texts()
    assert ids == [str(id) for id in tokenizer.encode(text)]
    yield {"Back": "Enter"}, "Merge 13: "
    yield {"Sentence": "Fahrrad 🚲"}, "No merge yet. 12 pieces: F|a|h|r|r|a|d|␣|\\xf0|"
    yield {"Sentence": ""}, "No merge yet. 0 pieces"
    yield {"Sentence": text, "Learned from": "58,000 captions: 4,741 merges"}, "No merge yet"
    root.locator("input[type=range]:not([max='14'])").wait_for()  # the new tokenizer is read
    yield {"Merges done": "End"}, "7 pieces: A|␣man|␣is|␣riding|␣a|␣bike|."
    assert "of the 4741 that were learned" in said(root)


def beam(root):
    tree = root.locator("svg.widget-tree")
    assert tree.locator("g").count() == 3 and tree.locator("g.dropped").count() == 1
    yield {"Next step": "Enter"}, "Step 2. Unfinished: Ein Mann (−1.16), Jemand fährt (−1.61)."
    yield {"To the end": "click"}, "Best: “Ein Mann fährt Fahrrad”, score −1.13."
    assert "Step 5. " in said(root) and "The search is over: no hypothesis is unfinished." in said(
        root
    )
    assert tree.locator("g.won").count() == 5
    first = root.locator(".widget-table tbody tr").first.locator("td").all_inner_texts()
    assert first == ["Ein Mann fährt Fahrrad", "−1.89", "5", "−1.13"]
    yield {"Width w": "Home"}, "Best: “Jemand fährt Rad”"
    wider = {"Width w": "End", "Length penalty α": "Home", "To the end": "Enter"}
    yield wider, "Best: “Jemand radelt”, score −1.83."
    yield {"Back": "Enter"}, "Step"
    assert "Best" not in said(root) and tree.locator("g.won").count() == 0


def sampling(root):
    logits = [tensor(one["logits"]) for one in make_widgets.following()["places"]]

    def kept(place, keep, amount, temperature=1.0):
        return keep(logits[place] / temperature, amount).isfinite().sum().item()

    yield {}, f" {kept(0, keep_top_p, 0.9)} of 65 "
    many = kept(2, keep_top_p, 0.9)
    assert many > 5 * kept(0, keep_top_p, 0.9)
    yield {"Prompt": "2"}, f" {many} of 65 "
    assert f"of which {many - 12} are kept" in root.locator("tbody tr").last.inner_text()
    yield {"Filter": "k", "Top-k": "Home"}, " 1 of 65 characters is kept,"
    assert not root.get_by_label("Top-p").is_visible()
    yield {"Prompt": "1", "Top-k": "ArrowRight ArrowRight"}, f" {kept(1, keep_top_k, 3)} of 65 "
    assert root.locator("td", has_text="✓ kept").count() == 3
    assert root.locator("td", has_text="✗ cut").count() == 9
    for key, keep, amount in (("p", keep_top_p, 0.9), ("min", keep_min_p, 0.1)):
        for place, temperature in (("Home", 0.1), ("End", 2.0)):
            told = f" {kept(1, keep, amount, temperature)} of 65 "
            yield {"Filter": key, "Temperature": place}, told
    yield {"Filter": "all"}, " 65 of 65 characters are kept, with 1.000 of"


def moments(root):
    "All models and moments, and each time a new number: what the record says."
    path = make_widgets.ROOT / "results/measurements/ten_minutes.json"
    first, *rows = read_measurement(path).rows
    asked, filled = (
        root.get_by_label("New number", exact=True),
        root.locator(".widget-hundred .right"),
    )
    options = asked.locator("option").all_inner_texts()
    place = {english: i for i, (english, _) in enumerate(first["new"])}
    assert sorted(option.split(" ", 1)[1] for option in options) == sorted(place)
    values = [int(option.split()[0].replace(",", "")) for option in options]
    assert values == sorted(values)
    choices = itertools.cycle(options)
    for row in rows:
        put(root, "Model", row["model"])
        for n, (step, loss) in enumerate(zip(row["at"], row["losses"], strict=True)):
            loss = f" at a mean loss of {loss:.2f} in the last ten," if step else ""
            trained = f"After {step} steps,{loss}" if step else "Before the first step"
            spoken, new = row["said"][n], first["new"]
            right = sum(text == german for text, (_, german) in zip(spoken, new, strict=True))
            option = next(choices)
            digits, english = option.split(" ", 1)
            text, german = spoken[place[english]], new[place[english]][1]
            told = f"“{text[:60]}{'…' if len(text) > 60 else ''}”" if text else "nothing"
            judged = "which is right." if text == german else f"instead of “{german}”."
            whole = f"{row['model'].capitalize()}. {trained} {right} of 100 new numbers are right. "
            whole += f"For {digits}, the model answers {told}, {judged}"
            asked.select_option(label=option)
            yield {"Training steps": "Home" + n * " ArrowRight"}, whole
            assert filled.count() == right
    root.locator(".widget-hundred span").nth(41).click()
    yield {}, f"For {options[41].split()[0]}, the model answers"
    assert root.locator(".widget-hundred .chosen").count() == 1


def steps(root):
    asks = "a word that is a thing asks for an action"
    first = "The query of “bike” is (0, 0, 4, 0). It attends most to “riding”"
    yield {"The word that asks": "bike"}, first
    yield {"“.” is": "an action"}, "most to “riding” and “.”"
    root.locator("summary", has_text="Change what words ask for").press("Enter")
    weights = tensor([0.0, 0, 0, -4, 0, 0, -4]).softmax(0)  # riding and "." are actions
    yield {asks: "-8"}, f"with a weight of {weights.max():.2f}"
    yield {asks: ""}, "attends equally to all words, with a weight of 0.14"


def game(root):
    root.page.evaluate(  # one beginning of all: twenty are learned in test_live.py
        "() => { let s = 3; Math.random = () => (s = (s * 48271) % 2147483647) / 2147483647; }"
    )

    def trained(button):
        put(root, button, "Enter")
        root.get_by_role("button", name="Train again").wait_for()

    yield {"Projections": "shared"}, ""
    yield {"Projections": "three"}, "The layer is untrained"
    trained("Train")
    yield {}, re.compile(r"last 50 steps is 0\.0\d\d\. Each attends mostly to one: rock to")
    yield {"Projections": "shared"}, "The layer is untrained"
    trained("Train")
    assert 0.5 < float(re.search(r"last 50 steps is (\d\.\d+)", said(root))[1]) < 0.9
    yield {"Learning rate": "End"}, "The layer is untrained"  # of the rate that is shown
    trained("Train")
    yield {}, "not a number any more"
    assert "NaN" not in root.locator("svg").inner_html()
    put(root, "Train again", "Enter")
    put(root, "Stop", "Enter")
    root.get_by_role("button", name="Continue").wait_for()
    yield {}, re.compile(r"^\d+ steps\. ")


def loss(root):
    logits = root.locator("tbody tr > td:nth-child(2)")
    start, step = numbers(logits), "One step against the gradient"
    eighth = {"Probability of “bike”": "Home" + " ArrowRight" * 25}
    yield (
        eighth,
        "“bike” is right and has the probability 0.125. "
        "The loss is 2.08 nats, or 3.00 bits, and the perplexity is 8.00.",
    )
    assert numbers(logits)[1:] == start[1:] and numbers(logits)[0] < start[0]  # its own moves alone
    put(root, "Probability of “wave”", "End" + " ArrowLeft" * 25)
    raised = r"“bus” is right .* raises the logit of “bus” by .* lowers that of “wave” by 0\.\d"
    yield {"A man is riding a …": "bus"}, re.compile(raised)
    losses = []
    for _ in range(20):
        losses.append(float(re.search(r"The loss is (\d+\.\d+) nats", said(root))[1]))
        put(root, step, "Enter")
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.2 < losses[0]
    # with smoothing they end at the target, and the loss at its floor
    yield {"Smoothing ε": "ArrowRight ArrowRight"}, ""
    root.get_by_role("button", name=step).evaluate(
        "(it) => { for (let i = 0; i < 300; i++) it.click(); }"
    )
    q = tensor([0.92, *[0.02] * 4])  # 1 − ε + ε/V and ε/V, for V = 5
    floor = f"{-(q * q.log()).sum():.2f}"
    yield {}, f"is {floor} nats, and can’t fall below {floor}. No logit is pushed any more."
    bus = root.get_by_label("Probability of “bus”")
    assert bus.get_attribute("aria-valuetext").startswith("0.920, ")
    yield {"Temperature": "End"}, "nats"
    assert "No logit" not in said(root) and float(bus.input_value()) < 0.6


def angles(root):
    names = make_widgets.run_cells("nbs/position/05_scaling.ipynb", "imports", "scratch", "wrong")
    theta, L, s = names["theta"], names["L"], names["s"]
    choices = {"none": "no scaling", "ntk": "NTK-aware", "linear": "linear"}
    choices |= {"yarn": "YaRN", "llama3": "Llama 3"}
    for name, shown in choices.items():
        length = {"original_len": L} if name in ("yarn", "llama3") else {}
        slowed = theta if name == "none" else make_scaling(name, factor=s, **length)(32, 10_000)[0]
        gap = names["farthest_from_seen"](slowed, s * L)
        fresh = (gap > theta * (1 + 1e-9)).nonzero().flatten().tolist()
        slow = "Plane 0 is slowed down by a factor of "
        line, where = f"256 tokens, {shown}: new angles in ", "none of 16 planes. "
        if fresh:
            where = (
                f"{len(fresh)} of 16 planes, {fresh[0]} to {fresh[-1]}. "
                f"Plane {gap.argmax()} is farthest from the angles that it "
            )
            where += f"met in training, by {math.degrees(gap.max()):.0f}°. "
        yield {"Scaling": name}, line + where + slow + f"{theta[0] / slowed[0]:.1f}."
        assert root.locator("svg text", has_text="new").count() == len(fresh)
        degrees = root.locator("tbody td:last-child").all_text_contents()
        assert degrees == [f"{math.degrees(one):.0f}°" for one in gap]
    # a long training with fast planes has met every angle
    long = {"Scaling": "none", "Base": "Home", "Trained on L tokens": "End"}
    yield long, "2,048 tokens, no scaling: new angles in none of 16 planes."
    assert put(root, "Factor s for longer texts", "Home") == "1"
    root.locator("summary").press("Enter")
    assert root.locator("tbody td").first.is_visible()


def depth(root):
    def heights(kind):
        heights = "(all) => all.map((it) => Number(it.getAttribute('height')))"
        return root.locator(f"svg >> nth=0 >> rect.{kind}").evaluate_all(heights)

    shares = [part / whole for part, whole in zip(heights("part"), heights("whole"), strict=True)]
    assert shares == pytest.approx([(1 + n * 0.5) ** -0.5 for n in range(17)])
    left = f"{1.5**-32:.1e}".split("e-0")
    told = f"the input is {left[0]} · 10⁻{'⁰¹²³⁴⁵⁶⁷⁸⁹'[int(left[1])]}. Along"
    yield {"Wiring": "post", "Sublayers n": "End"}, told
    assert len(set(heights("whole"))) == 1 and len(heights("whole")) == 65
    variance = "Variance σ² added by each"
    yield {variance: "Home"}, f"{1.05**-32:.2f} of the gradient comes back to the input."
    yield {"Wiring": "none"}, f"The stream has the size {1.05**32:.2f}, "
    assert "1.00 of the gradient comes back to the input." in said(root)
    yield {"Sublayers n": "Home"}, "No norm, 1 sublayer that adds σ² = 0.05."


def norms(root):
    columns = [root.locator(f"tbody tr > td:nth-of-type({n})") for n in (2, 3, 4)]

    def check():
        x, layer, rms = map(numbers, columns)
        for norm, shown in ((LayerNorm(7), layer), (RMSNorm(7), rms)):
            assert shown == pytest.approx(norm(tensor([x]))[0].tolist(), abs=0.0051)  # two decimals
        return x, layer, rms

    first = check()
    told = "All +5: LayerNorm returns the same numbers; RMSNorm returns other numbers, up "
    yield {"All +5": "Enter"}, told
    assert check()[1] == first[1]
    told = "All ×3: LayerNorm returns the same numbers; RMSNorm returns the same numbers."
    yield {"All ×3": "Enter"}, told
    yield {"All ÷3": "Enter", "All −5": "click"}, "All −5"
    assert check() == first
    yield {"Entry 3": "End"}, ""
    assert check()[0][2] == 10 and check()[1][0] != first[1][0]
    yield (
        {"All ÷3": "Enter " * 8},
        "After LayerNorm they are 0.00 and 0.1",
    )  # ε is the larger part


PUBLISHED = {  # parameters, as the model cards give them
    "SmolLM2 135M": "135 million",
    "Llama 2 7B": "6.74 billion",
    "Mistral 7B": "7.24 billion",
    "Llama 3 8B": "8.03 billion",
    "Llama 3 70B": "70.6 billion",
}


def costs(root):
    for name, parameters in PUBLISHED.items():
        yield {"Model": name}, f"{parameters} parameters take "
    held, sizes = cache_bytes(32, 32, 128, 8192) / 1e9, {"Model": "Llama 3 8B"}
    yield {**sizes, "Key/value heads K": "32"}, f"8,192 tokens take {held:.2f} GB"
    times = []
    for keys in ("", "ArrowRight"):
        put(root, "Memory, GB per second", keys)
        times.append(float(re.search(r"the cache takes (\S+) ms, so no step", said(root))[1]))
    assert abs(times[1] / times[0] - 1 / 2) < 0.01
    held = f"{cache_bytes(32, 32, 128, 2**17, batch=4) / 1e9:.0f} GB. "
    held += "Weights and cache need more than 80 GB"
    more = {"Tokens in a text": "End", "Texts at once": "ArrowRight ArrowRight"}
    yield more, f"4 texts of 131,072 tokens take {held}"
    less = {
        **sizes,
        "Bits of a weight": "4",
        "Bits of a cached number": "8",
    }  # with its own heads
    yield (
        {**less, "Texts at once": "Home", "Tokens in a text": "Home"},
        "Weights and cache fit into 8 GB",
    )
    assert "4.02 GB" in said(root)


@functools.cache
def translated(sentence, name="multi30k-en-de"):
    "The translation, its pieces, the sentence's pieces, and the weights of each layer and head."
    translator = load(name)
    tokenizer, (german,) = translator.tokenizer, translator.translate([sentence])
    src, tgt = tokenizer.encode(sentence, eos=True), tokenizer.encode(german)
    with watch(translator.model) as seen, torch.inference_mode():
        translator.model(tensor([src]), tensor([[tokenizer.bos_id, *tgt]]))
    weights = [weights for name, weights in seen.items() if name.endswith("cross_attn")]
    pieces = ([*tokenizer.tokens(text), "(end)"] for text in (german, sentence))
    return german, *pieces, torch.cat(weights)


def heads(root):
    maps, word = (
        root.locator(".widget-map"),
        functools.partial(root.get_by_role, "button", exact=True),
    )
    weights = translated("A man is riding a bike.")[-1]  # L H T S
    assert maps.count() == 16
    for t, asking in ((3, "fährt"), (5, "einem"), (1, "Ein")):
        word(name=asking).focus() if t == 1 else word(name=asking).hover()
        for place, row in enumerate(weights[:, :, t].flatten(0, 1)):
            label = maps.nth(place).get_attribute("aria-label")
            begins = f"Cut layer {place // 4 + 1}, head {place % 4 + 1}: “{asking}” attends to "
            assert label.startswith(begins)
            assert abs(int(re.search(r"(\d+) %$", label)[1]) - 100 * row.max()) < 1
        assert word(name=asking).get_attribute("aria-pressed") == "true"
    assert "For the word after “Ein”, the largest weight is in layer " in root.inner_text()
    for place, key, told in ((2, "Enter", "1 of"), (5, "Space", "2 of"), (2, "Enter", "1 of")):
        maps.nth(place).press(key)
        yield {}, f"{told} 48 heads cut"
    assert maps.nth(5).get_attribute("aria-pressed") == "true"
    assert maps.nth(5).inner_text() == "cut"
    yield {"Restore all heads": "click"}, "With all 48 heads: "
    assert root.locator("[aria-pressed=true].widget-map").count() == 0
    put(root, "Attention", "encoder")
    assert "For “" in root.inner_text()
    assert word(name="riding").is_visible() and not word(name="Ein").count()
    yield {"English caption": " ", "Translate": "Enter"}, "There is nothing to translate"
    assert not maps.first.is_visible()


def walk(root):
    keyboard = root.page.keyboard
    root.get_by_role("button", name="layer 4").first.click()
    yield {}, "Encoder, layer 4, sum: "
    assert "B S C = 1 × 8 × 128" in said(root)
    for key, told in (
        ("ArrowDown", "Encoder, memory m, last norm: "),
        ("ArrowRight", "Decoder, embedding, token · √C: "),
    ):
        keyboard.press(key)
        yield {}, told
    assert "B T C = 1 × 1 × 128" in said(root) and root.locator("canvas").count() == 1
    for _ in range(3):
        keyboard.press("ArrowUp")
    yield {}, "Encoder, layer 4, feed-forward: "
    assert root.locator("canvas").count() == 8
    assert not root.get_by_role("button", name="Next word").is_visible()
    root.get_by_role("button", name="logits").click()
    yield {}, "After “(begin)”, it predicts “Ein”"
    assert root.locator("td.widget-bar").count() == 5
    yield {"Next word": "Enter " * 7}, "it predicts “(end)”"  # as far as it goes
    assert root.locator("canvas").count() == 8
    yield {"Previous word": "click"}, "auf einem Fahrrad”, it predicts “.”"
    yield {"English caption": "Two dogs run.\n"}, "“Zwei”"


def translate(root):
    first, text, table = load(FIRST), "A dog runs.", root.locator("table").first
    german, rows, columns, _ = translated("A man is riding a bike.", FIRST)
    yield {}, german  # what stood there
    cells = table.locator("td, th").all_text_contents()
    assert len(cells) == (len(rows) + 1) * (len(columns) + 1)
    assert root.get_by_label("English sentence").evaluate(FOCUSED)
    yield {"English sentence": f"{text}\n"}, first.translate([text])[0]
    before = table.inner_text()
    put(root, "Layer", "1")
    put(root, "Head", "4")
    root.locator("caption", has_text="layer 1, head 4").wait_for()
    assert table.inner_text() != before
    tokenizer = first.tokenizer
    for text in (root.locator(".widget-example").nth(1).inner_text(), "Attention is all you need."):
        (german,) = first.translate([text])
        yield {"English sentence": f"{text}\n"}, german
        src = tensor([tokenizer.encode(text, eos=True)])
        special = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
        ((best,),) = beam_search(first.model, src, max_len=2 * src.shape[1] + 8, **special)
        sure = 100 * math.exp(best.log_prob / (len(best.ids) + 1))
        note = root.locator("[role=status]").inner_text()
        assert abs(int(re.search(r"translation (\d+) % on average", note)[1]) - sure) <= 1
    assert "layer 1, head 4" in root.locator("caption").inner_text()  # the choice stays
    root.locator("summary", has_text="How the beam search chose").press("Enter")
    tree = root.locator("svg.widget-tree")
    tree.locator("g.won").last.wait_for(state="attached")  # it is drawn when the fold is open
    assert tree.locator("path.won").count() == tree.locator("g.won").count() > 5
    assert german in root.locator(".widget-table").inner_text()
    root.locator("summary", has_text="as a list").press("Enter")
    assert "(best, log-probability" in root.locator(".widget-list").inner_text()
    put(root, "Beam", "1")
    tree.locator("g.dropped").first.wait_for(state="detached")


def silence(root):
    "The writer begins to write at once; here it is stopped."
    assert root.get_by_role("button", name="Stop").evaluate(FOCUSED)
    root.page.keyboard.press("Enter")
    root.locator(".widget-note", has_text="Stopped after").wait_for()
    assert root.get_by_role("button", name="Write").evaluate(FOCUSED)


def greedily(root, length):
    "A text of the likeliest tokens, of `length` at least; and what the package writes."
    put(root, "Temperature", "Home")
    put(root, "Write", "Enter")
    root.locator(f".widget-tokens > span:nth-of-type({length})").wait_for()
    put(root, "Stop", "Enter")
    root.locator(".widget-note", has_text="Stopped after").wait_for()
    return "".join(load("shakespeare").stream("ROMEO:", max_new_tokens=length, temperature=0))


def spoken(root, pattern):
    "What the widget says of a token, once it is this."
    said = root.locator("output").nth(1).and_(root.get_by_text(re.compile(pattern)))
    said.wait_for()
    return said.inner_text()


def told_of(writer, ids, token):
    "What the widget says of a token after these ids, and the probabilities of all."
    logits = lens(writer.model, tensor([ids]))[:, 0, -1]
    p, firsts = logits.softmax(-1), logits.argmax(-1).tolist()
    since = next(n for n in range(len(firsts)) if set(firsts[n:]) == {firsts[-1]})
    rank = (p[-1] > p[-1][token]).sum() + 1
    bits = torch.distributions.Categorical(probs=p[-1]).entropy() / math.log(2)
    height = f"block {since}" if since else "the embedding"
    told = f": the model gave it {100 * p[-1][token]:.1f} %, number {rank} of {len(p[-1])}. "
    return told + f"The entropy is {bits:.2f} bits. The first choice was .*, from {height} on", p


def write(root, at=17):
    "A token is opened and another chosen."
    silence(root)
    writer, text = load("shakespeare"), greedily(root, at + 1)
    whole = root.locator(".widget-tokens")
    assert whole.text_content().startswith("ROMEO:" + text)
    whole.locator("> span").nth(at).click()
    sentence = spoken(root, f"^Token {at + 1}, ")
    seen = int(re.search(r"the last (\d+) tokens", sentence)[1])
    assert (seen == 6 + at) if at < 50 else (32 <= seen <= 64)
    ids = writer.tokenizer.encode("ROMEO:" + text)
    told, p = told_of(writer, ids[6 + at - seen : 6 + at], ids[6 + at])
    assert re.search(told, sentence)
    best = p[-1].topk(10).indices.tolist()
    rows = root.locator("table.widget-heat tbody tr:has(button)").all()
    for row, token in zip(rows, best, strict=True):  # what is written is the likeliest
        shown, expected = numbers(row.locator("td")), (100 * p[:, token]).tolist()
        assert shown[:-1] == pytest.approx(expected[:-1], abs=0.51)
        assert shown[-1] == pytest.approx(expected[-1], abs=0.051)
    rows[1].locator("button").press("Enter")  # the second best; the text goes on from it
    spoken(root, "number 2 of 65")
    assert root.locator(".widget-heat button[aria-pressed=true]").evaluate(FOCUSED)
    begun = "ROMEO:" + text[:at] + writer.tokenizer.decode([best[1]])
    begun += "".join(writer.stream(begun, max_new_tokens=11, temperature=0))
    longer = "(n) => document.querySelector('.widget-tokens').textContent.length >= n"
    root.page.wait_for_function(longer, arg=len(begun))
    assert whole.text_content().startswith(begun)
    yield {}, "ROMEO"


def reinforce(root):
    "Its sampled answers are judged as the package judges them, and it reaches 0.9 in a minute."
    for step in (1, 2):
        told = rf"^Step {step}: \d+ of 64 answers are right, \d+ think first"
        yield {"One step": "Enter"}, re.compile(told)
    for place in range(8):
        put(root, "Question", str(place))
        asked, right = re.search(r"to (\d+=): (\d)", root.locator("caption").inner_text()).groups()
        texts, rewards, better = (root.locator(f"td:nth-child({n})") for n in (1, 2, 3))
        earned = [float(is_right(asked, text)) for text in texts.all_inner_texts()]
        assert numbers(rewards) == earned and sum(earned) == int(right)
        expected = advantages(tensor(earned), group_size=8, scale="std").tolist()
        assert numbers(better) == pytest.approx(expected, abs=0.0051)
    put(root, "30 steps", "Enter")
    nine_tenths = re.compile(r"^Step \d+: (5[89]|6\d) of 64 ")
    root.locator("output", has_text=nine_tenths).wait_for(timeout=60_000)
    yield {"Stop": "Enter"}, re.compile(r"^Step [123]?\d: ")
    root.get_by_role("button", name="30 steps").wait_for()
    yield {"Start again": "Enter"}, "No reward yet"
    assert not root.locator("table").count()


def bleu(root):
    names = make_widgets.run_cells(
        "nbs/inference/03_metrics.ipynb", "imports", "scratch", "two-rows", "byhand"
    )
    texts = [found(root, label).input_value() for label in ("Translation", "Reference")]
    assert [text.split() for text in texts] == [names["said"], names["wanted"]]
    examples = root.get_by_label("Example").locator("option").all()
    for text in [example.get_attribute("value") for example in examples]:
        counts = names["count"](text.split(), names["wanted"])
        yield {"Example": text}, f"BLEU is {names['bleu_of']([counts]):.1f}"
        right = root.locator(".widget-ngrams td", has_text="✓").count()
        assert right == sum(counts[:8:2])
        assert numbers(root.locator(".widget-bars td:nth-of-type(1)")) == counts[1:8:2]
    assert "because" not in said(root)
    yield {"Translation": "Zwei Zwei Hunde"}, "0 of 1, 4-grams 0 of 0. 3 words instead of 7 give"
    assert root.locator("td", has_text="clip").count() == 1 and "because one of" in said(root)
    yield {"Translation": "", "Reference": ""}, "BLEU is 0.0"


def warmup(root):
    path = make_widgets.ROOT / "results/measurements/wirings.json"
    runs = [row for row in read_measurement(path).rows if row["steps"] == 400]
    for wiring, shown in (("post", "Post-norm"), ("pre", "Pre-norm")):
        yield {"Norms": wiring, "Learning rate": "Home"}, shown
        for n, rate in enumerate((0.001, 0.003, 0.01, 0.03)):
            put(root, "Learning rate", "ArrowRight" if n else "Home")
            for place, steps in enumerate((0, 100, 200)):
                setting = {"wiring": wiring, "rate": rate, "warmup": steps}
                own = [row for row in runs if row | setting == row]
                ends = [row["losses"][-1] for row in sorted(own, key=lambda row: row["seed"])]
                first, second, third = (f"{loss:.2f}" for loss in ends)
                told = f", learning rate {rate}, {f'{steps} steps of' if steps else 'no'} warm-up: "
                yield {"Steps of warm-up": "ArrowRight" if place else "Home"}, told
                assert f"runs are {first}, {second} and {third}. " in said(root)
                stuck = sum(loss > own[0]["unigram"] - 0.1 for loss in ends)
                assert (f"In {stuck} of them" if stuck else "All of them") in said(root)
    assert root.locator("svg").nth(1).locator(".curve").count() == 3
    assert root.locator("svg").nth(1).locator(".faint").count() == 6


def cache(root):
    cells = "imports", "setup", "byhand", "work-algebra"
    names = make_widgets.run_cells("nbs/attention/06_cache.ipynb", *cells)
    work = names["work"]
    for step in range(1, 8):
        whole, kept = (names[way]([0.1] * step)[1] for way in ("from_scratch", "with_lists"))
        ratio = sum(work(step, 512, False)) / sum(work(step, 512, True))
        told = f"step and {whole} so far; with a cache, 2 and {kept}. Without a cache, it has "
        told += (
            f"performed {ratio:.1f} times as many operations. For 1,000 tokens, the factor is 555."
        )
        yield {"Step": "Home"} if step == 1 else {"Next token": "Enter"}, told
        new, read = (root.locator("td", has_text=re.compile(f"^{one}$")) for one in ("new", "read"))
        assert (new.count(), read.count()) == (3 * step + 3, 2 * (step - 1))
    assert root.get_by_role("button", name="Next token").get_attribute("aria-disabled") == "true"
    yield {"Back": "Enter"}, "Step 6, “bike”"
    factor = sum(work(1000, 64, False)) / sum(work(1000, 64, True))
    yield {"Width C": "Home"}, f"For 1,000 tokens, the factor is {factor:.0f}."


def neighbours(root):
    names = make_widgets.run_cells(
        "nbs/text/02_embedding.ipynb",
        *("imports", "scratch", "plain", "code", "same-check", "shipped-check"),
    )
    assert "“bicycle”" in said(root) and "bicycle" in names["neighbours"](" bike")
    yield {"motorcycle": "Enter"}, "Nearest to “motorcycle”: “bike”"
    word = root.get_by_label("English or German word")
    assert word.input_value() == "motorcycle" and word.evaluate(FOCUSED)
    yield {"English or German word": "zwei"}, "Nearest to “zwei”: “drei”"
    yield {"English or German word": "zweiundzwanzig"}, "is not one of the 1,000 tokens"
    rows, directions = names["shipped"].encode, names["directions"]
    (one,), (other,) = rows(" zwei"), rows(" drei")
    assert f"{directions[one] @ directions[other]:.2f}" == root.locator("td").first.inner_text()


def gate(root):
    names = make_widgets.run_cells("nbs/block/02_feedforward.ipynb", "imports", "setup", "by-hand")
    columns = [root.locator(f"tbody td:nth-of-type({n})") for n in (1, 2, 3, 4)]
    inputs, gates, values, products = map(numbers, columns)
    assert (gates, values, products) == (names["gates"], names["values"], [9, 0, -4])
    functions = {"ReLU": torch.relu, "SiLU": torch.nn.functional.silu, "sigmoid": torch.sigmoid}
    for name, function in functions.items():
        yield {"Function f of the gate": name}, f"{name}: the gates are "
        expected = function(tensor(inputs)) * tensor(values)
        assert numbers(columns[3]) == pytest.approx(expected.tolist(), abs=0.0051)
    yield {"Function f of the gate": "ReLU", "Value of unit 2": "End"}, "products are 9.00, 0.00"
    yield {"Input of the gate of unit 1": "Home"}, "The gates of unit 1 and 2 are shut"
    yield {"Input of the gate of unit 2": "End"}, "products are 0.00, 64.00"


def firstloss(root):
    found = json.loads((make_widgets.TARGET / "first_loss.json").read_text())
    logits, targets = tensor(found["logits"]), tensor(found["targets"])
    V = logits.shape[1]
    for keys, factor in (
        ("Home", 0.0),
        ("ArrowRight", 0.25),
        ("ArrowRight " * 11, 3.0),
        ("End", 8),
    ):
        loss = torch.nn.functional.cross_entropy(factor * logits, targets).item()
        top = 100 * (factor * logits).softmax(-1).amax(-1).mean()
        told = f"{loss:.2f}, which is {loss - math.log(V):.2f} above ln {V} = {math.log(V):.2f}. "
        told += f"On average, the model gives its favourite token a probability of {top:.1f} %."
        yield {"Multiply all logits by": keys}, told


FORMULAS = [softmax, masks, rope, merges, beam, sampling, moments, steps, game, loss, angles]
FORMULAS += [depth, norms, costs, bleu, warmup, cache, neighbours, gate, firstloss]
WALKS = {walk.__name__: walk for walk in [*FORMULAS, heads, walk, translate, write, reinforce]}
ELSEWHERE = {"translate": INTRO, "write": INTRO}  # walked through on the first page


@pytest.mark.parametrize("name", WALKS)
def test_a_widget_is_walked_through_by_keyboard_on_a_phone(page, name):
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(reduced_motion="reduce", color_scheme="dark")
    root = begin(page, name, ELSEWHERE.get(name, ""))
    for steps, expected in WALKS[name](root):
        for label, how in steps.items():
            put(root, label, how)
        shows(root, expected)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_every_widget_is_walked_through():
    assert sorted(WALKS) == sorted(PLACES)


EVERY = [(name, place.page) for name, places in PLACES.items() for place in places]


@pytest.mark.parametrize(
    ("name", "path"), [pytest.param(*one, marks=[weekly] * (one[0] in ASKED)) for one in EVERY]
)
def test_what_stood_there_comes_alive_alone_and_everybody_can_use_it(page, name, path):
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(reduced_motion="reduce")
    lines = written(f"{path}.html", name)
    root = begin(page, name, path)
    assert "with JavaScript" in lines[0]
    if name == "write":  # it writes at once, and what it draws
        silence(root)
        heights = [it.bounding_box()["height"] for it in root.locator("button:visible").all()]
        assert min(heights) >= 44
    else:
        assert lines[-1] == said(root)
    look(page, root, name, path)


# --- what waits for a button --------------------------------------------------------------------


@weekly
def test_a_long_caption_can_be_stopped_and_one_too_long_is_not_cut(page):
    root = begin(page, "translate", INTRO)
    german, status = root.locator("output"), root.locator("[role=status]")
    for text, said in (
        ("", "nothing to translate"),
        ("a " * 300, "300 tokens, but the model takes at most 255"),
        ("A man " * 80, "Stopped."),
    ):
        put(root, "English sentence", f"{text}\n")
        if said == "Stopped.":
            put(root, "Stop", "click")
        root.locator("[role=status]", has_text=said).wait_for()
        assert german.inner_text() == "" and not root.locator("table").first.is_visible()
    assert root.get_by_role("button", name="Stop").is_disabled()
    put(root, "English sentence", "A dog runs.\n")
    root.locator("output", has_text="Hund").wait_for()
    assert root.locator("table").first.is_visible() and "steps in" in status.inner_text()


@weekly
@pytest.mark.parametrize("at", [0, 99])  # 6 + 99 are more than the context holds
def test_a_token_is_opened_and_another_chosen(page, at):
    assert [*write(begin(page, "write", INTRO), at)]


@weekly
def test_the_writer_slides_changes_its_book_and_names_what_it_has_never_seen(page):
    root = begin(page, "write", INTRO)
    silence(root)
    text = root.locator(".widget-tokens")
    assert put(root, "Temperature", "Home").startswith("0 ")
    put(root, "Write", "Enter")
    long = "() => document.querySelector('[data-widget=write] output').textContent.length > 40"
    page.wait_for_function(long)
    out = root.locator("output").first
    assert out.get_attribute("aria-busy") == "true"  # so that letters are not read one by one
    assert put(root, "Temperature", "End") == "2.0"  # now the text goes wild
    put(root, "Stop", "click")
    root.locator(".widget-note", has_text="Stopped after").wait_for()
    assert out.get_attribute("aria-busy") == "false"
    assert root.get_by_role("button", name="Stop").is_disabled()
    stopped = text.text_content()
    page.wait_for_timeout(200)
    assert text.text_content() == stopped
    put(root, "Prompt", "ROMEO 7\n")
    root.locator(".widget-note", has_text="never seen the character “7”").wait_for()
    put(root, "Trained on", "stories")
    root.locator("select:enabled").wait_for()
    assert root.get_by_label("Prompt").input_value() == "Clara lives by the sea."
    # the end of a story is a token too: another one in its place, and the story is longer
    assert not root.locator(".widget-heat").is_visible()  # nothing is written yet
    put(root, "Top-p", "Home")
    put(root, "Write", "Enter")
    root.locator(".widget-note", has_text="Done").wait_for()
    tokens = text.locator("> span")
    count = tokens.count()
    assert f"Done: {count} tokens." in root.locator("[role=status]").all_inner_texts()
    tokens.last.click()
    spoken(root, f"^Token {count}, a new line")
    assert root.get_by_role("button", name="Later").get_attribute("aria-disabled") == "true"
    root.locator(".widget-heat button[aria-pressed=false]").first.click()
    root.locator(f".widget-tokens > span:nth-of-type({count + 1})").wait_for()
    root.get_by_role("button", name="a new line").click()  # the end again, and it is over at once
    root.locator(".widget-note", has_text="Done: 1 token.").wait_for()
    assert tokens.count() == count


@weekly
def test_tokens_are_walked_through_by_keyboard(page):
    root = begin(page, "write", INTRO)
    silence(root)
    greedily(root, 7)
    text = root.locator(".widget-tokens")
    for label, key, place in (
        ("", "ArrowRight", 2),
        ("Later token", "Enter", 3),
        ("", "ArrowLeft", 2),
        ("Earlier token", "Enter", 1),
        ("Earlier token", "Enter", 1),  # the first
    ):
        put(root, label, key) if label else text.press(key)
        spoken(root, f"^Token {place}, ")
        assert text.locator(".chosen").count() == 1
    for name, ends in (("Earlier", "true"), ("Later", "false")):
        button = root.get_by_role("button", name=name)
        assert button.get_attribute("aria-disabled") == ends
    assert root.locator("output").nth(1).get_attribute("aria-live") == "polite"


@weekly
def test_a_load_that_fails_is_said_and_little_is_loaded(page, site):
    weights = []
    page.on("response", lambda answer: weights.append(int(answer.headers.get("content-length", 0))))
    page.goto(f"{INTRO}.html", wait_until="networkidle")
    page.route("**/model.safetensors", lambda route: route.abort())
    root = page.locator("[data-widget=translate]")
    put(root, root.locator("button").inner_text(), "click")
    root.locator("[role=status]", has_text="did not load").wait_for()
    assert "Ein Mann fährt" in root.inner_text()  # what stood there still does
    page.said.clear()  # the browser's own line about it
    page.unroute("**/model.safetensors")
    for name in ("translate", "write"):
        page.locator(f"[data-widget={name}] button").first.click()
        page.locator(f"[data-widget={name}] output:not(:empty)").first.wait_for()
    assert sum(weights) < 8e6  # bytes
    page.goto((site / f"{INTRO}.html").as_uri())
    root.locator("button").click()
    root.locator("[role=status]:visible", has_text="make serve").wait_for()
    page.said.clear()  # the theme's own requests may fail there


TAPPED = {
    "masks": ("0: query A may attend to key man", "“A” may attend to A "),
    "merges": ("Merge", "Merge 1: "),
    "rope": ("Move both by +100", "Both moved by 100"),
}


@weekly
@pytest.mark.parametrize("name", TAPPED)
def test_by_touch(opened, name):
    page, (label, told) = opened(390, has_touch=True), TAPPED[name]
    control = found(root := begin(page, name), label)
    control.tap(position={"x": control.bounding_box()["width"] - 3, "y": 5})
    assert told in said(root)


DRAGGED = {"firstloss": ("Logits × 4.00", "Logits × 6.00"), "rope": ("distance 0:", "distance 60:")}


@pytest.mark.parametrize("name", DRAGGED)
def test_a_curve_is_pointed_at_and_dragged(page, name):
    root = begin(page, name)
    plot = root.locator(".widget-draggable")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    for share, told in zip((0.5, 0.75), DRAGGED[name]):
        across = box["x"] + 56 + share * (box["width"] - 68)  # the margins of the axis
        page.mouse.move(across, box["y"] + box["height"] / 2)
        if share == 0.5:
            page.mouse.down()  # and held down, so the second time it is dragged
        shows(root, told)
    page.mouse.up()
