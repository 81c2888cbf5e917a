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
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from inspect import Parameter
from pathlib import Path
from typing import Any, TypedDict

import torch
from tqdm import tqdm

from transformer_lit.course import sandbox
from transformer_lit.course.exercises import Verdict
from transformer_lit.course.files import InputError, read_json, read_text, write_json, write_text
from transformer_lit.course.marking import as_notes, as_text, claim, confirmed, right_values
from transformer_lit.course.my_model import (
    AT_HOME,
    NATS,
    OWN_FILE,
    PARTS,
    Lap,
    find_file,
    quoted,
    run_file,
)
from transformer_lit.course.progress import best_lap, remember
from transformer_lit.course.sandbox import printed
from transformer_lit.course.settings import typed
from transformer_lit.course.worker import SECONDS, Worker
from transformer_lit.exercises import find_exercise


@dataclass(frozen=True)
class Step:
    """An exercise in the file. A step of the reader's model has one or more exercises.

    `number`: the number of the step. `name`: the function or class in the file. `method`: the
    method that a class needs besides `__init__`.
    """

    number: int
    name: str
    id: str
    chapter: str
    about: str
    method: str = ""


# Step, name in `my_transformer.py` (with the method of a class), exercise, chapter; description.
_STEPS = """
1 loss primer.5 start/four_pictures
    logits: N V, targets: N; the mean of −ln p of the right tokens.
2 generate primer.6 start/four_pictures
    The ids B T, followed by max_new_tokens more, drawn from the model's probabilities.
3 attend self_attention.5 attention/self_attention
    q: … T D, k: … S D, v: … S E; returns … T E.
4 causal_mask masks.3 attention/masks
    T S, True where the query may attend: itself and before.
4 attend masks.7 attention/masks
    With mask=None: True where the query may attend.
5 attend attend.3 attention/attend
    Divides by √D; a fully masked row gives zeros.
6 MultiHead.forward multihead.3 attention/multihead
    Projections q_proj, k_proj, v_proj, o_proj; x: B T C, mask: up to B H T T; returns B T C.
7 rotate rope.3 position/rope
    x: B H T D turned in the planes (i, i + D/2) by pos·θ; pos: T or B T.
7 MultiHead.forward rope.6 position/rope
    With position=None, which turns queries and keys.
8 RMSNorm.forward norm.3 block/norm
    x / √(mean(x²) + eps) · weight; the gain `weight` is a parameter.
9 SwiGLU.forward feedforward.3 block/feedforward
    (SiLU(x W_g) · x W_u) W_d; projections gate_proj, up_proj, down_proj.
10 Block.forward layers.3 block/layers
    Pre-norm: attention, attn(z, mask=mask), then the feed-forward network, ffn(z).
11 Decoder.forward gpt.6 models/gpt
    Joins the parts: ids B T to logits B T V.
12 Cache.update cache.3 attention/cache
    Takes k, v: B H T D, returns all so far; `length` is how many positions it holds.
12 Decoder.forward cache.6 attention/cache
    With caches=None, one for each layer.
12 generate cache.7 attention/cache
    With caches=None: the model reads only what they don't hold yet.
13 repeat_heads grouped.3 attention/grouped
    k: B K S D; returns B H S D with H = n_heads.
13 Decoder.forward grouped.6 attention/grouped
    With n_kv_heads=None, as in MultiHead.
14 train trainer.3 training/trainer
    The losses; the model is trained in place.
14 train trainer.5 training/trainer
    With warmup=0: if it is larger, the learning rate rises, stays and falls.
15 generate sampling.7 inference/sampling
    With temperature=1.0 and top_p=1.0.
16 dequantise answers.3 capstones/it_answers
    Turn packed: n 20, the bytes of Q4_1 blocks, into n 32 numbers in float32.
17 open_llama answers.4 capstones/it_answers
    Build a Decoder with the sizes in c and the tensors of a GGUF file.
18 encode answers.5 capstones/it_answers
    The ids of a text, with special tokens and with byte pairs merged by rank.
19 answer answers.6 capstones/it_answers
    Yield the ids of the answer, one at a time, up to <|im_end|>.
"""
_ROW = re.compile(r"^(\d+) (\w+)\.?(\w*) (\S+) (\S+)\n    (.+)$", re.M)
STEPS = {  # by exercise, in the order of the book
    id: Step(int(number), name, id, chapter, about, method)
    for number, name, method, id, chapter, about in _ROW.findall(_STEPS)
}
LAST = max(step.number for step in STEPS.values())
EARLIER = {  # exercises from an earlier edition, which are checked if a file has a `MyLlama`
    "self_attention.1": "self_attention",
    "llama.3": "MyLlama",
    "sampling.3": "generate",
    "sampling.6": "MyWriter",
}


