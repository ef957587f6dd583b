"""What is wrong with a corpus's recordings and texts, and which of them are left out for it."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from melforge.common.errors import InputError, counted, unknown
from melforge.common.speech import shown
from melforge.common.training.corpus.quality import Fit, Measures

# Each kind, and whether lines are left out for it that `--keep` may keep.
KINDS = {
    "file": ("missing sound files or texts, and files that cannot be read", False),
    "silence": ("recordings in which nothing is said", False),
    "alignment": ("texts that the aligner does not find in the audio", False),
    "text": ("words that do not fit the audio, and speech without words", True),
    "heard": ("texts of which the ear hears something else", True),
    "pace": ("lines spoken much faster or slower than the speaker's others", True),
    "length": ("recordings that are too short or too long", True),
    "rate": ("sampling rates below 22,050 Hz; those below 16,000 Hz are left out", True),
    "clipping": ("recordings that are cut off at the highest level", True),
    "noise": ("speech that stands little above the noise", True),
    "level": ("soft recordings", False),
    "offset": ("direct current, which is taken out", False),
    "pitch": ("lines much higher or lower than the speaker's others", False),
    "duplicate": ("the same recording again, and the same text again", True),
    "words": ("words that no dictionary has, read by their letters", False),
    "characters": ("characters that cannot be spoken", False),
}

SHORTEST = 0.3  # seconds of speech
LONG_FRAMES = 832  # FastPitch's recipe does not train on longer lines
LONGEST = 20.0  # seconds
LOWEST_RATE, FULL_RATE = 16_000, 22_050  # Hz
CLIPPED, BADLY_CLIPPED = 2e-4, 5e-3  # share of samples
NOISY, DROWNED = 30.0, 15.0  # dB of speech above the noise
SOFT, QUIETER = -45.0, 12.0  # dB; of full scale, and below the speaker's median
OFFSET = 0.01  # of full scale
# Pace and pitch as a multiple of the speaker's median.
ODD_PACE, WRONG_PACE, ODD_PITCH = 1.6, 2.2, 1.7
PACE_LIMITS = (3.0, 30.0)  # phones a second that anybody speaks
FEWEST_PHONES, FEWEST_LINES = 8, 5  # of a line and of a speaker, to say that one is unlike the others
# Alignment scores below the speaker's median, which is this where there are few lines.
USUAL_SCORE, ODD_SCORE, WRONG_SCORE = -15.0, 8.0, 14.0
USUAL_WORST, ODD_WORST, WRONG_WORST = -24.0, 22.0, 50.0
UNREAD, MUCH_UNREAD = 0.2, 0.5  # seconds of speech outside all words
MISHEARD, HEARD_OTHERWISE = 0.3, 0.6  # word error rates of the ear above the speaker's median


@dataclass
class Line:
    """What became of a recording with its text; labels as in `Labels`, empty where there are none."""

    name: str
    source: str
    text: str
    speaker: str
    key: str  # of what it was made of
    error: str = ""  # why there is no usable recording or text
    misaligned: str = ""  # why there is no alignment
    measures: Measures | None = None  # as recorded
    noise: float | None = None  # dB: what is left where noise was taken out
    sound: str = ""  # a hash of what is heard
    phones: int = 0
    ids: list[int] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    pitch: list[float] = field(default_factory=list)
    fit: Fit | None = None
    guessed: list[str] = field(default_factory=list)  # words with their phones
    unspoken: list[str] = field(default_factory=list)
    heard: dict[str, Any] | None = None  # by an ear: "ear", "text", "wer"
    took: dict[str, float] = field(default_factory=dict)  # seconds for each step

    @property
    def is_labelled(self) -> bool:
        return bool(self.durations)

    @property
    def pace(self) -> float:
        """Phones a second."""
        return self.phones / self.measures.speech if self.measures and not self.measures.silent else 0.0

    @property
    def mean_pitch(self) -> float:
        """The median of its voiced symbols in Hz; 0 without any."""
        return statistics.median([pitch for pitch in self.pitch if pitch > 0] or [0.0])


@dataclass(frozen=True)
class Defect:
    """Something wrong with a line, in words, and whether the line is left out of the corpus for it."""

    name: str
    source: str
    kind: str
    sentence: str
    left_out: bool


def require_kinds(keep: Collection[str], names: Collection[str]) -> None:
    """An InputError where what is to be kept is neither a kind nor one of the lines' names."""
    kinds = [kind for kind, (_, may_keep) in KINDS.items() if may_keep]
    for word in keep:
        if word not in kinds and word not in names:
            raise InputError(unknown("kind of defect to keep, or line,", word, kinds))


