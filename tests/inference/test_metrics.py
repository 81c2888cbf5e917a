"""BLEU's settings and what it would score wrongly; the chapter's cells check the definition."""

import math

import pytest

from transformer_lit.inference.metrics import Score, bleu, perplexity

REFERENCES = [
    "Ein Mann fährt Fahrrad.",
    "Zwei Kinder spielen im Park, und ein Hund sieht zu.",
    "Der Lauf (1,5 km) beginnt um 9-10 Uhr.",
]
HYPOTHESES = [
    "Ein Mann fährt ein Fahrrad.",
    "Zwei Kinder spielen im Park und ein Hund schaut zu zu zu.",
    "Der lauf (1,5 km) beginnt um 9 Uhr.",
]


def test_the_signature_says_what_was_done():
    seen = set()
    for tokenize in ("none", "13a"):
        for lowercase in (False, True):
            score = bleu(HYPOTHESES, REFERENCES, tokenize=tokenize, lowercase=lowercase)
            fields = dict(field.split(":") for field in score.signature.split("|"))
            assert fields["tok"] == tokenize and fields["case"] == ("lc" if lowercase else "mixed")
            assert (fields["nrefs"], fields["smooth"], fields["eff"]) == ("1", "exp", "no")
            assert fields["version"]
            seen.add(round(score.value, 6))
    assert len(seen) == 4  # one output, four numbers


def test_bleu_prints_and_logs_nothing_for_tokenised_text(capfd, caplog):
    lines = ["Ein Mann fährt Rad ."] * 101  # sacreBLEU warns from the hundredth on
    assert math.isclose(bleu(lines, lines, tokenize="none").value, 100)
    assert capfd.readouterr() == ("", "") and not caplog.records


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        ("Ein Mann fährt Fahrrad.", "13a"),
        ("Человек едет на велосипеде. 1234567890", "13a"),
        ("He wrote 自転車 and 自行车 on the board.", "13a"),
        ("एक आदमी साइकिल चला रहा है।", "13a"),
        ("一個男人在騎自行車。", "zh"),
        ("他用 PyTorch 训练模型。", "zh"),
        ("私はシンガポールが大好きです。", "char"),
        ("남자가 자전거를 타고 있다.", "char"),
        ("ผู้ชายกำลังขี่จักรยาน", "char"),
        ("", "13a"),
    ],
)
def test_the_writing_system_decides_what_a_word_is(text, tokenizer):
    assert f"tok:{tokenizer}|" in bleu([text], [text]).signature
    assert "tok:13a|" in bleu([text], [text], tokenize="13a").signature


def test_scores_compare_by_value():
    assert bleu(HYPOTHESES, REFERENCES) == bleu(tuple(HYPOTHESES), tuple(REFERENCES))
    assert Score(1.0, "a") != Score(1.0, "b")


@pytest.mark.parametrize(
    ("hypotheses", "references", "found"),
    [
        (HYPOTHESES, REFERENCES[:2], "list of 3 and 2"),
        ("Ein Mann", "Ein Rad.", "str of 8 and 8"),  # would be scored letter by letter
        ([], [], "at least one sentence"),
    ],
)
def test_what_sacrebleu_would_score_in_silence_is_refused(hypotheses, references, found):
    with pytest.raises(ValueError, match=found):
        bleu(hypotheses, references)


def test_perplexity_of_a_loss_beyond_all_bounds():
    assert perplexity(1e4) == perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))
