"""What was spoken, heard again: word error rates of synthesised speech, and words left out or said twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np

from melforge.common.audio.sound_files import resample
from melforge.common.recognition.alignment import Alignment
from melforge.common.recognition.long_recordings import alignment_of, hear, transcript_of
from melforge.common.recognition.recogniser import Recogniser
from melforge.common.recognition.transcript import error_rate, reference_words, word_errors
from melforge.common.speech import Audio, shown
from melforge.common.text.cmudict import load_cmudict
from melforge.common.text.markup import is_marked

UNSTRESSED = str.maketrans("", "", "012")


@dataclass(frozen=True)
class HeardAgain:
    """A spoken text beside what was heard of it."""

    words: tuple[str, ...]  # of the text, as it is read aloud
    heard: tuple[str, ...]
    alignment: Alignment

    @property
    def errors(self) -> int:
        return word_errors(self.words, self.heard)

    @property
    def rate(self) -> float:
        return error_rate([(self.words, self.heard)])

    @property
    def slips(self) -> int:
        """Words that were left out or said twice."""
        return len(self.alignment.left_out) + len(self.alignment.again)

    def as_json(self) -> dict[str, Any]:
        left_out, again = self.alignment.left_out, self.alignment.again
        return {
            "heard": " ".join(self.heard),
            "wer": round(self.rate, 4),
            "left_out": [asdict(one) for one in left_out],
            "again": [asdict(one) for one in again],
        }

    def describe(self) -> str:
        """In a sentence, where it differs from the text; else nothing."""
        if not self.errors and self.alignment.as_expected:
            return ""
        parts = [f"{self.errors} of {len(self.words)} words heard as others: {shown(' '.join(self.heard))}"]
        for what, some in (("left out", self.alignment.left_out), ("said twice", self.alignment.again)):
            if some:
                parts.append(f"{what}: {', '.join(one.word for one in some)}")
        return "; ".join(parts)


def hear_again(recogniser: Recogniser, samples: np.ndarray, rate: int, text: str) -> HeardAgain:
    """What is heard in a recording, float32 [S] at `rate` Hz, of a text."""
    audio = resample(samples, rate, recogniser.sampling_rate)
    words = reference_words(text, recogniser.labels)
    heard = hear(recogniser, audio)
    text = transcript_of(recogniser, heard, len(audio) / recogniser.sampling_rate).text
    said = as_spelt(text.split(), words)
    return HeardAgain(tuple(words), tuple(said), alignment_of(recogniser, heard, words))


def as_spelt(heard: Sequence[str], words: Sequence[str]) -> list[str]:
    """What was heard, in the spelling that a text's words have where they sound the same: "b" for "be", "w"
    for "double you", "four" for "for".
    """
    spelt = {sound: word for word in set(words).difference(heard) for sound in _sounds(word)}
    found: list[str] = []
    place = 0
    while place < len(heard):
        one = "" if heard[place] in words else _spelling(heard[place : place + 1], spelt)
        two = "" if one else _spelling(heard[place : place + 2], spelt)
        found.append(one or two or heard[place])
        place += 2 if two else 1
    return found


def _spelling(heard: Sequence[str], spelt: Mapping[str, str]) -> str:
    sounds = ("".join(parts) for parts in product(*map(_sounds, heard)))
    return next((spelt[sound] for sound in sounds if sound in spelt), "")


def _sounds(word: str) -> list[str]:
    """The phones of a word in each of its pronunciations, without stress; none where no dictionary has it."""
    return ["".join(phones).translate(UNSTRESSED) for phones in load_cmudict().pronunciations(word)]


@dataclass
class Listener:
    """Hears spoken texts and counts their errors."""

    recogniser: Recogniser
    limit: float  # share of words that may be heard as others
    pairs: list[tuple[Sequence[str], Sequence[str]]] = field(default_factory=list)

    def listen(self, audio: Audio) -> HeardAgain:
        """Hears a spoken text, and counts it."""
        return self.count(self.hear(audio))

    def count(self, heard: HeardAgain) -> HeardAgain:
        """Has the rate count what was heard, and gives it back."""
        self.pairs.append((heard.words, heard.heard))
        return heard

    def hear(self, audio: Audio) -> HeardAgain:
        words = " ".join(one.normalised for one in audio.utterances) if is_marked(audio.text) else audio.text
        return hear_again(self.recogniser, audio.samples, audio.sampling_rate, words)

    @property
    def rate(self) -> float:
        """Of all that was heard so far."""
        return error_rate(self.pairs)

    @property
    def ok(self) -> bool:
        return self.rate <= self.limit

    def summary(self) -> str:
        words = sum(len(reference) for reference, _ in self.pairs)
        verdict = "" if self.ok else f" - above the limit of {100 * self.limit:g} %"
        return f"heard again: word error rate {100 * self.rate:.1f} % of {words} words{verdict}"
