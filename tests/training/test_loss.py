"""Cross-entropy at its edges; the chapter's cells compare values and gradients with torch's."""

import inspect
import math

import pytest
import torch

from transformer_lit.training.loss import _SmoothedCrossEntropy, cross_entropy

N, B, T, V = 5, 3, 7, 11
plain = inspect.unwrap(cross_entropy)  # without the test run's own check of shapes and types


def batch():
    logits = torch.randn(B, T, V, dtype=torch.float64, requires_grad=True)
    keep = torch.arange(T) < torch.tensor([7, 2, 5])[:, None]
    return logits, torch.randint(V, (B, T)), keep


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_through_later_operations_is_the_derivative(smoothing):
    logits, targets, _ = batch()
    assert torch.autograd.gradcheck(
        lambda z: 3 * cross_entropy(z, targets[0], smoothing=smoothing)[0] ** 2, logits[0]
    )


def test_nothing_kept_is_zero_with_a_zero_gradient():
    logits, targets, keep = batch()
    loss, count = cross_entropy(logits, targets, keep=keep & False, smoothing=0.1)
    assert (loss.item(), count) == (0, 0)
    assert not torch.autograd.grad(loss, logits)[0].any()


@pytest.mark.parametrize(
    ("scores", "target", "loss", "slope"),
    [
        ([1e4, 0.0, -1e4], 2, 2e4, [1.0, 0.0, -1.0]),  # large scores stay finite
        ([0.0, -math.inf, 0.0], 0, math.log(2), [-0.5, 0.0, 0.5]),  # a forbidden one costs nothing
    ],
)
def test_the_ends_of_the_numbers(scores, target, loss, slope):
    logits = torch.tensor([scores], dtype=torch.float64, requires_grad=True)
    found, _ = cross_entropy(logits, torch.tensor([target]))
    torch.testing.assert_close(found.item(), loss)
    (gradient,) = torch.autograd.grad(found, logits)
    torch.testing.assert_close(gradient, torch.tensor([slope]).double())


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


@pytest.mark.machinery
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_compiles_without_a_graph_break(monkeypatch, smoothing):
    "The graph of both ways; the code that a compiler makes of it is torch's."
    logits, targets, keep = batch()
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


# --- refused -------------------------------------------------------------------------------------


def through(transform):
    "What the docstring excludes. vmap takes a dimension from z, but not from y."
    logits, targets, _ = batch()
    transform(lambda z: plain(z, targets if z.ndim == 3 else targets[0])[0])(logits.detach())


def a_second_derivative():
    logits, targets, _ = batch()
    torch.autograd.grad(cross_entropy(logits, targets)[0], logits, create_graph=True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *(
            (lambda s=s: cross_entropy(torch.randn(N, V), torch.arange(N), smoothing=s), words)
            for s in (-0.1, 1.0, 1.5)
            for words in [rf"smoothing must be in \[0, 1\), got {s}"]
        ),
        (
            lambda: plain(torch.randn(B, T, V), torch.randint(V, (T, B))),
            r"targets need shape \(3, 7\), got \(7, 3\)",
        ),
        (  # integers would pick rows by number, and count each of them
            lambda: plain(*batch()[:2], keep=batch()[2].long()),
            r"keep must be bool, but is torch\.int64",
        ),
        (a_second_derivative, "can't be differentiated again"),
        *(
            (lambda how=how: through(how), r"autograd\.Function with functorch transforms")
            for how in (
                torch.func.grad,
                torch.vmap,
                lambda f: lambda z: torch.func.jvp(f, (z,), (z,)),
            )
        ),
    ],
)
def test_what_would_be_wrong_in_silence_is_refused(call, words):
    with pytest.raises((ValueError, RuntimeError), match=words):
        call()
