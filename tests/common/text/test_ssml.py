"""SSML: what is said, when, how and by whom; what is wrong, and what has no effect."""

import os
import random
import re
import sys

import pytest

from melforge.common.errors import InputError
from melforge.common.text.frontends import get_frontend
from melforge.common.text.markup import PlainText, analyse, is_ssml
from melforge.common.text.ssml import DEEPEST
from melforge.common.text.style import PLAIN
from melforge.common.text.words import words_of

ENGLISH = get_frontend("english")
PUBLISHED = ("tacotron2", "fastpitch", "fastspeech")

# A document, and the words of its utterances.
WORDS = """
<s>One</s><s>two</s> => One / two
<p>One.</p><p>Two.</p> => One. / Two.
<p><s>One.</s> <s>Two.</s></p> => One. / Two.
<paragraph><sentence>One</sentence></paragraph> => One
One. Two. => One. / Two.
&amp; &#65;&#x42;C => and ABC
<![CDATA[5 < 6 & 7]]> => five less than six and seven
one<!-- no comment --> two => one two
one<?pi x?> two => one two
<sub alias="World Wide Web Consortium">W3C</sub> works => World Wide Web Consortium works
<sub alias="Doctor">Dr</sub>. Smith => Doctor. / Smith
the <sub alias="one. two! three?">x</sub> end => the one. two! three? end
<sub alias="$5">five</sub> => five dollars
<say-as interpret-as="characters">FBI</say-as> => F B I
<say-as interpret-as="characters">a1-b.c</say-as> => a one dash b dot c
<say-as interpret-as="spell-out">hello</say-as> => h e l l o
<say-as interpret-as="verbatim">x@y</say-as> => x at y
<say-as interpret-as="characters">A B</say-as> => A B
<say-as interpret-as="characters"> </say-as>x => X
<say-as interpret-as="cardinal">12345</say-as> => twelve thousand three hundred forty-five
<say-as interpret-as="cardinal"> 1,204 </say-as> => one thousand two hundred four
<say-as interpret-as="cardinal">-7</say-as> => minus seven
<say-as interpret-as="cardinal">3.14</say-as> => three point one four
<say-as interpret-as="cardinal">XIV</say-as> => fourteen
<say-as interpret-as="cardinal">0</say-as> => zero
<say-as interpret-as="cardinal">cat</say-as> => cat
<say-as interpret-as="number">007</say-as> => seven
<say-as interpret-as="number" format="ordinal">7</say-as> => seventh
<say-as interpret-as="number">3/4</say-as> => three quarters
<say-as interpret-as="ordinal">3</say-as> => third
<say-as interpret-as="ordinal">21st</say-as> => twenty-first
<say-as interpret-as="ordinal">VIII</say-as> => eighth
<say-as interpret-as="digits">2024</say-as> => two zero two four
<say-as interpret-as="digits">12-34</say-as> => one two three four
<say-as interpret-as="fraction">2/3</say-as> => two thirds
<say-as interpret-as="fraction">1 1/2</say-as> => one and a half
<say-as interpret-as="date" format="mdy">3/4/2021</say-as> => March fourth, twenty twenty-one
<say-as interpret-as="date" format="dmy">3/4/2021</say-as> => April third, twenty twenty-one
<say-as interpret-as="date" format="ymd">2021-03-04</say-as> => March fourth, twenty twenty-one
<say-as interpret-as="date" format="ymd">20210304</say-as> => March fourth, twenty twenty-one
<say-as interpret-as="date" format="dm">25.12.</say-as> => December twenty-fifth
<say-as interpret-as="date" format="ym">1999-03</say-as> => March, nineteen ninety-nine
<say-as interpret-as="date" format="y">1905</say-as> => nineteen oh five
<say-as interpret-as="date" format="d">7</say-as> => the seventh
<say-as interpret-as="date" format="dmy">4 July 1776</say-as> => July fourth, seventeen seventy-six
<say-as interpret-as="date">2021-03-04</say-as> => March fourth, twenty twenty-one
<say-as interpret-as="time" format="hms12">2:30pm</say-as> => two thirty PM
<say-as interpret-as="time" format="hms24">14:05</say-as> => fourteen oh five
<say-as interpret-as="time" format="hms24">09:00</say-as> => nine hundred
<say-as interpret-as="time">4:15:20</say-as> => four fifteen and twenty seconds
<say-as interpret-as="telephone">2025551212</say-as> => two zero two, five five five, one two one two
<say-as interpret-as="telephone">+1 (202) 55</say-as> => plus one, two zero two, five five
<say-as interpret-as="telephone">12 ext. 42</say-as> => one two, extension four two
<say-as interpret-as="currency">$42.01</say-as> => forty-two dollars and one cent
<say-as interpret-as="currency" format="EUR">12</say-as> => twelve euros
<say-as interpret-as="unit">10 km</say-as> => ten kilometers
<say-as interpret-as="name">Dr. Lee</say-as> => Doctor Lee
I <phoneme alphabet="ipa" ph="ɹɛd">read</phoneme> it => I read it
<phoneme alphabet="x-cmu" ph="T AH0 M AA1 T OW0">tomato</phoneme> => tomato
<phoneme alphabet="x-sampa" ph='t@"mA:toU'>tomato</phoneme> => tomato
<metadata><x>no</x></metadata><meta name="a" content="b"/>one => one
<audio src="x.wav"><desc>hush</desc>instead</audio> => instead
<token>one</token> <w>two</w> <lookup ref="x">three</lookup> => one two three
Mr. <emphasis>Lee</emphasis> left. => Mr Lee left.
<voice name="ann">one</voice> two => one, / two
"""
# The words, with the pause behind each utterance in seconds; what comes before the first begins the row.
PAUSES = """
one <break time="1s"/> two => one, [1] two
one <break time="500ms"/> two => one, [0.5] two
one <break time=".25s"/> two => one, [0.25] two
one <break time="+2s"/> two => one, [2] two
one <break/> two => one, [0.4] two
one <break strength="x-weak"/> two => one, [0.1] two
one <break strength="weak"/> two => one, [0.2] two
one <break strength="medium"/> two => one, [0.4] two
one <break strength="strong"/> two => one, [0.75] two
one <break strength="x-strong"/> two => one, [1.2] two
one <break strength="none"/> two => one two
one <break strength="none" time="3s"/> two => one, [3] two
one <break time="0s"/> two => one two
One. <break time="0s"/> Two. => One. Two.
One. <break time="1s"/> Two. => One. [1] Two.
One? <break time="1s"/> two. => One? [1] two.
one, <break time="1s"/> two => one, [1] two
one<break time="1s"/>. Two => one [1] Two
one <break time="1s"/><break time="1s"/> two => one, [2] two
<break time="1s"/>one => [1] one
one<break time="1s"/> => one [1]
<break time="1s"/>one<break time="2s"/> => [1] one [2]
<break time="1s"/>. <break time="1s"/> one => [2] one
<s>one</s><s>two</s> => one [0.25] two
<p>one</p><p>two</p> => one [0.6] two
<p>one</p> two => one [0.6] two
<s>one</s><break time="2s"/><s>two</s> => one [2] two
<p>one<break time="2s"/></p><p>two</p> => one [2] two
<p>one</p><break strength="none"/><p>two</p> => one two
One. Two. <p>Three</p> => One. [0.25] Two. [0.6] Three
<voice name="ann">One.</voice> Two. => One. [0.25] Two.
<voice name="ann">one</voice> two => one, [0.1] two
"""
# What is around the word "x", and what of its style is not plain.
STYLES = """
<prosody rate="50%"> => rate 0.5
<prosody rate="+20%"> => rate 1.2
<prosody rate="-20%"> => rate 0.8
<prosody rate="1.5"> => rate 1.5
<prosody rate="x-slow"> => rate 0.5
<prosody rate="slow"> => rate 0.75
<prosody rate="medium"> =>
<prosody rate="fast"> => rate 1.3
<prosody rate="x-fast"> => rate 1.6
<prosody rate="50%"><prosody rate="50%"> => rate 0.25
<prosody rate="50%"><prosody rate="slow"> => rate 0.75
<prosody rate="50%"><prosody rate="default"> =>
<prosody rate="20%"><prosody rate="20%"> => rate 0.1
<prosody pitch="+2st"> => semitones 2
<prosody pitch="-2.5st"> => semitones -2.5
<prosody pitch="+2st"><prosody pitch="+3st"> => semitones 5
<prosody pitch="+100%"> => semitones 12
<prosody pitch="-50%"> => semitones -12
<prosody pitch="200%"> => semitones 12
<prosody pitch="+20Hz"> => shift 20
<prosody pitch="-20Hz"> => shift -20
<prosody pitch="120Hz"> => level 120
<prosody pitch="+2st"><prosody pitch="120Hz"> => level 120
<prosody pitch="x-low"> => semitones -6
<prosody pitch="high"> => semitones 3
<prosody pitch="high"><prosody pitch="medium"> =>
<prosody range="50%"> => range 0.5
<prosody range="+50%"> => range 1.5
<prosody range="x-low"> => range 0.4
<prosody volume="silent"> => volume 0
<prosody volume="+6dB"> => volume 2
<prosody volume="-6dB"> => volume 0.5
<prosody volume="-6dB"><prosody volume="-6dB"> => volume 0.25
<prosody volume="50"> => volume 0.5
<prosody volume="+10%"> => volume 1.1
<prosody volume="x-soft"> => volume 0.25
<prosody volume="loud"> => volume 1.58
<prosody rate="50%" pitch="+2st" volume="-6dB"> => rate 0.5, semitones 2, volume 0.5
<emphasis level="none"> =>
<emphasis level="reduced"> => rate 1.1, semitones -0.7, range 0.8, volume 0.8
<emphasis> => rate 0.92, semitones 0.7, range 1.15, volume 1.2
<prosody rate="50%"><emphasis level="strong"> => rate 0.42, semitones 1.5, range 1.3, volume 1.4
<prosody contour="(0%,+20Hz)"> =>
"""
ERRORS = r"""
<speak>a <b>x</speak> => line 1, column 16: mismatched tag
<speak>one => line 1, column 11: no element found
<speak>a</speak><speak>b</speak> => line 1, column 17: junk after document element
<speak>&nbsp;</speak> => line 1, column 8: undefined entity
<speak>a < b</speak> => line 1, column 11: not well-formed
<!DOCTYPE speak SYSTEM "file:///etc/passwd"><speak/> => a document type is not read
<!DOCTYPE speak [<!ENTITY a "b">]><speak>&a;</speak> => a document type is not read
<speak>\n <break time="99s"/></speak> => line 2, column 2: a break is a time .* up to 20 s, not '99s'
<speak><break time="soon"/></speak> => not 'soon'
<speak><break time="5"/></speak> => not '5'
<speak><break strength="hard"/></speak> => unknown strength 'hard'
<speak>é\nö <prosody rate="0%">x</prosody></speak> => line 2, column 3: rate must be from a tenth to ten times
<speak><prosody rate="quick">x</prosody></speak> => rate is x-slow, slow, .* or such as 80%, not 'quick'
<speak><prosody pitch="5">x</prosody></speak> => pitch is .* or such as \+2st, \+10% or 120Hz, not '5'
<speak><prosody range="2st">x</prosody></speak> => range is .* not '2st'
<speak><prosody volume="12st">x</prosody></speak> => volume is .* not '12st'
<speak><emphasis level="huge">x</emphasis></speak> => unknown level 'huge'
<speak><sub>x</sub></speak> => <sub> needs alias
<speak><mark/></speak> => <mark> needs name
<speak><say-as>x</say-as></speak> => <say-as> needs interpret-as
<speak><phoneme>x</phoneme></speak> => <phoneme> needs ph
<speak><phoneme alphabet="x" ph="a">x</phoneme></speak> => unknown alphabet 'x'
<speak><phoneme alphabet="x-cmu" ph="QQ">x</phoneme></speak> => 'QQ' in 'QQ' is no phoneme of ARPAbet
"""
WARNINGS = """
<unknown>one</unknown> => line 1: <unknown> changes nothing
<audio src="x.wav">one</audio> => line 1: no audio file is played
<lexicon uri="http://x/y.pls"/>one => line 1: no lexicon file is read
<lang xml:lang="fr">chat</lang> => line 1: the language 'fr' is read as English
<p xml:lang="de-DE">one</p> => line 1: the language 'de-DE' is read as English
<p xml:lang="en-GB">one</p> =>
<say-as interpret-as="poem">one</say-as> => line 1: unknown interpret-as 'poem'
<voice gender="female">one</voice> => line 1: a voice is found by its name only, not by gender
<prosody duration="2s">one</prosody> => line 1: prosody's duration changes nothing
"""
# Marks with the symbol that they stand before.
MARKS = """
<mark name="a"/>one two => a W
one <mark name="b"/>two => b T
one<mark name="b"/> two => b T
one two<mark name="c"/> => c end
one <break/><mark name="d"/>two => d T
one <mark name="d"/><break/>two => d end
one. <mark name="e"/><mark name="f"/>Two. => e T, f T
<s>one</s><mark name="g"/><s>two</s> => g T
<voice name="ann">one</voice>.<mark name="h"/> => h end
"""


