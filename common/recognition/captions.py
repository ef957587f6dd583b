"""A transcript in captions: its words in lines that a reader can follow, cut where the speaker pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from melforge.common.recognition.transcript import HeardWord, Transcript
from melforge.common.synthesis.subtitles import LONGEST, LONGEST_SECONDS, Cue

PAUSE = 0.5  # seconds between two words that end a caption
LEAST_SCORE = 1e-6  # of a word, for its logarithm


@dataclass(frozen=True)
class Caption:
    """Words that follow each other."""

    words: tuple[HeardWord, ...]

    @property
    def text(self) -> str:
        return " ".join(word.word for word in self.words)

    @property
    def log_score(self) -> float:
        """Mean log-probability of its words."""
        return float(np.mean([np.log(max(word.score, LEAST_SCORE)) for word in self.words]))

    @property
    def cue(self) -> Cue:
        return Cue(self.text, self.words[0].start, self.words[-1].end)


def captions(transcript: Transcript) -> list[Caption]:
    """All words in order; a caption has the length that subtitles have."""
    found: list[list[HeardWord]] = []
    for word in transcript.words:
        if not found or _ends(found[-1], word):
            found.append([])
        found[-1].append(word)
    return [Caption(tuple(words)) for words in found]


def _ends(words: Sequence[HeardWord], following: HeardWord) -> bool:
    """Whether a caption of these words ends before the following one."""
    letters = sum(len(word.word) + 1 for word in words) + len(following.word)
    return (
        following.start - words[-1].end >= PAUSE
        or letters > LONGEST
        or following.end - words[0].start > LONGEST_SECONDS
    )
