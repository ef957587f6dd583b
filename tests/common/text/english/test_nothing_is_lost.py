"""Nothing of a text is dropped in silence: each part of it is spoken, or reported where it stands."""

import re
import unicodedata
from pathlib import Path

import pytest

from melforge.common.text.frontends import get_frontend

FRONTEND = get_frontend("english")
TOKENS = (Path(__file__).parents[3] / "data" / "tokens.txt").read_text(encoding="utf-8").split()
PART = re.compile(r"\d+|[^\W\d_]+|[^\w\s.,;:!?'\"()\[\]{}|/-]|(?<=\w)[-/](?=\d)")
# Punctuation is a pause or layout, and so are these; a mark of quoted mail alone in its line is.
LAYOUT = frozenset("`´|>\u00ad")
# What reads the same without it: a hyphen that ties groups, a second sign, a tone of skin, missing stars.
TIES = {
    ("$5-$7", "$"),
    ("078-05-1120", "-"),
    ("F-16s", "-"),
    ("10W-30", "-"),
    ("&amp;", "amp"),
    ("👍🏽", "🏽"),
}
TIES |= {("it`s", "`"), ("★★★☆☆", "☆")}


def said(text: str) -> list[str]:
    words = " ".join(utterance.normalised for utterance in FRONTEND(text).utterances)
    return re.findall(r"[A-Za-z']+", words)


def is_reported(text: str, at: int) -> bool:
    return any(one.position <= at < one.position + len(one.symbol) for one in FRONTEND(text).unspoken)


@pytest.mark.parametrize("token", TOKENS)
def test_each_part_of_a_token_is_heard(token):
    """Without it the text reads otherwise. "_" stands for a blank but in names."""
    token = token if "@" in token or token == "^_^" else token.replace("_", " ")
    text = f"See {token} now"
    for part in PART.finditer(token):
        without = f"See {token[: part.start()]}{token[part.end() :]} now"
        is_heard = said(text) != said(without) or is_reported(text, 4 + part.start())
        assert is_heard or (token, part[0]) in TIES, part[0]


@pytest.mark.parametrize("form", ["one {} two", "one{}two", "{}"])
def test_each_character_is_spoken_or_reported(form):
    lost = []
    for char in filter(str.isprintable, map(chr, range(3000))):
        if char.isspace() or char in LAYOUT or unicodedata.category(char)[0] == "P":
            continue
        text = form.format(char)
        if said(text) == said(form.replace("{}", " ")) and not is_reported(text, text.index(char)):
            lost.append(char)
    # Modifier letters look like apostrophes, and are read as such.
    assert [char for char in lost if unicodedata.category(char) != "Lm"] == []
