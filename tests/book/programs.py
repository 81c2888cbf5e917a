"""Random expressions and programs over tensors, to run with torch and with the page's engine."""

UNARY = """
{}.exp()
{}.tanh()
{}.sigmoid()
({}.square() + 0.5).log()
({}.square() + 0.5).sqrt()
({}.square() + 0.3).rsqrt()
{}.sin()
{}.cos()
{}.relu()
{}.abs()
-{}
2.5 * {} - 1
1 / ({}.square() + 1)
{} ** 2
F.silu({})
F.gelu({})
{}.clamp(-1, 0.7)
{}.softmax(-1)
{}.log_softmax(0)
{}.cumsum(-1)
{}.mean(-1, keepdim=True) * {}
{} - {}.amax(-1, keepdim=True)
F.layer_norm({}, {}.shape[-1:])
{}.var(0, correction=0, keepdim=True) + {}
{}.flip(0)
{}.roll(1, -1)
{}.masked_fill({} > 0.5, 0.25)
torch.where({} > 0, {}, 0.1 * {})
{}.norm(dim=-1, keepdim=True) * {}
{} / {}.std(-1, keepdim=True).clamp(min=0.1)
{}.sort(-1).values
F.normalize({}, dim=-1)
{}.logsumexp(-1, keepdim=True) + {}
{}.tril()
{}.erf()
3.0 ** (0.3 * {})
""".strip().split("\n")
BINARY = """
{} + {}
{} * {}
{} - {}
{} / ({}.square() + 1)
torch.maximum({}, {})
({} @ {}.mT) @ {}
torch.einsum('ab,cb->ac', {}, {}) @ {}
torch.cat([{}, {}], 0)[:{}.shape[0]]
torch.stack([{}, {}]).mean(0)
{}.gather(-1, ({}.abs() * 10).long() % {}.shape[-1])
""".strip().split("\n")
SHAPE = """
{}.mT.contiguous().mT
{}.reshape(-1).view({}.shape)
{}[torch.arange({}.shape[0]) % 2]
{}.repeat(2, 1)[::2]
{}.unsqueeze(0).expand(3, -1, -1).sum(0)
{}.chunk(2, 0)[0].sum(0) + {}
{}[{} > -9].view({}.shape)
{}.repeat_interleave(2, 0)[1::2]
{}.flatten().unfold(0, {}.shape[1], {}.shape[1])
{}.index_select(0, torch.tensor([0, 0, 1])).sum(0) + {}
""".strip().split("\n")

# lines of a program: {u} and {w} are tensors of three rows
STEPS = """
{u}.exp()
{u}.tanh()
{u}.sigmoid()
{u}.square()
{u}.relu()
{u}.abs()
2.5 * {u}
{u} + 1
-{u}
1 / ({u}.square() + 1)
{u} ** 2
{u}.softmax(-1)
{u}.log_softmax(-1)
{u}.sum(-1, keepdim=True)
{u}.mean()
{u}.clone()
{u}.cumsum(-1)
{u}.amax(-1, keepdim=True)
{u}.max(-1, keepdim=True).values
F.silu({u})
F.gelu({u})
{u}.var(-1, keepdim=True)
{u}.std(-1, keepdim=True)
{u}.norm(dim=-1, keepdim=True)
F.layer_norm({u}, {u}.shape[-1:])
{u}.clamp(-1, 1)
{u}.masked_fill({u} > 0.5, 0.1)
torch.where({u} > 0, {u}, 0.1 * {u})
{u}.sort(-1).values
{u}.logsumexp(-1, keepdim=True)
F.normalize({u}, dim=-1)
{u}.sqrt()
{u}.sin()
{u}.erf()
{u}.flip(-1)
{u}.roll(1, -1)
{u}.gather(-1, torch.zeros_like({u}, dtype=torch.long))
{u}.tril()
{u}.rsqrt()
F.dropout({u}, 0.0)
{u}.reciprocal()
{u}.log1p()
{u}.prod(-1, keepdim=True)
{u}.nan_to_num()
{u}[{u} > 0]
{u}.masked_select({u} > 0)
F.rms_norm({u}, {u}.shape[-1:])
{u}.topk(2, -1).values
F.softplus({u})
{u}.min(-1).values
{u}.repeat(2, 1)
torch.stack([{u}, {u}])
F.one_hot(({u} > 0).long(), 3) * 1.0
{u} + {w}
{u} * {w}
{u} - {w}
{u} / ({w}.square() + 1)
torch.maximum({u}, {w})
{u} @ {w}.mT
torch.cat([{u}, {w}])
{u} + {w}.detach()
{u} * {w}.detach()
torch.einsum('ij,kj->ik', {u}, {w})
F.linear({u}, {w})
F.mse_loss({u}, {w})
torch.minimum({u}, {w})
torch.lerp({u}, {w}, 0.3)
F.scaled_dot_product_attention({u}, {w}, {w})
torch.where({u} > {w}, {u}, {w})
{u} ** {w}
torch.addcmul({u}, {w}, {w})
{w}[[0, 2]] + {u}[:2]
F.cosine_similarity({u}, {w}, dim=-1)
""".strip().split("\n")
VIEWS = """
{u}.T
{u}[0]
{u}[:, 1:]
{u}[1:]
{u}.view(-1)
{u}.reshape(-1)
{u}.unbind(0)[1]
{u}.chunk(2, -1)[0]
{u}.detach()
{u}.unsqueeze(0)
{u}.expand(2, *{u}.shape)
{u}.data
{u}.flatten()
{u}[..., 0]
{u}[None]
{u}.contiguous()
{u}.to(torch.float64)
{u}.split(2, -1)[1]
{u}.diagonal()
{u}.squeeze()
{u}.narrow(-1, 0, 2)
""".strip().split("\n")
CHANGES = """
{u} += 1
{u} *= 2
{u} += {w}
{u} *= {w}
{u} /= 2
{u}.exp_()
{u}.relu_()
{u}.mul_({w})
{u}.add_({w})
{u}[0] = 0
{u}[0] = {w}[1]
{u}[:, 1] = 3.0
{u}[{u} > 0] = 0
{u}.masked_fill_({u} > 0.5, 0.0)
{u}.zero_()
{u}.copy_({w})
{u}.sigmoid_()
{u}.clamp_(-1, 1)
{u}[:, 0] += 1
{u}[1] *= {w}[0]
{u}.fill_(0.5)
{u} -= {u}.mean()
{u} /= {u}.sum()
{u} -= {u}.amax(-1, keepdim=True)
{u}.sub_({w}.detach())
{u}.T.mul_(2)
{u}.tanh_()
{u}.sqrt_()
{u}.detach().mul_(2)
{u}.data.mul_(2)
{u}[[0, 2]] = {w}[[1, 0]]
{u}.pow_(2)
{u} **= 2
{u}.div_({w})
{u}.neg_()
{u}.index_add_(0, torch.tensor([0, 1]), {w}[:2])
{u}.scatter_(1, torch.tensor([[0], [1], [2]]), 0.0)
{u}.requires_grad_()
{u}.uniform_()
{u}[..., 0].zero_()
{u}.index_copy_(0, torch.tensor([1]), {w}[:1])
{u}.lerp_({w}, 0.5)
{u}.addcmul_({w}, {w})
{u}.tril_()
""".strip().split("\n")


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
