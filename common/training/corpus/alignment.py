"""Forced alignment of known phonemes by pocketsphinx: durations in mel frames for every symbol.

Each word is given to the aligner as a made-up dictionary entry of the phones that were spoken, so that no
word is out of its vocabulary. Gaps between words go to the punctuation or space that stands there.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from melforge.common.errors import InputError
from melforge.common.text import Utterance
from melforge.common.text.symbols import nearest_american

ALIGNER_RATE = 16_000
SILENCE_DB = -52.0  # below the loudest 10 ms: at the edges of a recording that is no speech
LEAD, TAIL = 0.10, 0.14  # seconds of silence that a corpus's recordings have before and after the speech
EDGE = 0.02  # seconds: a phone may begin so long before the first loud frame, or end after the last
SHORTEST_PHONE = 0.03  # seconds: the aligner's three states of a frame each
BEAMS = (None, None, 1e-200)  # of the tries that a line has; None is pocketsphinx's
DITHER = 1e-3  # of full scale: the noise that is added from the second try on
WORDS_PER_DECODER = 5_000  # added words stay in a decoder for ever: start a new one now and then


def is_phone(symbol: str) -> bool:
    return symbol.startswith("@")


def speech_bounds(audio: np.ndarray, rate: int) -> tuple[float, float]:
    """Where the speech in float32 `[T]` begins and ends, in seconds, by its loudness."""
    frame = rate // 100
    count = len(audio) // frame
    if count == 0:
        raise InputError(f"{len(audio)} samples are too short to hold speech")
    power = np.square(audio[: count * frame].reshape(count, frame)).mean(axis=1) + 1e-12
    loud = np.flatnonzero(10 * np.log10(power / power.max()) > SILENCE_DB)
    return loud[0] * frame / rate, (loud[-1] + 1) * frame / rate


@dataclass(frozen=True, eq=False)
class PhoneTimes:
    """Of every phone: start and end in seconds, float64 `[phones, 2]`, and how well it fits.

    `scores` float64 `[phones]` are mean log-likelihoods of 10 ms, in pocketsphinx's units: about -15 for
    clear speech, below -60 for another phone.
    """

    times: np.ndarray
    scores: np.ndarray


class Aligner:
    """Aligns utterances one after another; one aligner a process."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self, beam: float | None = None) -> None:
        from pocketsphinx import Decoder

        beams = {} if beam is None else dict.fromkeys(("beam", "pbeam", "wbeam"), beam)
        # Its search for the best path through the lattice may give a word fewer frames than its phones need,
        # and the second pass fails: of some 2 % of good lines.
        self.decoder = Decoder(lm=None, bestpath=False, loglevel="FATAL", **beams)
        self.names = (f"w{i}" for i in itertools.count())
        self.words = 0

    def phone_times(self, audio: np.ndarray, rate: int, words: Sequence[Sequence[str]]) -> PhoneTimes:
        """When each phone of these words is said; an InputError where the audio does not hold them.

        What is not found at once is tried with a little noise, and with a wide beam, of which the scores are
        low where the words are others.
        """
        phones, seconds = sum(map(len, words)), len(audio) / rate
        if phones * SHORTEST_PHONE > seconds:  # which pocketsphinx takes minutes to say
            raise InputError(f"{phones} phones do not fit into {seconds:.1f} s")
        noise = DITHER * np.random.default_rng(0).standard_normal(len(audio)).astype(np.float32)
        reason: Exception | None = None
        for number, beam in enumerate(BEAMS):
            if number:  # a decoder adapts to what it heard, and one that failed may be in an utterance still
                self._renew(beam)
            try:
                found = self._phone_times(audio + noise * bool(number), rate, words)
            except (ValueError, RuntimeError) as error:
                reason = error
                continue
            if beam is not None:
                self._renew()
            return found
        self._renew()
        raise InputError(f"pocketsphinx does not find it in the audio, in {len(BEAMS)} tries ({reason})")

    def _phone_times(self, audio: np.ndarray, rate: int, words: Sequence[Sequence[str]]) -> PhoneTimes:
        import soxr

        if self.words > WORDS_PER_DECODER:
            self._renew()
        names = []
        for word in words:
            names.append(next(self.names))
            phones = (nearest_american(p[1:].rstrip("012")) for p in word)
            self.decoder.add_word(names[-1], " ".join(phones), True)
        self.words += len(words)
        audio = soxr.resample(audio, rate, ALIGNER_RATE)
        scale = 0.5 / max(1e-6, np.abs(audio).max()) * 32767
        pcm = (audio * scale).astype("<i2").tobytes()
        self.decoder.set_align_text(" ".join(names))
        for are_words_known in (False, True):  # the first pass finds words, the second their phones
            if are_words_known:
                self.decoder.set_alignment()
            self.decoder.start_utt()
            self.decoder.process_raw(pcm, full_utt=True)
            self.decoder.end_utt()
        alignment = self.decoder.get_alignment()
        if alignment is None:
            raise InputError("pocketsphinx found no alignment")
        known = set(names)
        phones = (phone for word in alignment.words() if word.name in known for phone in word)
        found = [(phone.start, phone.duration, phone.score) for phone in phones]
        if len(found) != sum(len(word) for word in words):
            raise InputError(f"pocketsphinx aligned {len(found)} phones of {sum(len(w) for w in words)}")
        starts, lengths, scores = np.array(found, np.float64).T
        return PhoneTimes(np.stack([starts, starts + lengths], 1) / 100, scores / np.maximum(lengths, 1))

    def durations(self, audio: np.ndarray, rate: int, hop: int, symbols: Sequence[str]) -> np.ndarray:
        """Frames per symbol, int64 `[symbols]`: one or more for a phone, `len(audio) // hop` in all."""
        return durations_of(self.phone_times(audio, rate, words_of(symbols)).times, audio, rate, hop, symbols)


