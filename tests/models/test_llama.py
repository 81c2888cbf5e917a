"""Llama gives HF's logits and words for every grouping of heads, with and without a cache."""

import pytest
import torch
from decoders import assert_greedy_agrees, assert_padding_is_ignored, assert_steps_give_one_pass
from transformers import LlamaConfig as HFConfig
from transformers import LlamaForCausalLM
from wide import Wide

from transformer_lit.exercises import check
from transformer_lit.exercises.llama import MyLlama as MyLlamaReference
from transformer_lit.models.llama import Llama, LlamaConfig

SIZES = {"vocab_size": 103, "d_model": 66, "n_layers": 3, "n_heads": 6, "d_ff": 43}


def hf_names(theirs, n_layers):
    ours = {
        "tok_emb.weight": theirs["model.embed_tokens.weight"],
        "lm_head.weight": theirs["lm_head.weight"],
        "final_norm.weight": theirs["model.norm.weight"],
    }
    for i in range(n_layers):
        h, to = f"model.layers.{i}", f"layers.{i}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            ours[f"{to}.attn.{name}.weight"] = theirs[f"{h}.self_attn.{name}.weight"]
        for name in ("gate_proj", "up_proj", "down_proj"):
            ours[f"{to}.ffn.{name}.weight"] = theirs[f"{h}.mlp.{name}.weight"]
        ours[f"{to}.attn_residual.norm.weight"] = theirs[f"{h}.input_layernorm.weight"]
        ours[f"{to}.ffn_residual.norm.weight"] = theirs[f"{h}.post_attention_layernorm.weight"]
    return ours


@pytest.fixture(params=[(6, 11), (3, 11), (2, 7), (1, 11)], ids=lambda p: f"K={p[0]} D={p[1]}")
def both(request):
    "HF's Llama with every weight drawn, and ours with the same weights; odd D would be refused."
    K, half = request.param
    D, eps = 2 * half, 1e-5
    config = HFConfig(
        vocab_size=103,
        hidden_size=66,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=K,
        head_dim=D,
        intermediate_size=43,
        rms_norm_eps=eps,
        max_position_embeddings=71,
        rope_parameters={"rope_type": "default", "rope_theta": 5003.0},
        bos_token_id=1,
        eos_token_id=None,
    )
    with Wide():
        theirs = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
    ours = Llama(LlamaConfig(**SIZES, n_kv_heads=K, d_head=D, eps=eps, rope_base=5003.0)).eval()
    ours.load_state_dict(hf_names(theirs.state_dict(), 3))
    return ours, theirs


def test_logits_are_those_of_hf(both):
    ours, theirs = both
    ids = torch.randint(103, (3, 67))
    with Wide():
        expected = theirs(ids).logits
    torch.testing.assert_close(ours(ids), expected)


@pytest.mark.machinery
def test_greedy_continuations_are_those_of_hf(both):
    assert_greedy_agrees(*both, 103)


@pytest.mark.parametrize("chunks", [(1,) * 11, (5, 1, 1, 4), (11,), (7, 4)])
def test_decoding_with_a_state_gives_the_logits_of_one_pass(both, chunks):
    assert_steps_give_one_pass(both[0], 103, chunks)


def test_rows_of_unequal_length_are_padded_on_the_left():
    assert_padding_is_ignored(Llama(LlamaConfig(**SIZES, d_head=22)).eval(), 103)


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


def test_a_stack_without_layers_is_refused():
    with pytest.raises(ValueError, match="n_layers must be a positive whole number, got 0"):
        LlamaConfig(**SIZES | {"n_layers": 0})


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
