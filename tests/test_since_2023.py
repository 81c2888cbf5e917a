"""What each part bought: the count of arithmetic, what an arm exchanges, and a whole record."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from experiments import since_2023 as since
from transformer_lit.attention.attend import attend
from transformer_lit.attention.latent import LatentAttention
from transformer_lit.attention.linear import GatedDeltaNet, recurrent_gated_delta_rule
from transformer_lit.attention.windows import Window
from transformer_lit.block.experts import Experts
from transformer_lit.course.records import at_best_rate, paired, read_measurement
from transformer_lit.models.decoders import PerHead
from transformer_lit.models.more_than_one import GatedAttention
from transformer_lit.recipes.language_model import language_step
from transformer_lit.training.data import TextBatch

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results/measurements"
V, C, H, D, L, T = 23, since.C, since.H, since.D, since.L, since.T


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def by_hand(arm, F, length):
    "Twice the multiplications of a token, from the sizes alone."
    seen = sum(range(1, length + 1)) / length
    near = sum(min(t, since.NEAR) for t in range(1, length + 1)) / length
    R, r, E = since.R, since.RANK, since.E
    projections, network, full = 4 * C * C, 3 * C * F, 2 * H * D * seen
    layer = projections + network
    if arm == "grouped":
        projections = 2 * C * C + 2 * C * C // 2
        layer = projections + network
    if arm == "experts":
        layer = projections + C * E + since.K * 3 * C * (F // since.K)
    if arm == "latent":
        layer = network + C * H * D + C * (r + R) + r * H * (D - R + D) + H * D * C
    if arm == "gated":
        layer = projections + C * H * D + network
    if arm == "windows":
        attention = 3 * 2 * H * D * near + full
    elif arm == "delta":
        more = C * H * D + 2 * C * H + 4 * 3 * H * D  # gate; decay and β; convolution
        attention = 3 * (3 * H * D * D + more) + full
    else:
        attention = L * full
    return 2 * (L * layer + attention + C * V)


@pytest.mark.parametrize("arm", since.ARMS)
@pytest.mark.parametrize(("F", "length"), [(34, 37), (118, 7)])
def test_the_count_by_hand(arm, F, length):
    assert since.flops(since.ARMS[arm](V, F), length) == pytest.approx(by_hand(arm, F, length))


@pytest.mark.parametrize("arm", since.ARMS)
def test_the_count_is_torchs(arm):
    "Whose kernel here also computes what a mask hides."
    n, model = 7, since.answers(since.ARMS[arm](V, 34)).eval()
    expected = n * since.flops(model, 1)
    for attn in (layer.attn for layer in since.llama(model).layers):
        attn = attn.attn if arm == "gated" else attn
        if isinstance(attn, GatedDeltaNet):
            attn.rule = recurrent_gated_delta_rule
            continue
        expected += 2 * n * (n - 1) * since.scores(attn, 1)
        attn.attend = Window(2, attend=attend) if isinstance(attn.attend, Window) else attend
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        model(torch.randint(V, (1, n)))
    assert counted.get_total_flops() == expected


@pytest.mark.parametrize("arm", since.ARMS)
def test_the_width_makes_the_counts_equal(arm):
    goal = since.flops(since.plain(V, since.F), T)
    assert since.flops(since.matched(arm, V), T) == pytest.approx(goal, rel=0.005)
    width, step = since.llama(since.matched(arm, V)).config.d_ff, since.K if arm == "experts" else 1
    apart = [abs(since.flops(since.ARMS[arm](V, width + n * step), T) - goal) for n in (-1, 0, 1)]
    assert apart[1] <= min(apart)


def shapes(module):
    return {name: (*p.shape,) for name, p in module.named_parameters()}


@pytest.mark.parametrize("arm", [arm for arm in since.ARMS if arm != "plain"])
def test_an_arm_differs_in_the_named_part_alone(arm):
    plain, other = since.plain(V, 34), since.llama(since.ARMS[arm](V, 34))
    exchanged = "ffn" if arm == "experts" else "attn"
    changed = []
    for i, (one, two) in enumerate(zip(plain.layers, other.layers, strict=True)):
        for name, part in one.named_children():
            if name != exchanged:
                assert repr(part) == repr(getattr(two, name))
        one, two = getattr(one, exchanged), getattr(two, exchanged)
        attends = [getattr(part, "attend", None) for part in (one, two)]
        if repr(one) != repr(two) or attends[0] != attends[1]:
            changed.append(i)
        else:
            assert shapes(one) == shapes(two)
    where = {"windows": [0, 1, 2], "delta": [0, 1, 2], "values": [], "one more": []}
    assert changed == where.get(arm, [0, 1, 2, 3])
    for name in ("tok_emb", "final_norm", "lm_head"):
        assert repr(getattr(plain, name)) == repr(getattr(other, name))


def test_arms_have_the_parts_that_they_name():
    models = {arm: make(V, 34) for arm, make in since.ARMS.items()}
    attns = {arm: [x.attn for x in since.llama(model).layers] for arm, model in models.items()}
    assert all(attn.n_kv_heads == 2 for attn in attns["grouped"])
    assert [attn.attend == Window(16) for attn in attns["windows"]] == [True, True, True, False]
    assert all(isinstance(attn, LatentAttention) for attn in attns["latent"])
    states = [isinstance(attn, GatedDeltaNet) for attn in attns["delta"]]
    assert states == [True, True, True, False]
    for attn in attns["qk-norm"]:
        assert all(isinstance(proj[1], PerHead) for proj in (attn.q_proj, attn.k_proj))
    assert all(isinstance(attn, GatedAttention) for attn in attns["gated"])
    assert list(models["values"].tables) == ["0", "3"] and len(models["one more"].chain) == 1
    for layer in models["experts"].layers:
        assert isinstance(layer.ffn, Experts) and len(layer.ffn.experts) == 8
        assert layer.ffn.router.k == 2
    for model in models.values():  # matrices begin as GPT-2's; the convolutions as their own
        for name, p in model.named_parameters():
            if p.ndim == 2 and "conv" not in name:
                writes = name.split(".")[-2] in ("o_proj", "down_proj")
                std = 0.02 / 8**0.5 if writes else 0.02
                assert p.std().item() == pytest.approx(std, rel=0.2)
    conv = models["delta"].layers[0].attn.conv.weight
    assert conv.std().item() == pytest.approx(0.5 / 3**0.5, rel=0.1)  # uniform up to 1/2


def test_validation_leaves_the_balance_out():
    recipe = since.cell("experts", 1e-3, 0).recipe
    model = recipe.build(V)
    batch = TextBatch(*torch.randint(V, (2, 3, 7)))
    trained, tokens = recipe.step(model, batch)
    measured, _ = recipe.loss(model, batch)
    added = (trained - measured).item() / tokens / since.BALANCE
    assert tokens == 21 and added == pytest.approx(L, rel=0.2)  # 1 a layer where all is even
    recipe = since.cell("one more", 1e-3, 0).recipe
    model = recipe.build(V)
    logits, (measured, _) = model(batch.ids), recipe.loss(model, batch)
    torch.testing.assert_close(measured, language_step(model.model, batch)[0])
    more = F.cross_entropy(logits[1].flatten(0, 1), batch.targets[:, 1:].flatten(), reduction="sum")
    trained, tokens = recipe.step(model, batch)
    torch.testing.assert_close(trained, measured + 0.3 * more)
    assert tokens == 21
    recipe = since.cell("plain", 1e-3, 0).recipe
    model = recipe.build(V)
    assert torch.equal(recipe.step(model, batch)[0], recipe.loss(model, batch)[0])


@pytest.mark.parametrize("arm", since.ARMS)
def test_steps_with_the_caches_are_the_whole_text(arm):
    model = since.answers(since.ARMS[arm](V, 34)).double().eval()
    ids = torch.randint(V, (1, 37))
    state = since.caches(model, 37)
    with torch.no_grad():
        steps = [model.step(part, state) for part in ids.split([19, 1, 1, 16], 1)]
        torch.testing.assert_close(torch.cat(steps, 1), model(ids))


def test_bytes_in_the_caches_by_hand():
    sizes = {arm: make(V, 34) for arm, make in since.ARMS.items()}
    row = L * 2 * H * D * 4
    held = {arm: since.cached(model, 41) for arm, model in sizes.items()}
    for arm in ("plain", "experts", "qk-norm", "gated", "values", "one more"):
        assert held[arm] == 41 * row
    assert held["grouped"] == 41 * row / 2
    assert held["windows"] == (41 + 3 * 15) * row / 4
    assert held["latent"] == 41 * L * (since.RANK + since.R) * 4
    assert held["delta"] == 41 * row / 4 + 3 * 4 * (H * D * D + 3 * 3 * H * D)


def test_the_best_rate_gets_the_other_seeds():
    cells, rows = [], []
    for cell in since.cells(rows):
        cells.append(cell)
        best = since.RATES[list(since.ARMS).index(cell.about["entry"]) % 3]
        rows.append(cell.about | {"val_loss": abs(cell.about["rate"] - best)})
        assert cell.recipe.lr == cell.about["rate"] and cell.recipe.arm == cell.about["entry"]
    n = len(since.ARMS)
    assert len(cells) == n * (3 + len(since.SEEDS))
    assert {(c.about["entry"], c.about["rate"]) for c in cells[: 3 * n]} == {
        (arm, rate) for arm in since.ARMS for rate in since.RATES
    }
    for cell in cells[3 * n :]:
        assert cell.seed in since.SEEDS
        place = list(since.ARMS).index(cell.about["entry"]) % 3
        assert cell.about["rate"] == since.RATES[place]


# --- the record, and what the page says of it ----------------------------------------------------


def test_the_record_is_complete():
    rows = read_measurement(RECORDS / "since_2023.json").rows
    tuned = at_best_rate(rows)
    arms = [arm for arm in since.ARMS if arm in tuned]
    assert "plain" in arms and len(arms) == len(tuned)
    wanted = {(arm, rate, since.TUNING) for arm in arms for rate in since.RATES}
    seeds = {row["seed"] for row in rows} - {since.TUNING}
    assert len(seeds) > 2 and len({row["steps"] for row in rows}) == 1
    wanted |= {(arm, tuned[arm].rate, seed) for arm in arms for seed in seeds}
    found = [(row["entry"], row["rate"], row["seed"]) for row in rows]
    assert sorted(found) == sorted(wanted)
    for arm in arms:
        model = since.answers(since.matched(arm, 65))
        facts = {"d_ff": since.llama(model).config.d_ff, "flops": since.flops(model, T)}
        facts |= {"stored": since.count(model), "active": since.active(model)}
        facts |= {"cache": since.cached(model, T)}
        for row in rows:
            if row["entry"] == arm:
                assert {key: row[key] for key in facts} == facts


def test_the_clock_has_every_arm_and_every_step():
    rows = read_measurement(RECORDS / "since_2023_clock.json").rows
    work = [("training", 0), *(("decoding", held) for held in since.HELD)]
    timed = {row["entry"] for row in rows}
    wanted = [(arm, *kind) for kind in work for arm in since.ARMS if arm in timed]
    assert [(row["entry"], row["step"], row["held"]) for row in rows] == wanted
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in rows)


def printed(cell_id):
    notebook = json.loads((ROOT / "nbs/results/04_since_2023.ipynb").read_text(encoding="utf-8"))
    (cell,) = (cell for cell in notebook["cells"] if cell["id"] == cell_id)
    return "".join("".join(o.get("text", "")) for o in cell["outputs"])


def test_the_printed_verdicts_follow_from_the_intervals():
    tuned = at_best_rate(read_measurement(RECORDS / "since_2023.json").rows)
    names = {
        "grouped": "grouped heads",
        "latent": "latent attention",
        "delta": "DeltaNet + convolution + gate",
    }
    names |= {"windows": "windows", "experts": "experts", "qk-norm": "QK-norm"}
    names |= {"gated": "gated attention", "values": "value embeddings"}
    names |= {"one more": "multi-token prediction"}
    expected = {"lower": set(), "higher": set(), "not separated": set()}
    for arm, name in ((arm, name) for arm, name in names.items() if arm in tuned):
        gap = paired(tuned[arm].losses[1:], tuned["plain"].losses[1:])
        kind = ("lower" if gap.mean < 0 else "higher") if gap.separated else "not separated"
        expected[kind].add(name)
    found = {}
    for line in printed("verdicts").splitlines():
        kind, _, said = line.partition(": ")
        found[kind] = set() if said == "none" else set(said.split(", "))
    assert found == expected
