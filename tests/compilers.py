"""Every model through torch's compiler and exporters, in a process of its own.

The checks of shapes that the tests add are no part of a graph; importing torch is paid for once:
`python tests/compilers.py WAY MODEL…`.
"""

import copy
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

from transformer_lit.attention.masks import length_mask, padding_mask
from transformer_lit.models.assembly import POSITIONS, AssemblyConfig, assemble
from transformer_lit.models.bert import Bert, BertConfig
from transformer_lit.models.decoders import Settings
from transformer_lit.models.gpt import GPT, DecoderOnly, GPTConfig
from transformer_lit.models.hf_build import FAMILIES
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.recurrent import Recurrent, RecurrentConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig

V, C, F, N = 53, 44, 37, 1  # N: layers
OURS = {"d_model": C, "n_layers": N, "n_heads": 2, "d_ff": F, "dropout": 0.0}
COMMON = {"vocab_size": V, "hidden_size": C, "num_hidden_layers": N, "num_attention_heads": 2}
LLAMA = {**COMMON, "intermediate_size": F, "rms_norm_eps": 0.01, "max_position_embeddings": 71}
BERT = {**COMMON, "intermediate_size": F, "max_position_embeddings": 71, "layer_norm_eps": 0.01}
BERT |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODERN = {**BERT, "norm_eps": 0.01, "local_attention": 8, "layer_types": ["sliding_attention"]}
EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 13}
GEMMA = {"num_key_value_heads": 1, "head_dim": 10, "query_pre_attn_scalar": 13}
GEMMA |= {"sliding_window": 7, "final_logit_softcapping": 3.0}
T5 = {"vocab_size": V, "d_model": C, "d_ff": F, "num_heads": 2, "d_kv": 22, "num_layers": N}
MARIAN = {"vocab_size": V, "d_model": C, "decoder_vocab_size": V, "activation_function": "swish"}
for side in ("encoder", "decoder"):
    MARIAN |= {f"{side}_layers": N, f"{side}_attention_heads": 2, f"{side}_ffn_dim": F}
DEBERTA = {"type_vocab_size": 0, "position_biased_input": False, "relative_attention": True}
DEBERTA |= {"pos_att_type": "p2c|c2p", "position_buckets": 16, "share_att_key": True}
PUBLISHED = {
    "GPT2LMHeadModel": {"vocab_size": V, "n_embd": C, "n_layer": N, "n_head": 2, "n_inner": F}
    | {"n_positions": 71, "layer_norm_epsilon": 0.01, "resid_pdrop": 0.0},
    "BertForMaskedLM": BERT,
    "LlamaForCausalLM": {**LLAMA, "num_key_value_heads": 1},
    "MistralForCausalLM": {**LLAMA, "sliding_window": 7},
    "Qwen2ForCausalLM": LLAMA,
    "Qwen3ForCausalLM": {**LLAMA, "num_key_value_heads": 1, "head_dim": 10},
    "MixtralForCausalLM": {**LLAMA, "num_key_value_heads": 1} | EXPERTS,
    "Qwen3MoeForCausalLM": {**LLAMA, "num_key_value_heads": 1, "head_dim": 10} | EXPERTS,
    "DeepseekV3ForCausalLM": {**LLAMA, "qk_nope_head_dim": 5, "qk_rope_head_dim": 6}
    | EXPERTS
    | {"q_lora_rank": 17, "kv_lora_rank": 11, "v_head_dim": 7, "first_k_dense_replace": 0}
    | {"n_routed_experts": 5, "n_shared_experts": 2, "routed_scaling_factor": 2.5}
    | {"norm_topk_prob": True, "n_group": 1, "topk_group": 1},
    "GptOssForCausalLM": {**LLAMA, "num_key_value_heads": 1, "sliding_window": 7}
    | EXPERTS
    | {"num_experts_per_tok": 5},  # all: of two alike, 16 bits may choose the other
    "Olmo2ForCausalLM": {**LLAMA, "num_key_value_heads": 1},
    "Olmo3ForCausalLM": {**LLAMA, "num_key_value_heads": 1, "sliding_window": 7},
    "Gemma2ForCausalLM": {**LLAMA, **GEMMA, "attn_logit_softcapping": 5.0},
    "Gemma3ForCausalLM": {**LLAMA, **GEMMA, "layer_types": ["sliding_attention"]},
    "Qwen3NextForCausalLM": {**LLAMA, "num_hidden_layers": 2, "full_attention_interval": 2}
    | {"num_key_value_heads": 1, "head_dim": 16, "linear_key_head_dim": 10}
    | {"linear_value_head_dim": 10, "linear_num_key_heads": 1, "linear_num_value_heads": 2}
    | EXPERTS
    | {"shared_expert_intermediate_size": 17, "num_experts_per_tok": 5},  # all, as above
    "MarianMTModel": {**MARIAN, "dropout": 0.0},
    "T5ForConditionalGeneration": {**T5, "dropout_rate": 0.0},
    "DebertaV2ForMaskedLM": BERT | DEBERTA,
    "BertModel": BERT,
    "ModernBertForMaskedLM": MODERN,
    "ModernBertModel": MODERN,
    "RobertaModel": BERT | {"pad_token_id": 1},
    "DistilBertModel": {"vocab_size": V, "dim": C, "hidden_dim": F, "n_layers": N, "n_heads": 2}
    | {"max_position_embeddings": 71, "dropout": 0.0, "attention_dropout": 0.0},
}
MODELS = {
    "transformer": lambda: Transformer(TransformerConfig(V, **OURS)),
    "transformer pre": lambda: Transformer(TransformerConfig(V, **OURS, residual="pre")),
    "recurrent": lambda: Recurrent(RecurrentConfig(V, d_model=C, dropout=0.0)),
    "bert": lambda: Bert(BertConfig(V, **OURS)),
    "gpt": lambda: GPT(GPTConfig(V, **OURS)),
    "llama": lambda: Llama(LlamaConfig(V, **OURS, n_kv_heads=1)),
}
MODELS |= {
    f"assembly {position}": lambda position=position: assemble(
        AssemblyConfig(V, **OURS, n_kv_heads=1, position=position)
    )
    for position in POSITIONS
}
MODELS |= {
    name: lambda name=name: FAMILIES[name].build(Settings(PUBLISHED[name])) for name in PUBLISHED
}
SEVERAL = {"recurrent": "it loops over the length"}  # graphs, and why; none can be exported
SEVERAL |= {
    f"{name}ForCausalLM": "which experts are computed depends on the tokens"
    for name in ("Mixtral", "Qwen3Moe", "DeepseekV3", "GptOss", "Qwen3Next")
}
UNMASKED = ("Qwen3NextForCausalLM",)  # its states hide no position, and refuse a mask


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
