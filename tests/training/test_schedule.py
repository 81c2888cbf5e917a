"""Optimiser and learning rate against the formulas of the papers."""

import pytest
import torch
from torch import nn

from transformer_lit.training.schedule import adamw, cosine, inverse_sqrt, paper_schedule


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def net():
    return nn.Sequential(nn.Embedding(7, 5), nn.LayerNorm(5), nn.Linear(5, 3)).double()


def adamw_by_hand(w, m, v, g, *, t, rate, decay, betas, eps):
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    step = m / (1 - betas[0] ** t) / ((v / (1 - betas[1] ** t)).sqrt() + eps)
    return w - rate * decay * w - rate * step, m, v


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("betas, eps", [((0.9, 0.98), 1e-9), ((0.7, 0.999), 1e-3)])
def test_adamw_is_the_formula_step_by_step(fused, betas, eps):
    model = net()
    optimizer = adamw(model, betas=betas, eps=eps, weight_decay=0.3)
    for group in optimizer.param_groups:
        group["fused"] = fused
    expected = [(p.detach().clone(), 0.0, 0.0) for p in model.parameters()]
    schedule = inverse_sqrt(0.1, 5)
    for t in range(1, 18):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        for group in optimizer.param_groups:
            group["lr"] = schedule(t)
        optimizer.step()
        for i, p in enumerate(model.parameters()):
            decay = 0.3 if p.ndim == 2 else 0.0
            kept = {"t": t, "rate": schedule(t), "decay": decay, "betas": betas, "eps": eps}
            expected[i] = adamw_by_hand(*expected[i], p.grad, **kept)
            torch.testing.assert_close(p.detach(), expected[i][0])


def test_the_papers_defaults():
    group = adamw(net()).param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0.0)


def test_matrices_decay_and_vectors_do_not():
    model = net()
    decayed, plain = adamw(model, weight_decay=0.1).param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    assert [names[id(p)] for p in decayed["params"]] == ["0.weight", "2.weight"]
    assert [names[id(p)] for p in plain["params"]] == ["1.weight", "1.bias", "2.bias"]


def test_tied_weights_are_stepped_once_and_frozen_ones_never():
    model = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 7))
    model[1].weight = model[0].weight
    model[1].bias.requires_grad_(False)
    params = [p for group in adamw(model).param_groups for p in group["params"]]
    assert len(params) == 1 and params[0] is model[0].weight


def test_nothing_moves_before_a_schedule_speaks():
    model = net()
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    adamw(model, weight_decay=0.1).step()
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("C, warmup", [(512, 4000), (97, 7), (5, 1)])
def test_the_papers_formula(C, warmup):
    rate = paper_schedule(C, warmup)
    for step in (1, 2, 3, warmup, warmup + 1, 13 * warmup, 100_003):
        assert rate(step) == pytest.approx(C**-0.5 * min(step**-0.5, step * warmup**-1.5))


def test_the_papers_warm_up():
    assert paper_schedule(512)(4000) == max(map(paper_schedule(512), range(1, 12_000)))
    assert paper_schedule(512)(4000) == pytest.approx((512 * 4000) ** -0.5)


def test_inverse_sqrt_rises_on_a_line_and_falls_as_a_root():
    rate = inverse_sqrt(0.3, 11)
    assert [rate(t) for t in range(1, 12)] == pytest.approx([0.3 * t / 11 for t in range(1, 12)])
    assert rate(11) == 0.3
    assert rate(44) == pytest.approx(0.15) and rate(1100) == pytest.approx(0.03)
    assert inverse_sqrt(0.3, 1)(1) == 0.3


def test_cosine_against_torchs_after_warm_up():
    ours = cosine(0.3, warmup=5, steps=36, final=0.2)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=31, eta_min=0.06)
    for step in range(5, 37):
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    assert [ours(step) for step in range(1, 6)] == pytest.approx([0.06, 0.12, 0.18, 0.24, 0.3])
    assert ours(1000) == pytest.approx(0.06)  # it stays at its end
    assert [cosine(0.3, 2, 2)(step) for step in (1, 2)] == pytest.approx([0.15, 0.3])
    assert cosine(0.3, 0, 10**6)(1) == pytest.approx(0.3)
