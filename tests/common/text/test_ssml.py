"""SSML: what is said, when, how and by whom; what is wrong, and what has no effect."""

import os
import random
import re
import sys
from pathlib import Path

import pytest

from melforge.common.errors import InputError
from melforge.common.text.frontends import get_frontend
from melforge.common.text.markup import PlainText, analyse, is_ssml
from melforge.common.text.ssml import DEEPEST
from melforge.common.text.style import PLAIN
from melforge.common.text.words import words_of
from tests.tables import read_tables

ENGLISH = get_frontend("english")
PUBLISHED = ("tacotron2", "fastpitch", "fastspeech")

TABLES = read_tables(Path(__file__).parent / "ssml.txt")


def ssml(body: str):
    return analyse(ENGLISH, f"<speak>{body}</speak>")


@pytest.mark.parametrize(("body", "wanted"), TABLES["WORDS"])
def test_what_is_said(body, wanted):
    assert " / ".join(utterance.normalised for utterance in ssml(body).utterances) == wanted.replace(
        ", /", " /"
    )


@pytest.mark.parametrize(("body", "wanted"), TABLES["PAUSES"])
def test_pauses(body, wanted):
    utterances = ssml(body).utterances
    lead = f"[{utterances[0].lead:g}] " if utterances[0].lead else ""
    found = [
        u.normalised
        + ("," if u.symbols[-1] == "," and u.normalised[-1] != "," else "")
        + (f" [{u.pause:g}]" if u.pause else "")
        for u in utterances
    ]
    assert lead + " ".join(found) == wanted


@pytest.mark.parametrize(("tags", "wanted"), TABLES["STYLES"])
@pytest.mark.parametrize("name", ["english", "fastpitch"])
def test_styles(tags, wanted, name):
    ends = "".join(f"</{tag}>" for tag in reversed(re.findall(r"<(\w+)", tags)))
    (utterance,) = analyse(
        get_frontend(name), f"<speak>We saw {tags}some $5.50{ends} there.</speak>"
    ).utterances
    words = words_of(utterance.normalised, utterance.symbols)
    of_words = [set(utterance.styles[word.start : word.end] or [PLAIN]) for word in words]
    (style,) = set().union(*of_words[2:-1])
    found = [f"{n} {round(v, 2):g}" for n, v, w in zip(style._fields, style, PLAIN, strict=True) if v != w]
    assert ", ".join(found) == wanted
    assert set().union(*of_words[:2], of_words[-1]) == {PLAIN}


@pytest.mark.parametrize(("text", "message"), TABLES["ERRORS"])
def test_what_is_wrong_has_a_place(text, message):
    with pytest.raises(
        InputError, match=f"^SSML, line .*{message}" if "line" not in message else f"^SSML, {message}"
    ):
        analyse(ENGLISH, text)


@pytest.mark.parametrize(("body", "wanted"), TABLES["WARNINGS"])
def test_what_changes_nothing_is_said(body, wanted):
    assert [w.startswith(f"SSML, {wanted}") for w in ssml(body).warnings] == [True] * bool(wanted)


@pytest.mark.parametrize(("body", "wanted"), TABLES["MARKS"])
def test_marks_stand_before_a_symbol(body, wanted):
    found = [
        f"{name} {(*u.symbols, 'end')[at].removeprefix('@')}"
        for u in ssml(body).utterances
        for at, name in u.bookmarks
    ]
    assert ", ".join(found) == wanted


def test_depth_and_size_are_bounded():
    deep = DEEPEST - 1
    assert ssml("<p>" * deep + "x" + "</p>" * deep).utterances
    with pytest.raises(InputError, match="more than 64 elements stand in one another"):
        ssml("<p>" * (deep + 1) + "x" + "</p>" * (deep + 1))


@pytest.mark.parametrize(
    "text",
    [
        "<speak>x</speak>",
        "\ufeff \n<speak version='1.1'>x</speak>",
        "<?xml version='1.0'?>\n<speak>x</speak>",
        "<!-- a --><speak>x</speak>",
        "<?xml version='1.0' encoding='utf-16'?><speak>x</speak>",
    ],
)
def test_what_begins_with_speak_is_ssml(text):
    assert is_ssml(text) and [u.normalised for u in analyse(ENGLISH, text).utterances] == ["X"]


