"""Qwen3-Next and ModernBERT: HF's logits, gradients and words, and each part is needed for them."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from checkpoints import (
    assert_refused,
    eps,
    folder_with,
    gap_without,
    hold_cuts,
    hold_greedy,
    hold_return,
    logits,
    reconfigure,
    rewrite,
    wide_model,
    without,
    zero,
)
from safetensors.torch import load_file
from torch import nn
from wide import Wide

from transformer_lit.attention.attend import attend
from transformer_lit.attention.cache import KVCache
from transformer_lit.attention.fused import attend_fused
from transformer_lit.attention.linear import StateCache
from transformer_lit.attention.multihead import MultiHeadAttention, Position
from transformer_lit.block.experts import Experts
from transformer_lit.block.norm import RMSNorm
from transformer_lit.course.files import InputError
from transformer_lit.models.bert import Bert
from transformer_lit.models.decoders import GatedAttention, GatedExpert, PartialRoPE
from transformer_lit.models.hf import all_made_from
from transformer_lit.models.hf_build import (
    FAMILIES,
    TwoSidedWindow,
    load_hf,
    save_hf,
    shared_names,
)
from transformer_lit.models.llama import Llama
from transformer_lit.position.rope import RoPE

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # but for the tests of whole passes

V = 103
SIZES = {"vocab_size": V, "num_attention_heads": 6, "intermediate_size": 43}
SIZES |= {"max_position_embeddings": 71, "bos_token_id": 1, "eos_token_id": None}
NEXT = {**SIZES, "hidden_size": 85, "num_hidden_layers": 5, "rms_norm_eps": 0.01}
NEXT |= {"num_key_value_heads": 3, "head_dim": 24, "mlp_only_layers": [1]}
NEXT |= {"num_experts_per_tok": 2, "num_experts": 7, "experts_implementation": "eager"}
NEXT |= {"moe_intermediate_size": 13, "shared_expert_intermediate_size": 17}
NEXT |= {"linear_num_key_heads": 3, "linear_num_value_heads": 6}
NEXT |= {"linear_key_head_dim": 11, "linear_value_head_dim": 11}
ROPE = {"rope_type": "default", "rope_theta": 503.0, "partial_rotary_factor": 0.25}
YARN = {"rope_type": "yarn", "rope_theta": 503.0, "partial_rotary_factor": 0.75, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 31, "beta_fast": 5}
KINDS = ["full_attention", "linear_attention", "full_attention"]
OTHER = {**NEXT, "num_hidden_layers": 3, "layer_types": KINDS, "norm_topk_prob": False}
OTHER |= {"tie_word_embeddings": True, "linear_num_key_heads": 6, "decoder_sparse_step": 2}
OTHER |= {"mlp_only_layers": []}
MODERN = {**SIZES, "hidden_size": 84, "num_hidden_layers": 5, "norm_eps": 0.01, "pad_token_id": 0}
MODERN |= {"local_attention": 14, "cls_token_id": 1, "sep_token_id": 2}
MODERN |= {"global_rope_theta": 503.0, "local_rope_theta": 53.0}

NEXTS, MASKED = hf.Qwen3NextForCausalLM, hf.ModernBertForMaskedLM
MODELS = {
    "qwen3-next": (NEXTS, hf.Qwen3NextConfig(**NEXT, rope_parameters=ROPE)),
    "qwen3-next other": (NEXTS, hf.Qwen3NextConfig(**OTHER, rope_parameters=YARN)),
    "modernbert": (MASKED, hf.ModernBertConfig(**MODERN)),
    "modernbert untied": (
        MASKED,
        hf.ModernBertConfig(
            **{**MODERN, "num_hidden_layers": 3, "local_attention": 9},
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            tie_word_embeddings=False,
        ),
    ),
    "modernbert states": (hf.ModernBertModel, hf.ModernBertConfig(**MODERN)),
}
WRITING = [name for name in MODELS if name.startswith("qwen")]
READING = [name for name in MODELS if name not in WRITING]


def theirs(name):
    return wide_model(*MODELS[name])


def folder_of(name, tmp_path):
    return folder_with(theirs, name, tmp_path)


def asked(model, ids, **more):
    "Their logits, or the states of a model that has none."
    with Wide(), torch.no_grad():
        return model(ids, **more)[0]


def padded():
    "Ids, longer than any window, and what is real among them."
    ids = torch.randint(1, V, (3, 53))
    return ids, torch.arange(53) < torch.tensor([[53], [23], [1]])


# --- the same numbers ---------------------------------------------------------------------------


@pytest.mark.usefixtures("shape_checks")
@pytest.mark.parametrize("name", WRITING)
def test_logits_are_those_of_hf(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ids, ours = torch.randint(V, (3, 67)), load_hf(folder).double()
    assert type(ours) is Llama and not ours.training
    torch.testing.assert_close(ours(ids), logits(model, ids))  # in chunks of 64


@pytest.mark.usefixtures("shape_checks")
@pytest.mark.parametrize("name", READING)
def test_logits_and_states_are_those_of_hf_with_padding_and_without(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    (ids, keep), ours = padded(), load_hf(folder).double()
    assert type(ours) is Bert and not ours.training
    expected = asked(model, ids, attention_mask=keep.long())
    torch.testing.assert_close(ours(ids, keep)[keep], expected[keep])
    torch.testing.assert_close(ours(ids), asked(model, ids))


@pytest.mark.parametrize("name", ["qwen3-next", "qwen3-next other", "modernbert"])
def test_gradients_are_those_of_hf(name, tmp_path):
    "Ours go back through what the table of names makes of theirs: each entry has its gradient."
    folder, model = folder_of(name, tmp_path)
    held, ids = load_file(folder / "model.safetensors"), torch.randint(1, V, (2, 29))  # no padding
    with Wide():
        F.cross_entropy(model(ids).logits.mT, ids).backward()
    gradients = copy.deepcopy(model)
    for parameter, own in zip(gradients.parameters(), model.parameters()):
        parameter.data = torch.zeros_like(own) if own.grad is None else own.grad
    gradients.save_pretrained(tmp_path / "gradients")  # under the names of a folder
    expected = load_file(tmp_path / "gradients/model.safetensors")
    ours = load_hf(folder).double()
    F.cross_entropy(ours(ids).mT, ids).backward()
    family = FAMILIES[type(model).__name__]

    def spelt(there):
        for pattern, replacement in family.spellings:
            there = re.sub(pattern, replacement, there)
        return there

    leaves = {spelt(n): x.double().requires_grad_() for n, x in held.items()}
    total = 0
    for first, *names in shared_names(ours):
        found = [one for n in (first, *names) for one in all_made_from(n, family.names)]
        made = next(one for one in found if leaves.keys() >= {*one.names})
        grad = ours.get_parameter(first).grad
        with Wide():
            x = [leaves[n] for n in made.names]
            x = made.make(*x) if made.make else x[0]
        total = total + (x * (torch.zeros_like(x) if grad is None else grad)).sum()
    total.backward()
    assert leaves.keys() == {*map(spelt, expected)}
    for there, grad in expected.items():
        torch.testing.assert_close(leaves[spelt(there)].grad, grad)


@pytest.mark.parametrize(("name", "count"), [("qwen3-next", 1), ("qwen3-next other", 20)])
def test_random_cuts_of_a_prompt_give_the_references_logits(name, count, tmp_path):
    hold_cuts(*folder_of(name, tmp_path), 17, count)


def test_each_layer_has_a_cache_of_its_kind_and_rows_change_places(tmp_path):
    ours, ids = load_hf(folder_of("qwen3-next", tmp_path)[0]).double(), torch.randint(V, (2, 11))
    state = ours.start(2, 13)
    kinds = [type(cache) for cache in state.caches]
    assert kinds == [StateCache, StateCache, StateCache, KVCache, StateCache]
    ours.step(ids, state)
    state.select(torch.tensor([1, 1, 0]))
    more, rows = torch.randint(V, (3, 2)), ids[[1, 1, 0]]
    torch.testing.assert_close(ours.step(more, state), ours(torch.cat([rows, more], 1))[:, 11:])


def test_a_state_cannot_go_back_and_hides_nothing(tmp_path):
    ours, ids = load_hf(folder_of("qwen3-next", tmp_path)[0]), torch.randint(V, (2, 11))
    state = ours.start(2, 13)
    ours.step(ids, state)
    state.truncate(11)
    with pytest.raises(ValueError, match="after 11 positions cannot go back to 7"):
        state.truncate(7)
    with pytest.raises(ValueError, match="by a mask"):
        ours(ids, mask=torch.ones(2, 1, 1, 11, dtype=torch.bool))


@pytest.mark.machinery
@pytest.mark.parametrize("name", WRITING)
def test_greedy_continuations_are_those_of_hf(name, tmp_path):
    hold_greedy(*folder_of(name, tmp_path))


# --- each part matters --------------------------------------------------------------------------


def of_gated(change):
    return lambda model: [
        change(x.attn) for x in model.layers if isinstance(x.attn, GatedAttention)
    ]


def of_experts(change):
    return lambda model: [change(x.ffn) for x in model.layers if isinstance(x.ffn, Experts)]


def plain_gains(model):
    "Gains as they lie in the folder."
    for part in model.modules():
        if isinstance(part, RMSNorm):
            part.weight.data.sub_(1)


def behind(gated):
    "The gate behind `o_proj`, as wide as C."
    gated.g_proj.weight.data = gated.g_proj.weight.data[: gated.o_proj.out_features]
    gated.attn.o_proj, gated.o_proj = gated.o_proj, nn.Identity()


def of_windows(change):
    return lambda model: [
        change(x.attn) for x in model.layers if isinstance(x.attn.attend, TwoSidedWindow)
    ]


def sets(name, value):
    return lambda part: setattr(part, name, value)


NORMS = {
    "norm of attention": without("attn_residual.norm"),
    "norm of feed-forward": without("ffn_residual.norm"),
    "eps": eps,
}
PARTS = {
    "qwen3-next": {
        **NORMS,
        "last norm": without("final_norm"),
        "1 in the gains": plain_gains,
        "causal": of_gated(lambda x: setattr(x.attn, "causal", False)),
        "scale": of_gated(lambda x: setattr(x.attn, "scale", 1.0)),
        "gate of the heads": zero("attn.g_proj.weight"),
        "gate before o_proj": of_gated(behind),
        "position": of_gated(lambda x: setattr(x.attn, "position", Position())),
        "part of the head": of_gated(lambda x: setattr(x.attn, "position", RoPE(24, 503.0))),
        "base": of_gated(lambda x: setattr(x.attn, "position", PartialRoPE(RoPE(6)))),
        "norm of q": of_gated(lambda x: x.attn.q_proj.__setitem__(1, nn.Identity())),
        "norm of k": of_gated(lambda x: x.attn.k_proj.__setitem__(1, nn.Identity())),
        "decay": zero("attn.A_log"),
        "shift of the decay": zero("attn.dt_bias"),
        "strength of writing": zero("attn.b_proj.weight"),
        "gate of the state": zero("attn.z_proj.weight"),
        "convolution": lambda model: [
            x.attn.conv.weight.data.copy_(torch.tensor([0, 0, 0, 1.0]))
            for x in model.layers
            if not isinstance(x.attn, GatedAttention)
        ],
        "norm of the state's heads": without("attn.norm"),
        "a choice": of_experts(lambda x: setattr(x.router, "k", 1)),
        "division": of_experts(lambda x: setattr(x.router, "renormalise", False)),
        "order of experts": of_experts(lambda x: setattr(x, "experts", x.experts[::-1])),
        "shared expert": of_experts(lambda x: setattr(x, "shared", None)),
        "gate of the shared expert": of_experts(lambda x: setattr(x, "shared", x.shared.ffn)),
    },
    "qwen3-next other": {
        "division": of_experts(lambda x: setattr(x.router, "renormalise", True)),
        "rope scaling": of_gated(lambda x: setattr(x.attn.position, "rope", RoPE(18, 503.0))),
    },
    "modernbert": {
        **NORMS,
        "norm of the tokens": sets("norm", nn.Identity()),
        "last norm": lambda model: model.transform.__setitem__(0, nn.Identity()),
        "activation of the output": lambda model: model.transform.__setitem__(2, nn.Identity()),
        "norm of the output": lambda model: model.transform.__setitem__(3, nn.Identity()),
        "offset of the output": zero("lm_head.bias"),
        "no first norm": lambda model: setattr(
            model.layers[0].attn_residual, "norm", nn.LayerNorm(84, bias=False).double()
        ),
        "branches": lambda model: [
            setattr(x.ffn, "gate_proj", x.ffn.up_proj) or setattr(x.ffn, "up_proj", gate)
            for x in model.layers
            for gate in [x.ffn.gate_proj]
        ],
        "gelu": lambda model: [setattr(x.ffn, "activation", F.silu) for x in model.layers],
        "windows": of_windows(sets("attend", attend_fused)),
        "wider windows": of_windows(sets("attend", TwoSidedWindow(8))),
        "narrower windows": of_windows(sets("attend", TwoSidedWindow(6))),
        "base of windows": of_windows(sets("position", RoPE(14, 503.0))),
        "base of the whole": lambda model: [
            setattr(model.layers[i].attn, "position", RoPE(14, 53.0)) for i in (0, 3)
        ],
    },
    "modernbert untied": {
        "kinds of layers": lambda model: setattr(
            model.layers[0].attn, "attend", model.layers[1].attn.attend
        ),
    },
    "modernbert states": {
        "last norm": lambda model: model.transform.__setitem__(0, nn.Identity()),
    },
}


@pytest.mark.parametrize(("name", "part"), [(n, p) for n, parts in PARTS.items() for p in parts])
def test_without_a_part_the_logits_are_others(name, part, tmp_path_factory):
    gap = gap_without(PARTS[name][part], name, folder_of, tmp_path_factory, ask=asked)
    assert gap > 1e-4  # a thousand times what parity leaves


@pytest.mark.parametrize("size", [0, 2, 5, 11])
def test_a_window_of_two_sides_sees_what_is_near(size):
    q, k, v = torch.randn(2, 6, 7, 5), torch.randn(2, 3, 7, 5), torch.randn(2, 3, 7, 5)
    sees = torch.tensor([[abs(t - s) <= size for s in range(7)] for t in range(7)])
    keep = torch.rand(2, 1, 1, 7) < 0.7
    for kernel in (attend, attend_fused):
        plug = TwoSidedWindow(size, kernel)
        torch.testing.assert_close(plug(q, k, v), attend(q, k, v, mask=sees[None, None]))
        torch.testing.assert_close(plug(q, k, v, mask=keep), attend(q, k, v, mask=sees & keep))


def test_a_gate_takes_any_attention_and_leaves_none_of_its_output_layer():
    plain = MultiHeadAttention(7, 3, d_head=5, causal=True)
    before, x = copy.deepcopy(plain), torch.randn(2, 5, 7)
    gated = GatedAttention(plain)
    nn.init.zeros_(gated.g_proj.weight)  # σ(0) = 1/2
    torch.testing.assert_close(gated(x), before(x) / 2)
    assert {n.partition(".")[0] for n, _ in gated.named_parameters()} == {
        "attn",
        "o_proj",
        "g_proj",
    }
    expert = GatedExpert(nn.Linear(7, 7), 7)
    nn.init.zeros_(expert.gate.weight)
    torch.testing.assert_close(expert(x), expert.ffn(x) / 2)


# --- real folders -------------------------------------------------------------------------------


def test_qwen3_next_as_it_was_published(tmp_path):
    "As version 4 writes it, and with the part that predicts more tokens."
    folder, model = folder_of("qwen3-next", tmp_path)
    ids = torch.randint(V, (2, 19))
    reconfigure(folder, layer_types=..., rope_parameters=..., norm_topk_prob=...)
    reconfigure(folder, rope_theta=503.0, rope_scaling=None, partial_rotary_factor=0.25)
    reconfigure(folder, full_attention_interval=4)
    rewrite(folder, lambda x: x | {"mtp.fc.weight": torch.ones(85, 170)})
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))
    reconfigure(folder, partial_rotary_factor=..., full_attention_interval=...)  # are the same
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))


@pytest.mark.parametrize("name", ["modernbert", "modernbert states"])
def test_modernbert_as_it_was_published(name, tmp_path):
    "As version 4 writes it, and with or without what the other of both architectures has."
    folder, model = folder_of(name, tmp_path)
    (ids, keep) = padded()
    expected = asked(model, ids, attention_mask=keep.long())[keep]
    reconfigure(folder, layer_types=..., rope_parameters=..., global_attn_every_n_layers=3)
    reconfigure(folder, global_rope_theta=503.0, local_rope_theta=53.0)
    if name == "modernbert":
        table = "model.embeddings.tok_embeddings.weight"
        rewrite(folder, lambda x: x | {"decoder.weight": x[table].clone()})
    else:
        rest = {"head.dense.weight": torch.ones(84, 84), "decoder.bias": torch.ones(V)}
        rewrite(folder, lambda x: {f"model.{n}": t for n, t in x.items()} | rest)
    torch.testing.assert_close(load_hf(folder).double()(ids, keep)[keep], expected)


def test_bases_that_no_folder_says_are_those_of_the_paper(tmp_path):
    folder, _ = folder_of("modernbert", tmp_path)
    reconfigure(folder, rope_parameters=..., global_rope_theta=..., local_rope_theta=...)
    bases = [layer.attn.position.base for layer in load_hf(folder).layers]
    assert bases == [160_000.0, 10_000.0, 10_000.0, 160_000.0, 10_000.0]


@pytest.mark.parametrize("name", ["qwen3-next", "modernbert"])
def test_a_gain_that_is_kept_in_16_bits_is_exact(name, tmp_path):
    "1 + w is computed in 32 bits: bfloat16 would round it."
    folder, model = folder_of(name, tmp_path)
    rewrite(folder, lambda tensors: {n: x.bfloat16() for n, x in tensors.items()})
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().double()
    ids = torch.randint(V, (2, 19))
    torch.testing.assert_close(load_hf(folder).double()(ids), logits(model, ids))
    assert load_hf(folder, dtype=torch.bfloat16)(ids).dtype == torch.bfloat16


# --- refused ------------------------------------------------------------------------------------

AT = "model.layers.0.linear_attn.in_proj_ba.weight"


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("qwen3-next", {"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim to 3"),
        ("qwen3-next", {"linear_value_head_dim": 7}, "linear_value_head_dim to 7"),
        ("qwen3-next", {"layer_types": ["sliding_attention"] * 5}, "sliding_attention.* not built"),
        ("qwen3-next", {"layer_types": KINDS}, "for 5 layers; not built"),
        ("qwen3-next", {"attention_bias": True}, "attention_bias to True"),
        ("qwen3-next", {"use_sliding_window": True}, "use_sliding_window to True"),
        ("qwen3-next", {"num_experts": ...}, "does not say num_local_experts"),
        ("qwen3-next", {"linear_num_key_heads": 4}, "not a multiple of n_kv_heads=4"),
        ("qwen3-next", {"rope_parameters": ROPE | {"partial_rotary_factor": 0.3}}, "must be even"),
        ("qwen3-next", {"num_hidden_layers": 7, "layer_types": ...}, "to 7; tensors are of 5"),
        ("modernbert", {"norm_bias": True}, "norm_bias to True"),
        ("modernbert", {"attention_bias": True}, "attention_bias to True"),
        ("modernbert", {"mlp_bias": True}, "mlp_bias to True"),
        ("modernbert", {"decoder_bias": False}, "decoder_bias to False"),
        ("modernbert", {"classifier_bias": True}, "classifier_bias to True"),
        ("modernbert", {"hidden_activation": "silu"}, "hidden_activation to 'silu'"),
        ("modernbert", {"classifier_activation": "silu"}, "classifier_activation to 'silu'"),
        ("modernbert", {"layer_types": KINDS}, "linear_attention.* for 5 layers; not built"),
        ("modernbert", {"local_attention": -1}, "at least 0 positions, got -1"),
        ("modernbert", {"local_attention": ...}, "does not say local_attention"),
    ],
    ids=lambda x: "",
)
def test_a_setting_that_is_not_built_is_refused(name, settings, words, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    reconfigure(folder, **settings)
    assert_refused(load_hf, folder, words)


def test_a_tensor_missing_or_too_many_or_of_a_wrong_shape_is_named(tmp_path):
    folder, _ = folder_of("qwen3-next", tmp_path)
    held = load_file(folder / "model.safetensors")
    for change, words in (
        (lambda x: {n: x[n] for n in x if n != AT}, f"lacks {AT} and 5 more$"),
        (lambda x: x | {"model.layers.0.linear_attn.D": torch.ones(6)}, "reads: .*linear_attn.D$"),
        (lambda x: x | {AT: torch.ones(14, 85)}, r"ba.weight \(14, 85\).* cannot be made from it"),
    ):
        rewrite(folder, lambda _, change=change: change(held))
        assert_refused(load_hf, folder, words)


@pytest.mark.parametrize("name", MODELS)
def test_it_goes_out_and_comes_back(name, tmp_path):
    hold_return(*folder_of(name, tmp_path), tmp_path, ask=asked)


@pytest.mark.parametrize("read", [True, False])
def test_what_no_folder_can_say_is_not_written(read, tmp_path):
    model = load_hf(folder_of("qwen3-next", tmp_path)[0])
    model.layers = model.layers[:3]
    if not read:
        del model.settings
    words = "layers.3 is nothing" if read else "layers.0.attn is GatedDeltaNet"
    with pytest.raises(InputError, match=words):
        save_hf(model, tmp_path / "out")


def test_both_families_are_tested():
    classes = {build.__name__ for build, _ in MODELS.values()}
    assert classes <= set(FAMILIES)
    assert classes == {"Qwen3NextForCausalLM", "ModernBertForMaskedLM", "ModernBertModel"}
