"""Acoustic models that predict each symbol's duration, and then make all frames at once."""

from __future__ import annotations

import importlib
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from melforge.common.arrays import Array, to_numpy
from melforge.common.config.deployment import Bucket
from melforge.common.engines import Engine, Run, as_capturable
from melforge.common.errors import InputError
from melforge.common.speech import Controls, control_fields
from melforge.common.stages import Dim, Stage
from melforge.common.synthesis.acoustic import AcousticModel, Config
from melforge.common.synthesis.driver import WarmUp
from melforge.common.synthesis.regulation import INDEX, Regulation, TwoEngines
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.text.style import PLAIN, Style
from melforge.common.weights.voices import ModelSource

if TYPE_CHECKING:
    from melforge.common.synthesis.two_graphs import TwoGraphs

# Attention's memory grows with the square of a mel's frames: here it is 34 MB, and the longest sentences that
# such models are trained on have a third of these.
LONGEST_MEL = 2048
# Longer ones are made by half of the cores at a time; there is work for the others meanwhile.
LONG_MEL = LONGEST_MEL // 2
_long_turns = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))


@dataclass(frozen=True, eq=False)
class Rendered:
    """What a batch's two stages gave."""

    decoded: Mapping[str, Array]  # the decoder's outputs, on its device; without frames only an empty mel
    repeats: np.ndarray  # int64 [B, T_text], frames of each symbol
    mel_lengths: np.ndarray  # int64 [B], their sums
    pitch: np.ndarray | None  # float32 [B, T_text], of models that have one


