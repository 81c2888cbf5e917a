"""Cross-entropy: torch's function is the oracle, for values and gradients."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F

from transformer_lit.training.loss import _SmoothedCrossEntropy, cross_entropy

N, B, T, V = 5, 3, 7, 11


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def batch(dtype=torch.float64):  # an equality must hold on every processor
    logits = torch.randn(B, T, V, dtype=dtype, requires_grad=True)
    keep = torch.arange(T) < torch.tensor([7, 2, 5])[:, None]
    return logits, torch.randint(V, (B, T)), keep


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("scale", [1.0, 1 / 13])  # what comes back from later operations
def test_equals_torch_in_value_and_gradient(smoothing, scale):
    logits, targets, keep = batch()
    ours, count = cross_entropy(logits, targets, keep=keep, smoothing=smoothing)
    theirs = F.cross_entropy(
        logits.flatten(0, 1),
        targets.masked_fill(~keep, -100).flatten(),
        label_smoothing=smoothing,
        reduction="sum",
    )
    assert count == 14
    torch.testing.assert_close(ours, theirs)
    (mine,) = torch.autograd.grad(ours * scale, logits)
    torch.testing.assert_close(mine, torch.autograd.grad(theirs * scale, logits)[0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_p_minus_q_and_the_derivative(smoothing):
    logits = torch.randn(N, V, dtype=torch.double, requires_grad=True)
    targets = torch.randint(V, (N,))

    def loss(z):
        return cross_entropy(z, targets, smoothing=smoothing)[0]

    q = (1 - smoothing) * F.one_hot(targets, V) + smoothing / V
    torch.testing.assert_close(torch.autograd.grad(loss(logits), logits)[0], logits.softmax(-1) - q)
    assert torch.autograd.gradcheck(loss, logits)
    assert torch.autograd.gradcheck(lambda z: 3 * loss(z) ** 2, logits)


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_floor_is_the_entropy_of_the_smoothed_target(smoothing):
    q = (1 - smoothing) * F.one_hot(torch.tensor([4]), V).double() + smoothing / V
    at_best, _ = cross_entropy(q.log(), torch.tensor([4]), smoothing=smoothing)
    torch.testing.assert_close(at_best, torch.special.entr(q).sum())
    for _ in range(N):
        other, _ = cross_entropy(
            q.log() + 0.1 * torch.randn(1, V).double(), torch.tensor([4]), smoothing=smoothing
        )
        assert other > at_best


def test_equal_scores_cost_log_v():
    loss, count = cross_entropy(torch.zeros(N, V).double(), torch.arange(N))
    assert loss / count == pytest.approx(math.log(V))


def test_hidden_tokens_have_no_say():
    logits, targets, keep = batch()
    loss, _ = cross_entropy(logits, targets, keep=keep, smoothing=0.1)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.equal((gradient == 0).all(-1), ~keep)
    changed, _ = cross_entropy(logits, targets.where(keep, 0), keep=keep, smoothing=0.1)
    assert torch.equal(loss, changed)


def test_parts_add_up_to_the_whole():
    logits, targets, _ = batch()
    whole, count = cross_entropy(logits, targets)
    parts = [cross_entropy(z, y) for z, y in zip(logits, targets, strict=True)]
    torch.testing.assert_close(sum(loss for loss, _ in parts), whole)
    assert sum(n for _, n in parts) == count == B * T


def test_nothing_kept_is_zero_with_a_zero_gradient():
    logits, targets, keep = batch()
    loss, count = cross_entropy(logits, targets, keep=keep & False, smoothing=0.1)
    assert (loss.item(), count) == (0, 0)
    assert not torch.autograd.grad(loss, logits)[0].any()


def test_large_scores_stay_finite():
    logits = torch.tensor([[1e4, 0.0, -1e4]], dtype=torch.float64, requires_grad=True)
    loss, _ = cross_entropy(logits, torch.tensor([2]))
    torch.testing.assert_close(loss.item(), 2e4)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.tensor([[1.0, 0.0, -1.0]]).double())


def test_a_forbidden_token_costs_nothing_without_smoothing():
    logits = torch.tensor([[1.0, -math.inf, 2.0]], dtype=torch.float64, requires_grad=True)
    loss, _ = cross_entropy(logits, torch.tensor([0]))
    torch.testing.assert_close(loss.item(), math.log(1 + math.e))
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_half_precision_is_summed_in_fp32():
    logits = torch.randn(2003, V, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(V, (2003,))
    loss, _ = cross_entropy(logits, targets, smoothing=0.1)
    assert loss.dtype == torch.float32
    exact, _ = cross_entropy(logits.double(), targets, smoothing=0.1)
    torch.testing.assert_close(loss.double(), exact, rtol=2003 * 2**-24, atol=0)  # ε/2 a term
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.dtype == torch.bfloat16


def test_backward_twice_gives_the_same_and_leaves_what_was_saved():
    logits, targets, _ = batch()
    loss, _ = cross_entropy(logits, targets)
    (first,) = torch.autograd.grad(3 * loss, logits, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], first / 3)


def test_a_second_derivative_is_refused_not_wrong():
    logits, targets, _ = batch()
    loss, _ = cross_entropy(logits, targets)
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(loss, logits, create_graph=True)


@pytest.mark.parametrize(
    "transform",
    [
        torch.func.grad,
        torch.vmap,
        lambda f: lambda z: torch.func.jvp(f, (z,), (z,)),
    ],
    ids=["grad", "vmap", "jvp"],
)
def test_what_the_docstring_excludes_is_refused(transform):
    logits, targets, _ = batch()
    plain = inspect.unwrap(cross_entropy)  # vmap takes a dimension from z, but not from y
    f = transform(lambda z: plain(z, targets if z.ndim == 3 else targets[0])[0])
    with pytest.raises(RuntimeError, match=r"autograd\.Function with functorch transforms"):
        f(logits.detach())


@pytest.mark.machinery
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_compiles_without_a_graph_break(monkeypatch, smoothing):
    "The graph of both ways; the code that a compiler makes of it is torch's."
    logits, targets, keep = batch()
    plain = inspect.unwrap(cross_entropy)  # without the test run's own check of shapes
    for name in ("forward", "backward"):
        bare = staticmethod(inspect.unwrap(getattr(_SmoothedCrossEntropy, name)))
        monkeypatch.setattr(_SmoothedCrossEntropy, name, bare)

    def loss(z):  # one whose incoming gradient is not 1
        return 3 * plain(z, targets, keep=keep, smoothing=smoothing)[0] ** 2

    torch.compiler.reset()
    whole = torch.compile(loss, backend="aot_eager", fullgraph=True)
    found, expected = whole(logits), loss(logits)
    torch.testing.assert_close(found, expected)
    (mine,) = torch.autograd.grad(found, logits)
    torch.testing.assert_close(mine, torch.autograd.grad(expected, logits)[0])
    with pytest.raises(RuntimeError, match=r"double backward|create_graph=False"):  # torch's own
        torch.autograd.grad(whole(logits), logits, create_graph=True)[0].sum().backward()


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 1.5])
def test_smoothing_out_of_range(smoothing):
    with pytest.raises(ValueError, match=rf"smoothing must be in \[0, 1\), got {smoothing}"):
        cross_entropy(torch.randn(N, V), torch.randint(V, (N,)), smoothing=smoothing)


def test_targets_in_another_order_are_refused():
    plain = inspect.unwrap(cross_entropy)  # without the test run's own check of shapes
    with pytest.raises(ValueError, match=r"logits \(3, 7, 11\) do not fit targets \(7, 3\)"):
        plain(torch.randn(B, T, V), torch.randint(V, (T, B)))


def test_a_mask_of_integers_is_refused():
    "It would pick rows by number, and count each of them."
    logits, targets, keep = batch()
    plain = inspect.unwrap(cross_entropy)  # without the test run's own check of types
    with pytest.raises(ValueError, match=r"keep is torch\.int64, not bool"):
        plain(logits, targets, keep=keep.long())
