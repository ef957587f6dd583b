"""Random texts: every frontend reads them or says what it cannot speak, and raises nothing else.

$MELFORGE_RANDOM_TEXTS sets how many texts the slow test makes: 100,000 take some ten minutes.
"""

import os
import random
import unicodedata

import pytest

from melforge.common.config.lexicon import lexemes
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError
from melforge.common.text import SaidAs, with_own_words
from melforge.common.text.english.normalise import normalise
from melforge.common.text.frontends import get_frontend
from melforge.common.text.lexicon import Lexicon
from melforge.common.text.readings import phonemized
from melforge.common.weights.voices import load_voice

WORDS = (
    "the cat $3.50 1/2 5½ m²/s Mr. Dr. O'Neil NASA GPUs 12:30 p.m. 1999 21st IV e-mail a@b.com "
    "https://x.org/y?z=1 {HH AH0} { } ÅÜŸ Ḿ 你好 Ω ² … — “quoted” 'em ŉ 1,000,000 -5 3-4 #1 & % @ A.B.C. I'm "
    "Denver, CO 80202 &#39; &amp; > ~~ [a](b) <p> <br> ```c # * ** fe80::1 ::1 12B 30s 3Q21 10-6-1 f**2 x*y "
    "9:45EST v1.2.3-beta.4 main.c:42:7 2024-12-01T08:05:09Z 08:05:09,12 +02:00 €1.234,56 R$ Fr. 5.50 III. "
    "10s. 6d. i. e. a"
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


MANY = int(os.environ.get("MELFORGE_RANDOM_TEXTS", "2000"))


@pytest.mark.parametrize("count", [300, pytest.param(MANY, marks=pytest.mark.slow)])
def test_only_input_errors_come_of_random_texts(frontend, count):
    rng, spoken_or_reported = random.Random(count), set()
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
        if frontend.name == "english":
            assert not lost(text), (text, lost(text))
        for char in filter(is_word_character, set(text)):
            assert char in spoken_or_reported or speaks_or_reports(frontend, char), (text, char)
            spoken_or_reported.add(char)


@pytest.mark.parametrize("count", [100, pytest.param(MANY, marks=pytest.mark.slow)])
def test_only_input_errors_come_of_random_texts_with_words_of_their_own(frontend, count):
    """Of a lexicon, and of parts that may be any: what is written around them stays where it stands."""
    rng = random.Random(count)
    spoken = ["sequel", "", "{HH AW1 S}", "{B IY1} {B}", "$5 at 10:30 p.m.", "漢 é", "...", " ", "{"]
    for _ in range(count):
        text = " ".join(random_text(rng) for _ in range(3))
        keys = {
            text[at : at + rng.randrange(1, 9)].replace("\0", "") for at in rng.choices(range(len(text)), k=5)
        }
        entries = {key: Entry(rng.choice(spoken), "") for key in keys if key.strip()}
        said, end = [], 0
        while end < len(text) and rng.random() < 0.5:
            start = rng.randrange(end, len(text))
            end = rng.randrange(start, min(len(text), start + 9)) + 1
            said.append(SaidAs(start, end, rng.choice(spoken)))
        try:  # two keys may be one but for capitals and blanks
            own = with_own_words(frontend, Lexicon(lexemes(entries)))
            analysis = own(text, said)
        except InputError:
            continue
        assert all(0 <= one.position < len(text) for one in analysis.unspoken), text
        for utterance in analysis.utterances:
            assert len(utterance.ids) == len(utterance.symbols) > 0, text
            starts = [start for start, end in utterance.places if 0 <= start <= end <= len(text)]
            assert starts == sorted(start for start, _ in utterance.places), (text, entries, said)
        phonemized(own, text, analysis)


def is_word_character(char: str) -> bool:
    """Modifier letters ("Lm") are read as the marks that they look like: an apostrophe, mostly."""
    return unicodedata.category(char) in ("Lu", "Ll", "Lt", "Lo", "Nd", "Nl", "No")


def lost(text: str) -> list[tuple[str, int]]:
    """Letters and digits that no spoken part of the text covers and that are not reported."""
    spans, left_out = normalise(text)
    assert all(span.text.isascii() for span in spans), spans  # else the pronouncer leaves letters out
    covered = [(span.start, span.end) for span in spans]
    for one in left_out:
        end = one.position
        for _ in one.symbol:  # which is without what was removed inside it
            end += 1
            while text[end : end + 1] and unicodedata.category(text[end])[0] in "CM":
                end += 1
        is_tag = one.symbol.startswith("<")  # of markup the beginning is reported
        covered.append((one.position, text.index(">", one.position) if is_tag else end))
    kept = set().union(*(range(start, end) for start, end in covered))
    return [(char, at) for at, char in enumerate(text) if is_word_character(char) and at not in kept]


def speaks_or_reports(frontend, text: str) -> bool:
    analysis = frontend(text)
    return bool(analysis.unspoken or analysis.utterances)


@pytest.mark.parametrize("letter", "ÜḾŸÆ")
def test_a_letter_beyond_ascii_is_spoken_wherever_a_single_letter_is(letter):
    """As an initial, before a sign, between full stops, and joined by "&": as its Latin letters are."""
    for form in ("{}. Smith", "x = {}^2", "{}++", "A.{}.B. ran", "{}&B", "{}² is", "x^{} is", "Plan {}+"):
        spans, left_out = normalise(form.format(letter))
        assert not left_out and all(span.text.isascii() for span in spans), form
        assert not lost(form.format(letter)), form


@pytest.mark.parametrize("form", ["{}. Smith", "{}^2", "{}++", "A.{}.B.", "{}&B"])
def test_a_letter_of_another_script_is_named_or_reported(form):
    assert not lost(form.format("Ω"))
    assert [one.kind for one in normalise(form.format("Ж"))[1]] == ["CYRILLIC"]
