"""Sentences, clauses and pauses."""

from pathlib import Path

import pytest

from melforge.common.text import split
from melforge.common.text.split import pause_between, split_clauses, split_sentences
from tests.tables import read_tables

WRAPPED = """This is a line of prose that goes on until its right margin, and wraps at
London, whence it goes on for some while. The next sentence wraps as well
and ends."""


@pytest.mark.parametrize(("row",), read_tables(Path(__file__).parent / "cases.txt")["sentences"])
def test_sentences(row):
    sentences = row.split(" | ")
    text = " ".join(sentences)
    found = split_sentences(text)
    assert [sentence for sentence, _ in found] == sentences
    assert all(text.startswith(sentence, offset) for sentence, offset in found)


def test_blank_lines_and_items_of_a_list_end_a_sentence():
    text = "Chapter One\n\nIt was dark and the\nwind blew.\r\n\r\n- one\n- two\n3) three"
    assert [sentence for sentence, _ in split_sentences(text)] == [
        "Chapter One",
        "It was dark and the\nwind blew.",
        "- one",
        "- two",
        "3) three",
    ]


def test_wrapped_lines_stay_together_and_short_lines_do_not():
    assert len(split_sentences(WRAPPED)) == 2
    assert len(split_sentences("Roses are red\nViolets are blue\nSugar is sweet")) == 3


@pytest.mark.parametrize("text", ["", " ", "\n\n", " \t\r\n "])
def test_nothing_has_no_sentences(text):
    assert split_sentences(text) == []
    assert split_clauses(text, 10) == []


def test_marks_without_a_word_go_to_the_next_sentence():
    assert split_sentences("... And so? - ! Yes.") == [("... And so?", 0), ("- ! Yes.", 12)]
    assert split_sentences("...") == [("...", 0)]


def test_pauses():
    text = "One. Two.\n\nThree."
    (one, at_one), (two, at_two), (_, at_three) = split_sentences(text)
    assert pause_between(text, at_one + len(one), at_two) == split.SENTENCE_PAUSE
    assert pause_between(text, at_two + len(two), at_three) == split.PARAGRAPH_PAUSE


@pytest.mark.parametrize(
    ("text", "max_chars", "pieces"),
    [
        ("short", 5, ["short"]),
        ("He went; she stayed, or so it seems.", 24, ["He went; she stayed,", "or so it seems."]),
        ("At 7:30 he paid 1,000 dollars", 16, ["At 7:30 he paid", "1,000 dollars"]),
        ("so it goes—on and on", 14, ["so it goes—", "on and on"]),
        ("no marks to be found here", 10, ["no marks", "to be", "found here"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("say {HH AH0 L OW1} now", 12, ["say", "{HH AH0 L OW", "1} now"]),
        ("say, say, {HH AH0} now", 14, ["say, say,", "{HH AH0} now"]),
    ],
)
def test_clauses(text, max_chars, pieces):
    found = split_clauses(text, max_chars)
    assert [piece for piece, _ in found] == pieces
    assert all(text.startswith(piece, offset) and len(piece) <= max_chars for piece, offset in found)


def test_clauses_refuse_a_size_of_nothing():
    with pytest.raises(ValueError, match="max_chars must be at least 1, not 0"):
        split_clauses("text", 0)


# Texts on which a pattern that backtracks needs a minute rather than a moment.
HOSTILE = {
    "one word": "x" * 100_000,
    "dots": "." * 100_000 + "x",
    "blanks": " " * 100_000 + "x",
    "lines": "\n " * 50_000 + "x",
    "quotes": "." + "\"'" * 50_000 + "x",
    "commas": "," * 100_000,
    "brackets": "{" * 100_000,
    "initials": "A. " * 33_333,
    "no words": ". (" * 33_333,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_lose_nothing(name):
    text = HOSTILE[name]
    whole = text.replace(" ", "").replace("\n", "")
    for pieces in (split_sentences(text), split_clauses(text, 250), split_clauses(text, 30_000)):
        assert "".join("".join(piece.split()) for piece, _ in pieces) == whole
