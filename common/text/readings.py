"""How words are said, and where that comes from: a word's readings, and the phonemes of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from melforge.common.text import Analysis, Frontend, Utterance, unspoken_rows
from melforge.common.text.english import pronounce
from melforge.common.text.marked import places_of
from melforge.common.text.markup import is_marked
from melforge.common.text.words import words_of

LONGEST_WRITTEN = 100  # characters that are shown of what is written without a blank, for each of its words
_WORD = re.compile("[A-Za-z']+")


def readings_of(frontend: Frontend, written: str) -> list[dict[str, str]]:
    """What may be said for a word, as {"said", "source"}; the first is said where nothing tells otherwise.

    Phonemes are ARPAbet, with a "|" between words. A frontend of published models has one reading.
    """
    own = [(_bare(spoken), source) for one in frontend.own_words for spoken, source in one.entries(written)]
    pronunciation = getattr(frontend, "pronunciation", None)
    known = pronunciation.readings(written) if pronunciation and _WORD.fullmatch(written) else []
    found = [*own, *((" ".join(phones), source) for phones, source in known if phones)]
    if not own:
        alone = _joined([symbol for one in frontend(written).utterances for symbol in one.symbols])
        if alone not in dict(found):
            found.insert(0, (alone, f"rules of the frontend {frontend.name}"))
        found.sort(key=lambda reading: reading[0] != alone)
    sources: dict[str, list[str]] = {}
    for said, source in found:
        sources.setdefault(said, []).append(source)
    return [{"said": said, "source": "; ".join(of)} for said, of in sources.items()]


def phonemized(frontend: Frontend, text: str, analysis: Analysis) -> dict[str, Any]:
    """What is spoken for a text, for JSON: symbols and words, with their places in the text and sources."""
    utterances, end = [], 0
    for utterance in analysis.utterances:
        start = text.find(utterance.text, end)
        end = start + len(utterance.text) if start >= 0 else end
        utterances.append(
            {
                "text": utterance.text,
                "normalised": utterance.normalised,
                "symbols": utterance.symbols,
                "ids": utterance.ids.tolist(),
                "pause": utterance.pause,
                "words": list(_word_rows(frontend, text, utterance, max(start, 0))),
            }
        )
    unspoken = unspoken_rows(analysis.unspoken)
    return {"utterances": utterances, "unspoken": unspoken, "warnings": analysis.warnings}


def _word_rows(frontend: Frontend, text: str, utterance: Utterance, start: int) -> Iterator[dict[str, Any]]:
    places = places_of(utterance, start)
    for word in words_of(utterance.normalised, utterance.symbols):
        said = _joined(utterance.symbols[word.start : word.end])
        begin, end = places[word.start][0], places[word.end - 1][1]
        written = text[begin:end].strip()
        source = _source(frontend, written, word.text, said) or ("marks" if is_marked(text) else "rules")
        yield {
            "word": word.text,
            "said": said,
            "written": written if len(written) <= LONGEST_WRITTEN else f"{written[:LONGEST_WRITTEN]}…",
            "start": begin,
            "end": begin + len(written),
            "source": source,
        }


def _source(frontend: Frontend, written: str, word: str, said: str) -> str:
    """Where it comes from that this is said for a word; "" where that is not known."""
    for own in frontend.own_words:
        for key in (written, written.removesuffix("'s").removesuffix("’s")):
            for spoken, source in own.entries(key):
                if not spoken.startswith("{") or said in _bare(spoken) or said.startswith(_bare(spoken)):
                    return source
    if word.startswith("{"):
        return "the text"
    readings = getattr(frontend, "pronunciation", pronounce).readings
    sources = []
    for part, phones in zip(word.split("-"), said.split(" | "), strict=False):
        found = (source for reading, source in readings(part) if " ".join(reading) == phones)
        sources.append(next(found, ""))
    return "; ".join(dict.fromkeys(filter(None, sources)))


def _bare(spoken: str) -> str:
    """What an entry says, without braces."""
    return spoken.replace("} {", " | ").strip("{}") if spoken.startswith("{") else spoken


def _joined(symbols: Sequence[str]) -> str:
    """Phonemes of a word with blanks, letters as they are, a "|" between words."""
    shown = (f" {one[1:]}" if one.startswith("@") else " | " if one == " " else one for one in symbols)
    return " ".join("".join(shown).strip(" |.,;:?!-").split())
