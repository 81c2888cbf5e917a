"Penalties, clips and preferences against torch's divergences and closed forms, in float64."

import pytest
import torch
from torch import tensor

from transformer_lit.assistant.leash import kl
from transformer_lit.assistant.preferences import dpo_loss
from transformer_lit.assistant.reward import policy_loss


def test_each_estimator_has_the_mean_and_the_gradient_that_its_docstring_promises():
    theta = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    ref = torch.randn(5, 7, dtype=torch.float64).log_softmax(-1).requires_grad_()
    logp = theta.log_softmax(-1)
    divergence = torch.distributions.kl_divergence
    model, reference = (torch.distributions.Categorical(logits=x) for x in (logp, ref))
    forwards, backwards = divergence(model, reference), divergence(reference, model)
    gradients = [
        torch.autograd.grad(x.sum(), theta, retain_graph=True)[0]
        for x in (0 * forwards, forwards, backwards)
    ]
    for kind, gradient in zip(("k1", "k2", "k3"), gradients):
        each = kl(logp, ref, kind=kind)
        assert each.shape == logp.shape
        mean = (logp.detach().exp() * each).sum(-1)
        if kind != "k2":
            torch.testing.assert_close(mean, forwards)
        found = torch.autograd.grad(mean.sum(), theta, retain_graph=True)[0]
        torch.testing.assert_close(found, gradient)
        assert torch.autograd.grad(each.sum(), ref, retain_graph=True, allow_unused=True) == (None,)
    near = kl(tensor([-1.0]), tensor([-1.0 + 1e-5]), kind="k3")
    torch.testing.assert_close(near, tensor([0.5e-10]), rtol=0.05, atol=0)  # not rounded to 0


def test_a_pair_s_loss_is_the_cross_entropy_of_two_answers_with_implicit_rewards():
    chosen, rejected, *ref = -20 * torch.rand(4, 13, dtype=torch.float64)
    logits = 0.3 * torch.stack([chosen - ref[0], rejected - ref[1]], 1)
    right = torch.nn.functional.cross_entropy(
        logits, torch.zeros(13, dtype=torch.long), reduction="none"
    )
    torch.testing.assert_close(dpo_loss(chosen, rejected, *ref, beta=0.3), right)
    far = dpo_loss(tensor([-9e4]), tensor([0.0]), tensor([0.0]), tensor([0.0]), beta=1.0)
    assert far == 9e4


def test_a_clipped_token_has_a_gradient_only_where_it_has_not_moved_enough():
    ratio = torch.linspace(0.5, 1.6, 11, dtype=torch.float64)
    mask = tensor([[False, True]]).expand(11, 2)
    for sign in (1.0, -1.0):
        logp = torch.stack([torch.zeros(11), ratio.log()], 1).requires_grad_()
        better = torch.full((11,), sign, dtype=torch.float64)
        loss = policy_loss(logp, torch.zeros(11, 2), better, mask, clip=0.25, normaliser=1)
        slope = -torch.autograd.grad(loss, logp)[0][:, 1]
        stopped = ratio > 1.25 if sign > 0 else ratio < 0.75
        torch.testing.assert_close(slope, sign * ratio * ~stopped)


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan")])
def test_a_leash_without_strength_is_refused(beta):
    with pytest.raises(ValueError, match="beta must be above 0, got"):
        dpo_loss(*torch.zeros(4, 3), beta=beta)
