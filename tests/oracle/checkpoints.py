"""Folders as `transformers` writes them, and the properties that every model in one must have."""

import json
import math
import re
import shutil
import tempfile
import zlib
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
import torch
from random_cuts import cuts
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from wide import Wide

from transformer_lit.assistant.lora import LoRALinear, add_lora, merge_lora
from transformer_lit.course.files import InputError
from transformer_lit.models.decoders import Settings
from transformer_lit.models.hf import conversions_of
from transformer_lit.models.hf_build import (
    FAMILIES,
    empty_module,
    load_hf,
    save_hf,
    shared_names,
)

# --- folders --------------------------------------------------------------------------------------


def draw(tensor):
    "Multiples of 2^-10, which fp32 holds, and sums of two of them."
    tensor.normal_(std=0.3).mul_(1024).round_().div_(1024)


def wide_model(build, config):
    "The reference's model in float64, with weights that make each part matter."
    with Wide():
        model = build(deepcopy(config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            draw(parameter)
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "final_logits_bias", "layer_scalar")):
                draw(buffer)
    return model


_ROOM = tempfile.TemporaryDirectory()


@cache
def _made_once(make, name):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(name.encode()))
        model = make(name)
    folder = Path(tempfile.mkdtemp(dir=_ROOM.name))
    model.save_pretrained(folder)
    return folder, model


def folder_with(make, name, tmp_path):
    "A folder, as `make(name)` is written, and that model: copies of what is made for one test."
    kept, model = _made_once(make, name)
    shutil.copytree(kept, tmp_path / "folder")
    return tmp_path / "folder", deepcopy(model)


def rewrite(folder, change):
    "The tensors of a folder after `change`, in one file."
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors) or tensors, folder / "model.safetensors", metadata={"format": "pt"})


def reconfigure(folder, **settings):
    "Other settings; `...` takes one out."
    path = folder / "config.json"
    told = json.loads(path.read_text()) | settings
    path.write_text(json.dumps({name: x for name, x in told.items() if x is not ...}))


def alter(folder, changes, names=()):
    """Other names of tensors (pattern to replacement), then other settings or other tensors.

    A tensor's name has a dot, or is in the folder. It gets ones of a shape, or what another has.
    `...` takes a setting or a tensor out.
    """

    def change(tensors):
        for old, new in dict(names).items():
            tensors = {re.sub(old, new, name): x for name, x in tensors.items()}
        for name in [x for x in changes if "." in x or x in tensors]:
            made = changes.pop(name)
            copied = tensors[made].clone() if isinstance(made, str) else None
            tensors[name] = torch.ones(made) if isinstance(made, tuple) else copied
        return {name: x for name, x in tensors.items() if x is not None}

    changes = dict(changes)
    rewrite(folder, change)
    reconfigure(folder, **changes)


