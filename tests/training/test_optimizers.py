"""Muon: whole matrices only, their types and their hooks; AdamW for all the rest.

The chapter's cells compare the rounds with a decomposition and the steps with torch's.
"""

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
from transformer_lit.training.optimizers import Muon, hidden_matrices, muon, orthogonalize
from transformer_lit.training.schedule import adamw

SHAPES = [(13, 29), (29, 13), (17, 17), (1, 7), (7, 1)]


@pytest.fixture(autouse=True)
def wide():
    torch.set_default_dtype(torch.float64)  # an equality must hold on every processor
    yield
    torch.set_default_dtype(torch.float32)


# each of 5 rounds enlarges an error of 2⁻²⁴ by at most 3.4445, and there are fewer than 2⁷ sums
CLOSE = {"rtol": 0, "atol": 3.4445**5 * 2**-24 * 2**7}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_type_is_kept_and_zeros_stay_zeros(dtype):
    G = torch.randn(5, 7, dtype=dtype)
    assert orthogonalize(G).dtype == dtype
    torch.testing.assert_close(orthogonalize(G).double(), orthogonalize(G.double()), **CLOSE)
    assert orthogonalize(torch.zeros(5, 7, dtype=dtype)).eq(0).all()
    tiny = torch.finfo(dtype).tiny
    assert orthogonalize(G.sign() * tiny).isfinite().all()
    torch.testing.assert_close(orthogonalize(G.sign() * tiny), orthogonalize(G.sign()))


# --- the step ------------------------------------------------------------------------------------


def weights(*shapes):
    return [nn.Parameter(torch.randn(shape)) for shape in shapes]


def test_a_path_is_that_of_torch_without_its_rounding_to_bf16(monkeypatch):
    "In shapes and with settings that the chapter does not have."
    ours = weights(*SHAPES)
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    one = Muon([{"params": ours, "momentum": 0.5}], lr=0.03, weight_decay=0.3)
    rest = {"momentum": 0.5, "adjust_lr_fn": "match_rms_adamw"}
    other = torch.optim.Muon(theirs, lr=0.03, weight_decay=0.3, **rest)
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    for _ in range(5):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape)
            q.grad = p.grad.clone()
        one.step()
        other.step()
    torch.testing.assert_close(ours, theirs)


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


@pytest.mark.parametrize("make", [adamw, muon])
def test_an_optimiser_of_a_model_trains_in_a_loop_without_a_schedule(make):
    for how in ({}, {"lr": 0.03}):
        model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
        before = copy.deepcopy(model.state_dict())
        optimizer = make(model, **how)
        model(torch.randn(2, 5)).sum().backward()
        optimizer.step()
        assert not any(torch.equal(x, before[name]) for name, x in model.state_dict().items())
        assert {group["lr"] for group in optimizer.param_groups} == {how.get("lr", 1e-3)}


def test_what_would_be_adamw_is_not_called_muon():
    for params in (weights((5, 7)), iter(weights((5, 7))), [{"params": weights((5, 7))}]):
        with pytest.raises(ValueError, match=r"no group has a momentum.* Call muon\(model\)"):
            Muon(params, lr=0.02)


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
    "transformer": lambda tied: Transformer(TransformerConfig(n_layers=2, **SIZES)),
}


@pytest.mark.parametrize(
    ("name", "tied"),
    [("gpt", True), ("gpt", False), ("llama", True), ("llama", False), ("transformer", True)],
)
def test_hidden_matrices_alone_have_a_momentum(name, tied):
    model = MODELS[name](tied)
    hidden, matrices, vectors = muon(model, weight_decay=0.1).param_groups
    assert "momentum" in hidden and "momentum" not in matrices and "momentum" not in vectors
    assert [g["weight_decay"] for g in (hidden, matrices, vectors)] == [0.1, 0.1, 0.0]
    assert all(g["fused"] for g in (hidden, matrices, vectors))
    names = {id(p): n for n, p in model.named_parameters()}
    kinds = [{names[id(p)] for p in g["params"]} for g in (hidden, matrices, vectors)]
    assert kinds[0] == {n for n in names.values() if n.endswith("_proj.weight")}
    assert kinds[2] == {n for n, p in model.named_parameters() if p.ndim == 1}
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
            with pytest.raises(InputError, match="Muon needs whole matrices, but FSDP cuts them"):
                optimizer.step()
    finally:
        dist.destroy_process_group()


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
