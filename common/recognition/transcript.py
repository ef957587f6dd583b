"""What was heard: the best label of each output as text, words with their times, and word error rates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from melforge.common.recognition.recogniser import Heard


@dataclass(frozen=True)
class HeardWord:
    """A word with the seconds at which it begins and ends, and the mean probability of its characters."""

    word: str
    start: float
    end: float
    score: float


@dataclass(frozen=True)
class Transcript:
    """A recording as text; `words` is empty where nothing was heard."""

    text: str
    words: tuple[HeardWord, ...]
    seconds: float  # of the recording

    def as_json(self) -> dict[str, Any]:
        words = [
            {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(w).items()} for w in self.words
        ]
        return {"text": self.text, "seconds": round(self.seconds, 3), "words": words}


def collapse(labels: np.ndarray, blank: int) -> np.ndarray:
    """CTC's outputs int64 [F] -> the places int64 [N] where a new character begins.

    Repeats of a label are one character unless a blank lies between them.
    """
    new = np.ones(len(labels), bool)
    new[1:] = labels[1:] != labels[:-1]
    return np.flatnonzero(new & (labels != blank))


def greedy_text(labels: np.ndarray, characters: str) -> str:
    """The text of the best labels int64 [F]."""
    places = collapse(labels, len(characters))
    return "".join(characters[label] for label in labels[places].tolist())


def words_of(heard: Heard, characters: str, step: float, offset: float = 0.0) -> list[HeardWord]:
    """The words of one piece of audio, which begins `offset` seconds into its recording.

    A word lasts from its first character's output to the last one's, of `step` seconds each.
    """
    words: list[HeardWord] = []
    places = collapse(heard.labels, len(characters))
    ends = np.append(places, len(heard.labels))[1:]
    letters: list[str] = []
    first, last, scores = 0, 0, []

    def close() -> None:
        if letters:
            score = float(np.exp(np.mean(scores)))
            words.append(
                HeardWord("".join(letters), offset + first * step, offset + (last + 1) * step, score)
            )
        letters.clear()
        scores.clear()

    for place, end in zip(places.tolist(), ends.tolist(), strict=True):
        label = int(heard.labels[place])
        if characters[label] == " ":
            close()
            continue
        if not letters:
            first = place
        letters.append(characters[label])
        held = np.flatnonzero(heard.labels[place:end] == label)
        last = place + int(held[-1])
        scores.append(float(heard.scores[place]))
    close()
    return words


def normalised_words(text: str, characters: str) -> list[str]:
    """A reference as a recogniser could write it: lower case, only its own characters."""
    text = text.lower().replace("’", "'").replace("-", " ")
    kept = "".join(c if c in characters else " " if c.isspace() else "" for c in text)
    return re.sub(r"\s+", " ", kept).split()


def reference_words(text: str, characters: str) -> list[str]:
    """A text as it is read aloud in English, "$5" as "five dollars", in a recogniser's words."""
    from melforge.common.text.english.normalise import normalise  # takes half a second to import

    return normalised_words(" ".join(span.text for span in normalise(text)[0]), characters)


def word_errors(reference: Sequence[str], heard: Sequence[str]) -> int:
    """The least number of words to insert, delete or replace (Levenshtein distance)."""
    row = list(range(len(heard) + 1))
    for number, word in enumerate(reference, start=1):
        before, row[0] = row[0], number
        for place, other in enumerate(heard, start=1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (word != other)),
            )
    return row[-1]


def error_rate(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> float:
    """The word error rate of pairs (reference, heard): errors per word of the references.

    For references without words it is 1 if something was heard, else 0.
    """
    errors = words = 0
    for reference, heard in pairs:
        errors += word_errors(reference, heard)
        words += len(reference)
    return errors / words if words else float(errors > 0)
