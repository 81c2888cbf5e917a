"""Batches: nothing lost, nothing doubled, and the same again from any position."""

import random
from functools import partial
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from transformer_lit.training.data import (
    PairBatch,
    PairStream,
    TextStream,
    bucket_by_length,
    collate,
    fixed_batches,
    pad,
    text_blocks,
)

SPECIAL = {"pad_id": 0, "bos": 1, "eos": 2}
LENGTHS = st.lists(st.tuples(st.integers(1, 23), st.integers(1, 23)), max_size=83)
# the same examples in every run, and none kept in a folder: a red test is red for everybody
DETERMINISTIC = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def corpus(n=211, seed=0):
    "Pairs whose ids tell which pair they are from: 1000·pair + place."
    rng = random.Random(seed)
    sizes = [(rng.randint(1, 17), rng.randint(1, 19)) for _ in range(n)]
    return [
        ([1000 * i + j for j in range(s)], [1000 * i + j for j in range(t)])
        for i, (s, t) in enumerate(sizes, start=1)
    ]


def pair_stream(seed=0):
    return PairStream(corpus(), max_tokens=97, seed=seed, **SPECIAL)


def text_stream(seed=0):
    return TextStream(torch.arange(101), length=7, batch_size=3, seed=seed)


STREAMS = [pair_stream, text_stream]


def rows(batch: PairBatch):
    "The pairs in a batch, without special tokens."
    src = batch.src.tolist()
    out = batch.tgt_out.tolist()
    strip = [[i for i in row if i > 2] for row in (*src, *out)]
    return list(zip(strip[: len(src)], strip[len(src) :], strict=True))


def same(a, b):
    return all(
        x is y is None or torch.equal(x, y)
        for x, y in zip(vars(a).values(), vars(b).values(), strict=True)
    )


