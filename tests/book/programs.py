"""Random expressions and programs over tensors, to run with torch and with the page's engine."""

from pathlib import Path

_TEXT = (Path(__file__).parent / "programs.txt").read_text().strip()
UNARY, BINARY, SHAPE, STEPS, VIEWS, CHANGES = (part.split("\n")[1:] for part in _TEXT.split("\n\n"))


def expression(rng, depth):
    "An expression in x, y and z, whose result has their shape or one that fits."
    if not depth:
        return rng.choice("xyz")
    text = rng.choice(rng.choices([UNARY, BINARY, SHAPE], [50, 25, 25])[0])
    a, b = expression(rng, depth - 1), expression(rng, depth - 1)
    if text in BINARY:
        parts = [a, b] + [b if "@" in text else a] * 3
        return f"({text.format(*parts)})"
    return f"({text.format(*[a] * text.count('{}'))})"


def program(rng):
    "Lines that make tensors from x, y and c, change some in place, and call backward."
    names, lines = ["x", "y", "c"], []
    for n in range(rng.choice([2, 3, 4, 5, 6])):
        u, w = rng.choice(names), rng.choice(names)
        kind = rng.choices([STEPS, VIEWS, CHANGES], [50, 20, 30])[0]
        line = rng.choice(kind).format(u=u, w=w)
        if kind is CHANGES:
            lines.append(f"with torch.no_grad(): {line}" if rng.random() < 0.15 else line)
        else:
            lines.append(f"v{n} = {line}")
            names.append(f"v{n}")
    used = rng.sample([name for name in names if name != "c"], rng.randint(1, len(names) - 1))
    weighted = "({0} * torch.arange(1.0, {0}.numel() + 1).view({0}.shape)).sum()"
    lines.append(f"loss = {' + '.join(weighted.format(name) for name in used)}")
    twice = ["loss.backward(retain_graph=True)", "loss.backward()"]
    return lines + rng.choice([twice, twice[1:] * 2, twice[1:], twice[1:], twice[1:]])
