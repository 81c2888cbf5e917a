"""Muon: directions kept, stretches near 1; whole matrices only; AdamW for all the rest."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from transformer_lit.course.files import InputError
from transformer_lit.exercises import check
from transformer_lit.models.bert import Bert, BertConfig
from transformer_lit.models.gpt import GPT, GPTConfig
from transformer_lit.models.llama import Llama, LlamaConfig
from transformer_lit.models.transformer import Transformer, TransformerConfig
from transformer_lit.training.data import TextStream
from transformer_lit.training.loss import cross_entropy
from transformer_lit.training.optimizers import Muon, hidden_matrices, muon, orthogonalize
from transformer_lit.training.options import LayerWatch, WeightAverage
from transformer_lit.training.schedule import adamw, inverse_sqrt
from transformer_lit.training.trainer import Trainer

SHAPES = [(13, 29), (29, 13), (17, 17), (1, 7), (7, 1)]


@pytest.fixture(autouse=True)
def wide():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)  # an equality must hold on every processor
    yield
    torch.set_default_dtype(torch.float32)


def turns(*sizes):
    return [torch.linalg.qr(torch.randn(n, n)).Q for n in sizes]


def stretched(shape, values):
    "A matrix with these singular values, and its two orthonormal sides."
    (U, V), count = turns(*shape), len(values)
    return U[:, :count] @ values.diag() @ V[:, :count].T, U[:, :count], V[:, :count]


def rounds_of(s, rounds):
    "The polynomial of a number, by itself."
    for _ in range(rounds):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return s


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("condition", [1.0, 2.0, 11.0, 101.0, 397.0])
def test_directions_are_kept_and_stretches_come_near_1(shape, condition):
    values = torch.logspace(0, -1, min(shape)) ** torch.tensor(condition).log10() * 31
    G, U, V = stretched(shape, values)
    assert min(shape) == 1 or values[0] / values[-1] == pytest.approx(condition)
    found = U.T @ orthogonalize(G) @ V
    assert values[-1] > values.norm() / 600
    assert found.diag().min() > 0.68 and found.diag().max() < 1.21
    torch.testing.assert_close(found, found.diag().diag())  # no direction is mixed with another
    torch.testing.assert_close(found.diag(), rounds_of(values / values.norm(), 5))
    svd = torch.linalg.svd(G, full_matrices=False)
    assert torch.linalg.matrix_norm(orthogonalize(G) - svd.U @ svd.Vh, 2) < 0.32  # 1 − 0.68


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_each_round_is_the_polynomial(rounds):
    values = torch.tensor([3.0, 1.0, 0.2, 0.01])
    G, U, V = stretched((5, 11), values)
    expected = U @ rounds_of(values / values.norm(), rounds).diag() @ V.T
    torch.testing.assert_close(orthogonalize(G, rounds), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_axis_and_no_scale_is_a_favourite(shape):
    G, (P, Q) = torch.randn(shape), turns(*shape)
    torch.testing.assert_close(orthogonalize(P @ G @ Q), P @ orthogonalize(G) @ Q)
    torch.testing.assert_close(orthogonalize(G.T), orthogonalize(G).T)
    torch.testing.assert_close(orthogonalize(-G), -orthogonalize(G))
    for scale in (1e-250, 1e-3, 7.0, 1e250):
        torch.testing.assert_close(orthogonalize(scale * G), orthogonalize(G))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_type_is_kept_and_zeros_stay_zeros(dtype):
    G = torch.randn(5, 7, dtype=dtype)
    assert orthogonalize(G).dtype == dtype
    torch.testing.assert_close(orthogonalize(G).double(), orthogonalize(G.double()), **CLOSE)
    assert orthogonalize(torch.zeros(5, 7, dtype=dtype)).eq(0).all()
    tiny = torch.finfo(dtype).tiny
    assert orthogonalize(G.sign() * tiny).isfinite().all()
    torch.testing.assert_close(orthogonalize(G.sign() * tiny), orthogonalize(G.sign()))


# each of 5 rounds enlarges an error of 2⁻²⁴ by at most 3.4445, and there are fewer than 2⁷ sums
CLOSE = {"rtol": 0, "atol": 3.4445**5 * 2**-24 * 2**7}


# --- the step ------------------------------------------------------------------------------------


def weights(*shapes):
    return [nn.Parameter(torch.randn(shape)) for shape in shapes]


def set_gradients(parameters, seed):
    fixed = torch.Generator().manual_seed(seed)
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=fixed)


@pytest.mark.parametrize("decay,momentum", [(0.0, 0.95), (0.3, 0.95), (0.3, 0.5), (0.1, 0.0)])
def test_a_path_is_that_of_torch_without_its_rounding_to_bf16(decay, momentum, monkeypatch):
    ours = weights(*SHAPES)
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    one = Muon([{"params": ours, "momentum": momentum}], lr=0.03, weight_decay=decay)
    rest = {"momentum": momentum, "adjust_lr_fn": "match_rms_adamw"}
    other = torch.optim.Muon(theirs, lr=0.03, weight_decay=decay, **rest)
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    for t in range(5):
        set_gradients(ours, t)
        set_gradients(theirs, t)
        one.step()
        other.step()
    torch.testing.assert_close(ours, theirs)


def test_the_first_step_has_the_size_of_adams_in_every_shape():
    for p in weights(*SHAPES):
        before = p.detach().clone()
        p.grad = torch.randn(p.shape)
        Muon([{"params": [p], "momentum": 0.95}], lr=0.5, weight_decay=0.0).step()
        values = torch.linalg.svdvals(before - p) / (0.5 * 0.2 * max(p.shape) ** 0.5)
        assert values.min() > 0.68 and values.max() < 1.21
        assert 0.68 * 0.1 < (before - p).square().mean().sqrt() < 1.21 * 0.1


def test_the_rest_is_adamw_bit_by_bit():
    torch.manual_seed(1)
    ours = GPT(GPTConfig(vocab_size=31, d_model=12, n_heads=2, n_layers=2, d_ff=19, max_len=7))
    theirs = copy.deepcopy(ours)
    one, other = muon(ours, weight_decay=0.1), adamw(theirs, weight_decay=0.1)
    for optimizer in (one, other):
        for group in optimizer.param_groups:
            group["lr"] = 0.01
    for t in range(3):
        for model, optimizer in ((ours, one), (theirs, other)):
            set_gradients(model.parameters(), t)
            optimizer.step()
    hidden = {id(p) for p in hidden_matrices(ours)}
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b) == (id(a) not in hidden)
        states = one.state[a], other.state[b]
        assert (states[0].keys() == states[1].keys()) == (id(a) not in hidden)
        if id(a) not in hidden:
            torch.testing.assert_close(*states, rtol=0, atol=0)


def test_the_rate_0_moves_nothing_and_what_has_no_gradient_is_left_alone():
    moved, still = weights((5, 7), (7, 3))
    optimizer = Muon([{"params": [moved, still], "momentum": 0.95}], lr=0.0, weight_decay=0.1)
    before = copy.deepcopy((moved, still))
    moved.grad = torch.randn(5, 7)
    optimizer.step()
    assert torch.equal(moved, before[0])
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    assert not torch.equal(moved, before[0]) and torch.equal(still, before[1])
    assert still not in optimizer.state
    assert moved.grad is not None  # for whoever looks after the step


def test_a_step_is_one_step_for_hooks_and_closures():
    "As torch wraps the step of each class of which there is an object, AdamW's among them."
    vector, matrix = weights((3,), (5, 7))
    torch.optim.AdamW([vector])
    optimizer, calls = Muon([{"params": [matrix], "momentum": 0.9}, {"params": [vector]}]), []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))

    def closure():
        calls.append("loss")
        optimizer.zero_grad()
        loss = matrix.square().sum() + vector.sum()
        loss.backward()
        return loss

    expected = (matrix.square().sum() + vector.sum()).item()
    before = copy.deepcopy((matrix, vector))
    assert optimizer.step(closure).item() == expected
    assert calls == ["before", "loss", "after"]
    assert not torch.equal(matrix, before[0]) and not torch.equal(vector, before[1])


# --- which parameters ----------------------------------------------------------------------------

SIZES = {"vocab_size": 31, "d_model": 12, "n_heads": 2, "d_ff": 19, "max_len": 7}
MODELS = {
    "gpt": lambda tied: GPT(GPTConfig(n_layers=2, tied=tied, **SIZES)),
    "llama": lambda tied: Llama(LlamaConfig(n_layers=2, tied=tied, **SIZES)),
    "transformer": lambda tied: untied(Transformer(TransformerConfig(n_layers=2, **SIZES)), tied),
}


def untied(model, tied):
    if not tied:
        model.lm_head = nn.Linear(12, 31, bias=False)
    return model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_hidden_matrices_alone_have_a_momentum(name, tied):
    model = MODELS[name](tied)
    hidden, matrices, vectors = muon(model, weight_decay=0.1).param_groups
    assert "momentum" in hidden and "momentum" not in matrices and "momentum" not in vectors
    assert [g["weight_decay"] for g in (hidden, matrices, vectors)] == [0.1, 0.1, 0.0]
    assert all(g["lr"] == 0 and g["fused"] for g in (hidden, matrices, vectors))
    names = {id(p): n for n, p in model.named_parameters()}
    kinds = [{names[id(p)] for p in g["params"]} for g in (hidden, matrices, vectors)]
    assert kinds[0] == {n for n in names.values() if n.endswith("_proj.weight")}
    assert kinds[2] == {n for n, p in model.named_parameters() if p.ndim == 1}
    assert len(kinds[0]) % 2 == 0 and len(kinds[0]) >= 12
    assert sorted(n for kind in kinds for n in kind) == sorted(names.values())  # each once
    outer = {id(model.lm_head.weight), id(model.tok_emb.weight)}
    assert len(outer) == (1 if tied else 2)
    assert outer <= {id(p) for p in matrices["params"]}


def test_a_head_of_a_head_counts_and_frozen_weights_do_not():
    model = Bert(BertConfig(n_layers=2, **SIZES))
    found = {id(p) for p in hidden_matrices(model)}
    assert id(model.transform[0].weight) in found and id(model.lm_head.weight) not in found
    wrapped = nn.ModuleDict({"inner": model})
    assert {id(p) for p in hidden_matrices(wrapped)} == found
    model.transform[0].weight.requires_grad_(False)
    assert {id(p) for p in hidden_matrices(model)} == found - {id(model.transform[0].weight)}
    held = {id(p) for group in muon(model).param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters() if p.requires_grad}


def test_one_weight_of_two_layers_is_there_once():
    first, second = nn.Linear(5, 5), nn.Linear(5, 5)
    second.weight = first.weight
    assert len(hidden_matrices(nn.Sequential(first, second))) == 1


# --- refused -------------------------------------------------------------------------------------


def test_a_matrix_in_parts_is_refused():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = dist.init_device_mesh("cpu", (1,))
        for placement in (Shard(0), Replicate()):
            layer = nn.Linear(5, 7)
            layer.weight = nn.Parameter(distribute_tensor(layer.weight.data, mesh, [placement]))
            optimizer = muon(layer)
            layer.weight.grad = layer.weight.detach().clone()
            with pytest.raises(InputError, match="Muon needs whole matrices, which FSDP cuts"):
                optimizer.step()
    finally:
        dist.destroy_process_group()


# --- in a training -------------------------------------------------------------------------------


def step(model, batch):
    return cross_entropy(model(batch.ids), batch.targets)


def open_trainer(make=muon, seed=0):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 13, "d_model": 12, "n_heads": 2, "d_ff": 19, "max_len": 7}
    model = Llama(LlamaConfig(n_layers=2, dropout=0.2, **sizes))
    stream = TextStream(torch.arange(301) % 13, length=7, batch_size=3, seed=0)
    optimizer = make(model, weight_decay=0.1)
    return Trainer(model, step, optimizer, inverse_sqrt(0.03, 5), stream, clip=1.0, accumulate=2)


def test_what_hangs_on_a_training_sees_one_step():
    trainer = open_trainer()
    average = WeightAverage(trainer.model, trainer.optimizer, decay=0.5)
    watch, path = LayerWatch(trainer), []
    for _ in trainer.run(3):
        path.append(copy.deepcopy(dict(trainer.model.named_parameters())))
        assert all(row["ratio"] > 0 and row["grad"] > 0 for row in watch()["layers"].values())
    one, two, three = path
    expected = {name: (one[name] + 2 * two[name] + 4 * three[name]) / 7 for name in one}
    found = average.weights()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor.detach())


def test_it_learns():
    "Each token follows from the one before."
    trainer = open_trainer()
    losses = [log.loss for log in trainer.run(60)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_muon_3_asks_for_products():
    "A decomposition gives the same numbers, and is refused."

    def newton_schulz(g, coefficients, rounds):
        a, b, c = coefficients
        U, S, Vt = torch.linalg.svd(g / g.norm(), full_matrices=False)
        for _ in range(rounds):
            S = a * S + b * S**3 + c * S**5
        return U @ S.diag() @ Vt

    torch.testing.assert_close(
        newton_schulz(G := torch.randn(5, 7), (3.4445, -4.7750, 2.0315), 5), orthogonalize(G)
    )
    verdict = check("muon.3", newton_schulz)
    assert not verdict and "svd" in verdict.line and "BFloat16" in verdict.line
