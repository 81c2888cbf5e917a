"""Batches of pairs: nothing lost, nothing doubled, and the same again from any position."""

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


def open_stream(seed=0, max_tokens=97):
    return PairStream(corpus(), max_tokens=max_tokens, seed=seed, **SPECIAL)


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


def test_pad():
    assert pad([[3, 4], [5], []], 7).tolist() == [[3, 4], [5, 7], [7, 7]]
    assert pad([[], []], 7).dtype == torch.long
    with pytest.raises(ValueError, match="no rows"):
        pad([], 7)


def test_collate_word_by_word():
    batch = collate([([11, 12, 13], [21]), ([14], [22, 23])], **SPECIAL)
    assert batch.src.tolist() == [[11, 12, 13, 2], [14, 2, 0, 0]]
    assert batch.src_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.tgt_in.tolist() == [[1, 21, 0], [1, 22, 23]]
    assert batch.tgt_out.tolist() == [[21, 2, 0], [22, 23, 2]]
    assert batch.tgt_mask.tolist() == [[True, True, False], [True] * 3]


def test_masks_do_not_depend_on_the_pad_id():
    "This catches a mask computed as `ids != pad_id` where text may hold that id."
    pairs = [([11, 0], [0, 21]), ([12], [22])]
    batch = collate(pairs, **SPECIAL)
    assert batch.src_mask.tolist() == [[True] * 3, [True, True, False]]
    assert batch.tgt_mask.tolist() == [[True] * 3, [True, True, False]]


def test_no_mask_where_nothing_is_padded():
    assert collate([([11, 12], [21]), ([13, 14], [22, 23])], **SPECIAL).src_mask is None


def test_an_empty_sentence_is_its_special_tokens():
    batch = collate([([], [])], **SPECIAL)
    assert (batch.src.tolist(), batch.tgt_in.tolist(), batch.tgt_out.tolist()) == (
        [[2]],
        [[1]],
        [[2]],
    )


@pytest.mark.parametrize("second", [[14], [14, 15, 16]])
def test_to_moves_every_field(second):
    batch = collate([([11, 12, 13], [21]), (second, [22, 23])], **SPECIAL)
    moved = batch.to("meta")
    for name, value in vars(batch).items():
        there = getattr(moved, name)
        if value is None:
            assert there is None
        else:
            assert (there.device.type, there.shape) == ("meta", value.shape)


@DETERMINISTIC
@given(LENGTHS, st.one_of(st.none(), st.integers(0, 5)))
def test_every_index_once_and_no_batch_too_large(lengths, seed):
    batches = bucket_by_length(lengths, 29, seed=seed)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch and len(batch) * max(max(lengths[i]) for i in batch) <= 29


def test_a_batch_is_as_full_as_the_rule_allows():
    "Equal lengths: every batch but one holds max_tokens // length pairs."
    sizes = sorted(map(len, bucket_by_length([(5, 7)] * 53, 29, seed=0)))
    assert sizes == [1] + [4] * 13
    assert bucket_by_length([(3, 29)], 29) == [[0]]  # exactly max_tokens fits


def test_without_a_seed_the_batches_are_sorted():
    lengths = [(len(t), len(s)) for s, t in corpus()]
    flat = [lengths[i] for batch in bucket_by_length(lengths, 97) for i in batch]
    assert flat == sorted(flat)
    assert bucket_by_length(lengths, 97) == bucket_by_length(lengths, 97)


def test_a_seed_moves_equals_and_batches_but_not_shapes():
    lengths = [(len(t), len(s)) for s, t in corpus()]

    def shapes(batches):
        return sorted(sorted(lengths[i] for i in batch) for batch in batches)

    plain, one, two = (bucket_by_length(lengths, 97, seed=s) for s in (None, 1, 2))
    assert shapes(plain) == shapes(one) == shapes(two)
    assert [shapes([b]) for b in one] != [shapes([b]) for b in two]  # the order of batches
    assert sorted(map(sorted, one)) != sorted(map(sorted, two))  # who meets whom
    assert one == bucket_by_length(lengths, 97, seed=1)