def rows(table: str) -> list[tuple[str, str]]:
    return [tuple(part.strip() for part in line.split("=>")) for line in table.strip().splitlines()]


def ssml(body: str):
    return analyse(ENGLISH, f"<speak>{body}</speak>")


def test_there_are_150_cases():
    assert sum(len(rows(t)) for t in (WORDS, PAUSES, STYLES, ERRORS, WARNINGS, MARKS)) >= 150


@pytest.mark.parametrize(("body", "wanted"), rows(WORDS))
def test_what_is_said(body, wanted):
    assert " / ".join(utterance.normalised for utterance in ssml(body).utterances) == wanted.replace(
        ", /", " /"
    )


@pytest.mark.parametrize(("body", "wanted"), rows(PAUSES))
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


@pytest.mark.parametrize(("tags", "wanted"), rows(STYLES))
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


@pytest.mark.parametrize(("text", "message"), rows(ERRORS))
def test_what_is_wrong_has_a_place(text, message):
    with pytest.raises(
        InputError, match=f"^SSML, line .*{message}" if "line" not in message else f"^SSML, {message}"
    ):
        analyse(ENGLISH, text.replace("\\n", "\n"))


@pytest.mark.parametrize(("body", "wanted"), rows(WARNINGS))
def test_what_changes_nothing_is_said(body, wanted):
    assert [w.startswith(f"SSML, {wanted}") for w in ssml(body).warnings] == [True] * bool(wanted)


@pytest.mark.parametrize(("body", "wanted"), rows(MARKS))
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


BRACKETS = """
one [pause:0.5s] two => one, [0.5] two
one [pause:500ms] two => one, [0.5] two
One. [pause:2s] Two. => One. [2] Two.
I say [tomato](/təˈmɑːtoʊ/). => I say tomato.
I say [tomato](/T AH0 M AA1 T OW0/). => I say tomato.
one [rate:80%]two[/rate] three => one two three
"""
# As they are without marks: links, and what is no mark.
ORDINARY = [
    "See [the docs](/docs/) and [this](http://example.org/a/b) or [that](/a/b/).",
    "A [pause] here, [pause:soon] and [pause: 1s] or [pause:99s].",
    "x [rate:80%] y", "x [/rate] y", "x [rate:no]y[/rate]", "[rate:80%]x[/pitch]",
    "[1] said [sic] that a[0] is [x](/en/).", "[word](/über/) [word](/QQ QQ/) [word](/about/)",
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), rows(BRACKETS))
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
