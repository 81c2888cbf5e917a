"""The reader's `my_transformer.py`: it grows from self-attention to a chat model, step by step."""

import ast
import difflib
import html
import io
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from transformer_lit.course import sandbox
from transformer_lit.course.exercises import Verdict
from transformer_lit.course.files import InputError, write_text
from transformer_lit.course.marking import as_notes, as_text, claim, confirmed, right_values
from transformer_lit.course.my_model import OWN_FILE, Lap, find_file, run_file
from transformer_lit.course.progress import best_lap, remember
from transformer_lit.course.sandbox import printed
from transformer_lit.course.worker import SECONDS, Worker
from transformer_lit.exercises import find_exercise


@dataclass(frozen=True)
class Step:
    "A step of the file: its name there, its exercise, its chapter, what it is about."

    name: str
    id: str
    chapter: str
    about: str
    method: str = ""  # of a class: what is to be written beside `__init__`


# Name in `my_transformer.py` (and what a class is written by), exercise, chapter; what it is about.
_STEPS = """
self_attention self_attention.1 attention/self_attention
    x: T C, w_q, w_k, w_v: C D; returns T D.
causal_mask masks.3 attention/masks
    T S, True where the query may attend: itself and before.
attend attend.3 attention/attend
    q: B H T D, k: B H S D, v: B H S E, mask: up to B H T S; returns B H T E.
MultiHead.forward multihead.3 attention/multihead
    Projections q_proj, k_proj, v_proj, o_proj; x: B T C, mask: up to B H T T; returns B T C.
rotate rope.3 position/rope
    x: B N T D turned in the planes (i, i + D/2) by pos·θ; pos: T or B T.
RMSNorm.forward norm.3 block/norm
    x / √(mean(x²) + eps) · weight; the gain `weight` is a parameter.
SwiGLU.forward feedforward.3 block/feedforward
    (SiLU(x W_g) · x W_u) W_d; projections gate_proj, up_proj, down_proj.
Block.forward layers.3 block/layers
    Pre-norm: attention, attn(z, mask=mask), then the feed-forward network, ffn(z).
Cache.update cache.3 attention/cache
    Takes k, v: B H T D, gives all so far; `length` is how many positions it holds.
repeat_heads grouped.3 attention/grouped
    k: B K S D; returns B H S D with H = n_heads.
MyLlama.forward llama.3 models/llama
    Ids B T to logits B T V; projections q_proj, k_proj, v_proj, o_proj and SwiGLU's.
train trainer.3 training/trainer
    The losses; the model is trained in place.
generate sampling.3 inference/sampling
    Greedy: the ids and max_new_tokens more behind them.
MyWriter.generate sampling.6 inference/sampling
    MyLlama, and generate(ids, max_new_tokens) with a Cache for each layer.
dequantise answers.3 capstones/it_answers
    packed: n 20, bytes of Q4_1 blocks; returns n 32 in float32.
open_llama answers.4 capstones/it_answers
    A MyLlama of the sizes in c, with the tensors of a GGUF file.
encode answers.5 capstones/it_answers
    The ids of a text: special tokens, and byte pairs by rank.
answer answers.6 capstones/it_answers
    Gives the ids of the answer, one at a time, up to <|im_end|>.
"""
_ROW = re.compile(r"^(\w+)\.?(\w*) (\S+) (\S+)\n    (.+)$", re.M)
STEPS = {  # by the name that each step has in the file, in the order of the book
    name: Step(name, id, chapter, about, method)
    for name, method, id, chapter, about in _ROW.findall(_STEPS)
}


_HEAD = '''"""My own Transformer: it grows by an exercise at a time, and ends as a chat model.

Write a function or a class in place of `raise NotImplementedError`, then run
`transformer-lit check` on this file. Trials belong below `if __name__ == "__main__":`.
A notebook in a folder below takes your parts from here:

    from transformer_lit.course.my_model import load_mine
    attend, causal_mask = load_mine("attend", "causal_mask")
"""

import math
import re
from itertools import islice, pairwise

import torch
import torch.nn.functional as F
from torch import nn
'''


def _empty(name: str, step: Step) -> str:
    "A function or a class without its body, with the arguments of its exercise."
    wanted = find_exercise(step.id).solution
    about, blank = f'"{step.about} ({step.id})"', "raise NotImplementedError"
    if not step.method:
        return f"def {name}{sandbox.signature(wanted)}:\n    {about}\n    {blank}\n"
    module = issubclass(wanted, torch.nn.Module)
    lines = [f"class {name}{'(nn.Module)' if module else ''}:", f"    {about}"]
    for method in ("__init__", step.method):
        lines += ["", f"    def {method}{sandbox.signature(getattr(wanted, method))}:"]
        lines += ["        super().__init__()"] if module and method == "__init__" else []
        lines += [f"        {blank}"]
    return "\n".join(lines) + "\n"


def starter() -> str:
    "The file with empty functions."
    return "\n\n".join((_HEAD, *(_empty(name, step) for name, step in STEPS.items())))