def length_of(stream, number):
    "Batches of an epoch."
    starts = len(stream.epoch(number))
    return -(-starts // stream.batch_size) if isinstance(stream, TextStream) else starts


# --- one batch -----------------------------------------------------------------------------------


def test_pad():
    assert pad([[3, 4], [5], []], 7).tolist() == [[3, 4], [5, 7], [7, 7]]
    assert pad([[], []], 7).dtype == torch.long


def test_collate_word_by_word():
    "A mask does not ask for the pad id, which text may hold; what nothing pads has no mask."
    batch = collate([([11, 0, 13], [0]), ([14], [22, 23])], **SPECIAL)
    assert batch.src.tolist() == [[11, 0, 13, 2], [14, 2, 0, 0]]
    assert batch.src_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.tgt_in.tolist() == [[1, 0, 0], [1, 22, 23]]
    assert batch.tgt_out.tolist() == [[0, 2, 0], [22, 23, 2]]
    assert batch.tgt_mask.tolist() == [[True, True, False], [True] * 3]
    even = collate([([11, 12], [21]), ([13, 14], [22, 23])], **SPECIAL)
    assert even.src_mask is None
    empty = collate([([], [])], **SPECIAL)
    assert (empty.src.tolist(), empty.tgt_in.tolist(), empty.tgt_out.tolist()) == (
        [[2]],
        [[1]],
        [[2]],
    )
    for one in (batch, even):
        moved = one.to("meta")
        for name, value in vars(one).items():
            there = getattr(moved, name)
            assert there is value is None or (there.device.type, there.shape) == (
                "meta",
                value.shape,
            )


# --- buckets -------------------------------------------------------------------------------------


@DETERMINISTIC
@given(LENGTHS, st.one_of(st.none(), st.integers(0, 5)))
def test_every_index_once_and_no_batch_too_large(lengths, seed):
    batches = bucket_by_length(lengths, 29, seed=seed)
    flat = [i for batch in batches for i in batch]
    assert sorted(flat) == list(range(len(lengths)))
    for batch in batches:
        assert batch and len(batch) * max(max(lengths[i]) for i in batch) <= 29
    if seed is None:
        assert [lengths[i] for i in flat] == sorted(lengths)


def test_a_batch_is_as_full_as_the_rule_allows():
    "Equal lengths: every batch but one holds max_tokens // length pairs."
    sizes = sorted(map(len, bucket_by_length([(5, 7)] * 53, 29, seed=0)))
    assert sizes == [1] + [4] * 13
    assert bucket_by_length([(3, 29)], 29) == [[0]]  # exactly max_tokens fits


def test_a_seed_moves_equals_and_batches_but_not_shapes():
    lengths = [(len(t), len(s)) for s, t in corpus()]

    def shapes(batches):
        return sorted(sorted(lengths[i] for i in batch) for batch in batches)

    plain, one, two = (bucket_by_length(lengths, 97, seed=s) for s in (None, 1, 2))
    assert shapes(plain) == shapes(one) == shapes(two)
    assert [shapes([b]) for b in one] != [shapes([b]) for b in two]  # the order of batches
    assert sorted(map(sorted, one)) != sorted(map(sorted, two))  # who meets whom
    assert one == bucket_by_length(lengths, 97, seed=1)


def test_fixed_batches_hold_every_pair_once_in_one_order():
    batches = fixed_batches(corpus(), 97, **SPECIAL)
    assert sorted(pair for batch in batches for pair in rows(batch)) == sorted(corpus())
    assert all(map(same, batches, fixed_batches(corpus(), 97, **SPECIAL)))
    widths = [batch.tgt_out.shape[1] for batch in batches]
    assert widths == sorted(widths)


# --- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 7])
def test_an_epoch_holds_every_pair_once(number):
    "And the limit counts the special tokens."
    stream = pair_stream()
    stream.position = (number, 0)
    batches = [*islice(stream, len(stream.epoch(number)))]
    assert stream.position == (number + 1, 0)
    assert sorted(pair for batch in batches for pair in rows(batch)) == sorted(corpus())
    assert all(batch.src.numel() <= 97 and batch.tgt_in.numel() <= 97 for batch in batches)


def test_an_epoch_of_text_has_its_own_order_holds_no_block_twice_and_begins_anywhere():
    stream, offsets = text_stream(), set()
    batches = iter(stream)
    for number in range(60):
        order, seen = stream.epoch(number), []
        while stream.position[0] == number:
            batch = next(batches)
            assert torch.equal(batch.targets, batch.ids + 1)
            seen += batch.ids[:, 0].tolist()
        assert seen == order.tolist()
        starts = order.sort().values
        assert not torch.equal(order, starts)
        assert (starts.diff() == 7).all() and starts[0] < 7 and starts[-1] + 7 <= 100
        assert starts[-1] + 14 > 100  # no whole block is left over at the end
        offsets.add(int(starts[0]))
    assert offsets == set(range(7))


def test_text_blocks_hold_every_token_once_as_a_target():
    for n, length in ((37, 5), (36, 5), (6, 5), (12, 1)):
        batches = text_blocks(torch.arange(n), length, 3)
        targets = torch.cat([batch.targets.flatten() for batch in batches])
        assert targets.tolist() == list(range(1, (n - 1) // length * length + 1))
        for batch in batches:
            assert torch.equal(batch.targets, batch.ids + 1) and batch.ids.shape[1] == length


@pytest.mark.parametrize("make", STREAMS)
def test_the_same_seed_gives_the_same_stream_and_another_does_not(make):
    first, again, other = (list(islice(make(seed=s), 71)) for s in (5, 5, 6))
    assert all(map(same, first, again))
    assert not all(map(same, first, other))
    orders = [[*map(str, make().epoch(number))] for number in (0, 1)]
    assert orders[0] != orders[1]


@pytest.mark.parametrize("make", STREAMS)
@pytest.mark.parametrize("taken", [0, 1, "epoch", "over"])
def test_a_position_gives_the_same_rest(make, taken):
    "A new iterator goes on where the last one stopped; so does another stream, from a position."
    stream = make()
    length = length_of(stream, 0)
    taken = {"epoch": length, "over": length + 3}.get(taken, taken)
    whole = list(islice(make(), taken + length + 5))
    list(islice(stream, taken))
    resumed = make()
    resumed.position = list(stream.position)  # as it comes back from JSON
    for one in (stream, resumed):
        assert all(map(same, whole[taken:], islice(one, length + 5)))


@pytest.mark.parametrize("make", STREAMS)
def test_setting_the_position_moves_a_running_iterator_too(make):
    stream = make()
    running = iter(stream)
    first = next(running)
    next(running)
    stream.position = (0, 0)
    assert same(next(running), first)
    assert stream.position == (0, 1)


@pytest.mark.parametrize("make", STREAMS)
def test_a_data_loader_hands_out_the_stream(make):
    loader = DataLoader(make(), batch_size=None)
    assert all(map(same, islice(loader, 5), make()))


def test_a_data_loader_collates_pairs():
    pairs = corpus()
    loader = DataLoader(pairs, batch_size=13, collate_fn=partial(collate, **SPECIAL))
    found = [pair for batch in loader for pair in rows(batch)]
    assert found == [([*source], [*target]) for source, target in pairs]


@pytest.mark.machinery
@pytest.mark.parametrize("make", STREAMS)
def test_one_worker_hands_out_the_stream_and_several_are_refused(make):
    "Each would hand out every batch."
    loader = DataLoader(make(), batch_size=None, num_workers=1)
    assert all(map(same, islice(loader, 5), make()))
    with pytest.raises(ValueError, match="several workers"):
        next(iter(DataLoader(make(), batch_size=None, num_workers=2)))


# --- refused -------------------------------------------------------------------------------------


def at(stream, *position):
    "This catches an endless loop: a corpus that shrank since the position was stored."
    stream.position = position
    return next(iter(stream))


def texts(n, **sizes):
    return TextStream(torch.arange(n), **{"length": 5, "batch_size": 1, "seed": 0, **sizes})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pad([], 7), "no rows"),
        (lambda: bucket_by_length([(3, 5), (2, 31)], 29), "has 31 tokens, more than max_tokens=29"),
        (lambda: PairStream([], max_tokens=97, seed=0, **SPECIAL), "pairs is empty"),
        (
            lambda: at(pair_stream(), 2, 9999),
            "epoch 2 has only .* batches, but position asks for 9999",
        ),
        (lambda: at(pair_stream(), 2, -1), "epoch 2 has only .* batches, but position asks for -1"),
        (lambda: text_blocks(torch.arange(5), 5, 3), "5 tokens are too few: length=5 needs one"),
        (lambda: text_blocks(torch.arange(5), 0, 3), "length=0"),
        (lambda: texts(9), "9 tokens are too few for two blocks of length=5"),
        (lambda: texts(19, batch_size=0), "batch_size=0"),
        (lambda: at(texts(19), 0, 99), "epoch 0 .* has no batch 99"),
        (lambda: at(texts(19), 0, -1), "epoch 0 .* has no batch -1"),
    ],
)
def test_what_gives_no_batch_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
