"""What acoustic models share: symbols to mel on whatever engines they are given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

import numpy as np

from melforge.common.arrays import pad_batch
from melforge.common.config.deployment import Bucket
from melforge.common.engines import Engine
from melforge.common.errors import InputError
from melforge.common.speech import AcousticOutput, Controls, MelTooLong, check_ids, controls_of_each
from melforge.common.synthesis.driver import Driver
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.text.style import Style
from melforge.common.weights.voices import ModelSource


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
    by_symbol: frozenset[str] = frozenset()  # the fields of `Style` that change what it speaks

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
        self,
        ids: Sequence[np.ndarray],
        controls: Controls | Sequence[Controls] | None = None,
        styles: Sequence[Sequence[Style]] = (),
    ) -> AcousticOutput:
        """One batch: each entry of `ids` int64 [T_text]. MelTooLong where an item's mel does not fit.

        `controls` are one for all, or one for each item; these have one `batch_key`. `styles`, of each item,
        are those of its symbols, or none; `by_symbol` says what of them changes anything.
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

    def on_its_stream(self) -> AbstractContextManager[object]:
        """What a GPU is told within goes to one stream: graphs need not change theirs, which takes time."""
        return nullcontext()

    def takes(self, batch: int, bucket: Bucket | None) -> bool:
        return batch <= self.largest_batch