@pytest.mark.parametrize("text", ["<speaker>x</speaker>", "I <speak>x</speak>", "<b>x</b>", "speak"])
def test_other_texts_are_no_ssml(text):
    assert not is_ssml(text)
    assert [u.symbols for u in analyse(ENGLISH, text).utterances] == [
        u.symbols for u in ENGLISH(text).utterances
    ]


def test_plain_text_stays_as_it_is_written():
    text = "<speak>one [pause:1s] two</speak>"
    analysis = analyse(ENGLISH, PlainText(text))
    assert [u.symbols for u in analysis.utterances] == [u.symbols for u in ENGLISH(text).utterances]


def test_positions_are_those_of_the_document():
    text = "<speak>\n é one <sub alias='x'>W3C</sub> 好 <break/> and &amp; 北 two.</speak>"
    analysis = analyse(ENGLISH, text)
    assert [(u.symbol, text[u.position]) for u in analysis.unspoken] == [("好", "好"), ("北", "北")]
    places = {text[a:b] for u in analysis.utterances for a, b in u.places}
    assert {"one", "W3C", "and", "two"} <= places
    assert [u.text for u in analysis.utterances] == ["é one W3C 好", "and & 北 two."]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_frontends_have_breaks_subs_and_says(name):
    analysis = analyse(
        get_frontend(name),
        "<speak>one <break time='1s'/> <sub alias='two'>2nd</sub> "
        "<say-as interpret-as='ordinal'>3</say-as> "
        "<phoneme alphabet='x-cmu' ph='F AO1 R'>4</phoneme>.</speak>",
    )
    first, second = analysis.utterances
    assert (first.text, second.text, first.pause) == ("one", "2nd 3 4.", 1.0)
    assert first.symbols[-1] == "," and [s for s in second.symbols if s != " "][-4:] == [
        "@F",
        "@AO1",
        "@R",
        ".",
    ]
    assert second.normalised.startswith("two third")


@pytest.mark.parametrize("text", ["<speak><phoneme ph='niːv'>Niamh</phoneme>’s</speak>", "[Niamh](/niːv/)'s"])
@pytest.mark.parametrize("name", ["english", *PUBLISHED])
def test_an_s_behind_given_phonemes_is_no_letter(text, name):
    (utterance,) = analyse(get_frontend(name), text).utterances
    assert [one for one in utterance.symbols if one[:1] == "@"] == ["@N", "@IY1", "@V", "@Z"]
    assert text[slice(*utterance.places[-2])].startswith("Niamh")


# As they are without marks: links, and what is no mark.
ORDINARY = [
    "See [the docs](/docs/) and [this](http://example.org/a/b) or [that](/a/b/).",
    "A [pause] here, [pause:soon] and [pause: 1s] or [pause:99s].",
    "x [rate:80%] y", "x [/rate] y", "x [rate:no]y[/rate]", "[rate:80%]x[/pitch]",
    "[1] said [sic] that a[0] is [x](/en/).", "[word](/über/) [word](/QQ QQ/) [word](/about/)",
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), TABLES["BRACKETS"])
def test_marks_in_brackets(text, wanted):
    found = [
        u.normalised
        + ("," if u.symbols[-1] == "," and u.normalised[-1] != "," else "")
        + (f" [{u.pause:g}]" if u.pause else "")
        for u in analyse(ENGLISH, text).utterances
    ]
    assert " ".join(found) == wanted


def test_marks_in_brackets_have_styles_and_phonemes():
    (utterance,) = analyse(
        ENGLISH, "a [tomato](/təˈmɑːtoʊ/) [rate:80%]b [pitch:+2st]c[/pitch][/rate]"
    ).utterances
    assert utterance.symbols[3:9] == ("@T", "@AH0", "@M", "@AA1", "@T", "@OW0")
    assert utterance.styles[-2] == PLAIN._replace(rate=0.8, semitones=2.0)
    assert {utterance.styles[0], utterance.styles[8]} == {PLAIN}


