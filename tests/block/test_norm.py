"""Both norms: any shape as torch's layers, types, and a width that would broadcast.

The chapter's cells check the formulas and their gradients: see tests/damages/block.yml.
"""

import inspect

import pytest
import torch
from torch import nn

from transformer_lit.block.norm import LayerNorm, RMSNorm, layer_norm, rms_norm


@pytest.mark.parametrize("shape", [(7,), (2, 5, 3, 7), (0, 7), (3, 1)])
@pytest.mark.parametrize("ours, theirs", [(LayerNorm, nn.LayerNorm), (RMSNorm, nn.RMSNorm)])
def test_class_and_function_are_torchs_for_any_shape(ours, theirs, shape):
    function = layer_norm if ours is LayerNorm else rms_norm
    ours, theirs = ours(shape[-1], eps=0.5), theirs(shape[-1], eps=0.5)
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    theirs.load_state_dict(ours.state_dict())
    x, dy = (3 + 5 * torch.randn(shape)).requires_grad_(), torch.randn(shape)
    expected = theirs(x)
    slopes = torch.autograd.grad(expected, (x, *theirs.parameters()), dy)
    for got in (ours(x), function(x, *ours.parameters(), eps=0.5)):
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(torch.autograd.grad(got, (x, *ours.parameters()), dy), slopes)


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_autocast_keeps_the_dtype_of_the_input(norm, dtype, single):
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(7)(torch.randn(3, 7, dtype=dtype)).dtype == dtype


def test_a_width_that_would_broadcast_is_refused():
    "The tests check shapes before any call; a user's program does not, so look beneath that."
    with pytest.raises(ValueError, match=r"norm has width 7\. Make it 1"):
        inspect.unwrap(rms_norm)(torch.randn(3, 1), torch.ones(7))
