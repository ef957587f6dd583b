"""Drives FastSpeech: two stages with the length regulator's index made between them, or one for a bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from common.arrays import Array, as_int64, pad_batch, repeat_index, to_device, to_numpy
from common.engines import Engine
from common.engines.buckets import count_miss
from common.speech import AcousticOutput, Controls, MelTooLong, check_ids
from common.voices import ModelSource


class FastSpeechAcoustic:
    """Symbols to mel, on whatever engines it is given: `encoder` and `decoder`, or `synthesis` in buckets.

    The published network calls the inverse of `pace` alpha.
    """

    controls = frozenset({"pace"})

    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        self.source = source
        self.config = source.config
        self.engines = engines
        self.whole = engines.get("synthesis")
        self.encoder, self.decoder = (
            (self.whole, self.whole) if self.whole else (engines["encoder"], engines["decoder"])
        )
        if self.whole and not hasattr(self.whole, "buckets"):
            raise ValueError(
                "the fixed form of fastspeech needs lengths to be fixed to: give it buckets, such as "
                "trt_max_input_seq_len: 128 and trt_max_output_seq_len: 1024"
            )
        dims = self.decoder.stage.dynamic_dims
        self.longest_text, self.longest_mel = dims["text"].max, dims["mel"].max
        self.largest_batch = dims["batch"].max

    @property
    def batch_safe(self) -> bool:
        """Whether an item of a padded batch equals the same item alone."""
        return self.config.mask_padding

    def synthesise(self, ids: Sequence[np.ndarray], controls: Controls | None = None) -> AcousticOutput:
        """One batch: each entry of `ids` int64 [T_text]. MelTooLong where an item's mel has no place."""
        pace = (controls or Controls()).pace
        symbols, lengths = self._symbols(ids)
        mel, durations = (self._fixed if self.whole else self._dynamic)(symbols, lengths, pace)
        mel_lengths = durations.sum(1)
        return AcousticOutput(
            mel=mel[:, :, : int(mel_lengths.max())],
            mel_lengths=mel_lengths,
            durations=durations,
            problems=tuple(
                "" if frames else "no symbol lasts as long as half a frame: nothing was said"
                for frames in mel_lengths
            ),
        )

    def predict_lengths(self, ids: Sequence[np.ndarray], controls: Controls | None = None) -> np.ndarray:
        """The mel frames int64 [B] that `synthesise` would make."""
        pace = (controls or Controls()).pace
        symbols, lengths = self._symbols(ids)
        if self.whole:
            first = self.whole.covering(text=symbols.shape[1]).mel
            return to_numpy(self._run(symbols, lengths, pace, first)["total_frames"])
        encoded = self.encoder(symbols=symbols, lengths=lengths)
        return to_numpy(round_durations(encoded["duration"], pace)).sum(1)

    def _symbols(self, ids: Sequence[np.ndarray]) -> tuple[Array, Array]:
        check_ids(ids, self.config.n_symbols, self.longest_text)
        padded = pad_batch(ids, self.config.padding_idx)
        return tuple(to_device(array, self.encoder.device) for array in padded)

    def _dynamic(self, symbols: Array, lengths: Array, pace: float) -> tuple[Array, np.ndarray]:
        """mel [B, n_mels, T] on its device, and durations int64 [B, T_text]."""
        encoded = self.encoder(symbols=symbols, lengths=lengths)
        durations = round_durations(encoded["duration"], pace)
        index, mel_lengths = repeat_index(durations)
        self._require_place(to_numpy(mel_lengths), to_numpy(lengths), pace)
        if not index.shape[1]:
            return np.zeros((len(index), self.config.n_mel_channels, 0), np.float32), to_numpy(durations)
        decoded = self.decoder(encoded=encoded["encoded"], repeat_index=index, mel_lengths=mel_lengths)
        return decoded["mel"], to_numpy(durations)

    def _fixed(self, symbols: Array, lengths: Array, pace: float) -> tuple[Array, np.ndarray]:
        """The same. How long the mel is comes out with it: at times a larger bucket must do it again."""
        bucket = self.whole.covering(text=symbols.shape[1])
        out = self._run(symbols, lengths, pace, bucket.mel)
        total = to_numpy(out["total_frames"])
        if total.max() > bucket.mel:
            self._require_place(total, to_numpy(lengths), pace)
            self.whole.count_miss(bucket)
            bucket = self.whole.covering(text=symbols.shape[1], mel=int(total.max()))
            out = self._run(symbols, lengths, pace, bucket.mel)
        self.whole.count_padding(bucket, len(total) * bucket.mel - int(total.sum()))
        return out["mel"], to_numpy(round_durations(out["duration"], pace))

    def _run(self, symbols: Array, lengths: Array, pace: float, frames: int) -> dict[str, Array]:
        return self.whole(
            symbols=symbols,
            lengths=lengths,
            alpha=to_device(np.full(1, 1 / pace, np.float32), self.whole.device),
            frames=to_device(np.arange(frames), self.whole.device),
        )

    def _require_place(self, mel_lengths: np.ndarray, lengths: np.ndarray, pace: float) -> None:
        rows = np.flatnonzero(mel_lengths > self.longest_mel)
        if len(rows):
            count_miss(self.decoder)
            raise MelTooLong(
                f"at pace {pace:g} a sentence of {lengths[rows].max()} symbols has {mel_lengths.max()} "
                f"frames; this model goes up to {self.longest_mel}: raise the pace or shorten the sentence",
                rows.tolist(),
            )


def round_durations(duration: Array, pace: float) -> Array:
    """Whole frames int64 [B, T]; half goes to even, as published."""
    return as_int64((duration * np.float32(1 / pace)).round())
