"""Entities, Markdown, quoted mails and HTML: what of them is spoken, paused at, reported, and where."""

import html
import random

import pytest

from melforge.common.text.english.layout import plain_text
from melforge.common.text.frontends import get_frontend
from melforge.common.text.markup import PlainText, analyse, linked
from melforge.common.text.split import PARAGRAPH_PAUSE, SENTENCE_PAUSE

FRONTEND = get_frontend("english")


def unspoken(text: str) -> list[tuple[str, int]]:
    return [(item.symbol, item.position) for item in FRONTEND(text).unspoken]


@pytest.mark.parametrize(
    "text",
    [
        "Plain words.",
        "It&#39;s &amp;lt; &eacute;",
        "> a\n> b",
        "[x](y) ~~z~~\n# h\nw",
        r"\sqrt{\frac{a}{2}}b",
    ],
)
def test_places_stay_what_they_were(text):
    assert len(plain_text(text)[0]) == len(text)


@pytest.mark.parametrize("form", ["x&{};", "x&amp;{};"])
def test_every_named_entity_becomes_its_characters(form):
    for name, chars in html.entities.html5.items():
        if name.endswith(";"):
            assert plain_text(form.format(name[:-1]))[0].rstrip("\u2060") == f"x{chars}".rstrip("\u2060"), (
                name
            )


@pytest.mark.parametrize(
    "text, spoken",
    [
        ("See [the docs](https://example.com/a) now.", "See the docs, example dot com slash A now."),
        ('[Here](<x.org> "Title"), then.', "Here, X dot org, then."),
        ("Go [pause:1s] to [x](u.io/y_(z)).", "Go to X, U dot IO slash Y underscore Z."),
        ("[a]()", "A"),
    ],
)
def test_the_addresses_of_links_may_be_read_too(text, spoken):
    for one in (linked(text), linked(PlainText(text.replace(" [pause:1s]", "")))):
        analysis = analyse(FRONTEND, one)
        assert " ".join(utterance.normalised for utterance in analysis.utterances) == spoken
        assert not analysis.unspoken


def test_what_latex_has_no_words_for_is_told_in_its_place():
    text = r"See \cite[p.~2]{smith19} and $\vec{F} = m\vec{a}$"
    assert unspoken(text) == [(r"\cite[p.~2]{smith19}", 4), (r"\vec", text.index(r"\vec"))]
    assert FRONTEND(text).utterances[0].normalised == "See and F equals MA"
    deep = r"\frac{" * 3000 + "x" + "}{2}" * 3000
    assert len(plain_text(deep)[0]) == len(deep)


def test_a_pages_scripts_styles_and_comments_are_told_and_not_read():
    page = (
        "<!DOCTYPE html><html><title>News</title><style>p { color: red }</style><SCRIPT src=x>\nvar x = 1;\n"
        "</Script ><p>Words <!-- not\nthese --> here.</p>"
    )
    analysis = FRONTEND(page)
    assert [utterance.normalised for utterance in analysis.utterances] == ["News", "Words here."]
    assert [(one.symbol, page.index(one.symbol)) for one in analysis.unspoken] == [
        (one.symbol, one.position) for one in analysis.unspoken
    ]
    assert {"<!DOCTYPE html>", "<style>", "<SCRIPT src=x>"} < {one.symbol for one in analysis.unspoken}
    endless = "<!-- <script <style" * 3
    for text in (endless, "Use <style> and </style> tags."):
        assert plain_text(text)[0] == text


@pytest.mark.parametrize(
    "text", ["AT&T; R&D", "a &b c", "x & y", "&nosuchname;", "fish & chips;", "a[i](j k)", r"C:\temp\sum"]
)
def test_what_only_looks_like_layout_stays(text):
    assert plain_text(text) == (text, [])


@pytest.mark.parametrize(
    "text, pauses",
    [
        ("# Title\nwords in small letters", [PARAGRAPH_PAUSE, 0]),
        ("<h2>Title</h2>Words", [PARAGRAPH_PAUSE, 0]),
        ("<p>One</p><p>Two</p>", [PARAGRAPH_PAUSE, 0]),
        ("one<br>two<br/>three", [SENTENCE_PAUSE, SENTENCE_PAUSE, 0]),
        ("<ul><li>eggs</li><li>milk</li></ul>", [SENTENCE_PAUSE, 0]),
        ("- eggs\n- milk", [SENTENCE_PAUSE, 0]),
        ("One\n---\ntwo", [PARAGRAPH_PAUSE, 0]),
        ("> one long quoted line of a mail that goes on until\n> its end", [0]),
    ],
)
def test_pauses(text, pauses):
    assert [utterance.pause for utterance in FRONTEND(text).utterances] == pauses


@pytest.mark.parametrize(
    "text, left_out",
    [
        ("It&#39;s late &amp; dark", []),
        ("Caf&eacute; \ue001", [("\ue001", 12)]),
        ("See [the guide](https://x.org/a) now", [("(https://x.org/a)", 15)]),
        ("![](a.png)", [("(a.png)", 3)]),
        ("<p>One</p>", [("<p>", 0), ("</p>", 6)]),
        ("Run:\n```sh\nls [a](b)\n```\nDone.", [("```sh", 5)]),
        ("```sh\nls\n```", [("```sh", 0)]),
        ("> quoted\n> lines", []),
    ],
)
def test_what_is_not_spoken_is_told_where_it_stands(text, left_out):
    assert unspoken(text) == left_out


def test_the_numbers_and_times_of_subtitles_are_not_spoken():
    text = "1\n00:01:15,200 --> 00:01:18,000\nWait there!\n\n2\n00:01:19.000 --> 00:01:21.500 align:left\nNo."
    assert [utterance.normalised for utterance in FRONTEND(text).utterances] == ["Wait there!", "No."]
    assert unspoken(text) == [("00:01:15,200 --> 00:01:18,000", 2)]
    assert FRONTEND("Room 00:15 --> 5").utterances[0].normalised == "Room zero fifteen to five"


def test_a_fence_that_is_not_closed_hides_nothing():
    said = [utterance.normalised for utterance in FRONTEND("```python\nprint all of it").utterances]
    assert said == ["print all of it"]


def test_utterances_are_as_written():
    texts = [
        utterance.text
        for utterance in FRONTEND("Tom &amp; Ann&#39;s [house](x.org). Caf&eacute;!").utterances
    ]
    assert texts == ["Tom &amp; Ann&#39;s [house](x.org).", "Caf&eacute;!"]


def test_random_layout_keeps_places():
    rng = random.Random(0)
    pieces = [
        "&#39;",
        "&amp;",
        "&lt;p&gt;",
        "[a](b)",
        "~~",
        "> ",
        "\n",
        "```py",
        "```",
        "# ",
        "<br>",
        "<!--",
        "-->",
        "<script>",
        "f();</script>",
        "word ",
        "é",
    ]
    for _ in range(300):
        text = "".join(rng.choices(pieces, k=rng.randrange(1, 25)))
        plain, left_out = plain_text(text)
        assert len(plain) == len(text)
        assert [one.position for one in left_out] == sorted(one.position for one in left_out)
        FRONTEND(text)
