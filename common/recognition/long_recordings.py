"""Recordings of any length and rate to transcripts: in pieces that a recogniser takes, several at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from melforge.common.audio.sound_files import resample
from melforge.common.progress import counting
from melforge.common.recognition.alignment import Alignment, align
from melforge.common.recognition.beam_search import BeamSearch
from melforge.common.recognition.recogniser import Heard, Recogniser
from melforge.common.recognition.transcript import HeardWord, Transcript, words_of

LONGEST_PIECE = 20.0  # seconds; a recogniser is trained on up to about 17
SEARCHED = 6.0  # seconds before a piece's end in which it may end earlier, where it is quietest
QUIET = 0.2  # seconds over which loudness is measured
# Below these amplitudes there is no speech: a recogniser normalises its input and would hear noise as words.
SILENT = 1e-4
FEWEST = 0.1  # seconds that a word takes at least
BATCH = 8


@dataclass(frozen=True)
class Piece:
    """A part of a recording [start, end), in samples."""

    recording: int
    start: int
    end: int


def cut(blocks: Iterable[np.ndarray], rate: int, longest: int) -> Iterator[np.ndarray]:
    """A recording that comes in blocks [S] -> its pieces: each ends at the quietest place near `longest`."""
    first = max(longest - int(SEARCHED * rate), longest // 2)
    window = max(1, int(QUIET * rate))
    rest = np.zeros(0, np.float32)
    for block in blocks:
        rest = np.concatenate((rest, block)) if len(rest) else block
        while len(rest) > longest:
            energy = np.cumsum(np.square(rest[first:longest], dtype=np.float64))
            loudness = energy[window:] - energy[:-window]
            place = first + window // 2 + int(loudness.argmin())
            yield rest[:place]
            rest = rest[place:]
    yield rest


def is_silent(audio: np.ndarray, rate: int) -> bool:
    """Whether nothing can be heard in it: too short for a word, or no sample louder than digital silence."""
    return len(audio) < FEWEST * rate or float(np.abs(audio).max(initial=0)) < SILENT


def pieces_of(number: int, audio: np.ndarray, recogniser: Recogniser) -> list[Piece]:
    """The pieces of a recording [S] in which something can be heard."""
    return audible_pieces(number, audio, recogniser.sampling_rate, recogniser.longest_samples)


def audible_pieces(number: int, audio: np.ndarray, rate: int, longest: int) -> list[Piece]:
    """The same without a recogniser: at `rate` Hz, pieces of at most `longest` samples."""
    lengths = [len(piece) for piece in cut([audio], rate, min(longest, int(LONGEST_PIECE * rate)))]
    found = [Piece(number, start, end) for start, end in pairwise(accumulate(lengths, initial=0))]
    return [piece for piece in found if not is_silent(audio[piece.start : piece.end], rate)]


def hear_pieces(
    recogniser: Recogniser, audios: Sequence[np.ndarray], batch: int = BATCH
) -> Iterator[tuple[Piece, Heard]]:
    """What is heard in each piece of recordings [S] at the recogniser's rate; alike lengths go together.

    A terminal shows how far it is.
    """
    pieces = [piece for number, audio in enumerate(audios) for piece in pieces_of(number, audio, recogniser)]
    pieces.sort(key=lambda piece: piece.start - piece.end)
    size = min(batch, recogniser.largest_batch)
    seconds = sum(piece.end - piece.start for piece in pieces) / recogniser.sampling_rate
    with counting("hearing", seconds, " s") as done:
        for first in range(0, len(pieces), size):
            some = pieces[first : first + size]
            parts = [audios[piece.recording][piece.start : piece.end] for piece in some]
            for piece, audio, heard in zip(some, parts, recogniser.hear(parts), strict=True):
                yield piece, heard
                done(len(audio) / recogniser.sampling_rate)


def hear_blocks(recogniser: Recogniser, blocks: Iterable[np.ndarray]) -> Iterator[tuple[Piece, Heard]]:
    """The same of one recording that comes in blocks [S], in their order: no more than a piece is kept."""
    rate, start = recogniser.sampling_rate, 0
    for audio in cut(blocks, rate, min(recogniser.longest_samples, int(LONGEST_PIECE * rate))):
        piece = Piece(0, start, start + len(audio))
        if not is_silent(audio, rate):
            yield piece, recogniser.hear([audio])[0]
        start = piece.end


def hear(recogniser: Recogniser, audio: np.ndarray) -> list[tuple[Piece, Heard]]:
    """What is heard in a recording [S] at the recogniser's rate, in each of its pieces but silent ones."""
    return sorted(hear_pieces(recogniser, [audio]), key=lambda pair: pair[0].start)


