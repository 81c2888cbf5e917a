"""The peers: models of other libraries, and nanoGPT's, of the sizes and with the weights of ours.

Each function makes a peer of one of our models. Peers have no dropout, and use torch's fused
attention where they can. litgpt and llama.cpp are peers where they are installed.
"""

import importlib.util
import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, MarianConfig, MarianMTModel
from transformers import LlamaConfig as TheirLlamaConfig

from transformer_lit.models.gpt import GPT
from transformer_lit.models.hf import GPT2, LLAMA, MARIAN, Conversion, Names, conversion_of
from transformer_lit.models.llama import Llama
from transformer_lit.models.transformer import Transformer
from transformer_lit.position.absolute import sinusoids

NO_WORDS = {"bos_token_id": 0, "eos_token_id": None}  # no token ends a text
LONGEST = 512  # positions of a translator


@torch.no_grad()
def with_weights(theirs: nn.Module, ours: nn.Module, names: Names) -> nn.Module:
    """The peer, with our weights; `names` is a table of ours -> theirs.

    Where one tensor of theirs holds several of ours, the table cuts it into views: so what reads
    theirs can also write them.
    """
    held = {spelled(name): weight for name, weight in theirs.state_dict().items()}
    for name, weight in ours.state_dict().items():
        made = conversion_of(name, names)
        parts = [held[part] for part in made.names]
        (made.convert(*parts) if made.convert else parts[0]).copy_(weight)
    return theirs


def spelled(name: str) -> str:
    "GPT-2 without the name of its stack; torch's packed projection as a layer with two tensors."
    return re.sub(r"in_proj_(weight|bias)$", r"in_proj.\1", name.removeprefix("transformer."))


def packed(name: str, attn: str = "attn") -> dict[str, Conversion]:
    "The queries, keys and values that lie in one tensor, in this order."

    def part(i: int) -> Conversion:
        return Conversion((name,), lambda x: x.tensor_split(3)[i])

    return {f"{attn}.{x}_proj": part(i) for i, x in enumerate("qkv")}


# --- HF transformers ----------------------------------------------------------------------------


def hf_llama(ours: Llama) -> LlamaForCausalLM:
    "It has no id for padding, since a table does not learn that row."
    c = ours.config
    config = TheirLlamaConfig(
        vocab_size=c.vocab_size,
        hidden_size=c.d_model,
        num_hidden_layers=c.n_layers,
        num_attention_heads=c.n_heads,
        num_key_value_heads=c.n_kv_heads,
        head_dim=c.d_head,
        tie_word_embeddings=c.tied,
        intermediate_size=c.d_ff,
        max_position_embeddings=c.max_len,
        rms_norm_eps=c.eps,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_base},
        attn_implementation="sdpa",
        **NO_WORDS,
    )
    return with_weights(LlamaForCausalLM(config), ours, LLAMA)


def hf_gpt2(ours: GPT) -> GPT2LMHeadModel:
    "With GELU's tanh form as one kernel; the default would take seven."
    c = ours.config
    config = GPT2Config(
        vocab_size=c.vocab_size,
        n_embd=c.d_model,
        n_layer=c.n_layers,
        n_head=c.n_heads,
        n_inner=c.d_ff,
        n_positions=c.max_len,
        activation_function="gelu_pytorch_tanh",
        attn_implementation="sdpa",
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        **NO_WORDS,
    )
    return with_weights(GPT2LMHeadModel(config), ours, GPT2)


def hf_marian(ours: Transformer) -> MarianMTModel:
    "The encoder–decoder of the library with the paper's wiring; our table of positions."
    c = ours.config
    layers = {"layers": c.n_layers, "attention_heads": c.n_heads, "ffn_dim": c.d_ff}
    sizes = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in layers.items()}
    config = MarianConfig(
        vocab_size=c.vocab_size,
        d_model=c.d_model,
        **sizes,
        max_position_embeddings=LONGEST,
        activation_function="relu",
        scale_embedding=True,
        dropout=0.0,
        decoder_start_token_id=1,
        pad_token_id=0,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
        **NO_WORDS,
    )
    theirs = MarianMTModel(config)
    for side in (theirs.model.encoder, theirs.model.decoder):
        side.embed_positions.weight.data = sinusoids(torch.arange(LONGEST), c.d_model)
    return with_weights(theirs, ours, MARIAN)


# --- torch's own modules ------------------------------------------------------------------------


def torch_layer(side: str, norms: list[str]) -> Names:
    "A layer of torch's stack: the norms of our residuals are numbered."
    at = f"{side}.layers.{{i}}"
    names = {"ffn.up_proj": f"{at}.linear1", "ffn.down_proj": f"{at}.linear2"}
    attns = {"attn": "self_attn", "cross_attn": "multihead_attn"}
    for ours, theirs in list(attns.items())[: len(norms) - 1]:
        names |= packed(f"{at}.{theirs}.in_proj", ours)
        names[f"{ours}.o_proj"] = f"{at}.{theirs}.out_proj"
    return names | {f"{norm}_residual.norm": f"{at}.norm{i}" for i, norm in enumerate(norms, 1)}


def in_layers(ours: str, names: Names) -> Names:
    return {f"{ours}.{{i}}.{name}": theirs for name, theirs in names.items()}


