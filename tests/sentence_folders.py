"Folders of the library sentence-transformers: a small random encoder and what stands behind it."

import json

import torch
from checkpoints import wide_model
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ["a", "man", "is", "rid", "##ing", "bike", "the", "dog", "##s", "two", "run", "over"]
WORDS += ["grass", ".", "who", "wa", "##nt", "that", "why"]
VOCABULARY = ["<s>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]  # 1 pads, as RoBERTa's does
SIZES = {"hidden_size": 42, "num_hidden_layers": 3, "num_attention_heads": 3}
SIZES |= {"intermediate_size": 29, "max_position_embeddings": 71, "layer_norm_eps": 0.01}
DISTIL = {"dim": 42, "n_layers": 3, "n_heads": 3, "hidden_dim": 29, "max_position_embeddings": 71}


def backend():
    "Words and their pieces, between [CLS] and [SEP]; padded to 50, as published files may be."
    ids = {word: i for i, word in enumerate(VOCABULARY)}
    found = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 3), ("[SEP]", 4)]
    )
    found.enable_padding(length=50, pad_id=1)
    return found


def encoder(name, vocab_size):
    "A small encoder of the reference library."
    from transformers import AutoConfig, AutoModel  # here: it takes seconds

    sizes = DISTIL if name == "distilbert" else SIZES
    config = AutoConfig.for_model(name, vocab_size=vocab_size, pad_token_id=1, **sizes)
    return wide_model(AutoModel.from_config, config)


def write_sentence_folder(
    folder,
    name="bert",
    *,
    kinds=("Transformer", "Pooling", "Normalize"),
    pooling="mean_tokens",
    **sentence,
):
    "The folder; its weights are drawn from seed 0."
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder(name, len(VOCABULARY)).save_pretrained(folder)
    backend().save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast"}  # RoBERTa's own has no such words
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    places = [f"{i}_{kind}" if i else "" for i, kind in enumerate(kinds)]
    told = [{"type": f"library.{kind}", "path": p} for kind, p in zip(kinds, places)]
    (folder / "modules.json").write_text(json.dumps(told))
    (folder / "1_Pooling").mkdir()
    told = {
        f"pooling_mode_{mode}": mode in pooling
        for mode in ("mean_tokens", "cls_token", "max_tokens")
    }
    (folder / "1_Pooling/config.json").write_text(json.dumps(told))
    (folder / "sentence_bert_config.json").write_text(json.dumps(sentence))
    return folder