def test_buckets_waste_less_than_half_of_what_chance_wastes():
    lengths = [(len(t), len(s)) for s, t in corpus(2003)]

    def waste(batches):
        cells = sum(len(b) * max(lengths[i][side] for i in b) for b in batches for side in (0, 1))
        return 1 - sum(map(sum, lengths)) / cells

    batches = bucket_by_length(lengths, 97)
    sizes = iter(map(len, batches))
    order = iter(random.Random(0).sample(range(2003), 2003))
    by_chance = [list(islice(order, n)) for n in sizes]
    assert waste(batches) < waste(by_chance) / 2


def test_too_long_a_sentence_is_refused():
    with pytest.raises(ValueError, match="a sentence has 31 tokens, more than max_tokens=29"):
        bucket_by_length([(3, 5), (2, 31)], 29)


@pytest.mark.parametrize("number", [0, 1, 7])
def test_an_epoch_holds_every_pair_once(number):
    stream = open_stream()
    stream.position = (number, 0)
    batches = [rows(batch) for batch in islice(stream, len(stream.epoch(number)))]
    assert stream.position == (number + 1, 0)
    assert sorted(pair for batch in batches for pair in batch) == sorted(corpus())


def test_the_limit_counts_the_special_tokens():
    for batch in islice(open_stream(), 50):
        assert batch.src.numel() <= 97 and batch.tgt_in.numel() <= 97


def test_the_same_seed_gives_the_same_stream_and_another_does_not():
    first, again, other = (list(islice(open_stream(seed=s), 71)) for s in (5, 5, 6))
    assert all(map(same, first, again))
    assert not all(map(same, first, other))
    assert open_stream().epoch(0) != open_stream().epoch(1)


@pytest.mark.parametrize("taken", [0, 1, 13, "epoch", "over"])
def test_a_position_gives_the_same_rest(taken):
    stream = open_stream()
    length = len(stream.epoch(0))
    taken = {"epoch": length, "over": length + 3}.get(taken, taken)
    whole = list(islice(open_stream(), taken + length + 5))
    list(islice(stream, taken))
    resumed = open_stream()
    resumed.position = list(stream.position)  # as it comes back from JSON
    rest = list(islice(resumed, length + 5))
    assert all(map(same, whole[taken:], rest))


def test_a_new_iterator_goes_on_where_the_last_one_stopped():
    stream = open_stream()
    parts = [*islice(stream, 3), *islice(stream, 4)]
    assert all(map(same, parts, islice(open_stream(), 7)))


def test_setting_the_position_moves_a_running_iterator_too():
    stream = open_stream()
    running = iter(stream)
    first = next(running)
    next(running)
    stream.position = (0, 0)
    assert same(next(running), first)
    assert stream.position == (0, 1)


@pytest.mark.parametrize("position", [(2, 9999), (2, -1)])
def test_a_position_outside_the_epoch_is_refused(position):
    "This catches an endless loop: a corpus that shrank since the position was stored."
    stream = open_stream()
    stream.position = position
    batches = len(stream.epoch(2))
    with pytest.raises(
        ValueError, match=f"epoch 2 has {batches} batches, position asks for {position[1]}"
    ):
        next(iter(stream))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_hands_out_the_stream(workers):
    loader = DataLoader(open_stream(), batch_size=None, num_workers=workers)
    for found, wanted in zip(islice(loader, 5), open_stream()):
        assert same(found, wanted)
    texts = [TextStream(torch.arange(101), length=7, batch_size=3, seed=5) for _ in range(2)]
    for found, wanted in zip(islice(DataLoader(texts[0], batch_size=None), 5), texts[1]):
        assert same(found, wanted)


@pytest.mark.parametrize("texts", [False, True])
def test_several_workers_are_refused(texts):
    "Each would hand out every batch."
    lines = TextStream(torch.arange(101), length=7, batch_size=3, seed=5)
    loader = DataLoader(lines if texts else open_stream(), batch_size=None, num_workers=2)
    with pytest.raises(ValueError, match="several workers"):
        next(iter(loader))


