"""The loop: a step uses its own gradient only, evaluation changes nothing, errors precede harm.

The chapter's cells compare accumulation and clipping with one big batch and a plain loop.
"""

import copy
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from transformer_lit.course.files import InputError
from transformer_lit.training.distributed import World
from transformer_lit.training.trainer import Trainer, evaluating


@dataclass
class Batch:
    x: Tensor
    y: Tensor

    def to(self, device):
        return Batch(self.x.to(device), self.y.to(device))


def step(model, batch):
    return (model(batch.x) - batch.y).square().sum(), len(batch.x)


def batches(*sizes, dtype=torch.float64):  # an equality must hold on every processor
    return [Batch(*(torch.randn(n, width, dtype=dtype) for width in (5, 3))) for n in sizes]


def one(parts):
    return Batch(torch.cat([b.x for b in parts]), torch.cat([b.y for b in parts]))


def trainer(model, data=(), *, lr=0.1, **options):
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return Trainer(model, step, optimizer, lambda t: lr / t, data, **options)


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def test_run_takes_accumulate_batches_a_step_and_no_more(model):
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield from batches(3)

    t = trainer(model, endless(), accumulate=3)
    steps = t.run(5)
    for n in (1, 2):
        next(steps)
        assert len(taken) == 3 * n  # a position stored now is right
    assert [log.step for log in steps] == [3, 4, 5]
    assert t.done == 5 and list(t.run(5)) == []


def test_parameters_without_a_gradient_are_left_alone(model):
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    t = trainer(model)
    t.one_step(batches(3))
    assert torch.equal(t.model[0].weight, before)
    assert not torch.equal(t.model[2].weight, model[2].weight)


@pytest.mark.parametrize("clip", [0.01, 1e6])
def test_clipping_bounds_the_step_and_keeps_its_direction(model, clip):
    data, free, bound = batches(3), trainer(model, lr=1.0), trainer(model, lr=1.0, clip=clip)
    log = bound.one_step(data)
    assert log.grad_norm == free.one_step(data).grad_norm  # before clipping
    moved, freely = (
        torch.cat([(p - q).flatten() for p, q in zip(t.model.parameters(), model.parameters())])
        for t in (bound, free)
    )
    # torch divides by norm + 1e-6, so a step is shorter by that share of the norm
    share = {"rtol": 1.1e-6 / log.grad_norm, "atol": 1e-12}
    torch.testing.assert_close(moved, freely * min(1.0, clip / log.grad_norm), **share)


def test_the_schedules_rate_is_applied_to_every_group(model):
    t = trainer(model, batches(3, 3, 3))
    t.optimizer = torch.optim.SGD(
        [{"params": t.model[0].parameters()}, {"params": t.model[2].parameters()}], lr=7.0
    )
    for log in t.run(3):
        assert log.lr == 0.1 / log.step
        assert [group["lr"] for group in t.optimizer.param_groups] == [log.lr] * 2


def test_two_worlds_that_share_every_batch_learn_what_one_does(model):
    "Two threads, each with half of a batch, that add up their sums; the plug is all it takes."
    meet, sums = threading.Barrier(2), {}

    class Half(World):
        def __init__(self, rank):
            self.rank = rank

        def share(self, batch):
            rows = slice(None, 3) if self.rank == 0 else slice(3, None)
            return Batch(batch.x[rows], batch.y[rows])

        def add(self, loss, tokens, gradients):
            sums[self.rank] = loss, tokens, [g.clone() for g in gradients]
            meet.wait()
            other = sums[1 - self.rank]
            for mine, theirs in zip(gradients, other[2], strict=True):
                mine += theirs
            meet.wait()  # both have read before the next step writes
            return loss + other[0], tokens + other[1]

    data = batches(5, 7, 11)
    alone = trainer(model, data, clip=0.5)
    halves = [trainer(model, data, clip=0.5, world=Half(rank)) for rank in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda t: list(t.run(3)), halves)
    for one, *two in zip(alone.run(3), first, second, strict=True):
        for log in two:
            assert (log.loss, log.grad_norm) == pytest.approx((one.loss, one.grad_norm))
            assert (log.step, log.tokens) == (one.step, one.tokens)
    for half in halves:
        torch.testing.assert_close(half.model.state_dict(), alone.model.state_dict())


