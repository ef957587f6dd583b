"""Random texts: every frontend reads them or says what it cannot speak, and raises nothing else."""

import random

import pytest

from common.errors import InputError
from common.text.frontends import get_frontend
from common.weights.voices import load_voice

WORDS = (
    "the cat $3.50 1/2 5½ m²/s Mr. Dr. O'Neil NASA GPUs 12:30 p.m. 1999 21st IV e-mail a@b.com "
    "https://x.org/y?z=1 {HH AH0} { } ÅÜŸ Ḿ 你好 Ω ² … — “quoted” 'em ŉ 1,000,000 -5 3-4 #1 & % @ A.B.C. I'm "
    "Denver, CO 80202"
)
BLANKS = " \t\n\u2028\u2029\u00a0\u3000"
RANGES = ((32, 127), (0xA0, 0x250), (0x370, 0x600), (0x1E00, 0x2C00), (0x4E00, 0x4F00), (0x1F300, 0x1F700))


def random_text(rng: random.Random) -> str:
    kind = rng.randrange(4)
    if kind == 0:
        ranges = (rng.choice((*RANGES, (0, 0xD800), (0xE000, 0x110000))) for _ in range(rng.randrange(1, 60)))
        return "".join(chr(rng.randrange(*limits)) for limits in ranges)
    if kind == 1:
        return rng.choice((" ", "", " - ", "\n")).join(rng.choices(WORDS.split(" "), k=rng.randrange(1, 20)))
    letters = BLANKS if kind == 2 else "ABCĀÜŸḾŉΩ’'.-s0½²"
    return "".join(rng.choices(letters, k=rng.randrange(1, 15)))


@pytest.fixture(scope="module", params=["english", "tacotron2", "fastpitch", "fastspeech"])
def frontend(request):
    if request.param == "english":
        return load_voice().source("fastpitch").frontend.build()
    return get_frontend(request.param)


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_only_input_errors_come_of_random_texts(frontend, count):
    rng = random.Random(count)
    for _ in range(count):
        text = random_text(rng)
        try:
            analysis = frontend(text)
        except InputError:
            continue
        for one in analysis.unspoken:
            assert 0 <= one.position < len(text), (text, one)
        for utterance in analysis.utterances:
            assert len(utterance.ids) == len(utterance.symbols) > 0, text