def find_defects(lines: Sequence[Line], keep: Collection[str] = ()) -> list[Defect]:
    """All of them, those that leave a line out first; `keep` has kinds and names that leave nothing out."""
    usual = _by_speaker(lines)
    found = [defect for line in lines for defect in _defects_of(line, usual[line.speaker])]
    found = [*_quiet_in_one(lines, usual, found), *_duplicates(lines)]
    for place, defect in enumerate(found):
        if KINDS[defect.kind][1] and {defect.kind, defect.name} & set(keep):
            found[place] = replace(defect, left_out=False)
    order = list(KINDS)
    return sorted(found, key=lambda one: (not one.left_out, order.index(one.kind), one.name))


def usable(lines: Iterable[Line], defects: Iterable[Defect]) -> list[Line]:
    """Those that a corpus is made of."""
    left_out = {defect.name for defect in defects if defect.left_out}
    return [line for line in lines if line.is_labelled and line.name not in left_out]


@dataclass(frozen=True)
class Usual:
    """Medians of a speaker's lines; None where there are too few."""

    pace: float | None
    pitch: float | None
    score: float
    worst: float
    misheard: float | None  # share of words
    level: float | None  # dB


def _by_speaker(lines: Sequence[Line]) -> dict[str, Usual]:
    def median(values: Iterable[float], otherwise: Any) -> Any:
        values = list(values)
        return statistics.median(values) if len(values) >= FEWEST_LINES else otherwise

    spoken = defaultdict(list)
    for line in lines:
        spoken[line.speaker].append(line)
    found = {}
    for speaker, own in spoken.items():
        fits = [line.fit for line in own if line.fit]
        found[speaker] = Usual(
            median((line.pace for line in own if line.phones >= FEWEST_PHONES and line.pace), None),
            median((line.mean_pitch for line in own if line.mean_pitch), None),
            median((fit.score for fit in fits), USUAL_SCORE),
            median((fit.worst for fit in fits), USUAL_WORST),
            median((line.heard["wer"] for line in own if line.heard), None),
            median((line.measures.level for line in own if line.measures), None),
        )
    return found


def _defects_of(line: Line, usual: Usual) -> Iterator[Defect]:
    def defect(kind: str, sentence: str, left_out: bool) -> Defect:
        return Defect(line.name, line.source, kind, sentence, left_out)

    if line.error:
        yield defect("file", line.error, True)
        return
    if line.measures is None:
        return
    if line.measures.silent:
        level = f"its loudest moment is at {line.measures.level:.0f} dB"
        yield defect("silence", f"nothing is said: {level}", True)
        return
    if line.misaligned:
        yield defect("alignment", f"is its text another? {line.misaligned}", True)
    for kind, sentence, left_out in (*sound_defects(line.measures), *_of_speech(line, usual)):
        yield defect(kind, sentence, left_out)
    unfit = list(_of_fit(line.fit, usual)) if line.fit else []
    for sentence, left_out in unfit:
        yield defect("text", sentence, left_out)
    if line.heard and (above := line.heard["wer"] - (usual.misheard or 0.0)) > MISHEARD:
        share = f"{100 * line.heard['wer']:.0f} % of its words are heard as others"
        others = f" (the speaker's median is {100 * usual.misheard:.0f} %)" if usual.misheard else ""
        # What an ear mishears of few lines, or of one that fits, may be the speaker's way of speaking.
        wrong = usual.misheard is not None and above > HEARD_OTHERWISE and bool(unfit or not line.fit)
        yield defect("heard", f"{share}{others}: {shown(line.heard['text'])}", wrong)
    if line.guessed:
        yield defect("words", f"read by their letters: {', '.join(line.guessed)}", False)
    if line.unspoken:
        yield defect("characters", f"not spoken: {' '.join(line.unspoken)}", False)


def sound_defects(found: Measures) -> Iterator[tuple[str, str, bool]]:
    """What is wrong with a recording by itself: the kind, a sentence, and whether it is left out for it."""
    if found.speech < SHORTEST:
        yield "length", f"{found.speech:.2f} s of speech are too short", True
    if found.speech > LONGEST:
        yield "length", f"{found.speech:.1f} s are longer than {LONGEST:g} s: cut it at a pause", True
    if found.rate < FULL_RATE:
        what = f"{found.rate} Hz: nothing is heard above {found.rate / 2000:g} kHz"
        yield "rate", what, found.rate < LOWEST_RATE
    if found.clipped > CLIPPED:
        share = f"{100 * found.clipped:.2g} % of its samples"
        yield "clipping", f"{share} are cut off at the level {found.peak:.2f}", found.clipped > BADLY_CLIPPED
    if (above := found.level - found.noise) < NOISY:
        yield "noise", f"speech is only {above:.0f} dB above the noise", above < DROWNED
    if found.level < SOFT:
        yield "level", f"speech is at {found.level:.0f} dB, which raises its noise with it", False
    if abs(found.offset) > OFFSET:
        yield "offset", f"direct current of {found.offset:+.3f}, which is taken out", False


