"""What a rung of the three minutes' ladder changes, and what its records say."""

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments import three_minutes as ladder
from transformer_lit.attention.windows import Window
from transformer_lit.block.norm import RMSNorm
from transformer_lit.course.data import load_text
from transformer_lit.course.records import read_measurement
from transformer_lit.recipes.recipe import open_training
from transformer_lit.text.tokenizer import CharTokenizer
from transformer_lit.training.schedule import cosine

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results/measurements"
V, B, T = 23, 3, 11
SIZES = {"d_model": 24, "n_layers": 4, "n_heads": 4, "n_kv_heads": 2, "d_ff": 20}


def built(*changes):
    torch.manual_seed(0)
    model = replace(ladder.BASE, sizes=SIZES, changes=changes).build(V)
    return model.double().eval()


def logits(*changes):
    return built(*changes)(torch.arange(B * T).view(B, T) % V)


def test_a_convolution_lets_through_what_stands_there_and_learns_from_before():
    torch.testing.assert_close(logits("convolution"), logits(), rtol=0, atol=0)
    model = built("convolution")
    before = model.layers[0].attn_residual.norm
    with torch.no_grad():
        before.conv.weight.copy_(torch.randn(24, ladder.WIDTH))
    x = torch.randn(B, T, 24, dtype=torch.float64)
    normed, out = before.norm(x), before(x)
    for t in range(T):
        past = range(max(0, t - ladder.WIDTH + 1), t + 1)
        expected = sum(before.conv.weight[:, s - t - 1] * normed[:, s] for s in past)
        torch.testing.assert_close(out[:, t], expected)


def test_heads_are_normed_and_begin_as_they_were_in_direction():
    model = built("QK-norm")
    attn = model.layers[1].attn
    x = torch.randn(B, T, 24, dtype=torch.float64)
    for proj in (attn.q_proj, attn.k_proj):
        heads = proj(x).unflatten(-1, (-1, attn.d_head))
        plain = proj[0](x).unflatten(-1, (-1, attn.d_head))
        size = plain.pow(2).mean(-1, keepdim=True).add(RMSNorm(1).eps).sqrt()
        torch.testing.assert_close(heads, plain / size)


@pytest.mark.parametrize("more", [(), ("value embeddings", "QK-norm")])
def test_with_silent_outputs_a_token_is_all_that_is_seen(more):
    model = built("zero outputs", *more)
    inner = getattr(model, "model", model)
    x = inner.tok_emb(torch.arange(V)[None])
    expected = inner.lm_head(inner.final_norm(x))
    torch.testing.assert_close(model(torch.arange(V)[None]), expected)


def test_windows_are_in_three_layers_of_four():
    near = [isinstance(layer.attn.attend, Window) for layer in built("windows").layers]
    assert near == [True, True, True, False]


def test_short_blocks_come_first_with_as_many_characters():
    recipe = replace(ladder.BASE, steps=6, changes=("short blocks first",))
    text = "to be or not " * 500
    stream = iter(recipe.stream(CharTokenizer.train(text), text, seed=3))
    shapes = [tuple(next(stream).ids.shape) for _ in range(6)]
    assert shapes == [(16, 64)] * 3 + [(4, 256)] * 3


def test_a_rate_goes_straight_to_zero():
    recipe = replace(ladder.BASE, steps=700, changes=("straight to zero",))
    rate, before = recipe.schedule(), cosine(recipe.lr, recipe.warmup, 700)
    torch.testing.assert_close([rate(t) for t in (1, 7, 100)], [before(t) for t in (1, 7, 100)])
    falls = [rate(t) - rate(t + 1) for t in range(101, 700)]
    torch.testing.assert_close([*falls, rate(700)], [recipe.lr / 600] * 600)


def test_what_muon_does_not_train_learns_at_twice_the_rate(tmp_path):
    quick = {"dataset": "book", "sizes": SIZES, "steps": 2, "every": 2, "warmup": 1}
    recipe = replace(ladder.BASE, **quick, val_batches=1, changes=("faster tables",))
    run = open_training(recipe, tmp_path / "run", seed=0, device="cpu")
    ladder.measure(run)
    hidden, *others = run.trainer.optimizer.param_groups
    assert "momentum" in hidden and hidden["lr"] == recipe.schedule()(2)
    assert [group["lr"] for group in others] == [2 * hidden["lr"]] * 2


def test_what_was_kept_is_what_the_seeds_tell_apart():
    rows = [
        {"changes": changes, "val_loss": loss + seed / 7}
        for changes, losses in {
            "": (2.0, 2.0, 2.0),
            "convolution": (1.9, 1.91, 1.89),
            "convolution, QK-norm": (1.5, 2.3, 1.7),  # lower on the mean, and not separated
            "convolution, short blocks first": (1.99, 1.98, 1.99),
        }.items()
        for seed, loss in enumerate(losses)
    ]
    assert ladder.kept(rows) == ["convolution"] and ladder.kept(rows[:3]) == []


@pytest.mark.needs("tinyshakespeare")
def test_the_ladder_does_not_read_the_validation_text():
    parts = [ladder.BASE.examples(split) for split in ("train", "val")]
    assert "".join(parts) == load_text(ladder.BASE.dataset, "train")
    whole = replace(ladder.BASE, whole=True)
    assert whole.examples("val") == load_text(ladder.BASE.dataset, "val")
    assert whole.examples("train") == "".join(parts)


def test_the_record_is_whole_and_the_page_says_it():
    rows = read_measurement(RECORDS / "three_minutes_ladder.json").rows
    assert len(rows) == (1 + len(ladder.RUNGS)) * len(ladder.SEEDS)
    changes = ladder.kept(rows)
    end = read_measurement(RECORDS / "three_minutes.json").rows
    assert [row["changes"] for row in end] == [", ".join(changes)] * 5 + [""] * 3
    losses = [row["val_loss"] for row in end[:5]]
    said = f"{statistics.mean(losses):.3f} ± {statistics.stdev(losses):.3f} nats"
    page = " ".join((ROOT / "book/runs.md").read_text(encoding="utf-8").split())
    assert said in page
    assert (len(ladder.RUNGS), len(changes)) == (8, 2) and "We tried eight changes" in page
