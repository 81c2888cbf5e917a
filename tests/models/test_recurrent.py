"""Step by step is one pass, whatever is kept, dropped, repeated or taken back."""

import pytest
import torch

from transformer_lit.inference.beam import beam_search
from transformer_lit.models.recurrent import FixedVector, Recurrent, RecurrentConfig

V, C, B, S, T = 31, 14, 3, 7, 5


@pytest.fixture
def attending():
    torch.manual_seed(0)
    return Recurrent(RecurrentConfig(V, d_model=C)).double().eval()


@pytest.fixture(params=["attention", "fixed vector"])
def model(attending, request):
    "The translator with either plug."
    if request.param == "fixed vector":
        attending.cross_attn = FixedVector()
    return attending


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    src = torch.randint(V, (B, S), generator=generator)
    mask = torch.arange(S) < torch.tensor([S, 4, 2])[:, None]
    return src, torch.randint(V, (B, T), generator=generator), mask


def gru(x, h, cell):
    "One step of a GRU by its formulas; the weights hold r, z, n one below the other."
    W, U, b, c = (p.chunk(3) for p in cell.parameters())
    r, z = (torch.sigmoid(W[i] @ x + b[i] + U[i] @ h + c[i]) for i in (0, 1))
    n = torch.tanh(W[2] @ x + b[2] + r * (U[2] @ h + c[2]))
    return (1 - z) * n + z * h


def test_one_pass_against_a_loop_of_the_formulas(attending, batch):
    "The decoder, written out for one sentence without padding."
    (src, tgt, _), model = batch, attending
    a, found = model.cross_attn, model.hidden(src[:1], tgt[:1])[0]
    read, last = model.encoder(model.tok_emb(src[:1]))
    memory, h = read[0], model.first(last[1])[0]
    for x, expected in zip(model.tok_emb(tgt[:1])[0], found, strict=True):
        e = (a.q_proj(h) + a.k_proj(memory)).tanh() @ a.weight
        context = e.softmax(0) @ memory
        h = gru(torch.cat([x, context]), h, model.cell)
        torch.testing.assert_close(model.out(torch.cat([h, context, x])), expected)


def test_without_attention_the_context_is_what_has_read_the_whole_source(batch):
    *_, mask = batch
    read, x = torch.randn(B, S, C, dtype=torch.float64), torch.randn(B, T, C, dtype=torch.float64)
    plug = FixedVector()
    found = plug(x, plug.keys_values(read), mask=mask[:, None])
    assert found.shape == (B, T, C)
    for row, length in enumerate((S, 4, 2)):
        ends = torch.cat([read[row, length - 1, : C // 2], read[row, 0, C // 2 :]])
        torch.testing.assert_close(found[row], ends.expand(T, C))


def test_the_encoder_reads_both_ways(attending, batch):
    src, *_ = batch
    other = src.clone()
    other[:, 3] = (src[:, 3] + 1) % V
    (_, one), (_, two) = (attending.start(B, T, ids).memory for ids in (src, other))
    assert (one != two).any(-1).all()  # before the change and after it


@pytest.mark.parametrize("cuts", [(1, 1, 3), (2, 3), (5,)])
def test_chunks_are_one_pass(model, batch, cuts):
    src, tgt, mask = batch
    state = model.start(B, T, src, mask)
    steps = [model.step(ids, state) for ids in tgt.split(cuts, dim=1)]
    torch.testing.assert_close(torch.cat(steps, 1), model(src, tgt, mask))
    assert state.length == T


def test_rows_are_kept_dropped_and_repeated_and_steps_taken_back(model, batch):
    src, tgt, mask = batch
    whole, state = model(src, tgt, mask), model.start(B, T, src, mask)
    model.step(tgt[:, :2], state)
    model.step(tgt[:, :3], state)
    state.truncate(2)
    rows = torch.tensor([2, 0, 0, 1])
    state.select(rows)
    torch.testing.assert_close(model.step(tgt[rows, 2:], state), whole[rows, 2:])
    for wrong in (-1, T + 1):
        with pytest.raises(ValueError, match=f"cannot truncate 5 positions to {wrong}"):
            state.truncate(wrong)


def test_padding_is_not_read(model, batch):
    src, tgt, mask = batch
    together = model(src, tgt, mask)
    for row, length in enumerate((S, 4, 2)):
        alone = model(src[row : row + 1, :length], tgt[row : row + 1])
        torch.testing.assert_close(alone[0], together[row])


def test_a_beam_of_one_is_greedy(model, batch):
    src, _, mask = batch
    found = beam_search(model, src, mask, bos=1, eos=2, max_len=11, beam=1)
    for row, (hypothesis,) in enumerate(found):
        ids = [1]
        for token in [*hypothesis.ids, 2][:11]:
            one = slice(row, row + 1)
            assert int(model(src[one], torch.tensor([ids]), mask[one])[0, -1].argmax()) == token
            ids.append(token)


def test_what_cannot_be_is_named(model, batch):
    with pytest.raises(ValueError, match="needs src of 3 rows, got none"):
        model.start(B, T)
