"""What a module is built of is in its repr: printed, a model tells its sizes."""

import inspect
import pkgutil
import re
from importlib import import_module

from torch import nn

import transformer_lit
from transformer_lit import load
from transformer_lit.block.norm import LayerNorm, RMSNorm

SIZES = {"d_model": 46, "n_layers": 3, "n_heads": 2, "d_ff": 37}
MODEL = {"vocab_size": 53, **SIZES}
BUILT = {  # by the name of its class: what it is built of
    "TokenEmbedding": {"vocab_size": 53, "d_model": 29},
    "Position": {},
    "MultiHeadAttention": {"d_model": 35, "n_heads": 15, "n_kv_heads": 3, "d_head": 7},
    "AdditiveAttention": {"d_model": 13, "d_memory": 17, "d_score": 19},
    "SinkLogit": {"n_heads": 7},
    "LatentAttention": {"d_model": 35, "n_heads": 3, "rank": 11, "d_head": 13, "d_rope": 6}
    | {"d_value": 17, "q_rank": 19},
    "ShortConv": {"channels": 29, "width": 5},
    "GatedDeltaNet": {"d_model": 35, "n_heads": 15, "n_key_heads": 3, "d_head": 7},
    "Sinusoidal": {"d_model": 46},
    "LearnedPosition": {"max_len": 71, "d_model": 29},
    "RoPE": {"d_head": 46, "base": 503.0},
    "ALiBi": {"n_heads": 7},
    "T5Bias": {"n_heads": 7, "n_buckets": 26, "max_distance": 83},
    "TransformerXLBias": {"d_model": 46, "n_heads": 2},
    "DisentangledBias": {"d_model": 46, "n_heads": 2, "max_distance": 83, "n_buckets": 18},
    "LayerNorm": {"d_model": 29, "eps": 0.03},
    "RMSNorm": {"d_model": 29, "eps": 0.03},
    "FeedForward": {"d_model": 29, "d_ff": 37},
    "GatedFeedForward": {"d_model": 29, "d_ff": 37},
    "ClampedFeedForward": {"d_model": 29, "d_ff": 37, "limit": 3.5, "alpha": 1.3},
    "SoftmaxRouter": {"d_model": 29, "n_experts": 15, "k": 4},
    "SigmoidRouter": {"d_model": 29, "n_experts": 15, "k": 4, "scale": 2.5},
    "GroupedRouter": {"d_model": 29, "n_experts": 15, "k": 4, "n_groups": 5, "k_groups": 3},
    "PostNorm": {"norm": LayerNorm(29), "dropout": 0.07},
    "PreNorm": {"norm": LayerNorm(29), "dropout": 0.07},
    "SandwichNorm": {"norm_in": LayerNorm(29), "norm_out": RMSNorm(31), "dropout": 0.07},
    "DeepNorm": {"norm": LayerNorm(29), "alpha": 1.7, "dropout": 0.07},
    "PerHead": {"norm": RMSNorm(29), "d_head": 29},
    "Capped": {"cap": 30.5},
    "RoundedScale": {"scale": 0.3},
    "Scaled": {"scale": 0.3},
    "Transformer": MODEL,
    "Bert": {**MODEL, "max_len": 71},
    "GPT": {**MODEL, "max_len": 71},
    "Llama": {**MODEL, "n_kv_heads": 1, "d_head": 10, "rope_base": 503.0, "eps": 0.03},
    "Recurrent": {"vocab_size": 53, "d_model": 46},
}
PARTS = {"EncoderLayer", "DecoderLayer", "EncoderDecoder", "DecoderOnly", "InBlocks"}  # theirs say
PARTS |= {"LeftPadded", "Experts", "Interleaved", "SentenceEncoder"}
PARTS |= {"PartialRoPE", "GatedAttention", "GatedExpert"}
PARTS |= {"MTPModule", "MultiToken", "ValueEmbedding"}
NOTHING = {"FixedVector", "Nothing"}  # built of nothing
NOTHING |= {"Linear8", "Linear4", "Embedding8"}  # or of tensors


def modules():
    "Every public module of the package, by name."
    for part in ("text", "attention", "position", "block", "models", "inference", "training"):
        folder = [f"{transformer_lit.__path__[0]}/{part}"]
        for found in pkgutil.iter_modules(folder, f"transformer_lit.{part}."):
            home = import_module(found.name)
            for name in home.__all__:
                kind = getattr(home, name)
                if inspect.isclass(kind) and issubclass(kind, nn.Module):
                    yield name, kind, home


FOUND = {name: (kind, home) for name, kind, home in modules()}


def test_no_module_is_forgotten():
    assert set(FOUND) == {*BUILT, *PARTS, *NOTHING}


def test_the_sizes_that_build_it_are_in_its_repr():
    for name, built in BUILT.items():
        kind, home = FOUND[name]
        config = getattr(home, f"{name}Config", None)
        said = repr(kind(config(**built)) if config else kind(**built))
        numbers = {float(n) for n in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?", said)}
        wanted = {n for n in built.values() if isinstance(n, int | float)}
        wanted -= {2} if name == "DisentangledBias" else set()  # its heads: in the attention
        assert wanted <= numbers, said


def test_a_trained_model_says_what_it_is():
    said = repr(load("multi30k-en-de"))
    assert re.fullmatch(
        r"Translator\(Transformer, parameters=[\d_]+, vocab_size=\d+, dataset='multi30k', "
        r"source='en', target='de', device='cpu'\)",
        said,
    ), said
