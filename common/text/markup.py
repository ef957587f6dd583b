"""The way of any text into a frontend, which has SSML and marks in brackets taken out before."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

from melforge.common.errors import InputError
from melforge.common.text import Analysis, Frontend

_SSML = re.compile(
    r"\ufeff?\s*(?:<\?xml[^<>]{0,200}\?>\s*)?(?:<!--[^<>]{0,1000}-->\s*){0,8}<(?:speak[\s/>]|!DOCTYPE\s+speak\b)"
)
_BRACKETS = re.compile(r"\[(?:pause|rate|pitch|range|volume):|\]\(/")


class PlainText(str):
    """A text in which tags and marks in brackets ask for nothing: it is read as it is written."""


class LinkedText(str):
    """A text of whose links ("[words](address)") the addresses are read too, and not their words alone."""


class PlainLinkedText(PlainText, LinkedText):
    """Both."""


def linked(text: str) -> LinkedText:
    """The text with the addresses of its links, if it is plain as plain text."""
    return PlainLinkedText(text) if isinstance(text, PlainText) else LinkedText(text)


def is_ssml(text: str) -> bool:
    """Whether a text is SSML: it begins with `<speak>`."""
    return _SSML.match(text) is not None


def is_marked(text: str) -> bool:
    """Whether a text may hold marks, and is not spoken as it is written."""
    return not isinstance(text, PlainText) and (is_ssml(text) or _BRACKETS.search(text) is not None)


def require_ssml(text: str) -> None:
    """An InputError for a text that does not begin as SSML does."""
    if not is_ssml(text):
        raise InputError("SSML begins with <speak> and ends with </speak>")


def sentences(frontend: Frontend, text: str) -> Iterator[Analysis]:
    """The analysis of each sentence of a text, of SSML where it begins with `<speak>`.

    An InputError says in which line and column SSML is wrong.
    """
    pieces = None
    if isinstance(text, LinkedText):
        frontend = copy.copy(frontend)
        frontend.reads_addresses = True
    if isinstance(text, PlainText):
        pass
    elif is_ssml(text):
        from melforge.common.text.ssml import read_ssml  # most texts need neither

        pieces = read_ssml(text)
    elif _BRACKETS.search(text):
        from melforge.common.text.brackets import read_brackets

        pieces = read_brackets(text)
    return frontend.sentences(text) if pieces is None else pieces.analyses(frontend)


def analyse(frontend: Frontend, text: str) -> Analysis:
    """The same of the whole text."""
    return Analysis.joined(sentences(frontend, text))
