"""Folders of small random language models, as the `transformers` library publishes them."""

import json

import transformers as hf
from gguf_files import MERGES, TOKENS, theirs
from tokenizers import AddedToken, decoders, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers import models as backends

TEMPLATE = """
{%- for m in messages %}
    {%- if m.role == 'tool' %}{% continue %}{% endif %}
    <|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""


def byte_level(begins=False):
    "A byte-level BPE; `begins`: it puts a token in front of every text."
    ids = {token: i for i, token in enumerate(TOKENS)}
    backend = Backend(backends.BPE(ids, [tuple(pair.split(" ")) for pair in MERGES]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken(t, special=True, normalized=False) for t in TOKENS[:3]])
    if begins:
        first = TOKENS[1]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", special_tokens=[(first, ids[first])]
        )
    return backend


def write_folder(path, kind="llama", *, begins=False, template=TEMPLATE, ends=None, **config):
    "A model, its tokenizer, its chat template, and the tokens that end a text."
    model = theirs(kind)
    model.generation_config = hf.GenerationConfig(eos_token_id=ends)
    model.config.update(config)
    model.save_pretrained(path)
    roles = dict(zip(("pad_token", "bos_token", "eos_token"), TOKENS[:3], strict=True))
    reader = hf.PreTrainedTokenizerFast(tokenizer_object=byte_level(begins), **roles)
    reader.chat_template = template
    reader.save_pretrained(path)
    return path


def tell(path, **values):
    "Change values of a JSON file; `...` takes one out."
    told = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: x for name, x in told.items() if x is not ...}))
