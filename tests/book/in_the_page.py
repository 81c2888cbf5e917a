"""Runs with torch, or as in the page with the archive's engine, and writes what it finds as JSON.

`python in_the_page.py OUT [ARCHIVE]`: with the folder of the unpacked archive, nothing else can be
imported, so that a module which the archive lacks is an error.
"""

import contextlib
import dataclasses
import importlib
import io
import json
import random
import sys
import types
import warnings
from pathlib import Path

OUT, *ARCHIVE = sys.argv[1:]
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
if ARCHIVE:
    sys.path[:] = [*ARCHIVE, str(HERE), *(p for p in sys.path[1:] if "-packages" not in p)]
    from transformer_lit.page import run as page
    from transformer_lit.page.torch_names import MissingName
else:  # the same judge over torch
    sys.path[:0] = [str(ROOT), str(ROOT / "book/page")]
    import contents

    class MissingName(BaseException):
        pass

    names = types.ModuleType("transformer_lit.page.torch_names")
    vars(names).update(install=lambda: None, MissingName=MissingName, lacking=[])
    names.FACTS = json.loads(contents.facts())
    sys.modules["transformer_lit.page"] = types.ModuleType("transformer_lit.page")
    sys.modules["transformer_lit.page"].torch_names = names
    sys.modules[names.__name__] = names
    import run as page

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from calls import calls, outcome  # noqa: E402
from programs import expression, program  # noqa: E402

from transformer_lit.course import exercises as course  # noqa: E402
from transformer_lit.course.sandbox import Found, explained  # noqa: E402
from transformer_lit.exercises import check, find_exercise  # noqa: E402

SHORT = {"plain": {"steps": 3, "lr": 1e-2}, "final": {"steps": 3, "lr": 1e-2}, "count": 2}


def told(verdict):
    return [verdict.state, verdict.line, list(verdict.notes)]


class Mistakes:
    "Instead of what a check is made of: what would be said of each typical mistake that it names."

    def __init__(self):
        self.said = []

    def tell(self, hint, compare):
        try:
            compare()
            self.said.append([hint, "nothing"])
        except Found as found:
            self.said.append([hint, found.line, list(found.notes)])
        except Exception as error:
            self.said.append([hint, explained(error)])

    @contextlib.contextmanager
    def expecting(self, found, right, *, case="", tolerance=1e-6):
        how = {"case": case, "tolerance": tolerance}
        with course.expecting(found, right, **how) as wrong:
            yield wrong
        for hint, value in wrong.items():
            self.tell(hint, lambda: course.expect(value, right, wrong, **how))  # noqa: B023

    @contextlib.contextmanager
    def expecting_all(self, answer, right, cases, *, tolerance=1e-6):
        with course.expecting_all(answer, right, cases, tolerance=tolerance) as wrong:
            yield wrong

        def compare(hint):
            with course.expecting_all(wrong[hint], right, cases, tolerance=tolerance) as known:
                known[hint] = wrong[hint]

        for hint in wrong:
            self.tell(hint, lambda: compare(hint))  # noqa: B023


def verdicts(blanks):
    "Blank, solution and typical mistakes of each build and repair."
    found = {}
    for id, blank in blanks.items():
        one, mistakes = find_exercise(id), Mistakes()
        module = sys.modules[one.checks.__module__]
        before = dict(vars(module))
        known = {name for name in ("expecting", "expecting_all") if name in before}
        text = blank[: blank.rindex("check(")]
        found[id] = {"blank": json.loads(page.run(id, text))}
        with contextlib.redirect_stdout(io.StringIO()):
            vars(module).update({name: getattr(mistakes, name) for name in known})
            found[id]["solution"] = told(check(id, one.solution))
            vars(module).update({name: before[name] for name in known})
        found[id]["mistakes"] = mistakes.said
    return found


def odd():
    "The verdicts on the answers of `odd_answers.txt`."
    _, *answers = (HERE / "odd_answers.txt").read_text().split("### ")
    pairs = (answer.split("\n", 1) for answer in answers)
    return [[id, text, json.loads(page.run(id, text))] for id, text in pairs]


def numbers(x):
    if isinstance(x, list | tuple):
        return [numbers(part) for part in x]
    return x.detach().tolist() if isinstance(x, torch.Tensor) else x