class TorchTranslator(nn.Module):
    "`nn.Transformer` between a table of tokens and an output layer that shares it."

    names = {
        "tok_emb": "tok_emb",
        "lm_head": "lm_head",
        **in_layers("encoder", torch_layer("stacks.encoder", ["attn", "ffn"])),
        **in_layers("decoder", torch_layer("stacks.decoder", ["attn", "cross", "ffn"])),
    }

    def __init__(self, c):
        super().__init__()
        self.scale = c.d_model**0.5
        self.tok_emb = nn.Embedding(c.vocab_size, c.d_model)
        self.lm_head = nn.Linear(c.d_model, c.vocab_size, bias=False)
        self.lm_head.weight = self.tok_emb.weight
        sizes = (c.d_model, c.n_heads, c.d_ff, 0.0)
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*sizes, batch_first=True),
            c.n_layers,
            enable_nested_tensor=False,
        )
        decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*sizes, batch_first=True), c.n_layers
        )
        self.stacks = nn.Transformer(  # its own stacks would end with one more norm
            c.d_model, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
        )
        positions = sinusoids(torch.arange(LONGEST), c.d_model)
        self.register_buffer("positions", positions, persistent=False)
        hidden = torch.ones(LONGEST, LONGEST, dtype=torch.bool).triu(1)
        self.register_buffer("hidden", hidden, persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        return self.tok_emb(ids) * self.scale + self.positions[: ids.shape[1]]

    def forward(self, src: Tensor, tgt_in: Tensor, src_mask: Tensor, keep: Tensor) -> Tensor:
        "Logits of the target tokens that are kept, as our recipe has them."
        T, padding = tgt_in.shape[1], ~src_mask
        x = self.stacks(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=self.hidden[:T, :T],
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.lm_head(x[keep])


def torch_translator(ours: Transformer) -> TorchTranslator:
    return with_weights(TorchTranslator(ours.config), ours, TorchTranslator.names)


# --- nanoGPT ------------------------------------------------------------------------------------


class NanoLayer(nn.Module):
    "A layer as nanoGPT is described: one projection for queries, keys and values; pre-norm."

    def __init__(self, c):
        super().__init__()
        self.n_heads = c.n_heads
        self.attn_norm, self.ffn_norm = nn.LayerNorm(c.d_model), nn.LayerNorm(c.d_model)
        self.qkv, self.out = nn.Linear(c.d_model, 3 * c.d_model), nn.Linear(c.d_model, c.d_model)
        self.up, self.down = nn.Linear(c.d_model, c.d_ff), nn.Linear(c.d_ff, c.d_model)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.attn_norm(x))
        return x + self.down(F.gelu(self.up(self.ffn_norm(x)), approximate="tanh"))


class NanoGPT(nn.Module):
    "nanoGPT's model: GPT-2 with as few calls of kernels as plain PyTorch needs for it."

    names = {
        "tok_emb": "tok_emb",
        "position": "position",
        "final_norm": "final_norm",
        "lm_head": "lm_head",
        **in_layers(
            "layers",
            {
                **packed("layers.{i}.qkv"),
                "attn.o_proj": "layers.{i}.out",
                "attn_residual.norm": "layers.{i}.attn_norm",
                "ffn_residual.norm": "layers.{i}.ffn_norm",
                "ffn.up_proj": "layers.{i}.up",
                "ffn.down_proj": "layers.{i}.down",
            },
        ),
    }

    def __init__(self, c):
        super().__init__()
        self.tok_emb = nn.Embedding(c.vocab_size, c.d_model)
        self.position = nn.Embedding(c.max_len, c.d_model)
        self.layers = nn.ModuleList(NanoLayer(c) for _ in range(c.n_layers))
        self.final_norm = nn.LayerNorm(c.d_model)
        self.lm_head = nn.Linear(c.d_model, c.vocab_size, bias=False)
        self.lm_head.weight = self.tok_emb.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok_emb(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.final_norm(x))


def nanogpt(ours: GPT) -> NanoGPT:
    return with_weights(NanoGPT(ours.config), ours, NanoGPT.names)


# --- litgpt -------------------------------------------------------------------------------------

HAS_LITGPT = importlib.util.find_spec("litgpt") is not None
LITGPT: Names = {
    "tok_emb": "wte",
    "final_norm": "ln_f",
    "lm_head": "lm_head",
    **in_layers(
        "layers",
        {
            **packed("h.{i}.attn.qkv"),
            "attn.o_proj": "h.{i}.attn.proj",
            "attn_residual.norm": "h.{i}.norm_1",
            "ffn_residual.norm": "h.{i}.norm_2",
            "ffn.gate_proj": "h.{i}.mlp.fc_1",
            "ffn.up_proj": "h.{i}.mlp.fc_2",
            "ffn.down_proj": "h.{i}.mlp.proj",
        },
    ),
}


def litgpt_llama(ours: Llama) -> nn.Module:
    "One projection for queries, keys and values; two for gate and up, as ours."
    from litgpt.config import Config
    from litgpt.model import GPT as LitGPT

    c = ours.config
    config = Config(
        block_size=c.max_len,
        vocab_size=c.vocab_size,
        padded_vocab_size=c.vocab_size,
        n_layer=c.n_layers,
        n_head=c.n_heads,
        n_embd=c.d_model,
        intermediate_size=c.d_ff,
        norm_class_name="RMSNorm",
        norm_eps=c.eps,
        mlp_class_name="LLaMAMLP",
        rotary_percentage=1.0,
        rope_base=int(c.rope_base),
        parallel_residual=False,
        bias=False,
    )
    return with_weights(LitGPT(config), ours, LITGPT)


@torch.inference_mode()
def litgpt_writes(model: nn.Module, ids: Tensor, new: int) -> list[list[int]]:
    "The most probable tokens, with its cache; its own `generate` takes one prompt."
    B, T = ids.shape
    model.max_seq_length = T + new
    model.set_kv_cache(B, device=ids.device)
    found, position = [], torch.arange(T, device=ids.device)
    for end in range(T, T + new):
        ids = model(ids, position, input_pos_maxp1=end)[:, -1:].argmax(-1)
        found.append(ids)
        position = torch.tensor([end], device=ids.device)
    return torch.cat(found, 1).tolist()