def test_the_clock_covers_the_work(model, monkeypatch):
    clock = [7.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def slow(model, batch):
        clock[0] += 2.0
        return step(model, batch)

    t = trainer(model, accumulate=2)
    t.step = slow
    assert t.one_step(batches(3, 3)).seconds == 4.0


# --- what is left of other steps -----------------------------------------------------------------


def assert_same_steps(found, expected, data):
    "Two trainers take the same steps, to the last bit."
    for batch in data:
        a, b = found.one_step([batch]), expected.one_step([batch])
        assert (a.step, a.loss, a.grad_norm) == (b.step, b.loss, b.grad_norm)
    torch.testing.assert_close(
        found.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0
    )


def left_by_the_caller(t):
    step(t.model, batches(7)[0])[0].backward()


def broken_batch(t, bad=math.nan):
    (broken,) = batches(7)
    broken.x[2, 1] = bad
    with pytest.raises(InputError, match=r"^step 1: "):
        t.one_step([broken])


def error_on_the_way_back(t):
    "The last layer has its gradient then, and the first has none; one of two batches is done."
    passed = []

    def stop(g):
        if passed:
            raise KeyboardInterrupt
        passed.append(1)

    hook = t.model[0].weight.register_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        t.one_step(batches(3, 5))
    hook.remove()
    assert all(p.grad is not None for p in t.model.parameters())


@pytest.mark.parametrize(
    "harm",
    [left_by_the_caller, broken_batch, lambda t: broken_batch(t, math.inf), error_on_the_way_back],
)
def test_what_another_step_has_left_is_no_part_of_the_next(model, harm):
    t, clean, data = trainer(model, clip=0.5), trainer(model, clip=0.5), batches(3, 5)
    harm(t)
    assert_same_steps(t, clean, data)
    assert all(p.grad is None for p in t.model.parameters())


def test_an_optimiser_of_the_head_alone_finds_the_length_of_each_steps_own_gradient(model):
    t = trainer(model)
    t.optimizer = torch.optim.SGD(t.model[2].parameters(), lr=0.0)
    for batch in batches(3, 5, 7):
        loss, count = step(t.model, batch)
        own = torch.autograd.grad(loss / count, list(t.model.parameters()))
        expected = torch.cat([g.flatten() for g in own]).norm().item()
        assert t.one_step([batch]).grad_norm == pytest.approx(expected)
        assert all(p.grad is None for p in t.model.parameters())
    assert torch.equal(t.model[0].weight, model[0].weight)


def test_what_the_optimiser_alone_has_is_cleared_too(model):
    "A factor that the step knows, and the model does not."
    t, factor = trainer(model), nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    t.optimizer = torch.optim.SGD([*t.model.parameters(), factor], lr=0.0)
    t.step = lambda m, b: ((factor * m(b.x) - b.y).square().sum(), len(b.x))
    t.one_step(batches(3))
    assert factor.grad is None and factor.item() != 1


# --- evaluation ----------------------------------------------------------------------------------


def test_run_switches_training_mode_on_and_evaluate_gives_every_mode_back():
    layers = nn.Linear(5, 7), nn.Dropout(0.5), nn.Linear(7, 3), nn.BatchNorm1d(3)
    t = trainer(nn.Sequential(*layers).double().eval(), batches(3, 3))
    next(t.run(1))
    assert all(m.training for m in t.model.modules())
    t.model[3].eval()  # a frozen part
    modes = [m.training for m in t.model.modules()]
    state, before, data = torch.get_rng_state(), copy.deepcopy(t.model.state_dict()), batches(2, 11)
    torch.set_rng_state(state)
    assert t.evaluate(data) == t.evaluate(data)
    assert torch.equal(state, torch.get_rng_state())  # dropout drew nothing
    assert [m.training for m in t.model.modules()] == modes
    torch.testing.assert_close(t.model.state_dict(), before, rtol=0, atol=0)
    assert all(p.grad is None for p in t.model.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_inside_all_is_in_eval_mode_and_behind_it_as_it_was_also_after_an_error(model, training):
    model.append(nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.3)))
    model.train(training)
    model[3].train(not training)  # each inner part another mode than what it lies in
    model[3][1].train(training)
    modes = [m.training for m in model.modules()]
    for ends in (True, False):
        try:
            with evaluating(model):
                assert not any(m.training for m in model.modules())
                if not ends:
                    raise KeyError
        except KeyError:
            assert not ends
        assert [m.training for m in model.modules()] == modes