def solved_file() -> str:
    "The file as the book solves it."
    imports = _HEAD.rpartition('"""')[2].strip()
    return "\n\n\n".join([imports, *(find_exercise(s.id).source for s in STEPS.values())]) + "\n"


def write_starter(path: str | Path) -> None:
    "Write the file with empty functions; `InputError` where there is one of that name already."
    if os.path.lexists(path):
        raise InputError(f"{path} is there already and stays as it is; name another file")
    write_text(path, starter())


@dataclass(frozen=True)
class Progress:
    """How far a file has come: the verdict on each step, or why there is none. True: all pass.

    `verdicts`: by the name in the file; a step that is not written yet is "open". `error`: why the
    file could not be read, imported or checked to the end. `notes`: what it printed at its import.
    """

    file: str
    verdicts: dict[str, Verdict]
    error: str = ""
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.error and bool(self.verdicts) and all(self.verdicts.values())

    @property
    def line(self) -> str:
        "The whole in one line."
        passed = sum(map(bool, self.verdicts.values()))
        said = f"{passed} of {len(STEPS)} steps pass."
        return f"{self.file}: {self.error or said}"

    @property
    def next(self) -> str:
        "What to do with a file whose model can be trained and writes; else nothing."
        if not self.error and all(map(self.verdicts.get, STEPS)):
            return (
                "Ask it: the chapter “It answers” ends with the lines that your file still needs."
            )
        ready = not self.error and all(map(self.verdicts.get, ("MyLlama", "train", "generate")))
        return "Train your model and let it write: transformer-lit check --write" if ready else ""

    def as_dict(self) -> dict[str, Any]:
        "For JSON: file, error, whether all steps pass, how many do, and the steps."
        steps = [
            {"name": name, "chapter": STEPS[name].chapter, **verdict.as_dict()}
            for name, verdict in self.verdicts.items()
        ]
        passed = sum(map(bool, self.verdicts.values()))
        whole = {"file": self.file, "error": self.error or None, "ok": bool(self)}
        return whole | {"passed": passed, "of": len(STEPS), "notes": [*self.notes], "steps": steps}

    def _rows(self) -> list[tuple[str, str, str, str, tuple[str, ...]]]:
        "Number and name, chapter, verdict, hint and notes of each step."
        return [
            (name, STEPS[name].chapter, v.state, "" if v else v.line, v.notes)
            for name, v in self.verdicts.items()
        ]

    def __repr__(self) -> str:
        lines = [f"{'step':20}{'chapter':26}{'verdict':9}hint"] if self.verdicts else []
        for place, (name, chapter, state, hint, notes) in enumerate(self._rows(), 1):
            lines.append(f"{place:2}  {name:16}{chapter:26}{state:9}{hint}".rstrip())
            lines += [f"{'':55}{note}" for note in notes]
        return "\n".join([*lines, *self.notes, *filter(None, (self.line, self.next))])

    def _repr_html_(self) -> str:
        from transformer_lit.course.figures import Table  # brings matplotlib

        rows = [[*row[:3], "\n".join(filter(None, (row[3], *row[4])))] for row in self._rows()]
        table = Table(["step", "chapter", "verdict", "hint"], rows)._repr_html_() if rows else ""
        last = *self.notes, self.line, self.next
        below = "<br>".join(html.escape(line) for line in last if line)
        return f"{table}<p>{below}</p>"


