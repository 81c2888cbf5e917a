"""Repeat an experiment of the book, and write its record: `python -m experiments NAME`.

An interrupted run goes on with what is missing. `--quick` trains a few steps on what is always at
hand, for a few of the cells, and stores nothing.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import command_line, report
from experiments.averaging import AVERAGING
from experiments.bakeoffs import BAKEOFFS
from experiments.bpe_dropout import BPE_DROPOUT
from experiments.caption_optimizers import CAPTION_OPTIMIZERS
from experiments.caption_wirings import CAPTION_WIRINGS
from experiments.captions import CAPTIONS
from experiments.consistency import RDROP
from experiments.decoding import BEAM_WIDTHS, SCORED, SEARCH_TREE, WRITTEN
from experiments.domains import DOMAINS
from experiments.embedding import EMBEDDING
from experiments.feedforward import GATES, UNITS
from experiments.few_bits import FEW_BITS
from experiments.first_steps import FIRST_STEPS
from experiments.heads import HEADS
from experiments.interpret import INDUCTION, TRANSLATOR_HEADS
from experiments.ladder import LADDER, LADDER_LOSSES
from experiments.latent import LATENT_DECODE
from experiments.learning import LEARNING
from experiments.more_than_one import MORE_THAN_ONE
from experiments.muon import MUON
from experiments.pooling import POOLING
from experiments.race import RACE
from experiments.recall import RECALL
from experiments.recurrence import RECURRENCE
from experiments.runner import Row
from experiments.scaling import SCALING
from experiments.since_2023 import SINCE_2023, SINCE_2023_CLOCK
from experiments.sizes import SIZES
from experiments.smoothing import SMOOTHING
from experiments.speculation import SPECULATIVE
from experiments.steady import STEADY
from experiments.streaming import STREAMING
from experiments.tatoeba import TATOEBA
from experiments.ten_minutes import TEN_MINUTES
from experiments.three_minutes import LADDER as THREE_MINUTES_LADDER
from experiments.three_minutes import THREE_MINUTES
from experiments.tokenizer import TOKENIZER
from experiments.wirings import WIRINGS_TRAINED
from transformer_lit.training.options import keep_freed_memory

EXPERIMENTS = {  # each leaves a record of its name
    "attention_pooling": POOLING,
    "averaging": AVERAGING,
    "beam_widths": BEAM_WIDTHS,
    "caption_optimizers": CAPTION_OPTIMIZERS,
    "caption_wirings": CAPTION_WIRINGS,
    "captions": CAPTIONS,
    "dead_relus": UNITS,
    "domains": DOMAINS,
    "embedding": EMBEDDING,
    "gates": GATES,
    "few_bits": FEW_BITS,
    "first_steps": FIRST_STEPS,
    "heads": HEADS,
    "induction": INDUCTION,
    "ladder": LADDER,
    "ladder_losses": LADDER_LOSSES,
    "latent_decode": LATENT_DECODE,
    "learning": LEARNING,
    "more_than_one": MORE_THAN_ONE,
    "muon": MUON,
    "race": RACE,
    "bpe_dropout": BPE_DROPOUT,
    "rdrop": RDROP,
    "recall": RECALL,
    "recurrence": RECURRENCE,
    "scaling": SCALING,
    "scored_sentences": SCORED,
    "search_tree": SEARCH_TREE,
    "since_2023": SINCE_2023,
    "since_2023_clock": SINCE_2023_CLOCK,
    "sizes": SIZES,
    "smoothing": SMOOTHING,
    "speculative": SPECULATIVE,
    "steady": STEADY,
    "streaming": STREAMING,
    "tatoeba": TATOEBA,
    "temperatures": WRITTEN,
    "ten_minutes": TEN_MINUTES,
    "three_minutes": THREE_MINUTES,
    "three_minutes_ladder": THREE_MINUTES_LADDER,
    "tokenizer": TOKENIZER,
    "translator_heads": TRANSLATOR_HEADS,
    "wirings": WIRINGS_TRAINED,
    **BAKEOFFS,
}


def main(argv: Sequence[str] | None = None) -> list[Row]:
    "Run one, print its rows, and store them unless `--quick`."
    parser = command_line(__doc__, quick="a few steps, a few cells")
    parser.add_argument("name", choices=[*EXPERIMENTS, "word_vectors"])
    parser.add_argument("--device", default="cpu", help="of the trainings; or auto")
    parser.add_argument("--kept", default="runs", help="folder for the rows of an unfinished run")
    given = parser.parse_args(argv)
    if given.name == "word_vectors":  # trains no recipe: its methods are cells of its chapter
        from experiments import word_vectors

        return word_vectors.main(["--quick"] * given.quick + ["--out", given.out])
    keep_freed_memory()
    experiment, kept = EXPERIMENTS[given.name], Path(given.kept, f"{given.name}.json")
    rows = experiment.run(quick=given.quick, device=given.device, kept=kept)
    command = f"python -m experiments {given.name}"
    report(given.name, experiment.about, command, rows, given)
    if not given.quick:
        kept.unlink(missing_ok=True)
    return rows


if __name__ == "__main__":
    main()