def expressions():
    "Random expressions: the value, and the gradients of a random weighted sum of it."
    found = []
    for seed in range(300):
        torch.manual_seed(seed)
        rng = random.Random(seed)
        shape = rng.choice([(3, 5), (2, 7), (5, 3), (7, 2)])
        leaves = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        text = expression(rng, rng.choice([1, 2, 2, 3, 3]))
        try:
            y = eval(text, dict(zip("xyz", leaves), torch=torch, F=F))
        except RuntimeError:  # where a mask meets nan
            found.append([text, "refused", "refused"])
            continue
        above = torch.randn(y.shape)
        grads = torch.autograd.grad(y, leaves, above, allow_unused=True) if y.requires_grad else []
        found.append([text, numbers(y), numbers(grads)])
    return found


def programs():
    "Random programs with views and changes in place: what they give, or where they are refused."
    found = []
    for seed in range(700):
        torch.manual_seed(seed)
        space = {"torch": torch, "F": F, "c": torch.randn(3, 3)}
        space |= {name: torch.randn(3, 3, requires_grad=True) for name in "xy"}
        lines, outcome = program(random.Random(seed)), None
        for n, line in enumerate(lines):
            try:
                exec(line, space)
            except MissingName:
                outcome = "missing"
            except Exception:
                outcome = f"refused in line {n}"
            if outcome:
                break
        outcome = outcome or [numbers(space[name].grad) for name in "xy"]
        found.append([lines, outcome])
    return found


def called():
    """What torch's functions give, or why they refuse, for arguments that fit and others.

    So do layers and optimizers in `layers.txt`, of which the page may lack none.
    """
    found, lines = [], (HERE / "layers.txt").read_text().splitlines()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in calls(page.torch_names.FACTS["signatures"]):
            try:
                found.append([text, outcome(text, torch, F)])
            except MissingName:
                found.append([text, "missing"])
        return found + [[text, outcome(text, torch, F)] for text in lines]


def models():
    "The book's encoder-decoder of two layers, and its Llama: logits, loss and all gradients."
    llama = importlib.import_module("transformer_lit.exercises.llama").MyLlama
    book = importlib.import_module("transformer_lit.models.transformer")
    sizes = {"vocab_size": 23, "d_model": 14, "d_ff": 22, "n_heads": 7, "n_layers": 2}
    mask = torch.arange(7) < torch.tensor([7, 4])[:, None]
    found = []
    for make, shapes, more in (
        (lambda: book.Transformer(book.TransformerConfig(**sizes, dropout=0.0)), (7, 5), [mask]),
        (lambda: llama(23, 12, 2, 6, 2, 17), (7,), []),
    ):
        torch.manual_seed(1)
        model = make().double()
        logits = model(*(torch.randint(23, (2, n)) for n in shapes), *more)
        loss = F.cross_entropy(logits.flatten(0, 1), torch.randint(23, (2 * shapes[-1],)))
        loss.backward()
        found.append([numbers(logits), loss.item(), [numbers(p.grad) for p in model.parameters()]])
    return found


def draws():
    "Random numbers, drawn in many sizes and kinds, one after another."
    source = torch.Generator().manual_seed(3)
    found = []
    for n in (1, 3, 15, 16, 17, 31, 32, 100):
        found += [torch.randn(n), torch.rand(n), torch.randn(n, generator=source)]
        found += [torch.randint(7, (n,)), torch.randperm(n), torch.randint(-5, 1000, (n, 2))]
        found += [torch.zeros(n).uniform_(-2, 3), torch.zeros(n).normal_(1, 2)]
        found += [torch.multinomial(torch.rand(n), 1), torch.multinomial(torch.rand(2, n), 1)]
    layer = torch.nn.Linear(5, 7)
    found += [layer.weight, layer.bias, torch.nn.Embedding(5, 3).weight]
    return [numbers(x) for x in found]


def trained():
    "What files of some steps learn in three steps, and what they write."
    page.my_model.IN_PAGE = dataclasses.replace(page.my_model.IN_PAGE, **SHORT)
    found = []
    for step in (1, 3, 5, 7, 10, 13, 15):
        told = []
        one = json.loads(page.train(step, page.my_model.solved_file(step), told.append))
        assert told == [1, 2]  # the last step asks for no more
        found.append([one[name] for name in ("untrained", "nats", "learned", "first")])
    broken = page.train(3, "def attend(q, k, v):\n    return q[0]", told.append)
    return found + [json.loads(broken)["said"]]


torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
blanks = json.loads((Path(OUT).parent / "blanks.json").read_text())
parts = {f.__name__: f for f in (odd, expressions, programs, called, models, draws, trained)}
result = {"verdicts": verdicts(blanks)} | {name: f() for name, f in parts.items()}
Path(OUT).write_text(json.dumps(result, default=str))