def _uses(tree: ast.Module) -> dict[str, set[str]]:
    "For each function and class of a file: those and the steps that it uses, by others too."
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    parts = {node.name: node for node in tree.body if isinstance(node, kinds)}
    known = parts.keys() | STEPS
    uses = {
        name: {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & known - {name}
        for name, node in parts.items()
    }
    for _ in parts:  # a chain is no longer than this
        uses = {n: used.union(*(uses.get(one, ()) for one in used)) for n, used in uses.items()}
    return uses


def _claim(name: str, names: dict[str, Any], file: str) -> tuple[Verdict, dict[str, Any]]:
    "The verdict on one step, whether it is there or not, and what is sent of it."
    one = find_exercise(STEPS[name].id)
    verdict, claimed = claim(one, names.get(name, ...))
    if verdict.state != "open":
        return verdict, claimed
    others = {other.casefold(): other for other in set(names) - set(STEPS)}
    near = difflib.get_close_matches(name.casefold(), others, n=1, cutoff=0.8)
    hint = (
        f" You have `{others[near[0]]}`: the name must be the same."
        if name not in names and near
        else ""
    )
    return verdict, claimed | {"line": f"Write {one.form} in {file}.{hint}"}


def send_claims(send: Callable[[Any], Any], path: str, only: str | None) -> None:
    """Import a file and check its steps: each is sent as a claim, and before that its name alone.

    For a process that this file may end or rewrite: see `course.marking`.
    """
    prints = io.StringIO()
    try:
        names, tree = run_file(Path(path), prints)
    except InputError as error:
        send({"error": str(error), "notes": printed(prints)})
        return
    send({"notes": printed(prints)})
    uses, verdicts = _uses(tree), {}
    for name in (n for n in STEPS if only is None or n in {only, *uses.get(only, ())}):
        if name in names:
            send({"begins": name})
        verdicts[name], claimed = _claim(name, names, Path(path).name)
        below = [n for n in verdicts if n in uses.get(name, ()) and not verdicts[n]]
        if verdicts[name].state == "not yet" and below:
            what = "Write" if verdicts[below[0]].state == "open" else "Mend"
            line = f"{what} {below[0]} first: {name} uses it."
            claimed |= {"line": line, "notes": [claimed["line"], *claimed["notes"]]}
        send({"name": name, **claimed})


_SEND_CLAIMS = f"from {__name__} import send_claims\nsend_claims(send, *args)"


def check_file(
    path: str | Path = OWN_FILE,
    *,
    only: str | None = None,
    seconds: float | int = SECONDS,
    progress: Callable[[], Any] = lambda: None,
) -> Progress:
    """Check every step that is written in a file, which runs in a process of its own.

    Where it is not here, it is looked for up to three folders above. What the file does wrong is
    in the result, and raises nothing. `only`: this step and those that it uses. `seconds`: when the
    process is killed; what was checked until then counts. `progress` is called after each step.
    """
    if only is not None and only not in STEPS:
        raise InputError(f"unknown step {only!r}; known are: {', '.join(STEPS)}")
    file, said, verdicts, at = Path(path).name, {}, {}, "its import"
    try:
        found = str(find_file(path).absolute())
    except InputError as error:
        return Progress(file, {}, str(error))
    worker = Worker(_SEND_CLAIMS, found, only, seconds=seconds, imports=__name__)
    for message in worker:
        message = message if isinstance(message, dict) else {}
        name, begins = message.get("name"), message.get("begins")
        if isinstance(name, str) and name in STEPS:
            verdicts[name] = confirmed(find_exercise(STEPS[name].id), message)
            progress()
        if isinstance(begins, str) and begins in STEPS:
            at = begins
            right_values(find_exercise(STEPS[at].id))  # meanwhile
        said |= {key: message[key] for key in ("error", "notes") if key in message and not name}
    error = as_text(f"{worker.error}, at {at}" if worker.error else said.get("error", ""))
    if not error and {*STEPS} - verdicts.keys() and only not in verdicts:
        error = "its process sent no verdict on some steps"
    in_order = {name: verdicts[name] for name in STEPS if name in verdicts}
    return Progress(file, in_order, error, as_notes(said.get("notes")))


# --- what the command prints ---------------------------------------------------------------------


def report(file: Path, as_json: bool, step: str | None, write: bool, steps: int) -> tuple[int, str]:
    "The exit code of `transformer-lit check`, and what it prints about a file."
    step = {known.id: name for name, known in STEPS.items()}.get(step, step)  # masks.3, too
    with tqdm(total=len(STEPS), desc="check", file=sys.stderr, delay=2, disable=None) as bar:
        found = check_file(file, only=step, progress=bar.update)
    if found.error and not as_json:
        raise InputError(f"{file}: {found.error}")
    if as_json:
        print(f"error: {file}: {found.error}\n" if found.error else "", end="", file=sys.stderr)
        return 2 if found.error else int(not found), json.dumps(found.as_dict(), indent=1)
    if write:
        return int(not found), _written(file, found, steps)
    passed = remember([verdict.id for verdict in found.verdicts.values() if verdict], file)
    text = str(found if step is None else found.verdicts[step])
    return int(not found), f"{text}\nWith the notebooks: {passed}" if passed else text


_RUN = """
from transformer_lit.course import my_model
from transformer_lit.course.files import InputError

path, steps = args
try:
    if steps is None:
        send({"lap": list(vars(my_model.race(path)).values())})
    else:
        words = my_model.first_words(path, steps=steps, progress=lambda: send(0))
        send({"words": str(words)})
except InputError as error:
    send({"error": str(error)})
"""


def _run_model(file: Path, steps: int | None, progress: Callable[[], Any] = lambda: None) -> dict:
    "What a file's own training sends in the end; an hour is its limit."
    worker, found = Worker(_RUN, str(find_file(file)), steps, seconds=3600, memory=None), {}
    for message in worker:
        found = message or found
        progress()
    if error := worker.error or found.get("error"):
        raise InputError(f"{file}: {error}")
    return found


def _written(file: Path, found: Progress, steps: int) -> str:
    "What the model of a file writes once it is trained."
    for name in ("MyLlama", "train", "generate"):
        if not found.verdicts.get(name):
            raise InputError(f"--write needs MyLlama, train and generate; not yet: {name}")
    with tqdm(total=steps, desc="train", file=sys.stderr, disable=None) as bar:
        return _run_model(file, steps, bar.update)["words"]


def report_race(file: Path) -> tuple[int, str]:
    "The same of `transformer-lit check --race`."
    lap = Lap(*_run_model(file, None)["lap"])
    return 0, (
        f"{lap.bits:.3f} bits a letter of new stories, after {lap.seconds:.0f} seconds of the "
        f"processor. Your best: {best_lap(lap.bits, file):.3f}. No model passes {lap.floor:.3f}."
    )
