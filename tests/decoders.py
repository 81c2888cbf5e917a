"""What every decoder-only model must do, whatever it is made of."""

import torch
from wide import Wide

from transformer_lit.inference.sampling import generate


def assert_greedy_agrees(ours, theirs, vocab_size):
    "20 greedy tokens are those of HF's model with the same weights, with a cache and without."
    for length in (1, 5, 13):
        ids = torch.randint(vocab_size, (1, length))
        every = torch.ones_like(ids)  # or HF would hide ids that equal its padding
        greedy = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
        with Wide():
            expected = theirs.generate(ids, attention_mask=every, **greedy)
        assert generate(ours, ids, max_new=20, temperature=0) == [expected[0, length:].tolist()]
        slow = ids
        for _ in range(20):  # without a cache
            slow = torch.cat([slow, ours(slow)[:, -1:].argmax(-1)], 1)
        assert torch.equal(slow, expected)


def assert_steps_give_one_pass(model, vocab_size, chunks):
    "Decoding 11 tokens with a state, in these chunks, gives the logits of one pass."
    ids = torch.randint(vocab_size, (2, 11))
    state = model.start(2, 11)
    steps = [model.step(part, state) for part in ids.split(chunks, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), model(ids))
    assert state.length == 11


def assert_padding_is_ignored(model, vocab_size):
    "Positions and a mask say what is real; each row then gives what it gives alone."
    long, short = torch.randint(vocab_size, (1, 7)), torch.randint(vocab_size, (1, 4))
    ids = torch.cat([long, torch.cat([torch.zeros(1, 3, dtype=torch.long), short], 1)])
    pos = torch.stack([torch.arange(7), torch.arange(-3, 4).clamp(min=0)])
    mask = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    mask[1, ..., :3] = False
    out = model(ids, pos=pos, mask=mask)
    torch.testing.assert_close(out[:1], model(long))
    torch.testing.assert_close(out[1:, 3:], model(short))
