"""What acoustic models share: symbols to mel on whatever engines they are given."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from melforge.common.arrays import pad_batch
from melforge.common.config.deployment import Bucket
from melforge.common.engines import Engine, as_capturable
from melforge.common.errors import InputError
from melforge.common.speech import AcousticOutput, Controls, MelTooLong, check_ids, controls_of_each
from melforge.common.synthesis.driver import Driver, WarmUp
from melforge.common.synthesis.regulation import Regulation
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource

if TYPE_CHECKING:
    from melforge.common.synthesis.two_graphs import TwoGraphs


class AcousticConfig(Protocol):
    """Sizes that all acoustic models have."""

    @property
    def n_symbols(self) -> int: ...
    @property
    def n_mel_channels(self) -> int: ...


Config = TypeVar("Config", bound=AcousticConfig)


class AcousticModel(Driver[Config]):
    """Texts as symbol ids to mels, a padded batch at a time.

    Its limits are those of the stages that take the text and that give the mel: `postnet`, or without one
    `decoder`.
    """

    padding_id = 0  # of symbols behind a text's end
    two_graphs: TwoGraphs | None = None  # encoder and decoder as CUDA graphs, where engines are captured

    def __init__(
        self,
        source: ModelSource,
        engines: StageEngines,
        encoder: Engine,
        decoder: Engine,
        postnet: Engine | None = None,
    ):
        super().__init__(source, engines)
        self.encoder, self.decoder = encoder, decoder
        last = decoder if postnet is None else postnet
        self._dims = {**encoder.stage.dynamic_dims, **last.stage.dynamic_dims}
        self.longest_text, self.longest_mel = self._dims["text"].max, self._dims["mel"].max
        self.largest_batch = self._dims["batch"].max

    @abstractmethod
    def synthesise(
        self, ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None = None
    ) -> AcousticOutput:
        """One batch: each entry of `ids` int64 [T_text]. MelTooLong where an item's mel does not fit.

        `controls` are one for all, or one for each item; these have one `batch_key`.
        """

    @property
    def prefers_batches(self) -> bool:
        return self.batch_safe and self.decoder.prefers_batches

    def predict_lengths(
        self, ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None = None
    ) -> np.ndarray | None:
        """The mel frames int64 [B] that `synthesise` would make, without making them.

        None where only synthesis can tell, as of an autoregressive model.
        """
        return None

    def controls_of_items(
        self, ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None
    ) -> list[Controls]:
        """Those of each item. A ValueError where they cannot share a batch."""
        each = controls_of_each(controls, len(ids))
        if len({self.batch_key(one) for one in each}) > 1:
            raise ValueError(f"{self.source.model} cannot have these controls in one batch: see batch_key")
        return each

    def pad(self, ids: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(symbols int64 [B, T_text], lengths int64 [B]). An InputError where a text is too long."""
        if not len(ids):
            raise ValueError("there is no utterance to speak")
        if len(ids) > self.largest_batch:
            raise InputError(f"{len(ids)} utterances at a time; this model goes up to {self.largest_batch}")
        check_ids(ids, self.config.n_symbols, self.longest_text)
        return pad_batch(ids, self.padding_id)

    def require_fit(self, mel_lengths: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]) -> None:
        """MelTooLong where a mel is longer than the model can make, of texts of these lengths."""
        rows = np.flatnonzero(mel_lengths > self.longest_mel)
        if len(rows):
            if self.decoder.buckets:
                self.decoder.buckets.count_miss()
            pace = controls[int(mel_lengths.argmax())].pace
            raise MelTooLong(
                f"at pace {pace:g} a sentence of {lengths[rows].max()} symbols has {mel_lengths.max()} "
                f"frames; this model goes up to {self.longest_mel}: raise the pace or shorten the sentence",
                rows.tolist(),
            )

    def make_two_graphs(self, regulation: Regulation, shared: Mapping[str, int | None]) -> TwoGraphs | None:
        """Encoder and decoder as CUDA graphs, where engines say that they may be captured together.

        The regulation runs between them, or on kernels the model's own (`StagePlan.between`). `shared` as in
        TwoGraphs.
        """
        if not (self.engines.captures and self.encoder.can_be_captured):
            return None
        engines = as_capturable(self.encoder), as_capturable(self.decoder)
        regulation = self.kernel_between("regulation", *engines) or regulation
        make = importlib.import_module("melforge.common.synthesis.two_graphs").TwoGraphs
        settings = tuple(self.graph_settings([Controls()]))
        return make(*engines, regulation, settings, shared, self.batch_safe)

    def graph_settings(self, controls: Sequence[Controls]) -> dict[str, np.ndarray]:
        """What the first of the two graphs takes beside symbols and lengths, a row for each item."""
        return {}

    @property
    def is_captured(self) -> bool:
        """Whether this driver runs several engines as CUDA graphs."""
        return self.two_graphs is not None

    @property
    def captures_all(self) -> bool:
        return self.two_graphs is not None and self.engines.on_kernels

    def takes(self, batch: int, bucket: Bucket | None) -> bool:
        return batch <= self.largest_batch

    def capture(self, bucket: Bucket | None, batch: int) -> None:
        """Has what a bucket runs for such a batch captured, or what a text of typical length runs."""
        text, mel = (
            (bucket.text, bucket.mel) if bucket else (self._dims["text"].typical, self._dims["mel"].typical)
        )
        if self.two_graphs:
            self.two_graphs.capture(batch, text, mel, **self.graph_settings([Controls()] * batch))

    def warm_ups(self, bucket: Bucket | None, batch: int) -> Iterator[WarmUp]:
        if self.is_captured:
            what = f"{self.source.model}, captured"
            yield WarmUp(what, str(bucket or ""), lambda: self.capture(bucket, batch))
