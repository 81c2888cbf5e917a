"""Llama's sizes, its shared plug, and one graph for a step; its logits: see test_families."""

import subprocess
import sys

import pytest
import torch

from transformer_lit.exercises import check
from transformer_lit.exercises.llama import MyLlama as MyLlamaReference
from transformer_lit.models.llama import Llama, LlamaConfig

SIZES = {"vocab_size": 103, "d_model": 66, "n_layers": 3, "n_heads": 6, "d_ff": 43}


# Published counts: LLaMA's and Llama 2's checkpoints hold 6,738,415,616 (7B), 13,015,864,320 (13B),
# 65,285,660,672 (65B) and 68,976,648,192 (Llama 2 70B) parameters, Llama 3's 8,030,261,248 (8B).
@pytest.mark.parametrize(
    ("sizes", "published"),
    [
        ({}, 6_738_415_616),
        ({"d_model": 5120, "n_layers": 40, "n_heads": 40, "d_ff": 13_824}, 13_015_864_320),
        ({"d_model": 8192, "n_layers": 80, "n_heads": 64, "d_ff": 22_016}, 65_285_660_672),
        (
            {"d_model": 8192, "n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "d_ff": 28_672},
            68_976_648_192,
        ),
        ({"vocab_size": 128_256, "n_kv_heads": 8, "d_ff": 14_336}, 8_030_261_248),
    ],
    ids=["LLaMA 7B", "LLaMA 13B", "LLaMA 65B", "Llama 2 70B", "Llama 3 8B"],
)
def test_published_sizes_are_counted_from_the_config_alone(sizes, published):
    with torch.device("meta"):
        model = Llama(LlamaConfig(**sizes))
    assert sum(p.numel() for p in model.parameters()) == published


def test_it_has_no_biases_and_an_output_layer_of_its_own():
    model = Llama(LlamaConfig(**SIZES, d_head=22))
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]
    assert model.lm_head.weight is not model.tok_emb.weight
    tied = Llama(LlamaConfig(**SIZES, d_head=22, tied=True))
    assert tied.lm_head.weight is tied.tok_emb.weight


def test_all_layers_share_one_plug_and_it_is_not_saved():
    model = Llama(LlamaConfig(**SIZES, d_head=22))
    assert len({id(layer.attn.position) for layer in model.layers}) == 1
    assert not [name for name in model.state_dict() if "position" in name]


def test_built_on_the_meta_device_it_computes_once_it_has_weights():
    with torch.device("meta"):
        empty = Llama(LlamaConfig(**SIZES, d_head=22))
    full = Llama(LlamaConfig(**SIZES, d_head=22)).eval()
    empty = empty.to_empty(device="cpu").eval()
    empty.load_state_dict(full.state_dict())
    ids = torch.randint(103, (2, 17))
    torch.testing.assert_close(empty(ids), full(ids), rtol=0, atol=0)


def test_it_reads_beyond_the_length_of_its_training():
    model = Llama(LlamaConfig(**SIZES, d_head=22, max_len=5)).eval()
    assert model(torch.randint(103, (1, 31))).isfinite().all()


@pytest.mark.parametrize(
    "change,line",
    [
        ({"tied": True}, "shares the token table"),
        ({"bias": True}, "`lm_head.bias` is a bias"),
        ({"norms": 1}, "5 norms, one of them after the last layer, not 3"),
    ],
)
def test_the_exercise_says_which_weights_are_too_many_or_missing(change, line):
    class MyLlama(MyLlamaReference):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            if change.get("tied"):
                self.lm_head.weight = self.tok_emb.weight
            if change.get("bias"):
                self.lm_head = torch.nn.Linear(sizes[1], sizes[0])
            for block in self.blocks if "norms" in change else ():
                block.ffn_norm = torch.nn.Identity()

    verdict = check("llama.3", MyLlama)
    assert verdict.state == "not yet" and line in verdict.line
    assert "raised" not in verdict.line


STEPS = """
import torch
from transformer_lit.attention.cache import GrowingCache
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig

torch.set_default_dtype(torch.float64)
sizes = {"d_model": 28, "n_layers": 2, "n_heads": 2, "d_ff": 13, "max_len": 7}
growing, ids = [GrowingCache(), GrowingCache()], torch.arange(21).view(3, 7)
gpt, llama = GPT(GPTConfig(31, **sizes)), Llama(LlamaConfig(31, **sizes))
for model, caches in ((gpt, None), (llama, growing)):
    state = model.eval().start(3, 7)
    state.caches = caches or state.caches
    with torch.inference_mode():
        model.step(ids[:, :3], state)
        torch.compiler.reset()  # or the second would count as a recompilation of the first
        step = torch.compile(lambda x: model.step(x, state), fullgraph=True, backend="eager")
        out = [step(ids[:, t : t + 1]) for t in range(3, 7)]
        torch.testing.assert_close(torch.cat(out, 1), model(ids)[:, 3:])
    assert state.length == 7
"""


@pytest.mark.machinery
def test_a_decoding_step_is_one_graph():
    """Tables, positions and both caches in it.

    In a process of its own: the checks of shapes that the tests add are no part of the step.
    """
    subprocess.run([sys.executable, "-c", STEPS], check=True)