def test_evaluation_weighs_tokens_and_takes_another_step(model):
    def other(model, batch):
        assert not torch.is_grad_enabled()
        return torch.tensor(6.0), 3

    t, data = trainer(model), batches(2, 11)
    assert t.evaluate(data) == pytest.approx(step(model, one(data))[0].item() / 13)
    assert t.evaluate(data, other) == 2.0


# --- refused -------------------------------------------------------------------------------------


def test_what_has_no_token_is_passed_over_and_a_mean_of_nothing_is_refused(model):
    data, taken = batches(3, 0, 2), trainer(model, batches(0) * 100)
    found, expected = trainer(model, data, lr=1), trainer(model, data[::2], lr=1)
    logs = [[(log.step, log.loss, log.tokens) for log in t.run(2)] for t in (found, expected)]
    assert logs[0] == logs[1] and found.done == 2
    torch.testing.assert_close(found.model.state_dict(), expected.model.state_dict())
    with pytest.raises(InputError, match="step 1: no target in 100 batches"):
        next(taken.run(1))
    with pytest.raises(InputError, match="has a token that counts"):
        found.evaluate(batches(0))


def test_where_the_batches_end_no_step_is_taken(model):
    t = trainer(model, batches(3, 3))
    with pytest.raises(ValueError, match="the batches ended after step 2 of 3"):
        list(t.run(3))
    assert t.done == 2


def bad_loss(t):
    real = t.step
    t.step = lambda m, b: (math.inf * real(m, b)[0], 3)


def bad_gradient(t):
    t.model[4].bias.register_hook(lambda g: g.index_fill(0, torch.tensor([1]), math.inf))


def bad_weight(t):
    t.model[4].weight.data[:2, 3] = math.nan


def bad_on_the_way_back(t):
    "It spreads to all earlier layers; the last tensor that has it is the nearest to the cause."
    t.model[3].register_full_backward_hook(lambda module, given, _: (math.nan * given[0],))


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (bad_loss, "the loss is not finite. Lower"),
        (bad_gradient, r"the gradient of 4\.bias is not finite"),
        (bad_weight, r"the weight 4\.weight is not finite"),
        (bad_on_the_way_back, r"the gradient of 2\.bias is not finite. "),
    ],
)
@pytest.mark.parametrize("clip", [None, 1.0])
def test_what_is_not_finite_is_told_with_step_and_tensor_before_it_reaches_a_weight(
    plant, words, clip
):
    layers = nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 11), nn.Tanh(), nn.Linear(11, 3)
    t = trainer(nn.Sequential(*layers).double(), batches(3, 3, 3), clip=clip)
    next(t.run(1))
    plant(t)
    before = copy.deepcopy(t.model.state_dict())
    with pytest.raises(InputError, match=rf"^step 2: {words}"):
        next(t.run(2))
    after = t.model.state_dict()
    torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)
    assert t.done == 1


def test_a_gradient_whose_length_alone_is_too_large_is_told_as_such(model):
    t = trainer(model.float())
    t.step = lambda m, b: (1e30 * m(b.x).square().sum(), 1)
    with pytest.raises(InputError, match=r"^step 1: the gradient.s length is not finite"):
        t.one_step(batches(3, dtype=torch.float32))


def test_bf16_computes_in_half_precision_and_keeps_fp32_weights(model):
    seen, data, model = [], batches(3, dtype=torch.float32), model.float()
    t, plain = trainer(model, dtype=torch.bfloat16), trainer(model)

    def watch(model, batch):
        seen.append(model(batch.x).dtype)
        return step(model, batch)

    t.step = watch
    loss = t.one_step(data).loss
    assert seen == [torch.bfloat16]
    assert {p.dtype for p in t.model.parameters()} == {torch.float32}
    assert loss == pytest.approx(plain.one_step(data).loss, rel=0.05)  # 8 bits of mantissa
    t.evaluate(data)
    assert seen == [torch.bfloat16] * 2 and not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    "options",
    [{"clip": 0.0}, {"clip": -1.0}, {"dtype": torch.float16}, {"accumulate": 0}],
)
def test_what_would_train_wrongly_in_silence_is_refused(model, options):
    "No step at all, one uphill, one whose small gradients are rounded to 0, one of no batch."
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        trainer(model, **options)