def test_a_data_loader_collates_pairs():
    pairs = corpus()
    loader = DataLoader(pairs, batch_size=13, collate_fn=partial(collate, **SPECIAL))
    found = [pair for batch in loader for pair in rows(batch)]
    assert found == [([*source], [*target]) for source, target in pairs]


def test_no_pairs_are_refused():
    with pytest.raises(ValueError, match="no pairs"):
        PairStream([], max_tokens=97, seed=0, **SPECIAL)


def test_fixed_batches_hold_every_pair_once_in_one_order():
    batches = fixed_batches(corpus(), 97, **SPECIAL)
    assert sorted(pair for batch in batches for pair in rows(batch)) == sorted(corpus())
    assert all(map(same, batches, fixed_batches(corpus(), 97, **SPECIAL)))
    widths = [batch.tgt_out.shape[1] for batch in batches]
    assert widths == sorted(widths)


class TestRunningText:
    def test_blocks_hold_every_token_once_as_a_target(self):
        for n, length in ((37, 5), (36, 5), (6, 5), (12, 1)):
            batches = text_blocks(torch.arange(n), length, 3)
            targets = torch.cat([batch.targets.flatten() for batch in batches])
            assert targets.tolist() == list(range(1, (n - 1) // length * length + 1))
            for batch in batches:
                assert torch.equal(batch.targets, batch.ids + 1) and batch.ids.shape[1] == length

    def test_an_epoch_holds_no_block_twice_and_begins_anywhere(self):
        stream = TextStream(torch.arange(101), length=7, batch_size=3, seed=5)
        offsets = set()
        for number in range(60):
            starts = stream.epoch(number).sort().values
            assert (starts.diff() == 7).all() and starts[0] < 7 and starts[-1] + 7 <= 100
            assert starts[-1] + 14 > 100  # no whole block is left over at the end
            offsets.add(int(starts[0]))
        assert offsets == set(range(7))

    def test_the_stream_deals_out_its_epochs(self):
        stream = TextStream(torch.arange(101), length=7, batch_size=3, seed=5)
        batches = iter(stream)
        for number in range(3):
            rows = []
            while stream.position[0] == number:
                batch = next(batches)
                assert torch.equal(batch.targets, batch.ids + 1)
                rows += batch.ids[:, 0].tolist()
            assert rows == stream.epoch(number).tolist()

    @pytest.mark.parametrize("taken", [0, 1, 4, 5, 9])
    def test_it_goes_on_from_a_position(self, taken):
        one = TextStream(torch.arange(101), length=7, batch_size=3, seed=2)
        first = list(islice(one, 12))
        two = TextStream(torch.arange(101), length=7, batch_size=3, seed=2)
        list(islice(two, taken))
        three = TextStream(torch.arange(101), length=7, batch_size=3, seed=2)
        three.position = two.position
        for ours, theirs in zip(islice(three, 12 - taken), first[taken:], strict=True):
            assert torch.equal(ours.ids, theirs.ids)

    def test_the_order_depends_on_the_seed(self):
        orders = [
            TextStream(torch.arange(501), length=7, batch_size=3, seed=seed).epoch(0).tolist()
            for seed in (0, 0, 1)
        ]
        assert orders[0] == orders[1] != orders[2]

    def test_what_cannot_be_cut_is_named(self):
        with pytest.raises(ValueError, match="5 tokens has no block of 5 and one more"):
            text_blocks(torch.arange(5), 5, 3)
        with pytest.raises(ValueError, match="length=0"):
            text_blocks(torch.arange(5), 0, 3)
        with pytest.raises(ValueError, match="9 tokens is too short for blocks of 5"):
            TextStream(torch.arange(9), length=5, batch_size=1, seed=0)
        with pytest.raises(ValueError, match="batch_size=0"):
            TextStream(torch.arange(19), length=5, batch_size=0, seed=0)
        stream = TextStream(torch.arange(19), length=5, batch_size=1, seed=0)
        stream.position = (0, 99)
        with pytest.raises(ValueError, match=r"epoch 0 .* has no batch 99"):
            next(iter(stream))