def line_symbols(utterances: Sequence[Utterance]) -> tuple[list[str], np.ndarray]:
    """Symbols and ids of a whole line as one sequence: its sentences stand in one recording."""
    if not utterances:
        raise InputError("nothing to speak")
    return [s for u in utterances for s in u.symbols], np.concatenate([u.ids for u in utterances])


def words_of(symbols: Sequence[str]) -> list[list[str]]:
    """The phones of each word of an utterance's symbols."""
    return [list(group) for phone, group in itertools.groupby(symbols, is_phone) if phone]


def durations_of(
    times: np.ndarray, audio: np.ndarray, rate: int, hop: int, symbols: Sequence[str]
) -> np.ndarray:
    """Phone times `[phones, 2]` of a recording -> frames per symbol, as `Aligner.durations` gives them."""
    times = times.copy()
    # The aligner lets the first and last phone swallow short silences at the edges.
    begin, end = speech_bounds(audio, rate)
    times[0, 0] = np.clip(begin - EDGE, times[0, 0], times[0, 1] - 0.01)
    times[-1, 1] = np.clip(end + EDGE, times[-1, 0] + 0.01, times[-1, 1])
    return spread(times, symbols, len(audio) // hop, rate / hop)


def spread(times: np.ndarray, symbols: Sequence[str], frames: int, frames_per_second: float) -> np.ndarray:
    """Phone times `[phones, 2]` in seconds -> frames per symbol, int64 `[symbols]`, adding up to `frames`.

    A run of other symbols between two phones gets the gap between them: all of it goes to the run's first
    punctuation mark, or to the space where there is none.
    """
    starts = np.zeros(len(symbols))
    first = phone = 0
    for phones, group in itertools.groupby(symbols, is_phone):
        run = list(group)
        if phones:
            starts[first : first + len(run)] = times[phone : phone + len(run), 0] * frames_per_second
            phone += len(run)
        else:
            owner = first + next((i for i, symbol in enumerate(run) if symbol != " "), 0)
            starts[first : owner + 1] = times[phone - 1, 1] * frames_per_second if phone else 0
            gap_end = times[phone, 0] * frames_per_second if phone < len(times) else frames
            starts[owner + 1 : first + len(run)] = gap_end
        first += len(run)
    least = np.array([is_phone(s) for s in symbols], np.int64)
    needed = np.append(0, least.cumsum())  # frames that the symbols before an edge have at the least
    spare = np.append(np.rint(starts), frames).astype(np.int64) - needed
    spare[0] = 0
    spare[:-1] = np.maximum.accumulate(spare[:-1])  # no symbol has less than its minimum ...
    spare[1:] = np.minimum.accumulate(spare[:0:-1])[::-1]  # ... nor leaves less to those that follow
    durations = np.diff(spare + needed)
    if (durations < least).any():
        raise InputError(f"{len(symbols)} symbols do not fit into {frames} frames")
    return durations
