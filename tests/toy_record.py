"A record of a training that never was."

from transformer_lit.course.records import Result

RUN = Result(
    name="toy",
    task="translation",
    dataset="numbers",
    direction="en-de",
    split="test",
    command="transformer-lit train translation",
    commit="c" * 40,
    config={"d_model": 11, "betas": [0.9, 0.98], "clip": None},
    parameters=1_234_567_890_123,
    data_sha256={"numbers/train": "ab" * 32},
    seed=3,
    device="CPU",
    torch="2.6.0",
    minutes=0.1,
    tokens_per_second=1e4 / 3,
    curve=[{"step": 5, "train_loss": 0.1, "val_loss": 1e-9}],
    metrics={"bleu": 12.5, "signature": "größe|v:2", "beam": 5},
)