class ParallelModel(AcousticModel[Config]):
    """An encoder and a decoder, with a length regulator between them.

    The decoder takes of the regulated encoder's outputs what its stage names. Where engines can be captured,
    each is a CUDA graph with what is computed for it.
    """

    two_graphs: TwoGraphs | None = None

    def __init__(
        self,
        source: ModelSource,
        engines: StageEngines,
        encoder: Engine,
        decoder: Engine,
        regulation: Regulation,
    ):
        super().__init__(source, engines, encoder, decoder)
        self.longest_mel = min(self.longest_mel, LONGEST_MEL)
        shared = shared_with(decoder.stage)
        # Looked up at each call: a test or a benchmark may put another engine in their place. Weak: else the
        # engines' memory would go only when Python looks for cycles.
        mine = weakref.proxy(self)
        runs: tuple[Run, Run] = lambda given: mine.encoder(**given), lambda given: mine.decoder(**given)
        self.two_engines = TwoEngines(encoder.device, *runs, regulation, tuple(shared))
        # One engine for both has nothing between its stages.
        if engines.captures and encoder.can_be_captured and encoder is not decoder:
            both = as_capturable(encoder), as_capturable(decoder)
            regulation = self.kernel_between("regulation", *both) or regulation
            make = importlib.import_module("melforge.common.synthesis.two_graphs").TwoGraphs
            settings = tuple(self.settings_of([Controls()], 1))
            self.two_graphs = make(*both, regulation, settings, shared, self.batch_safe)

    @abstractmethod
    def settings_of(
        self, controls: Sequence[Controls], text: int, styles: Sequence[Sequence[Style]] = ()
    ) -> dict[str, np.ndarray]:
        """What the regulated encoder takes beside symbols and lengths, a row for each item.

        `settings` float32 [B, n, text] has n numbers of each symbol, whose `styles` are none for plain items.
        """

    @abstractmethod
    def read(self, encoded: Mapping[str, Array], text: int) -> tuple[np.ndarray, np.ndarray | None]:
        """`repeats` and `pitch` as in Rendered, of texts of so many symbols; the host waits here only."""

    def predict_lengths(
        self, ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None = None
    ) -> np.ndarray:
        each = self.controls_of_items(ids, controls)
        symbols, lengths = self.pad(ids)
        encoded = self.two_engines.encode(symbols, lengths, **self.settings_of(each, symbols.shape[1]))
        return to_numpy(encoded["repeats"]).sum(1)

    def render(
        self,
        symbols: np.ndarray,
        lengths: np.ndarray,
        controls: Sequence[Controls],
        styles: Sequence[Sequence[Style]] = (),
    ) -> Rendered:
        """A padded batch, by two CUDA graphs where there are some for these lengths."""
        settings = self.settings_of(controls, symbols.shape[1], styles)
        by_graphs = self.two_graphs and self._render_by(self.two_graphs, symbols, lengths, controls, settings)
        rendered = by_graphs or self._render_by(self.two_engines, symbols, lengths, controls, settings)
        assert rendered
        return rendered

    def _render_by(
        self,
        two: TwoGraphs | TwoEngines,
        symbols: np.ndarray,
        lengths: np.ndarray,
        controls: Sequence[Controls],
        settings: dict[str, np.ndarray],
    ) -> Rendered | None:
        encoded = two.encode(symbols, lengths, **settings)
        if encoded is None:
            return None
        repeats, pitch = self.read(encoded, symbols.shape[1])
        if repeats.min(initial=0) < 0:  # what becomes of NaN and infinity
            raise InputError(f"{self.source.weights} gives NaN instead of durations: its weights do not hold")
        mel_lengths = repeats.sum(1)
        longest = int(mel_lengths.max())
        if longest > self.longest_mel:
            self.require_fit(mel_lengths, lengths, controls)
        if not longest:
            silence = np.zeros((len(repeats), self.config.n_mel_channels, 0), np.float32)
            return Rendered({"mel": silence}, repeats, mel_lengths, pitch)
        with _long_turns if longest > LONG_MEL else nullcontext():
            decoded = two.decode(encoded, mel_lengths)
        return None if decoded is None else Rendered(decoded, repeats, mel_lengths, pitch)

    def on_its_stream(self) -> AbstractContextManager[object]:
        return (
            self.two_graphs.on_its_stream() if self.two_graphs and self.engines.on_kernels else nullcontext()
        )

    @property
    def is_captured(self) -> bool:
        """Whether this driver runs its engines as CUDA graphs."""
        return self.two_graphs is not None

    @property
    def captures_all(self) -> bool:
        return self.is_captured and self.engines.on_kernels

    def capture(self, bucket: Bucket | None, batch: int) -> None:
        """Has what a bucket runs for such a batch captured, or what a text of typical length runs."""
        text, mel = (
            (bucket.text, bucket.mel) if bucket else (self._dims["text"].typical, self._dims["mel"].typical)
        )
        if self.two_graphs:
            self.two_graphs.capture(batch, text, mel, **self.settings_of([Controls()] * batch, text))

    def warm_ups(self, bucket: Bucket | None, batch: int) -> Iterator[WarmUp]:
        if self.is_captured:
            what = f"{self.source.model}, captured"
            yield WarmUp(what, str(bucket or ""), lambda: self.capture(bucket, batch))


def shared_with(decoder: Stage) -> dict[str, int | None]:
    """What a decoder's stage takes of the regulated encoder's outputs, each with the axis that is as long as
    the text; None: no axis is.
    """
    taken = {
        tensor.name: next(
            (a for a, d in enumerate(tensor.dims) if isinstance(d, Dim) and d.name == "text"), None
        )
        for tensor in decoder.inputs
        if tensor.name not in INDEX
    }
    return {"repeats": 1, **taken}


def settings_of_symbols(
    numbers: Callable[[int, Style], Sequence[float]],
    items: int,
    text: int,
    styles: Sequence[Sequence[Style]] = (),
) -> np.ndarray:
    """float32 [B, n, text]: the `numbers` of an item's row and of each symbol's style."""
    plain = np.array([numbers(row, PLAIN) for row in range(items)], np.float32)
    settings = np.empty((*plain.shape, text), np.float32)
    settings[:] = plain[:, :, None]
    for row, own in enumerate(styles):
        for style in set(own) - {PLAIN}:
            places = [place for place, one in enumerate(own) if one == style]
            settings[row, :, places] = numbers(row, style)
    return settings


def paced(controls: Controls, style: Style) -> float:
    """The pace of symbols of a style, within the control's range."""
    about = control_fields()["pace"][1]
    return min(max(controls.pace * style.rate, about.low), about.high)
