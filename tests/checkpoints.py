"""Folders as `transformers` writes them, with weights that make each part matter."""

import json
from copy import deepcopy

import pytest
import torch
from random_cuts import cuts
from safetensors.torch import load_file, save_file
from torch import nn
from wide import Wide

from transformer_lit.course.files import InputError
from transformer_lit.inference.sampling import generate
from transformer_lit.models.hf_build import load_hf


def wide_model(build, config):
    "HF's model in float64. Weights are multiples of 2^-10, which fp32 holds, and sums of two."
    with Wide():
        model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3).mul_(1024).round_().div_(1024)
    return model


def logits(model, ids, **more):
    with Wide(), torch.no_grad():
        return model(ids, **more).logits


def rewrite(folder, change):
    "The tensors of a folder after `change`, in one file."
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors) or tensors, folder / "model.safetensors", metadata={"format": "pt"})


def reconfigure(folder, **settings):
    path = folder / "config.json"
    told = json.loads(path.read_text()) | settings
    path.write_text(json.dumps({name: x for name, x in told.items() if x is not ...}))


def assert_refused(load, folder, words):
    "One clear line."
    with pytest.raises(InputError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


# --- what takes one part out of a model ---------------------------------------------------------


def without(norm):
    def change(model):
        found = [name for name, _ in model.named_modules() if name.endswith(norm)]
        assert found
        for name in found:
            part, _, last = name.rpartition(".")
            setattr(model.get_submodule(part), last, nn.Identity())

    return change


def zero(pattern):
    def change(model):
        found = [p for name, p in model.named_parameters() if pattern in name]
        assert found
        for parameter in found:
            parameter.data.zero_()

    return change


def eps(model):
    for part in model.modules():
        if hasattr(part, "eps"):
            part.eps = 1e-5


_KNOWN = {}  # one reference for all parts of a model


def gap_without(change, name, folder_of, tmp_path_factory, ask=logits):
    "How far our logits are off once `change` was made, in standard deviations of the reference's."
    if (folder_of, name) not in _KNOWN:
        folder, model = folder_of(name, tmp_path_factory.mktemp("model"))
        ids = torch.randint(model.config.vocab_size, (2, 37))
        _KNOWN[folder_of, name] = load_hf(folder).double(), ids, ask(model, ids)
    ours, ids, expected = _KNOWN[folder_of, name]
    ours = deepcopy(ours)
    change(ours)
    with torch.no_grad():
        return (ours(ids) - expected).abs().max() / expected.std()


def hold_cuts(folder, model):
    "All at once, step by step, and in twenty ways at random: the reference's logits."
    ours, ids = load_hf(folder).double(), torch.randint(model.config.vocab_size, (2, 23))
    expected = logits(model, ids)
    for cut in cuts(23, 20):
        state = ours.start(2, 23)
        parts = [ours.step(part, state) for part in ids.split(cut, 1)]
        torch.testing.assert_close(torch.cat(parts, 1), expected)
        assert state.length == 23


def hold_greedy(folder, model):
    "Twenty tokens, always the most probable: the reference's."
    ours, ids = load_hf(folder).double(), torch.randint(model.config.vocab_size, (1, 5))
    every = torch.ones_like(ids)  # or HF would hide ids that equal its padding
    greedy = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    with Wide():
        expected = model.generate(ids, attention_mask=every, **greedy)
    assert generate(ours, ids, max_new_tokens=20, temperature=0) == [expected[0, 5:].tolist()]


def hold_left_padding(ours, vocab_size):
    "Positions and a mask say what is real; each row then gives what it gives alone."
    long, short = torch.randint(vocab_size, (1, 17)), torch.randint(vocab_size, (1, 12))
    ids = torch.cat([long, torch.cat([torch.zeros(1, 5, dtype=torch.long), short], 1)])
    pos = torch.stack([torch.arange(17), torch.arange(-5, 12).clamp(min=0)])
    mask = torch.ones(2, 1, 1, 17, dtype=torch.bool)
    mask[1, ..., :5] = False
    out = ours(ids, pos=pos, mask=mask)
    torch.testing.assert_close(out[:1], ours(long))
    torch.testing.assert_close(out[1:, 5:], ours(short))
