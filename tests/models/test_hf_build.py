"""T5, Marian and DeBERTa give HF's logits and words, each part is needed; a Llama goes back."""

import math
import subprocess
import sys
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from checkpoints import (
    assert_refused,
    folder_with,
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

import transformer_lit
from transformer_lit.attention.multihead import Position
from transformer_lit.inference.sampling import generate
from transformer_lit.models.bert import Bert
from transformer_lit.models.decoders import DECODERS
from transformer_lit.models.hf_build import FAMILIES, InBlocks, load_hf, save_hf
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.transformer import EncoderDecoder
from transformer_lit.position.absolute import Sinusoidal
from transformer_lit.position.disentangled import DisentangledBias
from transformer_lit.position.relative import T5Bias

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # but for the tests of whole passes

V = 103
NO_END = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
SEQ = {**NO_END, "vocab_size": V, "d_model": 42, "decoder_start_token_id": 0}
T5 = {**SEQ, "d_kv": 11, "d_ff": 29, "num_heads": 5, "num_layers": 3, "num_decoder_layers": 2}
T5 |= {"relative_attention_num_buckets": 14, "relative_attention_max_distance": 37}
T5 |= {"layer_norm_epsilon": 0.01}
GATED = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
MARIAN = {**SEQ, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 3}
MARIAN |= {"decoder_attention_heads": 7, "encoder_ffn_dim": 29, "decoder_ffn_dim": 31}
MARIAN |= {"max_position_embeddings": 71, "forced_eos_token_id": None}
SWISH = {**MARIAN, "activation_function": "swish", "scale_embedding": True}
DEBERTA = {**NO_END, "vocab_size": V, "hidden_size": 42, "num_hidden_layers": 3}
DEBERTA |= {"num_attention_heads": 3, "intermediate_size": 29, "max_position_embeddings": 71}
DEBERTA |= {"layer_norm_eps": 0.01, "relative_attention": True, "position_biased_input": False}
DEBERTA |= {"pos_att_type": "p2c|c2p"}
V3 = {**DEBERTA, "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 12}
APART = {**DEBERTA, "max_relative_positions": 23, "legacy": False}


def untied(config):
    "A T5 with an output layer of its own, as T5 1.1's folders have it."
    model = hf.T5ForConditionalGeneration(config)
    model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    return model


T5S, MARIANS = hf.T5ForConditionalGeneration, hf.MarianMTModel
DEBERTAS = hf.DebertaV2ForMaskedLM
MODELS = {
    "t5": (T5S, hf.T5Config(**T5)),
    "t5 1.1": (untied, hf.T5Config(**GATED)),
    "t5 1.1 tied": (T5S, hf.T5Config(**GATED)),
    "marian": (MARIANS, hf.MarianConfig(**SWISH)),
    "marian relu": (MARIANS, hf.MarianConfig(**MARIAN, activation_function="relu")),
    "deberta v3": (DEBERTAS, hf.DebertaV2Config(**V3)),
    "deberta apart": (DEBERTAS, hf.DebertaV2Config(**APART)),
    "deberta c2p": (DEBERTAS, hf.DebertaV2Config(**APART | {"pos_att_type": ["c2p"]})),
    "deberta p2c": (DEBERTAS, hf.DebertaV2Config(**V3 | {"pos_att_type": ["p2c"]})),
}
WRITING = [name for name in MODELS if not name.startswith("deberta")]


def sinusoids(C, length):
    "Marian's table by its formula: sines, then cosines."
    angles = [[t / 10000 ** (2 * i / C) for i in range(C // 2)] for t in range(length)]
    return torch.tensor([[f(x) for f in (math.sin, math.cos) for x in row] for row in angles])


def theirs(name):
    "Norms are wider still, and what Marian adds is less, or its words would drown in it."
    model = wide_model(*MODELS[name])
    for place, parameter in model.named_parameters():
        if place.lower().endswith("norm.weight"):
            parameter.data.mul_(4)
        if place.endswith(("out_proj.weight", "fc2.weight")):
            parameter.data.div_(4)
    if isinstance(model, MARIANS):
        model.final_logits_bias.normal_().mul_(512).round_().div_(1024)
    return exact(model)


def exact(model):
    "Marian's table, which no folder holds, in float64."
    for side in (model.model.encoder, model.model.decoder) if isinstance(model, MARIANS) else ():
        table, wide = side.embed_positions, sinusoids(42, 71)
        torch.testing.assert_close(table.create_weight(), wide, rtol=0, atol=1e-7)  # fp32's
        table.weight.data.copy_(wide)
    return model


def folder_of(name, tmp_path, **options):
    return folder_with(theirs, name, tmp_path, **options)


def question(name, S=53, T=47):
    "What a model of that name is asked: ours and theirs."
    src = torch.randint(1, V, (3, S))
    keep = torch.arange(S) < torch.tensor([[S], [S // 2], [1]])
    if name not in WRITING:
        return (src, keep), {"input_ids": src, "attention_mask": keep.long()}
    ids = torch.randint(1, V, (3, T))
    more = {"input_ids": src, "attention_mask": keep.long(), "decoder_input_ids": ids}
    return (src, ids, keep), more


def asked(model, more):
    ids = more["input_ids"]
    return logits(model, ids, **{name: x for name, x in more.items() if name != "input_ids"})


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


# --- the same numbers ---------------------------------------------------------------------------


@pytest.mark.usefixtures("shape_checks")
def test_logits_are_those_of_hf_with_padding_and_without(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    ours = load_hf(folder).double()
    (src, *ids, keep), more = question(name)
    expected = asked(model, more)
    real = keep if name not in WRITING else torch.ones_like(ids[0]).bool()
    torch.testing.assert_close(ours(src, *ids, keep)[real], expected[real])
    del more["attention_mask"]
    torch.testing.assert_close(ours(src, *ids), asked(model, more))


@pytest.mark.machinery
@pytest.mark.parametrize("name", ["t5", "t5 1.1", "marian"])
def test_greedy_continuations_are_those_of_hf(name, tmp_path):
    folder, model = folder_of(name, tmp_path)
    (src, _, keep), _ = question(name, S=19)
    with Wide():
        expected = model.generate(
            src, attention_mask=keep.long(), max_new_tokens=17, do_sample=False, num_beams=1
        )
    start, more = torch.zeros(3, 1, dtype=torch.long), {"src": src, "src_mask": keep}
    found = generate(load_hf(folder).double(), start, max_new_tokens=17, temperature=0, **more)
    assert found == expected[:, 1:].tolist()
    assert len({token for row in found for token in row}) > 2  # it does say something


@pytest.mark.usefixtures("shape_checks")
@pytest.mark.parametrize("name", ["t5", "t5 1.1", "marian"])
def test_decoding_with_a_state_gives_the_logits_of_one_pass(name, tmp_path):
    model = load_hf(folder_of(name, tmp_path)[0]).double()
    (src, ids, keep), _ = question(name, S=19, T=11)
    for chunks in ((1,) * 11, (5, 1, 1, 4)):
        state = model.start(3, 11, src, keep)
        steps = [model.step(part, state) for part in ids.split(chunks, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), model(src, ids, keep))


# --- each part matters --------------------------------------------------------------------------


def of(place, change):
    "A change of each attention of the encoder, the decoder, or between them."

    def changed(model):
        layers = {"encoder": "encoder", "decoder": "decoder", "cross": "decoder"}.get(place)
        kind = "cross_attn" if place == "cross" else "attn"
        for layer in getattr(model, layers or "layers"):
            change(getattr(layer, kind))

    return changed


def of_ffn(change):
    return lambda model: [
        change(layer.ffn)
        for side in ("encoder", "decoder", "layers")
        for layer in getattr(model, side, ())
    ]


def sets(name, value):
    return lambda part: setattr(part, name, value)


def plug(name, value):
    return lambda attn: setattr(attn.position, name, value)


def bare(attn):
    "The table of distances goes into both maps as it is."
    for proj in (attn.position.k_proj, attn.position.q_proj):
        proj[0] = nn.Identity()


def other_eps(model):
    for part in model.modules():
        if hasattr(part, "eps"):
            part.eps = 0.003


NULL = sets("position", Position())
LAYERS = {
    "norm of attention": without("attn_residual.norm"),
    "norm of feed-forward": without("ffn_residual.norm"),
    "eps": other_eps,
}
BOTH = {
    **LAYERS,
    "norm of cross-attention": without("cross_residual.norm"),
    "causal": of("decoder", sets("causal", False)),
    **{f"scale, {x}": of(x, sets("scale", 0.7)) for x in ("encoder", "decoder", "cross")},
}
T5_PARTS = {
    **BOTH,
    "no division, encoder": of("encoder", sets("scale", 11**-0.5)),
    "distances, encoder": of("encoder", NULL),
    "distances, decoder": of("decoder", NULL),
    "two directions": of("encoder", plug("causal", True)),
    "one direction": of("decoder", plug("causal", False)),
    "far, encoder": of("encoder", plug("max_distance", 29)),
    "far, decoder": of("decoder", plug("max_distance", 29)),
    "last norm, encoder": without("encoder_norm"),
    "last norm, decoder": without("decoder_norm"),
}
GATE = {
    "gate": of_ffn(sets("activation", torch.ones_like)),
    "tanh": of_ffn(sets("activation", F.gelu)),
}
MARIAN_PARTS = {
    **BOTH,
    "position": sets("position", None),
    "blocks": lambda model: setattr(model, "position", model.position.position),
    "offset of q": zero("q_proj.bias"),
    "offset of v": zero("v_proj.bias"),
    "offset of o": zero("o_proj.bias"),
    "offset of norms": zero("norm.bias"),
    "offset of the output": zero("lm_head.bias"),
    "unit": of_ffn(sets("activation", F.gelu)),
}
DEBERTA_PARTS = {
    **LAYERS,
    "scale": of("layers", sets("scale", 14**-0.5)),
    "position": of("layers", NULL),
    "table": zero("attn.position.weight"),
    "norm of the sum": lambda model: setattr(model, "norm", nn.Identity()),
    "offset of q": of("layers", lambda attn: nn.init.zeros_(attn.q_proj.bias)),
    "offset of v": zero("v_proj.bias"),
    "unit": of_ffn(sets("activation", F.relu)),
    "unit of the output": lambda model: model.transform.__setitem__(1, nn.Identity()),
    "norm of the output": lambda model: model.transform.__setitem__(2, nn.Identity()),
    "offset of the output": zero("lm_head.bias"),
}
C2P = {"content to position": of("layers", plug("k_proj", None))}
P2C = {"position to content": of("layers", plug("q_proj", None))}
BUCKETS = {
    "buckets": of("layers", plug("n_buckets", None)),
    "far": of("layers", plug("max_distance", 53)),
}
PARTS = {
    "t5": {
        **T5_PARTS,
        "unit": of_ffn(sets("activation", F.gelu)),
        "scale of the output": lambda model: setattr(model.lm_head[0], "scale", 1.0),
    },
    "t5 1.1": GATE,
    "marian": {**MARIAN_PARTS, "scale of tokens": lambda model: sets("scale", 1.0)(model.tok_emb)},
    "deberta v3": {
        **DEBERTA_PARTS,
        **C2P,
        **P2C,
        **BUCKETS,
        "norm of the table": of("layers", bare),
    },
    "deberta apart": {
        "maps": lambda model: [
            setattr(layer.attn.position.k_proj, "1", layer.attn.k_proj) for layer in model.layers
        ],
    },
    "deberta c2p": {"content to position": of("layers", NULL)},
    "deberta p2c": {"position to content": of("layers", NULL)},
}
KNOWN = {}


@pytest.mark.parametrize(("name", "part"), [(n, p) for n, parts in PARTS.items() for p in parts])
def test_without_a_part_the_logits_are_others(name, part, tmp_path_factory):
    if name not in KNOWN:  # one folder for all parts of a model
        folder, model = folder_of(name, tmp_path_factory.mktemp("model"))
        given, more = question(name, S=41, T=43)
        KNOWN[name] = load_hf(folder).double(), given, asked(model, more)
    ours, (src, *ids, keep), expected = KNOWN[name]
    ours, real = deepcopy(ours), keep if name not in WRITING else ...
    PARTS[name][part](ours)
    with torch.no_grad():
        gap = (ours(src, *ids, keep) - expected)[real].abs().max() / expected[real].std()
    assert gap > 1e-4  # a thousand times what parity leaves


@pytest.mark.parametrize("C", [2, 6, 14])
def test_blocks_are_sines_and_then_cosines(C):
    table = InBlocks(Sinusoidal(C))
    torch.testing.assert_close(table(torch.arange(11)), sinusoids(C, 11))
    pos = torch.tensor([[3, 1], [0, 7]])
    torch.testing.assert_close(table(pos), sinusoids(C, 8)[pos])


# --- real folders -------------------------------------------------------------------------------

LEFT_OUT = {
    "t5": {"lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"},
    "marian": {
        "lm_head.weight",
        *(f"model.encoder.embed_{x}.weight" for x in ("tokens", "positions")),
        *(f"model.decoder.embed_{x}.weight" for x in ("tokens", "positions")),
    },
    "deberta v3": {"cls.predictions.decoder.weight"},
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_sharded_folder_without_tied_weights_and_tables_is_the_same_model(name, tmp_path):
    folder, model = folder_of(name, tmp_path, max_shard_size="20KB")
    files = list(folder.glob("model-*.safetensors"))
    held = {tensor for file in files for tensor in load_file(file)}
    assert len(files) > 2 and not held & LEFT_OUT[name] and held < set(model.state_dict())
    (src, *ids, _), more = question(name, S=19, T=13)
    del more["attention_mask"]
    torch.testing.assert_close(load_hf(folder).double()(src, *ids), asked(model, more))


@pytest.mark.parametrize("name", ["t5", "t5 1.1", "marian", "deberta v3"])
def test_it_is_a_whole_module_in_fp32_and_eval_mode(name, tmp_path):
    model = load_hf(folder_of(name, tmp_path)[0])
    assert type(model) is (EncoderDecoder if name in WRITING else Bert) and not model.training
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not [x for x in (*model.parameters(), *model.buffers()) if x.is_meta]
    head = model.lm_head[1] if name == "t5" else model.lm_head
    assert (head.weight is model.tok_emb.weight) == (name != "t5 1.1")
    (src, *ids, _), _ = question(name, S=5, T=3)
    assert model(src, *ids).dtype == torch.float32  # Marian's sinusoids too
    plugs = [part for part in model.modules() if isinstance(part, (T5Bias, DisentangledBias))]
    tables = {id(plug.weight) for plug in plugs}
    assert len(tables) == {"t5": 2, "t5 1.1": 2, "marian": 0, "deberta v3": 1}[name]


def assert_same(folder, model, name):
    (src, *ids, _), more = question(name, S=19, T=13)
    del more["attention_mask"]
    torch.testing.assert_close(load_hf(folder).double()(src, *ids), asked(model, more))


@pytest.mark.parametrize("name", ["t5", "t5 1.1"])
def test_t5_as_google_wrote_it(name, tmp_path):
    "One flag for both releases, a table that nothing reads, the tokens once or thrice."
    folder, model = folder_of(name, tmp_path)
    tied = ... if name == "t5" else False
    reconfigure(folder, scale_decoder_outputs=..., tie_word_embeddings=tied)
    assert_same(folder, model, name)
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    rewrite(folder, lambda tensors: tensors | {unused: torch.ones(14, 5)})
    copies = [f"{side}coder.embed_tokens.weight" for side in ("en", "de")]
    copies += ["lm_head.weight"] if name == "t5" else []
    rewrite(folder, lambda x: x | {copy: x["shared.weight"].clone() for copy in copies})
    assert_same(folder, model, name)
    rewrite(folder, lambda x: {n: x[n] for n in x if n not in ("shared.weight", copies[0])})
    assert_same(folder, model, name)
    rewrite(folder, lambda x: x | {copies[0]: x[copies[1]] + 1})
    assert_refused(load_hf, folder, "embed_tokens.weight are tied, and differ")


def test_what_old_t5_configurations_leave_out(tmp_path):
    sizes = {**T5, "num_decoder_layers": 3, "relative_attention_num_buckets": 32}
    sizes |= {"relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6}
    model = wide_model(T5S, hf.T5Config(**sizes))
    model.save_pretrained(tmp_path / "folder")
    unsaid = ["num_decoder_layers", "relative_attention_num_buckets", "feed_forward_proj"]
    unsaid += ["relative_attention_max_distance", "layer_norm_epsilon", "dropout_rate"]
    unsaid += ["tie_word_embeddings", "scale_decoder_outputs"]
    reconfigure(tmp_path / "folder", **dict.fromkeys(unsaid, ...))
    src, ids = torch.randint(V, (2, 151)), torch.randint(V, (2, 139))  # beyond 128
    expected = logits(model, src, decoder_input_ids=ids)
    torch.testing.assert_close(load_hf(tmp_path / "folder").double()(src, ids), expected)


def test_marian_with_its_tables_and_without_its_offset(tmp_path):
    folder, model = folder_of("marian", tmp_path)
    tables = {f"model.{x}coder.embed_positions.weight": torch.ones(71, 42) for x in ("en", "de")}
    rewrite(folder, lambda x: x | tables | {"lm_head.weight": x["model.shared.weight"].clone()})
    assert_same(folder, model, "marian")
    rewrite(folder, lambda x: {n: x[n] for n in x if n != "final_logits_bias"})
    assert load_hf(folder).lm_head.bias is None
    model.final_logits_bias.zero_()
    assert_same(folder, model, "marian")


def test_deberta_with_the_parts_of_other_tasks(tmp_path):
    folder, model = folder_of("deberta v3", tmp_path)
    rest = {"deberta.embeddings.position_embeddings.weight": torch.ones(71, 42)}
    rest |= {"mask_predictions.dense.weight": torch.ones(42, 42)}
    rest |= {"deberta.embeddings.position_ids": torch.arange(71)[None]}
    word = "deberta.embeddings.word_embeddings.weight"
    rewrite(folder, lambda x: x | rest | {"cls.predictions.decoder.weight": x[word].clone()})
    reconfigure(folder, max_relative_positions=..., pos_att_type=["p2c", "c2p"])
    assert_same(folder, model, "deberta v3")


@pytest.mark.machinery
def test_it_reads_without_transformers_and_without_torchs_compiler(tmp_path):
    names = ["t5 1.1", "marian", "deberta v3"]
    folders = [folder_of(name, tmp_path / name)[0] for name in names]
    script = (
        "import sys, torch; from transformer_lit.models.hf_build import load_hf;"
        "before = len(sys.modules); [load_hf(folder) for folder in sys.argv[1:]];"
        "assert len(sys.modules) < before + 9;"
        "assert not {'transformers', 'torch._dynamo', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, *map(str, folders)], check=True)


def test_it_can_be_had_from_the_package_itself():
    assert transformer_lit.load_hf is load_hf and "load_hf" in dir(transformer_lit)


@pytest.mark.parametrize("name", ["t5", "t5 1.1", "marian", "deberta v3", "deberta apart"])
def test_it_goes_out_and_comes_back(name, tmp_path):
    def ask(model, ids):
        return logits(exact(model), ids, **({"decoder_input_ids": ids} if name in WRITING else {}))

    hold_return(*folder_of(name, tmp_path), tmp_path, ask)


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["DebertaForMaskedLM"])
def test_an_unknown_architecture_is_named(name, tmp_path):
    folder, _ = folder_of("t5", tmp_path)
    reconfigure(folder, architectures=[name] if name else None)
    assert_refused(
        load_hf, folder, f"{name}, .* not built; built are: .*GPT2LMHeadModel.*DebertaV2"
    )


BLOCK, LAYER = "encoder.block.1.layer.0.SelfAttention", "model.decoder.layers.1"
SELF, TABLE = "deberta.encoder.layer.2.attention.self", "deberta.encoder.rel_embeddings"


@pytest.mark.parametrize(
    ("name", "tensor", "shape", "words"),
    [
        ("t5", f"{BLOCK}.q.weight", None, f"lacks {BLOCK}.q.weight$"),
        ("t5", f"{BLOCK}.q.weight", (42, 55), rf"has {BLOCK}.q.weight \(42, 55\); a \(55, 42\)"),
        ("t5", f"{BLOCK}.relative_attention_bias.weight", (14, 5), "are tied, and differ"),
        ("t5", "lm_head.weight", (V, 42), "shared.weight and lm_head.weight are tied, and differ"),
        ("marian", f"{LAYER}.fc1.bias", None, f"lacks {LAYER}.fc1.bias$"),
        ("marian", "final_logits_bias", (1, 101), r"final_logits_bias \(1, 101\)"),
        ("deberta v3", f"{SELF}.pos_key_proj.bias", (42,), "are tied, and differ"),
        ("deberta v3", f"{TABLE}.weight", (23, 42), r"\(23, 42\); a \(24, 42\)"),
        ("deberta apart", "deberta.encoder.LayerNorm.bias", (42,), "reads: deberta.encoder.Layer"),
    ],
)
def test_a_tensor_missing_or_too_many_or_of_a_wrong_shape_is_named(
    name, tensor, shape, words, tmp_path
):
    folder, _ = folder_of(name, tmp_path)
    rewrite(folder, lambda x: {n: x[n] for n in x if n != tensor})
    if shape is not None:
        rewrite(folder, lambda x: x | {tensor: torch.ones(shape)})
    assert_refused(load_hf, folder, words)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("t5", {"feed_forward_proj": "gated-silu"}, "'gated-silu'; .* 'relu' or 'gated-gelu'"),
        ("t5", {"is_decoder": True}, "is_decoder"),
        ("t5", {"d_kv": ...}, "does not say d_kv"),
        ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings"),
        ("marian", {"decoder_vocab_size": 101}, "decoder_vocab_size to 101; built is only 103"),
        ("marian", {"activation_function": "tanh"}, "'tanh'"),
        ("marian", {"tie_word_embeddings": False}, "tie_word_embeddings to False"),
        ("deberta v3", {"position_biased_input": ...}, "position_biased_input to True"),
        ("deberta v3", {"relative_attention": ...}, "relative_attention to False"),
        ("deberta v3", {"conv_kernel_size": 3}, "conv_kernel_size to 3"),
        ("deberta v3", {"type_vocab_size": 2}, "type_vocab_size to 2"),
        ("deberta v3", {"embedding_size": 20}, "embedding_size to 20"),
        ("deberta v3", {"attention_head_size": 20}, "attention_head_size to 20"),
        ("deberta v3", {"pos_att_type": "p2p|c2p"}, "terms must be of 'c2p' and 'p2c'"),
    ],
    ids=lambda x: "",
)
def test_a_setting_that_is_not_built_is_refused(name, settings, words, tmp_path):
    folder, _ = folder_of(name, tmp_path)
    reconfigure(folder, **settings)
    assert_refused(load_hf, folder, words)


def test_all_families_are_tested():
    classes = {build.__name__ for build, _ in MODELS.values()} - {"untied"}
    others = [name for name in FAMILIES if name not in DECODERS]
    assert classes == set(others[2:5])  # the encoders: test_embed, test_next


# --- the way back -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [{}, {"n_kv_heads": 2, "tied": True}, {"d_head": 10, "rope_base": 503.0, "eps": 0.01}]
)
def test_what_is_saved_has_the_same_logits_for_hf(sizes, tmp_path):
    config = LlamaConfig(V, 84, n_layers=3, n_heads=6, d_ff=43, max_len=71, **sizes)
    model = Llama(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    save_hf(model, tmp_path / "new/folder")
    with Wide():
        folder = tmp_path / "new/folder"
        other = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    assert type(other) is hf.LlamaForCausalLM and other.config.eos_token_id is None
    ids = torch.randint(V, (3, 67))
    torch.testing.assert_close(model(ids), logits(other, ids))
    model = model.float()
    save_hf(model, tmp_path / "single")
    assert torch.equal(load_hf(tmp_path / "single")(ids), model(ids))
    with pytest.raises(FileExistsError):
        save_hf(model, tmp_path / "single")


# --- memory -------------------------------------------------------------------------------------

MEMORY = """
import sys, torch
from transformer_lit.models.hf_build import load_hf
torch.set_num_threads(1)
dtype = getattr(torch, sys.argv[3])

def peak():
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

load_hf(sys.argv[2], dtype=dtype)(torch.zeros(1, 5, dtype=torch.long))  # as every first call
before = peak()
with torch.inference_mode():
    model = load_hf(sys.argv[1], dtype=dtype)
    model(torch.zeros(1, 5, dtype=torch.long))
print((peak() - before) / sum(p.nbytes for p in model.parameters()))
"""


@pytest.mark.machinery
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
@pytest.mark.parametrize(
    ("stored", "dtype"),
    [("bfloat16", "float32"), ("bfloat16", "bfloat16")],
)
def test_a_large_folder_needs_little_more_than_its_weights(stored, dtype, tmp_path):
    torch.set_default_dtype(torch.float32)
    sizes = {"n_heads": 16, "d_ff": 2816, "max_len": 71}
    small = Llama(LlamaConfig(V, 64, n_layers=1, **sizes))
    save_hf(small, tmp_path / "small")
    model = Llama(LlamaConfig(4001, 1024, n_layers=10, **sizes))  # 132 million
    save_hf(model.to(getattr(torch, stored)), tmp_path / "large")
    del model
    given = (str(tmp_path / "large"), str(tmp_path / "small"), dtype)
    command = [sys.executable, "-c", MEMORY, *given]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert 0.9 < float(done.stdout) < 1.1