def alignment_of(
    recogniser: Recogniser, heard: Sequence[tuple[Piece, Heard]], words: Sequence[str]
) -> Alignment:
    """How pieces of a recording, in their order, say these words of the recogniser's characters."""
    step = recogniser.step_seconds
    times = [_begin(recogniser, piece) + np.arange(len(one.labels)) * step for piece, one in heard]
    log_probs = [np.zeros((0, len(recogniser.labels) + 1), np.float32), *(one.log_probs for _, one in heard)]
    every = np.maximum(np.concatenate([np.zeros(0), *times]), 0.0)
    return align(np.concatenate(log_probs), words, recogniser.labels, every, step)


def transcript_of(recogniser: Recogniser, heard: Iterable[tuple[Piece, Heard]], seconds: float) -> Transcript:
    """The transcript of a recording of what was heard in its pieces, in their order."""
    return _joined([word for pair in heard for word in _words_in(recogniser, *pair)], seconds)


def _words_in(recogniser: Recogniser, piece: Piece, heard: Heard) -> list[HeardWord]:
    """A piece's words: with a language model those of the best text, else those of the best labels."""
    if language := recogniser.language_model:
        heard = BeamSearch(language, recogniser.labels)(heard)
    begin = _begin(recogniser, piece)
    found = words_of(heard, recogniser.labels, recogniser.step_seconds, begin)
    first, last = (sample / recogniser.sampling_rate for sample in (piece.start, piece.end))
    return [replace(w, start=max(w.start, first), end=min(max(w.end, first), last)) for w in found]


def _begin(recogniser: Recogniser, piece: Piece) -> float:
    """The second of the recording that a piece's first output tells of."""
    return piece.start / recogniser.sampling_rate - recogniser.delay


def _joined(words: Sequence[HeardWord], seconds: float) -> Transcript:
    return Transcript(" ".join(word.word for word in words), tuple(words), seconds)


def expect(recogniser: Recogniser, audio: np.ndarray, rate: int, words: Sequence[str]) -> Alignment:
    """How a recording, float32 [S] at `rate` Hz, says these words of the recogniser's characters."""
    return alignment_of(recogniser, hear(recogniser, resample(audio, rate, recogniser.sampling_rate)), words)


def transcribe(
    recogniser: Recogniser, recordings: Sequence[tuple[np.ndarray, int]], batch: int = BATCH
) -> list[Transcript]:
    """Recordings, audio float32 [S] in [-1, 1] with its rate in Hz -> their transcripts.

    Each is what it is alone where the recogniser masks padding; its batches are single items otherwise.
    """
    audios = [resample(audio, given, recogniser.sampling_rate) for audio, given in recordings]
    found: dict[tuple[int, int], list[HeardWord]] = {}
    for piece, heard in hear_pieces(recogniser, audios, batch):
        found[piece.recording, piece.start] = _words_in(recogniser, piece, heard)
    words: list[list[HeardWord]] = [[] for _ in audios]
    for number, start in sorted(found):
        words[number] += found[number, start]
    rate = recogniser.sampling_rate
    return [_joined(some, len(audio) / rate) for some, audio in zip(words, audios, strict=True)]
