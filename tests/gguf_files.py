"""GGUF files of small random models, as the `gguf` package writes them."""

import numpy as np
import torch
import transformers as hf
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from transformer_lit.text.tokenizer import byte_alphabet

C, H, K, D, F = 64, 4, 2, 16, 96
CHARACTERS = [*byte_alphabet()]
MERGES = ["t h", "Ġ a", "Ġ th", "Ġth e", "Ġ Ġ", "1 2", "Ċ Ċ", "Ã ¤"]
SPECIALS = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIALS, *CHARACTERS, *("".join(pair.split()) for pair in MERGES)]
SIZES = {"vocab_size": len(TOKENS), "hidden_size": C, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": H, "num_key_value_heads": K, "intermediate_size": F}
SIZES |= {"max_position_embeddings": 71, "head_dim": D, "rms_norm_eps": 0.01}
SIZES |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
MODELS = {
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config),
}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.": "attn_",
    "mlp.": "ffn_",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
    "_proj": "",
}

GEMMA3 = NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def permuted(w, n_heads):
    "As llama.cpp's converter writes rows of q and k: halves of a head take turns."
    return w.reshape(n_heads, 2, -1, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def theirs(kind, tied=False, base=10_000.0, rope=None):
    "A random model of the reference library, whose parts all matter."
    build, config = MODELS[kind]
    rope = rope or {"rope_type": "default", "rope_theta": base}
    model = build(config(**SIZES, tie_word_embeddings=tied, rope_parameters=rope)).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.2)
    return model


def write_model(path, kind, model, stored="F32", pre="gpt-2", extra=(), **more):
    "The file of a model. `more` adds to the metadata or replaces it; None leaves a key out."
    writer = GGUFWriter(path, kind)
    rope = model.config.rope_parameters
    base = rope.get("full_attention", rope)["rope_theta"]
    values = {
        f"{kind}.block_count": 2,
        f"{kind}.context_length": 71,
        f"{kind}.embedding_length": C,
        f"{kind}.feed_forward_length": F,
        f"{kind}.attention.head_count": H,
        f"{kind}.attention.head_count_kv": K,
        f"{kind}.attention.layer_norm_rms_epsilon": 0.01,
        f"{kind}.rope.freq_base": base,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (len(TOKENS) - len(SPECIALS)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ messages }}",
    } | more
    add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
    add |= {list: writer.add_array, bool: writer.add_bool}
    for name, value in values.items():
        if value is not None:
            add[type(value)](name, value)
    for name, w in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        w = w.float().numpy()
        for part, heads in (("q_proj", H), ("k_proj", K)):
            if kind == "llama" and part in name:
                w = permuted(w, heads)
        if kind == "gemma3" and "norm" in name:  # as the converter writes a gain
            w = w + 1
        for a, b in (GEMMA3 if kind == "gemma3" else NAMES).items():
            name = name.replace(a, b)
        put(writer, name, w, stored if w.ndim == 2 else "F32")
    for name, w in dict(extra).items():
        put(writer, name, w, "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def put(writer, name, w, stored):
    kind = GGMLQuantizationType[stored]
    if stored in ("F32", "F16"):
        writer.add_tensor(name, w.astype(np.float32 if stored == "F32" else np.float16))
    else:
        writer.add_tensor(name, quantize(w, kind), raw_dtype=kind)


def by_reference(path):
    "The model in a file as the reference library opens it."
    config = hf.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    with torch.device("meta"):
        model = hf.LlamaForCausalLM(config)
    read = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    model = hf.LlamaForCausalLM(config)
    odd = model.load_state_dict(read, strict=False)
    assert odd.missing_keys in ([], ["lm_head.weight"]) and not odd.unexpected_keys
    return model.eval()
