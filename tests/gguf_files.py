"""GGUF files of small random models, as the `gguf` package and llama.cpp's converter write them."""

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from transformer_lit.text.tokenizer import byte_alphabet

MERGES = ["t h", "Ġ a", "Ġ th", "Ġth e", "Ġ Ġ", "1 2", "Ċ Ċ", "Ã ¤"]
SPECIALS = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIALS, *byte_alphabet(), *("".join(pair.split()) for pair in MERGES), "bike"]
SIZES = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6, "head_dim": 32}
SIZES |= {"num_key_value_heads": 2, "intermediate_size": 160, "max_position_embeddings": 71}
SIZES |= {"rms_norm_eps": 2.0**-7, "tie_word_embeddings": False}  # ε: a float32 in the file
SIZES |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
ROPE = {"rope_type": "default", "rope_theta": 500.0}
SAID = {  # metadata -> setting
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
TOKENIZER = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (len(TOKENS) - len(SPECIALS)),
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.chat_template": "{{ messages }}",
}


def config_of(kind, **more):
    "The reference library's configuration of a small model."
    from transformers import AutoConfig  # here: not all who write files have seconds for it

    sizes = {"vocab_size": len(TOKENS), **SIZES, "rope_parameters": ROPE} | more
    return AutoConfig.for_model("gemma3_text" if kind == "gemma3" else kind, **sizes)


def theirs(kind, **more):
    "A random model of the reference library, whose parts all matter."
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config_of(kind, **more)).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.2)
    return model


def stored_as(name, w, kind, config):
    "The name and the numbers of a weight as the converter writes them."
    (arch,) = (arch for arch, its in gguf.MODEL_ARCH_NAMES.items() if its == kind)
    if kind == "llama" and ("q_proj" in name or "k_proj" in name):  # halves of heads take turns
        w = w.unflatten(0, (-1, 2, config.head_dim // 2)).transpose(1, 2).flatten(0, 2)
    if kind == "gemma3" and "norm" in name:
        w = w + 1
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    return names.get_name(name, (".weight", ".bias")), w.float().numpy()


def write_model(path, kind, model, stored="F32", **more):
    "The file of a model. `more`: metadata and tensors beside its own or in their place; None: not."
    writer, config = GGUFWriter(path, more.pop("general.architecture", kind)), model.config
    values = {f"{kind}.{name}": getattr(config, setting) for name, setting in SAID.items()}
    rope = config.rope_parameters
    values[f"{kind}.rope.freq_base"] = rope.get("full_attention", rope)["rope_theta"]
    add = {str: writer.add_string, float: writer.add_float32, list: writer.add_array}
    add |= {bool: writer.add_bool}
    add[int] = lambda name, x: (writer.add_uint32 if x >= 0 else writer.add_int32)(name, x)
    weights = model.state_dict()
    if config.tie_word_embeddings:
        del weights["lm_head.weight"]
    values |= TOKENIZER | dict(stored_as(*one, kind, config) for one in weights.items()) | more
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            put(writer, name, value, stored if value.ndim == 2 else "F32")
        elif value is not None:
            add[type(value)](name, value)
    return finished(writer, path)


def put(writer, name, w, stored):
    kind = GGMLQuantizationType[stored]
    if stored in ("F32", "F16"):
        writer.add_tensor(name, w.astype(np.float32 if stored == "F32" else np.float16))
    else:
        writer.add_tensor(name, quantize(w, kind), raw_dtype=kind)


def finished(writer, path):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
