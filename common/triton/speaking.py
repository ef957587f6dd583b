"""What our Triton models do with a batch of items; nothing here depends on Triton.

Items are independent: one that cannot be spoken has an exception in place of its result.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from melforge.common.arrays import Array
from melforge.common.errors import InputError, unknown
from melforge.common.runner import require_controls
from melforge.common.speech import Controls, control_fields, speaker_name
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.finish import join_utterances, require_finite
from melforge.common.synthesis.jobs import Gap, fitting_utterances, gaps_of
from melforge.common.synthesis.utterances import alike_batches, run_each, speak_utterances, without_silence
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.text import Analysis, Frontend, Utterance, markup, spoken_by
from melforge.common.weights.voices import ModelSource


@dataclass(frozen=True, eq=False)
class Symbols:
    """An item of the acoustic model: the ids int64 [T_text] of each utterance.

    `kept` are the frames of silence that it keeps behind each, and before the next one; None: all.
    """

    ids: Sequence[np.ndarray]
    controls: Controls
    kept: Sequence[int | None]


@dataclass(frozen=True, eq=False)
class Mels:
    """An item of the vocoder: the mel [n_mels, T_mel] of each utterance, and the seconds behind it."""

    mels: Sequence[Array]
    pauses: Sequence[float]
    controls: Controls


def controls_of(parameters: Mapping[str, Any], *sources: ModelSource) -> Controls:
    """The controls that a request's parameters give; an InputError for one without effect."""
    known = control_fields()
    for name in parameters:
        if name not in known:
            raise InputError(unknown("parameter", name, known))
    controls = Controls(**{name: _number(value, known[name][0]) for name, value in parameters.items()})
    require_controls(controls, *sources)
    return controls


def _number(value: Any, kind: type) -> Any:
    """A numeric parameter, perhaps as text: some clients can send only whole numbers and strings."""
    if isinstance(value, str) and kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            return value  # refused later, with its name and range
    return value


def analyse(
    frontend: Frontend, source: ModelSource, text: str, controls: Controls, longest: int
) -> tuple[Analysis, list[Gap]]:
    """A text's utterances, of at most `longest` symbols, and the silence behind each.

    An InputError if there is nothing to speak.
    """
    found = markup.analyse(spoken_by(frontend, speaker_name(controls.speaker, source.speakers)), text)
    if any(one.styles or one.speaker or one.lead for one in found.utterances):
        raise InputError(
            "prosody, emphasis, voice and a break before all words need text_to_speech_stream: here symbols "
            "are all that counts"
        )
    fitting = fitting_utterances(text, found.utterances, longest, frontend.symbols)
    _, *behind = gaps_of(fitting, controls, source.mel.hop_length / source.mel.sampling_rate)
    return replace(found, utterances=fitting), behind


def speak(
    acoustic: AcousticModel, symbols: Sequence[str], items: Sequence[Symbols], batch_size: int | None = None
) -> list[Any]:
    """The mels of each item: a list [n_mels, T_mel] of its utterances, or its exception.

    `batch_size` utterances are spoken at a time, as many as the model takes by default.
    """
    rows = [(number, ids) for number, item in enumerate(items) for ids in item.ids]
    edges = [edge for item in items for edge in itertools.pairwise((None, *item.kept))]
    largest = min(batch_size or acoustic.largest_batch, acoustic.largest_batch)
    size = largest if acoustic.prefers_batches else 1
    lengths = [len(ids) for _, ids in rows]
    each = [items[number].controls for number, _ in rows]

    def run(batch: Sequence[int]) -> list[Array]:
        # A CUDA graph is captured for each number of items, so there should be few.
        padded = [*batch, *[batch[-1]] * (min(size, acoustic.padded_batch(len(batch))) - len(batch))]
        utterances = [_utterance(rows[row][1], symbols) for row in padded]
        spoken = speak_utterances(acoustic, symbols, utterances, [each[row] for row in padded], retries=0)
        return [without_silence(one, *edges[row]).mel for row, one in zip(batch, spoken, strict=False)]

    made: dict[int, Any] = {}
    for batch in alike_batches(acoustic, lengths, each, size):
        made.update(zip(batch, run_each(run, batch), strict=True))
    return _by_item(len(items), [number for number, _ in rows], [made[row] for row in range(len(rows))])


def vocode(vocoder: Vocoder, rate: int, items: Sequence[Mels]) -> list[Any]:
    """The audio float32 [S] of each item, with its pauses, or its exception."""
    rows = [(number, mel) for number, item in enumerate(items) for mel in item.mels]

    def run(batch: Sequence[int]) -> list[np.ndarray]:
        controls = [items[rows[row][0]].controls for row in batch]
        heard = [i for i, row in enumerate(batch) if rows[row][1].shape[1]]  # without frames: no sound
        audio = vocoder.vocode_each([rows[batch[i]][1] for i in heard], [controls[i] for i in heard])
        found = dict(zip(heard, map(require_finite, audio), strict=True))
        return [found.get(i, np.zeros(0, np.float32)) for i in range(len(batch))]

    audio = _by_item(len(items), [number for number, _ in rows], run_each(run, list(range(len(rows)))))
    return [
        made if isinstance(made, Exception) else _joined(made, item, rate)
        for made, item in zip(audio, items, strict=True)
    ]


def _utterance(ids: np.ndarray, symbols: Sequence[str]) -> Utterance:
    """As the acoustic model takes it: the model splits utterances whose mel would be too long."""
    within = ids.min(initial=0) >= 0 and ids.max(initial=0) < len(symbols)  # else the driver's error says it
    return Utterance("", "", tuple(map(symbols.__getitem__, ids)) if within else (), ids, 0.0)


def _by_item(count: int, numbers: Sequence[int], made: Sequence[Any]) -> list[Any]:
    """The results of each item's rows, or the first exception among them."""
    found: list[Any] = [[] for _ in range(count)]
    for number, one in zip(numbers, made, strict=True):
        if isinstance(found[number], list):
            found[number] = one if isinstance(one, Exception) else [*found[number], one]
    return found


def _joined(audio: Sequence[np.ndarray], item: Mels, rate: int) -> np.ndarray:
    return join_utterances([*audio], item.pauses, rate, [item.controls.volume] * len(audio))[0]