def _quiet_in_one(
    lines: Sequence[Line], usual: dict[str, Usual], found: Sequence[Defect]
) -> Iterator[Defect]:
    """The defects, where those of a speaker's quiet lines whose level raises their noise are one."""
    below = {
        line.name: (line.speaker, level - line.measures.level)
        for line in lines
        if line.measures and (level := usual[line.speaker].level) is not None
    }
    quiet: dict[str, list[Defect]] = defaultdict(list)
    for defect in found:
        speaker, how_far = below.get(defect.name, ("", 0.0))
        if defect.kind in ("noise", "level") and not defect.left_out and how_far > QUIETER:
            quiet[speaker].append(defect)
        else:
            yield defect
    for own in quiet.values():
        sources = list(dict.fromkeys(defect.source for defect in own))
        if len(sources) == 1:
            yield from own
            continue
        how_far = statistics.median(below[defect.name][1] for defect in own)
        which = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
        what = (
            f"{how_far:.0f} dB quieter than the speaker's others, which raises the noise with them: {which}"
        )
        yield Defect(own[0].name, counted(len(sources), "line"), "level", what, False)


def _of_speech(line: Line, usual: Usual) -> Iterator[tuple[str, str, bool]]:
    frames = sum(line.durations)
    if frames > LONG_FRAMES and line.measures and line.measures.speech <= LONGEST:
        limit = f"FastPitch's recipe does not train on more than {LONG_FRAMES}: cut it at a pause"
        yield "length", f"{frames} frames, and {limit}", False
    low, high = PACE_LIMITS
    if line.phones >= FEWEST_PHONES:
        what = f"{line.pace:.1f} phones a second"
        ratio = line.pace / (usual.pace or line.pace)
        wrong = max(ratio, 1 / ratio) > WRONG_PACE or not low <= line.pace <= high
        if wrong or max(ratio, 1 / ratio) > ODD_PACE:
            others = f", where the speaker's others have {usual.pace:.1f}" if usual.pace else ""
            yield "pace", f"{what}{others}: is its text whole, and of nothing else?", wrong
    if usual.pitch and line.mean_pitch:
        ratio = line.mean_pitch / usual.pitch
        if max(ratio, 1 / ratio) > ODD_PITCH:
            others = f"where the speaker's others have {usual.pitch:.0f}"
            yield "pitch", f"{line.mean_pitch:.0f} Hz, {others}: is it another speaker?", False


def _of_fit(fit: Fit, usual: Usual) -> Iterator[tuple[str, bool]]:
    if fit.score < usual.score - ODD_SCORE:
        what = f"its text hardly fits anywhere (score {fit.score:.0f}, of others {usual.score:.0f})"
        yield what, fit.score < usual.score - WRONG_SCORE
    if fit.worst < usual.worst - ODD_WORST:
        what = f"hardly fits at {fit.worst_at:.1f} s ({fit.worst_words}; score {fit.worst:.0f})"
        yield f"its text {what}", fit.worst < usual.worst - WRONG_WORST
    if fit.unread > UNREAD:
        yield f"{fit.unread:.1f} s of speech have no words in its text", fit.unread > MUCH_UNREAD


def _duplicates(lines: Sequence[Line]) -> Iterator[Defect]:
    def groups(key: Callable[[Line], Any]) -> Iterator[list[Line]]:
        same = defaultdict(list)
        for line in lines:
            if line.sound:
                same[key(line)].append(line)
        return (group for group in same.values() if len(group) > 1)

    def words(line: Line) -> str:
        return " ".join(line.text.casefold().split())

    again = set()
    for group in groups(lambda line: line.sound):
        again |= {line.name for line in group}
        same_text = len({words(line) for line in group}) == 1
        for line in group[1:] if same_text else group:
            other = next(one.source for one in group if one is not line)
            what = f"the same recording as {other}" + ("" if same_text else ", which has another text")
            yield Defect(line.name, line.source, "duplicate", what, True)
    for group in groups(lambda line: (line.speaker, words(line))):
        for line in group[1:]:
            if line.name not in again:
                what = f"the same text as {group[0].source}"
                yield Defect(line.name, line.source, "duplicate", what, False)
