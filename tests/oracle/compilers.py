"""Every model through torch's compiler and exporters, in a process of its own.

The checks of shapes that the tests add are no part of a graph; importing torch is paid for once:
`python tests/oracle/compilers.py WAY MODEL…`.
"""

import copy
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
import transformers as hf
from test_decoders import MODELS as decoders
from test_encoders import MODELS as encoders
from torch import nn

from transformer_lit.attention.cache import GrowingCache
from transformer_lit.attention.masks import length_mask, padding_mask
from transformer_lit.models.assembly import POSITIONS, AssemblyConfig, assemble
from transformer_lit.models.bert import Bert
from transformer_lit.models.decoders import _DEPTHS as DEPTHS
from transformer_lit.models.decoders import Settings
from transformer_lit.models.gpt import DecoderOnly
from transformer_lit.models.hf_build import FAMILIES
from transformer_lit.models.recurrent import Recurrent, RecurrentConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig

V, C = 53, 44
SIZES = {"vocab_size": V, "d_model": C, "n_layers": 1, "n_heads": 2, "d_ff": 37, "dropout": 0.0}
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def settings(kind, config):
    "Two layers, no dropout, and all of the experts: of two alike, 16 bits may choose another."
    told = config.to_dict()
    told |= {name: 0.0 for name in told if "dropout" in name or name.endswith("drop")}
    told |= {name: min(told[name], 2) for name in DEPTHS.split() if told.get(name)}
    for name in EXPERTS:
        told["num_experts_per_tok"] = told.get(name, told.get("num_experts_per_tok"))
    if "num_expert_group" in told:  # all of the experts are of all groups
        told["topk_group"] = told["num_expert_group"]
    told["layer_types"] = (told.get("layer_types") or [])[:2]
    return Settings(told | {"architectures": [kind.__name__]})


found = [(hf.AutoModelForCausalLM._model_mapping[type(x)], x) for x in decoders.values()]
found += [(kind, x) for kind, x in encoders.values() if isinstance(kind, type)]
PUBLISHED = {kind.__name__: settings(kind, config) for kind, config in found}
MODELS = {name: partial(FAMILIES[name].build, told) for name, told in PUBLISHED.items()}
MODELS |= {
    "transformer": lambda: Transformer(TransformerConfig(**SIZES)),
    "transformer pre": lambda: Transformer(TransformerConfig(**SIZES, residual="pre")),
    "recurrent": lambda: Recurrent(RecurrentConfig(V, d_model=C, dropout=0.0)),
    "deep": lambda: assemble(AssemblyConfig(**SIZES, residual="deep")),
}
for x in POSITIONS:
    MODELS[x] = partial(assemble, AssemblyConfig(**SIZES, n_kv_heads=1, position=x))
SEVERAL = {"recurrent": "it loops over the length"}  # graphs, and why; none can be exported
SEVERAL |= {
    f"{name}ForCausalLM": "which experts are computed depends on the tokens"
    for name in ("Mixtral", "Qwen3Moe", "DeepseekV3", "GptOss", "Qwen3Next", "KimiLinear")
}
UNMASKED = tuple(
    f"{name}ForCausalLM" for name in ("Qwen3Next", "Qwen3_5", "KimiLinear")
)  # its states hide no position, and refuse a mask


def masks(name):
    "Without a padding mask, and with one where the model takes one."
    return (False,) if name in UNMASKED else (False, True)


def build(name):
    "The model, in eval mode, with weights that make each part matter."
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.empty_like(parameter).uniform_(-0.1, 0.1))
    return model


def inputs(model, masked, B=3, T=19, U=23):
    "Ids, and a padding mask where one is asked for: what the model's forward takes, by name."
    keep = length_mask(torch.tensor([T, 11, 5, 7, 3][:B]), T)  # B T
    if isinstance(model, DecoderOnly):
        words = {"ids": torch.randint(V, (B, T)), "mask": padding_mask(keep)}
    elif isinstance(model, Bert):
        words = {"ids": torch.randint(V, (B, T)), "mask": keep}
    else:
        words = {"src": torch.randint(V, (B, T)), "tgt_in": torch.randint(V, (B, U))}
        words["src_mask"] = keep
    return {name: x for name, x in words.items() if masked or "mask" not in name}


def axes(words):
    "Batch and length of each input, by name; those of source and mask are the same."
    lengths = {"tgt_in": "U"}
    return {n: {0: "B", x.ndim - 1: lengths.get(n, "T")} for n, x in words.items()}


