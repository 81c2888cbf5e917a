"""Our layers under the names of torch's, for tests that copy weights."""

import torch

from transformer_lit.block.layers import DecoderLayer


def torch_weights(layer):
    "The weights of one of our layers under torch's names."
    attns, residuals = {"self_attn": layer.attn}, [layer.attn_residual, layer.ffn_residual]
    if isinstance(layer, DecoderLayer):
        attns["multihead_attn"] = layer.cross_attn
        residuals.insert(1, layer.cross_residual)
    named = {}
    for name, attn in attns.items():
        for kind in ("weight", "bias"):
            rows = [getattr(proj, kind) for proj in (attn.q_proj, attn.k_proj, attn.v_proj)]
            named[f"{name}.in_proj_{kind}"] = torch.cat(rows)
            named[f"{name}.out_proj.{kind}"] = getattr(attn.o_proj, kind)
    parts = {"linear1": layer.ffn.up_proj, "linear2": layer.ffn.down_proj}
    parts |= {f"norm{i}": residual.norm for i, residual in enumerate(residuals, 1)}
    for name, part in parts.items():
        named |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    return named
