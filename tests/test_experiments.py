"""Experiments run on the recipes, go on after a stop, and differ in what their entries say."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn

from experiments import __main__ as command
from experiments import (
    bakeoffs,
    embedding,
    feedforward,
    interpret,
    pooling,
    recurrence,
    scaling,
    tatoeba,
    tokenizer,
    wirings,
)
from experiments.runner import Cell, Experiment, count, covering
from transformer_lit import load
from transformer_lit.attention.multihead import MultiHeadAttention
from transformer_lit.course.files import InputError
from transformer_lit.course.records import read_measurement, read_result
from transformer_lit.position.relative import t5_bucket
from transformer_lit.recipes.recipe import open_training
from transformer_lit.recipes.translation import translation_loss
from transformer_lit.training.data import collate

pytestmark = pytest.mark.machinery
RECORDS = Path(__file__).parents[1] / "results/measurements"
V, B, T = 23, 3, 5


@pytest.fixture(autouse=True)
def seed(monkeypatch, no_shape_checks):
    "And nothing that would outlive the test. Some of them compile, which checks would stop."
    torch.manual_seed(0)
    monkeypatch.setattr(command, "keep_freed_memory", lambda: None)


def fields(rows):
    return {frozenset(row) for row in rows}


# the bake-offs differ in their entries alone, and each of those is built below
QUICK = sorted(set(command.EXPERIMENTS) - {"block_rates", "swap_rates", "swap_fair"})
TEXTS = {
    "domains": pytest.mark.needs("novels", "tinyshakespeare", "multi30k"),
    "streaming": pytest.mark.needs("novels"),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=TEXTS.get(n, ())) for n in QUICK])
def test_every_experiment_runs_quickly_with_the_fields_of_its_record(name, tmp_path):
    rows = command.main([name, "--quick", "--out", str(tmp_path), "--kept", str(tmp_path)])
    assert not list(tmp_path.iterdir())  # a quick run is no record
    record = RECORDS / f"{name}.json"
    if name in bakeoffs.BAKEOFFS:
        which, _, kind = name.partition("_")
        presets = set(bakeoffs.bakeoff_presets(which))
        names = presets if kind == "rates" else set(bakeoffs.COMPARED[which])
        assert names <= {row["entry"] for row in rows} <= set(bakeoffs.entries(which))
        assert kind != "rates" or set(bakeoffs.RATES) <= {row["rate"] for row in rows}
    else:
        assert fields(rows) == fields(read_measurement(record).rows)


def test_word_vectors_are_one_of_them(tmp_path):
    rows = command.main(["word_vectors", "--quick", "--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())
    assert fields(rows) == fields(read_measurement(RECORDS / "word_vectors.json").rows)


@pytest.mark.parametrize("name", sorted(set(command.EXPERIMENTS) - set(bakeoffs.BAKEOFFS)))
def test_a_record_names_the_command_that_repeats_it(name):
    assert read_measurement(RECORDS / f"{name}.json").command == f"python -m experiments {name}"


def test_a_run_that_was_stopped_goes_on_with_what_is_missing(monkeypatch, tmp_path):
    recipe = replace(embedding.BASE, dataset="book", steps=1, every=1, warmup=1, val_batches=1)
    done = []

    def measure(training):
        if len(done) == 1 and stop:
            raise KeyboardInterrupt
        done.append(training.seed)
        return [{"half": 1}, {"half": 2}]

    cells = [Cell({"seed": seed}, recipe, seed) for seed in (3, 5)]
    experiment = Experiment("A row is nothing.", measure, lambda rows: cells)
    monkeypatch.setitem(command.EXPERIMENTS, "sizes", experiment)
    line = ["sizes", "--out", str(tmp_path / "out"), "--kept", str(tmp_path / "kept")]
    stop = True
    with pytest.raises(KeyboardInterrupt):
        command.main(line)
    stop = False
    rows = command.main(line)
    assert done == [3, 5]  # each once
    assert rows == [{"seed": seed, "half": half} for seed in (3, 5) for half in (1, 2)]
    record = read_measurement(tmp_path / "out/sizes.json")
    assert record.rows == rows and record.command == "python -m experiments sizes"
    assert not list((tmp_path / "kept").iterdir())


def test_a_quick_run_shows_every_value_once():
    values = [(a, b, seed) for a in "xyz" for b in (1, 2) for seed in (0, 1)]
    cells = [Cell({"a": a, "b": b, "seed": seed}, None, seed) for a, b, seed in values]
    kept = [(cell.about["a"], cell.about["b"], cell.seed) for cell in covering(cells)]
    assert kept == [("x", 1, 0), ("x", 2, 0), ("y", 1, 0), ("z", 1, 0)]


# --- the entries --------------------------------------------------------------------------------


def fresh(recipe, seed=0):
    torch.manual_seed(seed)
    return recipe.build(V)


def test_embeddings_of_a_seed_differ_in_what_their_names_say_and_nothing_else():
    models = {cell.about["entry"]: fresh(cell.recipe) for cell in embedding.cells([])}
    assert set(models) == {entry for entries in embedding.PARTS.values() for entry in entries}
    ids, base = torch.randint(V, (B, T)), models["untied"]
    for entry, model in models.items():
        differ = {
            name
            for name, weight in model.state_dict().items()
            if not torch.equal(weight, base.state_dict()[name])
        }
        expected = {"tied": {"lm_head.weight"}, "wide": {"tok_emb.weight"}}
        assert differ == expected.get(entry, set())
        assert (model.lm_head.weight is model.tok_emb.weight) == (entry == "tied")
    vectors = {entry: model.double().tok_emb(ids) for entry, model in models.items()}
    # the table of "wide" was scaled in fp32: one rounding
    torch.testing.assert_close(vectors["wide"], vectors["untied"], rtol=2**-23, atol=0)
    torch.testing.assert_close(128**0.5 * vectors["none"], vectors["untied"])
    torch.testing.assert_close(vectors["low position"], vectors["none"], rtol=0, atol=0)
    places = {entry: model.position(torch.arange(T)) for entry, model in models.items()}
    for entry, place in places.items():  # in the type of the model: doubles
        factor = 128**-0.5 if entry == "low position" else 1.0
        torch.testing.assert_close(place, factor * places["none"])


def test_the_share_of_the_token_is_that_of_the_vectors_it_stands_for():
    model, ids = fresh(embedding.BASE).double(), torch.randint(V, (1, 1009))
    frequencies = ids[0].bincount(minlength=V).double() / ids.numel()
    token = model.tok_emb(ids).square().sum(-1).mean()
    position = model.position(torch.arange(ids.shape[1])).square().sum(-1).mean()
    share = embedding.token_share(model, frequencies)
    assert share == pytest.approx((token / (token + position)).item())


def test_silent_units_are_found():
    recipe = replace(feedforward.BASE, sizes={**feedforward.BASE.sizes, "d_ff": 11})
    model, ids = fresh(recipe), torch.randint(V, (B, 64))
    with torch.no_grad():
        model.layers[1].ffn.up_proj.bias[5] = -1e3
    silent, active = feedforward.silent_units(model, torch.no_grad()(lambda: model(ids)))
    expected = torch.zeros(2, 11, dtype=torch.bool)
    expected[1, 5] = True
    assert torch.equal(silent, expected) and 0.3 < active < 0.6


def test_the_share_of_explained_variance():
    groups = torch.tensor([0, 0, 2, 2])
    values = torch.tensor([[1.0, 1.0], [1.0, -1.0], [5.0, 1.0], [5.0, -1.0]])
    assert feedforward.explained(values, groups) == pytest.approx((1 + 0) / 2)


@pytest.mark.parametrize("pool", pooling.POOLS)
def test_every_attention_is_converted(pool):
    changed = pooling.pool_heads(load(pooling.NAME).model, 1, pool)
    found = [m for m in changed.modules() if isinstance(m, MultiHeadAttention)]
    assert len(found) == 12
    assert all(m.k_proj.out_features == m.v_proj.out_features == m.d_head for m in found)


def test_the_same_characters_are_scored_at_every_context():
    class Unigram(nn.Module):  # its loss is the same for every context: it looks at no past
        def __init__(self):
            super().__init__()
            self.table = torch.randn(7, 7, dtype=torch.float64)

        def hidden(self, ids):
            return self.table[ids]

        def lm_head(self, x):
            return x

    model, ids = Unigram(), torch.randint(7, (1511,))
    losses = [scaling.loss_at(model, ids, context, 512) for context in (64, 128, 512)]
    assert losses == pytest.approx([losses[0]] * 3)
    ends = range(512, len(ids) - 1, 256)
    scored = torch.cat([torch.arange(end - 64, end) for end in ends])
    expected = nn.functional.cross_entropy(model.table[ids[scored]], ids[scored + 1])
    assert losses[0] == pytest.approx(expected.item())


def test_costs_of_three_ways_to_cut():
    characters, words, pieces = tokenizer.costs(["a b, a", "a c"], ["a d", "b?"], [259])
    shared = {"bytes": 2.5}
    assert words == shared | {
        "unit": "words", "vocab_size": 4, "tokens": 2, "unknown": 0.5, "unused": 0
    }  # fmt: skip
    assert characters == shared | {
        "unit": "characters", "vocab_size": 5, "tokens": 2.5, "unknown": 0.4, "unused": 0
    }  # fmt: skip
    assert pieces == shared | {
        "unit": "pieces", "vocab_size": 259, "tokens": 2.5, "unknown": 0, "unused": 256 - 5
    }  # fmt: skip
    rows = tokenizer.costs(["b b a"] + [f"w{n}" for n in range(300)], ["b a", "w99"], [259])
    unknown = {r["vocab_size"]: r["unknown"] for r in rows if r["unit"] == "words"}
    assert unknown == {259: 1 / 3, 302: 0}  # of those that occur once, the alphabet's first


def test_a_rate_rises_and_stays():
    cold, warm = (wirings.cell("pre", 2, 0.5, warmup, 0, wirings.SHORT).recipe for warmup in (0, 4))
    assert [cold.schedule()(step) for step in (1, 2, 120)] == [0.5] * 3
    assert [warm.schedule()(step) for step in (1, 2, 4, 120)] == [0.125, 0.25, 0.5, 0.5]


def test_a_run_that_blew_up_has_no_losses_after_that(monkeypatch):
    cell = wirings.cell("post", 1, 1e-3, 0, 0, {"steps": 4, "every": 2})

    def train(self):
        raise InputError("step 3: gradient is nan; lower the learning rate")

    monkeypatch.setattr("transformer_lit.training.run.Run.train", train)
    experiment = wirings.WIRINGS_TRAINED
    (row,) = experiment._rows(cell, replace(cell.recipe, dataset="book", val_batches=1), "cpu")
    assert row["losses"] == [None, None]


def test_translators_of_one_size_but_for_the_attention_that_one_lacks():
    models = {
        name: recurrence.cell("training", name, 1e-3, 0).recipe.build(3000)
        for name in recurrence.MODELS
    }
    sizes = {name: count(model) for name, model in models.items()}
    assert sizes["gru"] == pytest.approx(sizes["transformer"], rel=0.01)
    lacks = sizes["gru"] - sizes["gru, fixed vector"]
    assert lacks == count(models["gru"].cross_attn)


def test_a_search_goes_on_while_the_best_rate_is_an_outer_one():
    rows, found, best = [], [], {"transformer": 3e-3, "gru": 1.2e-2}
    for cell in recurrence.cells(rows):
        found.append(cell)
        if cell.about["part"] == "search":
            off = abs(cell.about["rate"] - best[cell.about["model"]])
            rows.append(cell.about | {"val_loss": off})
    tried = {name: [r["rate"] for r in rows if r["model"] == name] for name in best}
    assert tried == {"transformer": [1.5e-3, 3e-3, 6e-3], "gru": [1.5e-3, 3e-3, 6e-3, 1.2e-2]}
    trained = [cell for cell in found if cell.about["part"] == "training"]
    assert [cell.seed for cell in trained] == [0, 0, 1, 1, 2, 2, 0, 1, 2]
    assert all(cell.recipe.lr == best[cell.about["model"].partition(",")[0]] for cell in trained)


def test_models_of_one_and_two_layers_read_the_same_rows(tmp_path):
    cells = list(interpret.cells([]))
    assert [(c.about["layers"], c.seed) for c in cells[:3]] == [(2, 0), (1, 0), (2, 1)]
    opened = [
        open_training(cell.recipe, tmp_path / str(n), seed=cell.seed, device="cpu")
        for n, cell in enumerate(cells[:3])
    ]
    batches = [next(iter(training.trainer.batches)).ids for training in opened]
    assert torch.equal(batches[0], batches[1]) and not torch.equal(batches[0], batches[2])
    assert [len(training.trained.model.layers) for training in opened] == [2, 1, 2]
    ids = interpret.twice(7)
    assert ids.shape == (7, 32) and torch.equal(ids[:, :16], ids[:, 16:])


def test_word_partners_by_loops():
    pairs = [([3, 5], [13, 17]), ([3], [13]), ([5, 7], [17, 19, 17])]
    table = {}
    for source, target in pairs:
        table |= {(e, f): 1.0 for e in (-1, *source) for f in target}
    for _ in range(3):
        counts = dict.fromkeys(table, 0.0)
        for source, target in pairs:
            for f in target:
                whole = sum(table[e, f] for e in (-1, *source))
                for e in (-1, *source):
                    counts[e, f] += table[e, f] / whole
        of = {e: sum(n for (e2, _), n in counts.items() if e2 == e) for e, _ in counts}
        table = {(e, f): n / of[e] for (e, f), n in counts.items()}
    found = interpret.word_table(pairs, rounds=3)
    assert found == pytest.approx({e * 2**16 + f: p for (e, f), p in table.items()})
    learned = interpret.word_table(pairs * 2, rounds=30)
    assert interpret.partners(learned, [3, 5], [13, 17]) == [0, 1]
    assert interpret.partners(learned, [11], [23]) == [-1]  # never seen: the empty word comes first


def test_places_by_loops():
    ids = [([11, 12, 13], [21, 22]), ([11], [21, 22, 23, 24])]
    batch = collate(ids, pad_id=0, bos=1, eos=2)
    links = [[2, -1], [0, 0, -1, 0]]  # of the tokens that are said, without the end token
    chosen = interpret.places(batch, links)
    lengths, longest = (4, 2), (3, 5)  # with the end token
    for row in range(2):
        for t in range(5):
            for s in range(4):
                link = dict(enumerate(links[row]))
                assert chosen["cross"]["aligned"][row, t, s] == (link.get(t) == s)
                assert chosen["cross"]["aligned_behind"][row, t, s] == (link.get(t - 1) == s)
                assert chosen["cross"]["end"][row, t, s] == (s == lengths[row] - 1)
                at = round(t * (lengths[row] - 1) / (longest[row] - 1))
                assert chosen["cross"]["diagonal"][row, t, s] == (at == s)
                assert chosen["encoder"]["next"][row, min(t, 3), s] == (min(t, 3) + 1 == s)
                assert chosen["decoder"]["previous"][row, t, s] == (t - 1 == s)
                assert chosen["decoder"]["begin"][row, t, s] == (s == 0)


def test_habits_are_means_over_real_queries():
    weights = torch.rand(2, 3, 5, 4).softmax(-1)
    queries = torch.arange(5) < torch.tensor([[5], [2]])
    visible = torch.ones(2, 5, 4, dtype=torch.bool)
    keys = torch.zeros(2, 5, 4, dtype=torch.bool)
    keys[0, 3, 1] = keys[1, 1, 2] = keys[1, 4, 0] = True  # the last is a query of padding
    habits = interpret.Habits()
    for row in (0, 1):  # in two batches
        one = slice(row, row + 1)
        habits.add(weights[one], {"own": keys[one]}, queries[one], visible[one])
    found = habits.means()
    expected = (weights[0, :, 3, 1] + weights[1, :, 1, 2]) / 2
    torch.testing.assert_close(found["own"], expected.double())
    entropy = torch.stack([torch.distributions.Categorical(weights[b]).entropy() for b in (0, 1)])
    kept = torch.cat([entropy[0], entropy[1, :, :2]], -1) / math.log(4)
    torch.testing.assert_close(found["entropy"], kept.mean(-1).double(), rtol=1e-5, atol=1e-6)


def test_sentence_losses_are_the_loss_of_the_batch():
    model = load(interpret.MODEL).model
    batch = collate([([11, 12, 13], [21, 22]), ([11], [21, 22, 23, 24])], pad_id=0, bos=1, eos=2)
    found = interpret.sentence_losses(model, [(batch, None)])
    with torch.inference_mode():
        expected, _ = translation_loss(model, batch)
    torch.testing.assert_close(found.sum(), expected.double(), rtol=1e-5, atol=0)
    cost = interpret.added(found, found + torch.tensor([3.0, 5.0]), 8)
    assert cost == pytest.approx({"added": 1.0, "error": 2**0.5 * 2**0.5 / 8})


@pytest.mark.parametrize("name", ["position", "block", "swap"])
def test_every_entry_of_a_bakeoff_can_be_built(name):
    for recipe in bakeoffs.entries(name).values():
        assert fresh(recipe)(torch.randint(V, (B, T))).shape == (B, T, V)


def test_fair_entries_differ_from_theirs_in_what_they_say():
    entries = bakeoffs.entries("position")
    models = {name: fresh(recipe) for name, recipe in entries.items()}
    pos = torch.arange(64)
    norms = {
        name: models[name].position(pos).norm(dim=-1).mean().item()
        for name in ("learned, long as sinusoids", "sinusoidal, short as learned", "sinusoidal")
    }
    assert norms["sinusoidal"] == pytest.approx(32**0.5, rel=1e-4)
    assert norms["learned, long as sinusoids"] == pytest.approx(32**0.5, rel=0.05)
    assert norms["sinusoidal, short as learned"] == pytest.approx(1, rel=1e-4)
    plug = models["t5 within the context"].layers[3].attn.position
    buckets = t5_bucket(pos, len(plug.weight), plug.max_distance, causal=True)
    assert set(buckets.tolist()) == set(range(32))
    without = models["transformer-xl without v"]
    assert not any(layer.attn.position.v.any() for layer in without.layers)
    trained = {name for name, p in without.named_parameters() if p.requires_grad}
    assert {name for name, _ in without.named_parameters()} - trained == {
        f"layers.{n}.attn.position.v" for n in range(4)
    }


def test_three_steps_of_the_walk_also_begin_in_other_ways():
    entries = bakeoffs.entries("swap")
    assert len(entries) == 6 + 2 * 3
    for said, start in bakeoffs.STARTS.items():
        for name in bakeoffs.STARTED:
            recipe, base = entries[f"{name}, {said}"], entries[name]
            assert recipe == replace(base, sizes={**base.sizes, **start}) != base


def test_every_rate_with_one_seed_and_the_best_with_the_others():
    cells, rows, best = [], [], {"none": 1e-2, "rope": 1e-3}
    entries = bakeoffs.bakeoff_presets("position")
    for cell in bakeoffs.cells("position", rows):
        cells.append(cell)
        assert cell.recipe.lr == cell.about["rate"]
        low = cell.about["rate"] == best.get(cell.about["entry"], 3e-3)
        rows.append(cell.about | {"val_loss": 1.0 if low else 2.0})
    tried = {(cell.about["entry"], cell.about["rate"]) for cell in cells if not cell.seed}
    assert tried >= {*product(entries, bakeoffs.RATES)}
    others = [cell for cell in cells if cell.seed]
    assert [(c.seed, c.about["entry"]) for c in others] == [*product((1, 2), entries)]
    for cell in others:
        assert cell.about["rate"] == best.get(cell.about["entry"], 3e-3)


@pytest.mark.needs("tinyshakespeare")
def test_what_the_bakeoff_recorded_is_not_trained_again(tmp_path):
    (recipe,) = (r for name, r in bakeoffs.entries("swap").items() if name == "rope")
    training = open_training(recipe, tmp_path / "run", seed=1, device="cpu")
    record = read_result(bakeoffs.RECORDS / "swap-small-rope-seed1.json")
    (row,) = bakeoffs.measure("swap", training)
    assert row["val_loss"] == record.metrics["val_loss"] and row["minutes"] == record.minutes
    for other in (replace(recipe, lr=1e-3), replace(recipe, change="wide")):
        training.recipe = other
        assert bakeoffs.recorded("swap", training) is None


@pytest.mark.parametrize(
    ("lowest", "rates"),
    [
        (1e-2, [3e-3, 1e-2, 3e-2]),
        (3e-4, [3e-4, 1e-3, 3e-3, 1e-2, 3e-2]),
        (1, [3e-3, 1e-2, 3e-2, 0.1]),
    ],
)
def test_a_grid_of_rates_grows_until_the_best_lies_inside(lowest, rates):
    rows, seen = [], []
    for cell in bakeoffs.cells("swap", rows):
        seen.append(cell.about)
        assert cell.recipe.lr == cell.about["rate"]
        rows.append(cell.about | {"val_loss": abs(cell.about["rate"] - lowest)})
    of_gpt = [about for about in seen if about["entry"] == "gpt"]
    assert sorted(a["rate"] for a in of_gpt if a["seed"] == 0) == rates
    best = min(rates, key=lambda rate: abs(rate - lowest))
    assert [(a["seed"], a["rate"]) for a in of_gpt if a["seed"]] == [(1, best), (2, best)]
    assert len(seen) == 6 * (len(rates) + 2)


def test_looking_a_test_up_in_a_text_by_hand():
    text = [("hallo welt", "hello you big world"), ("hallo Welt!", "hi")]
    text += [("gute nacht", "so good night, all")]
    test = [("Hallo, Welt", "Hello you big world"), ("guten tag", "So good night all")]
    test += [("nein", "no")]
    row = tatoeba.overlap(text, test)
    shared = {"shared_source": 2, "shared_target": 2, "shared": 3}
    assert row["pairs"] == 3 and {key: row[key] for key in shared} == shared
    assert row["found"] == 1 / 3  # with its first target
    assert row["bleu_found"] == pytest.approx(100)
    assert row["bleu"] == pytest.approx(100 * math.exp(1 - 9 / 4))  # 4 of 9 words are said at all
    assert tatoeba.overlap(text[2:], test[2:])["bleu_found"] is None
    few = tatoeba.vocabulary([("aa ab", "aa")] * 10, 259)
    assert few == {"vocab_size": 259, "source_tokens": 5, "target_tokens": 2, "seldom": 253 / 256}