def roundings(model):
    "At most this many results lie behind a logit, each rounded: a projection's, and what uses it."
    kinds = (nn.Linear, nn.GRU, nn.GRUCell)
    return 2 * sum(isinstance(part, kinds) for part in model.modules())


def assert_near(got, want, model, what):
    """Within n roundings of the largest number, n being those that lie behind one result.

    In float32 each result is a sum of about C terms, in another order: √C independent roundings.
    Kernels of half types add in float32, and round the result once.
    """
    u = torch.finfo(got.dtype).eps / 2
    n = roundings(model) * (C**0.5 if got.dtype == torch.float32 else 1)
    error = (got.double() - want.double()).abs().max() / want.double().abs().max()
    assert error <= n * u, f"{what}: {error / u:.0f} roundings, {n:.0f} are allowed"


def gradients(model, run, words):
    "Logits and gradients of a training step, by name."
    model.zero_grad()
    out = run(**words)
    out.square().mean().backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return out.detach(), found


def compiled(name, masked, backend):
    "A training step and a forward are those of the model without a compiler."
    model = build(name).train()
    words = inputs(model, masked)
    want, slopes = gradients(model, model, words)
    torch.compiler.reset()
    fast = torch.compile(model, backend=backend, fullgraph=name not in SEVERAL)
    got, found = gradients(model, fast, words)
    assert_near(got, want, model, "training")
    assert found.keys() == slopes.keys()
    whole = [torch.cat([g.flatten() for g in x.values()]) for x in (found, slopes)]
    assert_near(*whole, model, "gradients")
    if backend != "inductor" or masked:  # its forward is a graph of its own: once is enough
        with torch.inference_mode():
            assert_near(fast.eval()(**words), want, model, "forward")


def steps(name, masked):
    "Each decoding step is one graph, with its tables, positions and caches, growing ones too."
    model = build(name)
    ids = inputs(model, masked=False)["ids"]
    for growing in (False, True):
        state = model.start(*ids.shape)
        state.caches = [GrowingCache() for _ in model.layers] if growing else state.caches
        torch.compiler.reset()  # or the second would count as a recompilation of the first
        step = torch.compile(partial(model.step, state=state), fullgraph=True, backend="eager")
        with torch.inference_mode():
            model.step(ids[:, :13], state)
            out = [step(ids[:, t : t + 1]) for t in range(13, 19)]
            assert_near(torch.cat(out, 1), model(ids)[:, 13:], model, "steps")


def exported(name, masked):
    "The exported program, for any batch and length, gives what the model gives."
    model = build(name)
    words = inputs(model, masked)
    sizes = {axis: torch.export.Dim(axis, max=64) for axis in "BTU"}
    shapes = {n: {i: sizes[a] for i, a in cut.items()} for n, cut in axes(words).items()}
    program = torch.export.export(model, (), words, dynamic_shapes=shapes).module()
    for B, T, U in ((3, 19, 23), (5, 31, 13)):
        other = inputs(model, masked, B, T, U)
        assert_near(program(**other), model(**other), model, f"{B} {T} {U}")


def onnx(name, masked):
    "So does the program in ONNX, in a runtime that has no torch. Nothing there learns."
    import onnxruntime

    model = build(name).requires_grad_(False)
    words = inputs(model, masked)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        options = {"dynamic_shapes": axes(words), "dynamo": True, "verbose": False}
        torch.onnx.export(model, (), kwargs=words, **options).save(path)
        session = onnxruntime.InferenceSession(path)
    other = inputs(model, masked, 5, 31, 13)
    (got,) = session.run(None, {name: x.numpy() for name, x in other.items()})
    assert_near(torch.from_numpy(got), model(**other), model, "onnx")


def half(name, masked):
    "In 16 bits all results have that type and are those of the same weights in 64, but rounded."
    for dtype in (torch.bfloat16, torch.float16):
        model = build(name).to(dtype)
        words = inputs(model, masked)
        got, found = gradients(model, model, words)
        assert got.dtype == dtype and all(g.isfinite().all() for g in found.values())
        assert_near(got, copy.deepcopy(model).double()(**words).detach(), model, str(dtype))


if __name__ == "__main__":
    way, *names = sys.argv[1:]
    backend = [names.pop()] if way == "compiled" else []
    for name in names:
        for masked in masks(name):
            try:
                globals()[way](name, masked, *backend)
            except Exception as fault:
                fault.add_note(f"{way} {name}, {'with' if masked else 'without'} a padding mask")
                raise
