import math
from collections import Counter

import pytest
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from transformer_lit.inference.metrics import Score, bits_per_byte, bleu, perplexity

REFERENCES = [
    "Ein Mann fährt Fahrrad.",
    "Zwei Kinder spielen im Park, und ein Hund sieht zu.",
    "Der Lauf (1,5 km) beginnt um 9-10 Uhr.",
    'Eine Frau sagt: "Das ist mein Rad!"',
    "Leute warten an der Haltestelle & lesen.",
]
HYPOTHESES = [
    "Ein Mann fährt ein Fahrrad.",
    "Zwei Kinder spielen im Park und ein Hund schaut zu zu zu.",
    "Der lauf (1,5 km) beginnt um 9 Uhr.",
    'Eine Frau sagt "Das ist mein Fahrrad!"',
    "Leute warten an der haltestelle &amp; lesen.",
]


def by_hand(hypotheses, references):
    "BLEU of lists of words, from the definition; a precision of 0 is smoothed as mteval does."
    right, total = Counter(), Counter()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in (1, 2, 3, 4):
            left = [tuple(reference[i : i + n]) for i in range(len(reference) - n + 1)]
            for i in range(len(hypothesis) - n + 1):
                total[n] += 1
                gram = tuple(hypothesis[i : i + n])
                if gram in left:  # each n-gram of the reference can be hit once: the clip
                    left.remove(gram)
                    right[n] += 1
    words, wanted = sum(map(len, hypotheses)), sum(map(len, references))
    if not sum(right.values()) or not total[4]:
        return 0.0
    logs, smooth = 0.0, 1
    for n in (1, 2, 3, 4):
        smooth *= 1 if right[n] else 2
        logs += math.log(right[n] / total[n] if right[n] else 1 / (smooth * total[n]))
    return 100 * min(1.0, math.exp(1 - wanted / words)) * math.exp(logs / 4)


CASES = {
    "whole": (HYPOTHESES, REFERENCES),
    "perfect": (REFERENCES, REFERENCES),
    "too short": ([h[: len(h) // 2] for h in HYPOTHESES], REFERENCES),
    "too long": ([f"{h} und noch mehr" for h in HYPOTHESES], REFERENCES),
    "one is empty": (["", *HYPOTHESES[1:]], REFERENCES),
    "all are empty": ([""] * 5, REFERENCES),
    "a reference is empty": (HYPOTHESES, ["", *REFERENCES[1:]]),
    "no 4-gram is right": (["Ein Mann fährt gern Rad."], REFERENCES[:1]),
    "no pair is right": (["Fahrrad Mann Ein fährt gern"], REFERENCES[:1]),
    "nothing is right": (["x y z w v"], REFERENCES[:1]),
    "no 4-gram is there": (["Ein Mann"], ["Ein Mann"]),
    "repeats": (["Mann Mann Mann Mann Mann Mann"], ["Ein Mann sieht ein Mann"]),
    "blanks": (["  Ein  Mann fährt\tgern Fahrrad .  "], ["Ein Mann fährt gern Fahrrad ."]),
}


@pytest.mark.parametrize(("tokenize", "lowercase"), [("none", False), ("13a", True)])
@pytest.mark.parametrize("case", CASES)
def test_bleu_is_the_definition(case, tokenize, lowercase):
    cut = str.split if tokenize == "none" else lambda s: Tokenizer13a()(s.rstrip()).split()
    sides = [[cut(s.lower() if lowercase else s) for s in side] for side in CASES[case]]
    score = bleu(*CASES[case], tokenize=tokenize, lowercase=lowercase)
    assert math.isclose(score.value, by_hand(*sides), rel_tol=1e-9, abs_tol=1e-9)


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


def test_scores_compare_by_value():
    assert bleu(HYPOTHESES, REFERENCES) == bleu(tuple(HYPOTHESES), tuple(REFERENCES))
    assert Score(1.0, "a") != Score(1.0, "b")


@pytest.mark.parametrize(
    ("hypotheses", "references", "found"),
    [
        (HYPOTHESES, REFERENCES[:4], "list of 5 and 4"),
        ("Ein Mann", "Ein Rad.", "str of 8 and 8"),  # would be scored letter by letter
    ],
)
def test_what_sacrebleu_would_score_in_silence_is_refused(hypotheses, references, found):
    with pytest.raises(ValueError, match=found):
        bleu(hypotheses, references)


@pytest.mark.parametrize("choices", [1, 2, 7, 10_000])
def test_perplexity_counts_equal_choices(choices):
    assert math.isclose(perplexity(math.log(choices)), choices)


def test_perplexity_of_a_loss_beyond_all_bounds():
    assert perplexity(1e4) == perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))


def test_bits_per_byte_does_not_depend_on_the_tokens():
    total = 211.0  # nats of a text of 97 bytes, whatever it is cut into
    for tokens in (13, 31, 97):
        bits = bits_per_byte(total / tokens, tokens=tokens, n_bytes=97)
        assert math.isclose(2 ** (-bits * 97), math.exp(-total))
    assert math.isclose(bits_per_byte(math.log(256), tokens=7, n_bytes=7), 8)