def assert_refused(load, folder, words):
    "One clear line."
    with pytest.raises(InputError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


# --- questions to a model: the arguments that the reference takes --------------------------------


def exact(model):
    "A table of sinusoids, sines first, which no folder holds, and the reference has in float32."
    for part in model.modules():
        if isinstance(part, MarianSinusoidalPositionalEmbedding):
            T, C = part.weight.shape
            angles = [[t / 10000 ** (2 * i / C) for i in range(C // 2)] for t in range(T)]
            table = [[f(x) for f in (math.sin, math.cos) for x in row] for row in angles]
            part.weight.data = torch.tensor(table, dtype=torch.float64)
    return model


@torch.no_grad()
def asked(model, more):
    "The reference's logits, or the states of a model that has none."
    with Wide():
        return exact(model)(**more)[0]


def given(more):
    "The same for ours: a source or a text, a target, and what is real."
    mask = more.get("attention_mask")
    found = more["input_ids"], more.get("decoder_input_ids"), mask if mask is None else mask.bool()
    return [x for x in found if x is not None]


def real(more):
    "Where an answer counts: everywhere in a target, and where no padding is in a text."
    everywhere = torch.ones_like(more.get("decoder_input_ids", more["input_ids"]))
    return (
        everywhere if "decoder_input_ids" in more else more.get("attention_mask", everywhere)
    ) > 0


# --- properties -----------------------------------------------------------------------------------


def hold_logits(folder, model, *questions):
    ours = load_hf(folder).double()
    for more in questions:
        keep = real(more)
        torch.testing.assert_close(ours(*given(more))[keep], asked(model, more)[keep])
    return ours


def hold_gradients(folder, model, more, tmp_path):
    "Of every weight in the folder: ours go back through what the table of names makes of it."
    family, ours = FAMILIES[type(model).__name__], load_hf(folder).double()

    def as_ours(theirs):
        for pattern, replacement in family.spellings:
            theirs = re.sub(pattern, replacement, theirs)
        return theirs

    out = ours(*given(more))
    slope = torch.randn_like(out) * real(more)[..., None]
    out.backward(slope)
    with Wide():
        exact(model)(**more)[0].backward(slope)
    for parameter in model.parameters():
        grad = parameter.grad
        parameter.data = torch.zeros_like(parameter) if grad is None else grad
    model.save_pretrained(tmp_path / "gradients")  # under the names of a folder
    held = load_file(folder / "model.safetensors")
    leaves = {as_ours(name): x.double().requires_grad_() for name, x in held.items()}
    total = 0
    for first, *others in shared_names(ours):
        found = [one for name in (first, *others) for one in conversions_of(name, family.names)]
        made = next(one for one in found if leaves.keys() >= {*one.names})
        with Wide():
            x = [leaves[name] for name in made.names]
            x = made.convert(*x) if made.convert else x[0]
        grad = ours.get_parameter(first).grad
        total = total + (x * (torch.zeros_like(x) if grad is None else grad)).sum()
    total.backward()
    buffers = (
        "e_score_correction_bias",
        "final_logits_bias",
        "layer_scalar",
    )  # there, and parameters here
    for name, expected in load_file(tmp_path / "gradients/model.safetensors").items():
        if not name.endswith(buffers) and not re.search(family.ignored, name):
            torch.testing.assert_close(leaves[as_ours(name)].grad, expected, msg=name)


def hold_16_bits(folder, model, more):
    "1 + w is computed in more bits: bfloat16 would lose most of a small w."
    rewrite(folder, lambda tensors: {name: x.bfloat16() for name, x in tensors.items()})
    for x in model.state_dict().values():
        x.copy_(x.bfloat16())
    hold_logits(folder, model, more)
    for dtype in (torch.bfloat16, torch.float32):
        ours = load_hf(folder, dtype=dtype)
        assert not any(x.is_meta for x in (*ours.parameters(), *ours.buffers()))
        assert {x.dtype for x in (*ours.parameters(), ours(*given(more)))} == {dtype}


@torch.no_grad()
def hold_cuts(folder, model, more, count=20):
    "All at once, step by step, and in ways at random: the reference's logits."
    ours, (*source, ids) = load_hf(folder).double(), given(more)
    if "decoder_input_ids" in more:
        source, ids = (source[0], ids), source[1]
    B, T = ids.shape
    for cut in cuts(T, count):
        state = ours.start(B, T, *source)
        parts = [ours.step(part, state) for part in ids.split(cut, 1)]
        torch.testing.assert_close(torch.cat(parts, 1), asked(model, more))
        assert state.length == T


def reread(folder, model):
    "The reference's model in a folder, in float64, without a word about weights."
    with Wide():
        theirs, odd = type(model).from_pretrained(folder, output_loading_info=True)
        theirs = theirs.double().eval()
    odd["missing_keys"] = {x for x in odd["missing_keys"] if "pooler." not in x}  # not read here
    assert not any(odd.values()), odd
    if hasattr(model.config, "num_experts_per_tok"):
        theirs.set_experts_implementation("eager")  # the fused has no float64
    return theirs


def hold_defaults(folder, model):
    "Each key that a folder leaves out is refused, or is what the reference's own class takes."

    def look(said):
        c = Settings(said)
        c.tensors = tensors
        made = empty_module(c, folder)
        attends = [repr(getattr(part, "attend", None)) for part in made.modules()]
        return repr(made), attends, [x.tolist() for x in made.buffers() if not x.is_meta]

    said = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors").keys()
    for name in said.keys() - {"architectures"}:
        rest = {x: y for x, y in said.items() if x != name}
        try:
            ours = look(rest)
        except InputError:
            continue
        theirs = type(model.config).from_dict(rest).to_json_string(use_diff=False)
        assert ours == look(json.loads(theirs) | {"architectures": said["architectures"]}), name


def hold_unsaid(folder, model, more, names):
    "What a folder does not say is what the reference takes then."

    def rest(told):
        return {x: rest(y) if isinstance(y, dict) else y for x, y in told.items() if x not in names}

    path = folder / "config.json"
    path.write_text(json.dumps(rest(json.loads(path.read_text()))))
    hold_logits(folder, reread(folder, model), more)


@torch.no_grad()
def hold_return(folder, model, more, tmp_path, *, forget=False):
    """What goes out is what came in, to the last bit; the reference opens it, with its own logits.

    `forget` the settings of the folder, and a Llama is written by its config.
    """
    ours, out = load_hf(folder), tmp_path / "out"
    if forget:
        del ours.settings
    save_hf(ours, out)
    again = load_hf(out).state_dict()
    assert again.keys() == ours.state_dict().keys()
    assert all(torch.equal(x, again[name]) for name, x in ours.state_dict().items())
    torch.testing.assert_close(asked(reread(out, model), more), asked(model, more))


def hold_lora(folder, more):
    "Changes beside all linear layers: none at the start, and the same logits once they are merged."
    ours = load_hf(folder).double()
    names, before = [*ours.state_dict()], ours(*given(more))
    shared = {name for group in shared_names(ours) if len(group) > 1 for name in group}
    changed = add_lora(
        ours,
        rank=2,
        alpha=3.0,
        where=lambda name, x: type(x) is nn.Linear and f"{name}.weight" not in shared,
    )
    torch.testing.assert_close(ours(*given(more)), before)
    layers = [layer for layer in ours.modules() if isinstance(layer, LoRALinear)]
    assert len(layers) == len(changed)
    for layer in layers:
        draw(layer.B.data)
    after = ours(*given(more))
    after[real(more)].square().sum().backward()
    trained = {name for name, x in ours.named_parameters() if x.grad is not None}
    assert {name.rpartition(".")[2] for name in trained} == {"A", "B"}
    assert (after - before).abs().max() > 0.01
    assert merge_lora(ours) == changed and [*ours.state_dict()] == names
    torch.testing.assert_close(ours(*given(more)), after)


def hold_a_head_of_its_own(folder, model, more, head, table):
    "A head that should be tied and differs, as adapters are merged: the reference reads the head."
    rewrite(folder, lambda tensors: tensors | {head: tensors[table].flip(0)})
    with pytest.warns(UserWarning, match=f"{head} are tied but differ; .* no longer tied"):
        ours = load_hf(folder).double()
    theirs = reread(folder, model)
    torch.testing.assert_close(ours(*given(more)), asked(theirs, more))
    assert (ours(*given(more)) - asked(model, more)).abs().max() > 0.1
    assert not getattr(getattr(ours, "config", None), "tied", False)


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
