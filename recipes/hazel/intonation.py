"""The rise at the end of yes/no questions, which the teacher lacks: its questions fall as statements do."""

import re

import numpy as np

# Semitones around an utterance's median pitch, where the rise begins and where it ends.
RISE_FROM, RISE_TO = -1.5, 4.5
GLIDE = 5  # frames of the teacher's, 12.5 ms each, in which the pitch goes to where the rise begins
VOICED = 60.0  # Hz: what the teacher gives below is no voice

AUXILIARIES = re.compile(
    r"(am|is|are|was|were|do|does|did|have|has|had|can|could|will|would|shall|should|may|might|must)(n't)?|"
    r"(ca|wo|sha)n't|cannot"
)
QUESTION_WORD = re.compile(r"who|whom|whose|what|which|when|where|why|how")
OPENER = re.compile(r"and|but|or|so|well|oh|then|now|yes|no|please")


def is_question(text: str) -> bool:
    """Whether a sentence ends in a question mark, inside quotation marks or brackets too."""
    return text.rstrip("\"'”’) ").endswith("?")


def asks_yes_or_no(text: str) -> bool:
    """Whether a sentence is a question that rises: "Is it?", "Did you see who came?", "You did it?".

    Those with a question word ("Why is it?", "And for how long?") and those that offer a choice ("Is it one
    or two?") fall.
    """
    if not is_question(text):
        return False
    words = re.findall(r"[a-z']+", text.lower().replace("’", "'"))
    while len(words) > 1 and OPENER.fullmatch(words[0]):
        del words[0]
    if not words or "or" in words[1:]:
        return False
    return bool(AUXILIARIES.fullmatch(words[0])) or not any(map(QUESTION_WORD.fullmatch, words))


def with_rise(pitch: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Pitch float32 `[T]` in Hz, rising from frame `begin` to the last voiced one before `end`, then high."""
    voiced = pitch > VOICED
    if not voiced[:end].any():
        return pitch
    last = np.flatnonzero(voiced[:end])[-1]
    semitones = 12 * np.log2(np.maximum(pitch, 1))
    level = np.median(semitones[voiced])
    frames = np.arange(len(pitch))
    share = np.clip((frames - begin) / max(1, last - begin), 0, 1)
    weight = np.clip((frames - begin + GLIDE) / GLIDE, 0, 1)
    wanted = semitones + weight * (level + RISE_FROM + (RISE_TO - RISE_FROM) * share - semitones)
    return np.where(voiced, 2 ** (wanted / 12), pitch).astype(np.float32)
