"""Calls of torch's functions with arguments that fit and arguments that don't, as texts to run."""

import random
import re

SHAPES = {"s": (), "v": (3,), "m": (2, 3), "q": (3, 3), "b": (2, 3, 3), "T": (3, 2)}
KINDS = {"d": "float64", "f": "float32", "i": "int64", "n": "int32", "u": "uint8", "t": "bool"}
FIT = {
    "Scalar": ("2", "-1", "1.5", "True", "0", "x('ds')"),
    "double": ("0.5", "1", "1e-3", "True", "x('ds')"),
    "int64_t": ("0", "1", "-1", "-2", "2", "x('is')"),
    "SymInt": ("0", "1", "2", "3", "-1"),
    "bool": ("True", "False"),
    "IntArrayRef": (
        "(0,)",
        "[1]",
        "(0, 1)",
        "(-1, 0)",
        "(1, 2, 0)",
        "()",
        "(0, 0)",
        "0",
        "(3, -1)",
    ),
    "ScalarType": ("torch.float64", "torch.float32", "torch.int64", "float", "torch.bool"),
    "Device": ("'cpu'",),
    "str": ("'mean'", "'sum'", "'none'", "'average'", "'tanh'"),
    "TensorList": ("[x('dm'), x('dm')]", "(x('dv'), x('iv'))", "[x('dm'), x('dq')]", "[]"),
    "PyObject*": ("2", "[1, 2]", "1", "'mean'", "0.5", "x('dm')", "None"),
}
FIT["SymIntArrayRef"] = (
    *FIT["IntArrayRef"],
    "(2, 3)",
    "(3, 2)",
    "(6,)",
    "(2, 2, 3)",
    "[x('is'), 3]",
)
ODD = ("1", "1.0", "True", "None", "'a'", "(1, 1.0)", "[0]", "x('dm')", "x('im')", "x('tm')", "{}")
ODD += ("(y for y in [x('dm')])", "torch.long", "(True,)", "range(2)", "[x('is')]", "-3", "7", "[]")
UNKNOWN = re.compile(
    r"\.index$|expm1|take_along|empty|device|set_default|seed|Generator|rng|storage|_stacklevel|data_ptr|retain|backward|_{2}|dropout"
)


def argument(rng, kind):
    "The text of an argument: mostly of this kind."
    if rng.random() < 0.12:
        return rng.choice(ODD)
    kind = kind.strip("?").partition("[")[0]
    if kind.startswith("Tensor") and kind != "TensorList":
        letters = (
            rng.choices("dfinut", [10, 3, 4, 2, 2, 3])[0],
            rng.choices("svmqbT", [2, 4, 8, 4, 4, 2])[0],
        )
        return f"x('{''.join(letters)}')"
    return rng.choice(FIT.get(kind, ("None",)))


def parameters(line):
    "Kind, name, whether it may be left out, and whether it is only known by name."
    later = False
    for part in filter(
        None, re.split(r", (?![^{]*})", line[line.index("(") + 1 : line.rindex(")")])
    ):
        later |= part == "*"
        if part != "*":
            declared, default, _ = part.partition("=")
            yield (*declared.rpartition(" ")[::2], bool(default), later)


def call(rng, label, line):
    space, _, name = label.partition(".")
    start, texts, named = f"{space}.{name}(", [], False
    if space == "Tensor":
        start = f"{argument(rng, 'Tensor')}.{name}("
    for kind, word, free, later in parameters(line):
        if word in ("out", "device", "layout", "memory_format", "generator", "pin_memory"):
            continue
        if free and rng.random() < (0.85 if later else 0.5):
            named = True
            continue
        named |= later or rng.random() < 0.1
        texts.append(f"{word}={argument(rng, kind)}" if named else argument(rng, kind))
    if rng.random() < 0.06:
        texts.append(
            rng.choice(["axis=0", "keepdims=True", "inplace=False", "wrong=1", "dims=(0,)"])
        )
    if texts and rng.random() < 0.06:
        texts.pop(rng.randrange(len(texts)))
    return f"{start}{', '.join(texts)})"


def calls(signatures, each=12):
    "Texts of calls, the same in each run: some for each function whose results are its own."
    found = []
    for label, lines in signatures.items():
        if label.partition(".")[0] in ("torch", "Tensor", "F") and not UNKNOWN.search(label):
            rng = random.Random(label)
            found += [call(rng, label, rng.choice(lines)) for _ in range(each * len(lines))]
    return found


def outcome(text, torch, functional):
    "What a call gives, in plain Python, or why not."

    def x(code):
        n = 1
        for size in SHAPES[code[1]]:
            n *= size
        made = torch.tensor([(7 * i % 5 - 1) % 3 + i % 2 for i in range(n)])
        made = made.reshape(SHAPES[code[1]])
        made = made.to(getattr(torch, KINDS[code[0]]))
        return made.t() if code[1] == "T" else made

    torch.manual_seed(0)
    try:
        return plain(eval(text, {"torch": torch, "F": functional, "x": x}), torch)
    except Exception as error:
        return f"refused: {error}"


def plain(found, torch):
    if isinstance(found, torch.Tensor):
        steps = [*found.stride()] if found.numel() and found.ndim else []
        return [str(found.dtype), [*found.shape], steps, found.tolist()]
    if isinstance(found, list | tuple):
        return [plain(part, torch) for part in found]
    known = found is None or isinstance(found, bool | int | float | str)
    return found if known else type(found).__name__
