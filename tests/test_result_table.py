"The table of records: a row for each training, its scores with how they were taken."

from dataclasses import replace

from tables import result_table, score
from toy_record import RUN


def test_a_language_model_has_a_row_too():
    run = replace(RUN, direction="", metrics={"val_loss": 1.5, "bits_per_byte": 2.164})
    row = result_table([run]).splitlines()[-1]
    assert row.startswith("| `toy` |") and row.endswith(" | – |")
    assert "| bits per byte 2.164 | 1.500 |" in row


def test_a_loss_in_blocks_names_their_length():
    "Longer blocks alone lower it, so two lengths must not be compared."
    run = replace(RUN, config={"length": 64}, metrics={"val_loss": 1.5, "bits_per_byte": 2.164})
    assert "| bits per byte 2.164, blocks of 64 | 1.500 |" in result_table([run])


def test_seeds_of_one_training_share_a_row():
    "By hand: 1, 2 and 6 have the mean 3 and the deviation √7; the second training stays alone."
    values = {0: 1.0, 2: 6.0, 1: 2.0}
    metrics = {s: {"exact": v, "beam": 5, "val_loss": 10 * v} for s, v in values.items()}
    runs = [
        replace(RUN, name=f"b-seed{s}", seed=s, minutes=values[s], metrics=metrics[s])
        for s in values
    ]
    alone = replace(runs[0], name="a-seed0", seed=0)
    rows = result_table([*runs, alone]).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| `a`", "| `b`"]
    assert "| exact 300.0% ± 264.6%, beam 5 | 30.000 ± 26.458 |" in rows[1]
    assert "| 0, 1, 2 | 1 to 6 |" in rows[1] and "| 0 | 1 |" in rows[0]
    assert "±" not in rows[0]
    few = result_table([alone], ["score", "training"]).splitlines()
    assert few == ["| score | training |", "| --- | --- |", "| exact 100.0%, beam 5 | `a` |"]


def test_minutes_are_a_mean_where_the_seeds_agree():
    "2 and 3 differ by a half, 2 and 5 by more; each device has its own."
    run = replace(RUN, metrics={"bits_per_byte": 2.0, "val_loss": 1.5})
    runs = [
        replace(run, name=f"a-seed{seed}", seed=seed, minutes=minutes, device=device)
        for seed, (minutes, device) in enumerate([(2.0, "x"), (3.0, "x"), (2.0, "y"), (5.0, "y")])
    ]
    assert "| 0, 1, 2, 3 | 2, 2 to 5 | x, y |" in result_table(runs)


def test_every_score_names_how_it_was_taken():
    bleu = {"bleu": 37.991, "beam": 5, "signature": "nrefs:1|case:lc"}
    assert score([bleu]) == "BLEU 37.99, beam 5"
    run = replace(RUN, metrics=bleu | {"val_loss": 1.0})
    assert result_table([run]).endswith(" | `nrefs:1 case:lc` |")
    assert score([bleu | {"greedy_bleu": 36.5}]) == "BLEU 37.99, beam 5; greedy 36.50"
    assert score([{"exact": 0.5, "beam": 1}]) == "exact 50.0%, beam 1"
    assert score([{"perplexity": 7.125}]) == "perplexity 7.12 at hidden tokens"
    assert score([{"bits_per_byte": 2.0}]) == "bits per byte 2.000"