def name_of(id: str) -> str:
    "The name that the answer to an exercise has in the file."
    return STEPS[id].name if id in STEPS else EARLIER[id]


def steps_of(asked: str | None) -> list[str]:
    "The exercises of a step given by name or number, one exercise given by its id, or all."
    if asked is None or asked in STEPS:
        return [*STEPS] if asked is None else [asked]
    begins = next((step.number for step in STEPS.values() if step.name == asked), None)
    found = [
        step.id
        for step in STEPS.values()
        if step.name == asked or str(step.number) == asked or step.number == begins
    ]
    if not found:
        known = ", ".join(dict.fromkeys(step.name for step in STEPS.values()))
        raise InputError(f"No step named {asked!r}. Known: {known}")
    return found


_HEAD = '''"""My own Transformer, which grows exercise by exercise and ends as a chat model.

Replace each `raise NotImplementedError` with your own code, then run `transformer-lit check`
on this file. Put your experiments below `if __name__ == "__main__":`.
A notebook in this folder, or in a folder inside it, can load your parts from here:

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


def _empty(step: Step) -> str:
    "A function or a class with the arguments of its exercise and an empty body."
    wanted = find_exercise(step.id).solution
    about, blank = f'"{step.about} ({step.id})"', "raise NotImplementedError"
    if not step.method:
        return f"def {step.name}{sandbox.signature(wanted)}:\n    {about}\n    {blank}\n"
    module = issubclass(wanted, torch.nn.Module)
    lines = [f"class {step.name}{'(nn.Module)' if module else ''}:", f"    {about}"]
    for method in ("__init__", step.method):
        lines += ["", f"    def {method}{sandbox.signature(getattr(wanted, method))}:"]
        lines += ["        super().__init__()"] if module and method == "__init__" else []
        lines += [f"        {blank}"]
    return "\n".join(lines) + "\n"


def starter() -> str:
    "The file with empty functions, each with the arguments of its first step."
    first: dict[str, str] = {}
    for step in STEPS.values():
        first.setdefault(step.name, _empty(step))
    return "\n\n".join((_HEAD, *first.values()))


def solved_file(n: int = LAST) -> str:
    "The file with the book's solutions to the first n steps."
    parts: dict[str, str] = {"": _HEAD.rpartition('"""')[2].strip()}
    for step in STEPS.values():
        if step.number <= n:
            source = find_exercise(step.id).source
            for node in ast.parse(source).body:  # a part that a step rewrites keeps its place
                parts[node.name] = ast.get_source_segment(source, node)
    return "\n\n\n".join(parts.values()) + "\n"


def write_starter(path: str | Path) -> None:
    "Write the file with empty functions; `InputError` if a file of that name exists."
    if os.path.lexists(path):
        raise InputError(f"{path} already exists and is not changed. Name another file")
    write_text(path, starter())


@dataclass(frozen=True)
class Progress:
    """How far a file has come: the verdict on each step, or an error. It is true if all pass.

    `verdicts`: by exercise; an exercise that isn't written yet is "open". `error`: why the file
    couldn't be read, imported or checked to the end. `notes`: what the file printed when imported.
    """

    file: str
    verdicts: dict[str, Verdict]
    error: str = ""
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.error and bool(self.verdicts) and all(self.verdicts.values())

    @property
    def passed(self) -> list[int]:
        "The numbers of the steps that pass."
        asked = {n: [id for id in STEPS if STEPS[id].number == n] for n in range(1, LAST + 1)}
        return [n for n, ids in asked.items() if all(map(self.verdicts.get, ids))]

    @property
    def line(self) -> str:
        "A summary in one line."
        return f"{self.file}: {self.error or f'{len(self.passed)} of {LAST} steps pass.'}"

    @property
    def next(self) -> str:
        "What the reader can do next with the file, or an empty string."
        if not self.error and len(self.passed) == LAST:
            return (
                "Ask it: the chapter “It answers” ends with the lines that your file still needs."
            )
        ready = not self.error and self.passed
        return "See what your model writes now: transformer-lit check --write" if ready else ""

    def as_dict(self) -> dict[str, Any]:
        "For JSON: file, error, whether all steps pass, how many do, and their exercises."
        steps = [
            {"step": STEPS[id].number, "name": STEPS[id].name, "chapter": STEPS[id].chapter}
            | verdict.as_dict()
            for id, verdict in self.verdicts.items()
            if id in STEPS
        ]
        whole = {"file": self.file, "error": self.error or None, "ok": bool(self)}
        whole |= {"passed": len(self.passed), "of": LAST, "notes": [*self.notes], "steps": steps}
        earlier = {id: verdict for id, verdict in self.verdicts.items() if id not in STEPS}
        return whole | ({"earlier": [v.as_dict() for v in earlier.values()]} if earlier else {})

    def _rows(self) -> list[tuple[str, str, str, str, tuple[str, ...]]]:
        "The number and name, chapter, verdict, hint and notes of each exercise."
        rows = []
        for id, v in self.verdicts.items():
            step = STEPS.get(id)
            where = step.chapter if step else "an earlier edition"
            name = f"{step.number if step else '':>2}  {name_of(id)}"
            rows.append((name, where, v.state, "" if v else v.line, v.notes))
        return rows

    def __repr__(self) -> str:
        lines = [f"{'step':20}{'chapter':26}{'verdict':9}hint"] if self.verdicts else []
        for name, chapter, state, hint, notes in self._rows():
            lines.append(f"{name:20}{chapter:26}{state:9}{hint}".rstrip())
            lines += [f"{'':55}{note}" for note in notes]
        return "\n".join([*lines, *self.notes, *filter(None, (self.line, self.next))])

    def _repr_html_(self) -> str:
        from transformer_lit.course.figures import Table  # imports matplotlib

        rows = [[*row[:3], "\n".join(filter(None, (row[3], *row[4])))] for row in self._rows()]
        table = Table(["step", "chapter", "verdict", "hint"], rows)._repr_html_() if rows else ""
        last = *self.notes, self.line, self.next
        below = "<br>".join(html.escape(line) for line in last if line)
        return f"{table}<p>{below}</p>"


def _uses(tree: ast.Module) -> dict[str, set[str]]:
    "For each function and class in a file: the parts and steps that it uses, even indirectly."
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    parts = {node.name: node for node in tree.body if isinstance(node, kinds)}
    known = parts.keys() | {step.name for step in STEPS.values()}
    uses = {
        name: {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & known - {name}
        for name, node in parts.items()
    }
    for _ in parts:  # no chain of uses is longer than this
        uses = {n: used.union(*(uses.get(one, ()) for one in used)) for n, used in uses.items()}
    return uses


def _lacks_argument(id: str, given: Any) -> bool:
    "Whether a part written in an earlier step lacks the arguments that this step adds."
    step, wanted = STEPS.get(id), find_exercise(id).solution
    if step is None or steps_of(step.name)[0] == id:
        return False
    pairs = [(given, wanted)]
    if step.method:
        methods = ("__init__", step.method)
        pairs = [(getattr(given, one, None), getattr(wanted, one)) for one in methods]
    for has, needs in (map(sandbox.signature, pair) for pair in pairs):
        kinds = {p.kind for p in has.parameters.values()} if has else {Parameter.VAR_POSITIONAL}
        open_ended = kinds & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
        if not open_ended and len(has.parameters) < len(needs.parameters):
            return True
    return False


def _claim(id: str, names: dict[str, Any], file: str) -> tuple[Verdict, dict[str, Any]]:
    "The verdict on one exercise, even if it is missing, and the claim that is sent."
    one, name = find_exercise(id), name_of(id)
    given = names.get(name, ...)
    verdict, claimed = claim(one, ... if _lacks_argument(id, given) else given)
    if verdict.state != "open":
        return verdict, claimed
    steps = {step.name for step in STEPS.values()}
    others = {other.casefold(): other for other in set(names) - steps}
    near = difflib.get_close_matches(name.casefold(), others, n=1, cutoff=0.8)
    hint = (
        f" You have `{others[near[0]]}`: the name must be the same."
        if name not in names and near
        else ""
    )
    return verdict, claimed | {"line": f"Write {one.form} in {file}.{hint}"}


def send_claims(send: Callable[[Any], Any], path: str, only: list[str]) -> None:
    """Import a file and check its exercises. For each, its id is sent first, and then a claim.

    Exercises for names that these exercises use are checked too. This runs in a process that the
    file may end or manipulate; see `course.marking`.
    """
    prints = io.StringIO()
    try:
        names, tree = run_file(Path(path), prints)
    except InputError as error:
        send({"error": str(error), "notes": printed(prints)})
        return
    send({"notes": printed(prints)})
    uses, verdicts = _uses(tree), {}
    last = max((STEPS[id].number for id in only), default=LAST)
    needed = set().union(*(uses.get(name_of(id), set()) for id in only))
    earlier = EARLIER if "MyLlama" in names and len(only) == len(STEPS) else {}
    before = [id for id, step in STEPS.items() if step.name in needed and step.number <= last]
    for id in [id for id in STEPS if id in only or id in before] + [*earlier]:
        name = name_of(id)
        if name in names:
            send({"begins": id})
        verdicts[id], claimed = _claim(id, names, Path(path).name)
        if verdicts[id].state == "not yet" and id in STEPS:
            claimed |= _after_others(id, verdicts, uses.get(name, set()), claimed, Path(path).name)
            verdicts[id] = replace(verdicts[id], state=claimed["state"])
        send({"name": id, **claimed})


def _after_others(
    id: str, verdicts: dict, used: set[str], claimed: dict, file: str
) -> dict[str, Any]:
    "What to say about a failing exercise if one that it builds on doesn't pass either."
    name = STEPS[id].name
    begun = [verdicts[one].state for one in verdicts if one in STEPS and STEPS[one].name == name]
    if "open" in begun:  # the step extends something that isn't written yet
        return {"state": "open", "line": f"Write {find_exercise(id).form} in {file}.", "notes": []}
    for other in (one for one in verdicts if one in STEPS and one != id and not verdicts[one]):
        if STEPS[other].name in used:
            what = "Write" if verdicts[other].state == "open" else "Fix"
            line = f"{what} {STEPS[other].name} first: {name} uses it."
        elif STEPS[other].name == name:
            line = f"Fix {name} for step {STEPS[other].number} first."
        else:
            continue
        return {"line": line, "notes": [claimed["line"], *claimed["notes"]]}
    return {}


_SEND_CLAIMS = f"from {__name__} import send_claims\nsend_claims(send, *args)"


def check_file(
    path: str | Path = OWN_FILE,
    *,
    only: str | None = None,
    seconds: float | int = SECONDS,
    progress: Callable[[], Any] = lambda: None,
) -> Progress:
    """Check every step that is written in a file, which runs in its own process.

    If the file isn't here, up to three folders above are searched. Mistakes in the file are
    reported in the result; they raise no exception. `only`: check only one step, by number or name,
    or one exercise, and what it uses. `seconds`: when the process is killed; verdicts reached
    before then count. `progress` is called after each exercise.
    """
    asked, file, said, verdicts = steps_of(only), Path(path).name, {}, {}
    at = "its import"
    try:
        found = str(find_file(path).absolute())
    except InputError as error:
        return Progress(file, {}, str(error))
    worker = Worker(_SEND_CLAIMS, found, asked, seconds=seconds, imports=__name__)
    for message in worker:
        message = message if isinstance(message, dict) else {}
        id, begins = message.get("name"), message.get("begins")
        if isinstance(id, str) and id in {*STEPS, *EARLIER}:
            verdicts[id] = confirmed(find_exercise(id), message)
            progress()
        if isinstance(begins, str) and begins in {*STEPS, *EARLIER}:
            at = name_of(begins)
            right_values(find_exercise(begins))  # meanwhile
        said |= {key: message[key] for key in ("error", "notes") if key in message and not id}
    error = as_text(f"{worker.error}, at {at}" if worker.error else said.get("error", ""))
    if not error and {*asked} - verdicts.keys():
        error = "its process sent no verdict on some steps"
    in_order = {id: verdicts[id] for id in [*STEPS, *EARLIER] if id in verdicts}
    return Progress(file, in_order, error, as_notes(said.get("notes")))


# --- what the command prints ---------------------------------------------------------------------


def report(
    file: Path, as_json: bool, step: str | None, write: bool, steps: int | None
) -> tuple[int, str]:
    "The exit code of `transformer-lit check`, and what it prints about a file."
    asked = steps_of(step)
    with tqdm(total=len(asked), desc="check", file=sys.stderr, delay=2, disable=None) as bar:
        found = check_file(file, only=step, progress=bar.update)
    if write:
        if found.error and not found.verdicts:
            raise InputError(f"{file}: {found.error}")
        written = write_rung(file, found, steps)
        return 0, json.dumps(written.as_dict(), indent=1) if as_json else str(written)
    if found.error and not as_json:
        raise InputError(f"{file}: {found.error}")
    if as_json:
        print(f"error: {file}: {found.error}\n" if found.error else "", end="", file=sys.stderr)
        return 2 if found.error else int(not found), json.dumps(found.as_dict(), indent=1)
    passed = remember([verdict.id for verdict in found.verdicts.values() if verdict], file)
    text = str(found) if step is None else "\n".join(str(found.verdicts[id]) for id in asked)
    return int(not found), f"{text}\n{passed}" if passed else text


_RUN = """
from pathlib import Path
from transformer_lit.course import my_model
from transformer_lit.course.files import InputError

what, path, *rest = args
try:
    if what == "race":
        send({"lap": list(vars(my_model.race(path)).values())})
    elif what == "fit":
        parts, said = my_model.fitting(Path(path), *rest, tell=lambda name: send({"at": name}))
        send({"parts": list(parts), "said": said})
    else:
        used, step, how = rest
        send({"rung": my_model.grow(Path(path), used, step, progress=lambda: send(0), **how)})
except InputError as error:
    send({"error": str(error)})
"""


def _run_model(
    file: Path,
    what: str,
    *rest: Any,
    seconds: float | int = 3600,
    progress: Callable[[], Any] = lambda: None,
) -> dict[str, Any]:
    "All messages from a process that runs the reader's file, merged, including any `error`."
    path = str(find_file(file).absolute())
    worker = Worker(_RUN, what, path, *rest, seconds=seconds, memory=None, imports=__name__)
    found: dict[str, Any] = {}
    for message in worker:
        found |= message if isinstance(message, dict) else {}
        progress()
    return found | ({"error": worker.error} if worker.error else {})


def _fitting(file: Path, seconds: float | int = SECONDS) -> tuple[list[str], list[str]]:
    "The parts of a file that run together, and a line for each part that fails or never ends."
    left_out: list[str] = []
    said: list[str] = []
    while True:
        found = _run_model(file, "fit", left_out, seconds=seconds)
        if "parts" in found:
            return found["parts"], said + found["said"]
        at = found.get("at")
        if at not in PARTS or at in left_out:
            raise InputError(f"{file}: {as_text(found['error'])}")
        left_out.append(at)
        quote = quoted(ast.parse(read_text(find_file(file))), at)
        said.append(f"{at} is left out: {as_text(found['error'])}.{quote}")


def write_rung(file: Path, found: Progress, steps: int | None = None) -> "Written":
    "Train a file's model, let it write, and keep its rung of the ladder next to the file."
    place = find_file(file).parent / LADDER
    kept = _rungs(place)
    used, said = _fitting(file)
    if not {"loss", "train"} & {*used}:
        why = said[0] if said else "write `loss` first (primer.5)"
        raise InputError(f"{file}: there is nothing to train with yet: {why}")
    wrong = [id for name in used if name in PARTS for id in _begun(name, found)]
    step = max([0, *found.passed]) if not wrong else 0
    how = {"steps": steps} if steps else {}
    total = AT_HOME.how(used) | how
    with tqdm(total=total["steps"], desc="train", file=sys.stderr, disable=None) as bar:
        sent = _run_model(file, "grow", used, step, how, progress=bar.update)
    if "rung" not in sent:
        raise InputError(f"{file}: {as_text(sent['error'])}")
    said += [f"{id}: not yet. {found.verdicts[id].line}" for id in wrong]
    begun = {STEPS[id].number for id, verdict in found.verdicts.items() if verdict and id in STEPS}
    said += [
        f"Step {STEPS[id].number} still needs {id}. {verdict.line}"
        for id, verdict in found.verdicts.items()
        if id in STEPS and not verdict and STEPS[id].number in begun and id not in wrong
    ]
    return _kept(place, kept, sent["rung"], said, keep=bool(step) and steps is None)


def _begun(name: str, found: Progress) -> list[str]:
    "The first exercise of a part, in a list, if it has been started but doesn't pass."
    asked = [id for id in steps_of(name) if STEPS[id].number == STEPS[steps_of(name)[0]].number]
    begun = [id for id in asked[:1] if id in found.verdicts and found.verdicts[id].state != "open"]
    return [id for id in begun if not found.verdicts[id]]


LADDER = "my_ladder.json"


class _Rung(TypedDict):
    "The record that is kept of a step."

    step: int
    unit: str
    before: float
    after: float
    nats: float
    sample: str


class _Ladder(TypedDict):
    "The fields of that file."

    rungs: list[Any]


def _rungs(place: Path) -> list[dict[str, Any]]:
    "The rungs kept in that file; `InputError` if it is damaged."
    if not place.exists():
        return []
    return [typed(_Rung, one, place) for one in typed(_Ladder, read_json(place), place)["rungs"]]


@cache
def expected() -> dict[str, Any]:
    """The losses of the book's solutions with three seeds, from results/.

    `nats`: nats per letter, by step. `plain`: with the plain loop, at the learning rate of `train`.
    """
    path = Path(__file__).parents[1] / "data/ladder.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    return found | {"nats": {int(n): nats for n, nats in found["nats"].items()}}


def _kept(place: Path, kept: list, rung: dict[str, Any], said: list[str], keep: bool) -> "Written":
    "A rung next to those kept so far; with `keep`, it is kept too."
    below = [one for one in kept if one["step"] < rung["step"]]
    last = max(below, key=lambda one: one["step"], default=None)
    start = {"nats": rung["untrained"], "sample": rung["first"]}
    before = last or start
    if rung["unit"] == NATS:
        rung["before"] = before["nats"]
    mine = {name: rung[name] for name in _Rung.__annotations__}
    rungs = [one for one in kept if one["step"] != rung["step"]] + [mine] * keep
    rungs.sort(key=lambda one: one["step"])
    if keep:
        with suppress(OSError):  # the folder isn't writable
            write_json(place, {"rungs": rungs})
    how = rung["trained"], rung["steps"], rung["learned"]
    return Written(mine, before["sample"], rungs, tuple(said), *how)


@dataclass(frozen=True)
class Written:
    """What a file's model learned and wrote.

    `rung`: step, unit, before, after, nats, sample. `before`: the sample from the rung below, or
    from the untrained model. `ladder`: all rungs kept so far. `said`: what was left out, and why.
    `learned`: nats per letter in training, averaged over the last steps.
    """

    rung: dict[str, Any]
    before: str
    ladder: list[dict[str, Any]]
    said: tuple[str, ...]
    seconds: float
    steps: int
    learned: float

    def as_dict(self) -> dict[str, Any]:
        "For JSON: step, unit, before, after, nats and sample, and what was left out."
        return self.rung | {"said": [*self.said]}

    def _bar(self, number: int, nats: float) -> str:
        names = dict.fromkeys(step.name for step in STEPS.values() if step.number == number)
        name = ", ".join(names) or "the file as it is"
        line = f"{number:2}  {name:28}{nats:5.2f} {'█' * round(8 * min(nats, 4)):33}"
        seeds = expected()["nats"].get(number)
        return f"{line}{_spread(seeds)}" if seeds else line.rstrip()

    def __repr__(self) -> str:
        step, after, before = self.rung["step"], self.rung["after"], self.rung["before"]
        digits = ".2f" if self.rung["unit"] == NATS else ".0f"
        below = [one["step"] for one in self.ladder if one["step"] < step]
        last = f" ({f'step {below[-1]}' if below else 'untrained'})"
        start = f"{before:{digits}}{last if self.rung['unit'] == NATS else ''}"
        numbers = f"{start} → {after:{digits}} {self.rung['unit']}"
        trained = f"{self.steps} steps, {self.seconds:.0f} seconds"
        head = f"Step {step}: {numbers}" if step else f"Not a step yet: {numbers}"
        lines = [*self.said, f"{head} ({trained})"]
        if self.rung["unit"] == NATS:
            lines.append(f"On the stories that it learned from, at the end: {self.learned:.2f}")
        if step >= 14:
            lines.append(
                "The book's file at this rate, without warm-up, decay and clipping: "
                f"{_spread(expected()['plain'])} nats a letter, three seeds"
            )
        lines.append("")
        samples = {"before": self.before, "now": self.rung["sample"]}
        for when, text in samples.items():
            lines += [f"{when}:", *(f"  {line}" for line in text.strip("\n").split("\n")[:4]), ""]
        if self.ladder:
            beside = "expected (three seeds)"
            lines.append(f"{'step':32}{'nats a letter on new stories':39}{beside}")
            if step >= 3 and self.ladder[0]["step"] > 2:  # the loss to beat
                table = _spread(expected()["nats"][1])
                lines.append(f"{'the letter table (step 1)':71}{table}")
            lines += [self._bar(one["step"], one["nats"]) for one in self.ladder]
        return "\n".join(lines).rstrip()


def _spread(seeds: list[float]) -> str:
    return f"{sum(seeds) / len(seeds):.2f} ({min(seeds):.2f} to {max(seeds):.2f})"


def report_race(file: Path) -> tuple[int, str]:
    "The exit code of `transformer-lit check --race`, and what it prints about a file."
    found = _run_model(file, "race")
    if "lap" not in found:
        raise InputError(f"{file}: {as_text(found['error'])}")
    lap = Lap(*found["lap"])
    return 0, (
        f"{lap.bits:.3f} bits per letter on new stories, after {lap.seconds:.0f} seconds of "
        f"training. Your best: {best_lap(lap.bits, file):.3f}. No model can beat {lap.floor:.3f}."
    )