@pytest.mark.parametrize("text", ORDINARY)
@pytest.mark.parametrize("name", ["english", *PUBLISHED])
def test_ordinary_brackets_are_read_as_ever(text, name):
    frontend = get_frontend(name)
    found, wanted = analyse(frontend, text), frontend(text)
    assert [u.symbols for u in found.utterances] == [u.symbols for u in wanted.utterances]
    assert found.unspoken == wanted.unspoken and not found.warnings


TAGS = [
    *("<break/>", "<break time='0.3s'/>", "<break strength='none'/>", "<mark name='m'/>", "<p>", "</p>"),
    *("<s>", "</s>", "<prosody rate='80%' pitch='+2st' volume='soft'>", "</prosody>", "<emphasis>"),
    *("</emphasis>", "<sub alias='a. b'>", "</sub>", "<say-as interpret-as='characters'>", "</say-as>"),
    *("<say-as interpret-as='date' format='dmy'>", "<phoneme ph='ə'>", "</phoneme>", "<voice name='ann'>"),
    *("</voice>", "<x y='z'>", "</x>", "&amp;", "<![CDATA[", "]]>", "<!--", "-->", "<", "&", "</speak>"),
    *("[pause:1s]", "[rate:80%]", "[/rate]", "[a](/ə/)"),
]  # fmt: skip
PARTS = [
    "one two",
    "W3C",
    " ",
    ". ",
    "\n\n",
    "$5.50",
    "3/4/2021",
    "é",
    "好",
    "{HH AH0}",
    "a" * 300,
    ", ",
    "?",
    "Dr. ",
]


MANY = int(os.environ.get("MELFORGE_RANDOM_TEXTS", "2000"))


@pytest.mark.parametrize("count", [200, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["english", "fastpitch"])
def test_only_input_errors_come_of_random_documents(count, name):
    """Half of them are well-formed: what is opened is closed."""
    rng, frontend, spoken = random.Random(count), get_frontend(name), 0
    for number in range(count):
        parts, opened = [], []
        for _ in range(rng.randrange(1, 20)):
            part = rng.choice(rng.choice((TAGS, PARTS)))
            if number % 2:
                if re.match(r"<\w[^/]*>", part):
                    opened.append(re.match(r"<([\w-]+)", part)[1])
                elif (part[:1] == "<" and part[-2:] != "/>") or part in ("&", "-->", "]]>"):
                    part = f"</{opened.pop()}>" if opened else ""
            parts.append(part)
        body = "".join(parts) + "".join(f"</{tag}>" for tag in reversed(opened))
        text = f"<speak>{body}</speak>"
        try:
            analysis = analyse(frontend, text)
        except InputError:
            assert not number % 2 or "<speak" in text, text
            continue
        spoken += bool(analysis.utterances)
        for one in analysis.unspoken:
            assert 0 <= one.position < len(text), (text, one)
        for u in analysis.utterances:
            assert len(u.ids) == len(u.symbols) and u.pause >= 0, text
            assert len(u.styles) in (0, len(u.ids)) and all(0 <= at <= len(u.ids) for at, _ in u.bookmarks), (
                text
            )
    assert spoken > count / 3


REPEATED = """<break/>one | <break/> | <mark name="a"/> | <emphasis>é</emphasis> | <voice name="a">b</voice>
&amp; | <break time="0s"/> | <sub alias="b">c</sub> | <s>x</s> | <x/> | <p>""".replace("\n", "|")


@pytest.mark.parametrize("part", [part.strip() for part in REPEATED.split("|")])
def test_work_is_linear_in_the_document(part):
    """Counted in calls of functions, of Python and of C."""
    opened = "</p>" if part == "<p>" else ""

    def calls(count: int) -> int:
        found = 0

        def count_one(frame, event, argument) -> None:
            nonlocal found
            found += event in ("call", "c_call")

        text = "<speak>one " + (part + opened + " ") * count + "</speak>"
        sys.setprofile(count_one)
        try:
            analyse(ENGLISH, text)
        finally:
            sys.setprofile(None)
        return found

    calls(10)
    assert calls(400) < 10 * calls(50)
