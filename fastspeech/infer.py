"""Drives FastSpeech: two stages with the length regulator or its index between them, or one for a bucket."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from common.arrays import Array, pad_batch, pad_to, read_later, repeat_index, to_device, to_numpy
from common.config.deployment import Bucket
from common.engines import Engine, hear_padding
from common.engines.buckets import count_miss
from common.errors import InputError
from common.speech import AcousticOutput, Controls, MelTooLong, check_ids
from common.weights.voices import ModelSource
from fastspeech import regulate
from fastspeech.regulate import round_durations

# Without buckets, what is captured has lengths that are multiples of these, and a mel for so many frames a
# symbol, which is more than most texts take.
TEXT_STEP, MEL_STEP, SYMBOL_FRAMES = 32, 128, 8


class FastSpeechAcoustic:
    """Symbols to mel, on whatever engines it is given: `encoder` with `decoder` or `mel_side`, or `synthesis`
    in buckets. Where `engines` say that they capture, `encoder`, kernels and `mel_side` are one CUDA graph,
    and `encoder` and `decoder` one each with what is computed for it.

    The published network calls the inverse of `pace` alpha.
    """

    controls = frozenset({"pace"})

    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        self.source = source
        self.config = source.config
        self.engines = engines
        self.whole = engines.get("synthesis")
        self.apart = "mel_side" in engines
        self.encoder, self.decoder = (
            (self.whole, self.whole)
            if self.whole
            else (engines["encoder"], engines["mel_side" if self.apart else "decoder"])
        )
        if self.whole and not hasattr(self.whole, "buckets"):
            raise InputError(
                "the fixed form of fastspeech needs lengths to be fixed to: give it buckets, such as "
                "trt_max_input_seq_len: 128 and trt_max_output_seq_len: 1024"
            )
        dims = {**self.encoder.stage.dynamic_dims, **self.decoder.stage.dynamic_dims}
        self.longest_text, self.longest_mel = dims["text"].max, dims["mel"].max
        self.largest_batch = dims["batch"].max
        self.captured = self._make_captured() if getattr(engines, "captures", False) else None

    @property
    def batch_safe(self) -> bool:
        """Whether an item of a padded batch equals the same item alone."""
        return self.config.mask_padding

    def synthesise(self, ids: Sequence[np.ndarray], controls: Controls | None = None) -> AcousticOutput:
        """One batch: each entry of `ids` int64 [T_text]. MelTooLong where an item's mel has no place."""
        pace = (controls or Controls()).pace
        form = self._fixed if self.whole else self._apart if self.apart else self._dynamic
        made = self._in_halves(ids, pace) if self.captured and not self.apart else None
        mel, durations = made or form(*self._symbols(ids), pace)
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
        return to_numpy(round_durations(encoded["duration"], alpha_of(pace))).sum(1)

    def _symbols(self, ids: Sequence[np.ndarray]) -> tuple[Array, Array]:
        check_ids(ids, self.config.n_symbols, self.longest_text)
        padded = pad_batch(ids, self.config.padding_idx)
        return tuple(to_device(array, self.encoder.device) for array in padded)

    def _dynamic(self, symbols: Array, lengths: Array, pace: float) -> tuple[Array, np.ndarray]:
        """mel [B, n_mels, T] on its device, and durations int64 [B, T_text]."""
        encoded = self.encoder(symbols=symbols, lengths=lengths)
        durations = round_durations(encoded["duration"], alpha_of(pace))
        index, mel_lengths = repeat_index(durations)
        self._require_place(to_numpy(mel_lengths), to_numpy(lengths), pace)
        if not index.shape[1]:
            return np.zeros((len(index), self.config.n_mel_channels, 0), np.float32), to_numpy(durations)
        decoded = self.decoder(encoded=encoded["encoded"], repeat_index=index, mel_lengths=mel_lengths)
        return decoded["mel"], to_numpy(durations)

    def _in_halves(self, ids: Sequence[np.ndarray], pace: float) -> tuple[Array, np.ndarray] | None:
        """The same in two launches, with the length regulator's operations in them. None: no graph."""
        check_ids(ids, self.config.n_symbols, self.longest_text)
        symbols, lengths = pad_batch(ids, self.config.padding_idx)
        made = self.captured.encode(symbols, lengths, alpha=np.array([alpha_of(pace)]))
        if made is None:
            return None
        durations = read_later(made["repeats"])()[:, : symbols.shape[1]]  # the one time that the host waits
        mel_lengths = durations.sum(1)
        self._require_place(mel_lengths, lengths, pace)
        if not mel_lengths.max():
            return np.zeros((len(ids), self.config.n_mel_channels, 0), np.float32), durations
        decoded = self.captured.decode(made, mel_lengths)
        return decoded and (decoded["mel"], durations)

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
        return out["mel"], to_numpy(round_durations(out["duration"], alpha_of(pace)))

    def _apart(self, symbols: Array, lengths: Array, pace: float) -> tuple[Array, np.ndarray]:
        """The same, with the length regulator's operations outside of engines."""
        found = self._in_one_graph(symbols, lengths, pace) if self.captured else None
        if found:
            return found
        encoded = self.encoder(symbols=symbols, lengths=lengths)
        durations = round_durations(encoded["duration"], alpha_of(pace))
        known = to_numpy(durations)
        self._require_place(known.sum(1), to_numpy(lengths), pace)
        frames = int(known.sum(1).max())
        if not frames:
            return np.zeros((len(known), self.config.n_mel_channels, 0), np.float32), known
        mel_lengths = durations.sum(1)
        placed = regulate.place(encoded["encoded"], durations, mel_lengths, frames, self._table)
        return self.decoder(placed=placed, mel_lengths=mel_lengths)["mel"], known

    def _in_one_graph(self, symbols: Array, lengths: Array, pace: float) -> tuple[Array, np.ndarray] | None:
        """The same in one launch, at times two: how long the mel is comes out with it. None: no graph."""
        batch, text = symbols.shape
        fixed = self._fixed_lengths(text, pace)
        while True:
            out = self._launch(symbols, lengths, pace, fixed)
            if out is None:
                return None
            durations = to_numpy(out["durations"])[:, :text]  # the one time that the host waits
            total = durations.sum(1)
            if total.max() <= fixed.mel:
                break
            self._require_place(total, to_numpy(lengths), pace)
            count_miss(self.decoder, fixed)
            fixed = self._fixed_lengths(text, pace, int(total.max()))
        for engine, valid in ((self.encoder, lengths), (self.decoder, total)):
            if hasattr(engine, "buckets"):
                engine.count_call(fixed, batch, valid.sum())
        return out["mel"], durations

    def _launch(self, symbols: Array, lengths: Array, pace: float, fixed: Bucket) -> dict[str, Array] | None:
        torch = importlib.import_module("torch")
        return self.captured(
            {
                "symbols": pad_to(symbols, (len(symbols), fixed.text)),
                "lengths": lengths,
                "alpha": torch.full((1,), float(alpha_of(pace)), device=symbols.device),
                "frames": torch.arange(fixed.mel, device=symbols.device),
            }
        )

    def _fixed_lengths(self, text: int, pace: float, mel: int = 0) -> Bucket:
        """The bucket for so many symbols and frames, or lengths rounded up."""
        if hasattr(self.decoder, "buckets"):
            return self.decoder.covering(text=text, mel=mel)
        text = min(-(-text // TEXT_STEP) * TEXT_STEP, self.longest_text)
        mel = mel or round(text * SYMBOL_FRAMES / pace)
        return Bucket(text, min(-(-mel // MEL_STEP) * MEL_STEP, self.longest_mel))

    def _make_captured(self) -> Any:
        if self.whole:
            return None
        may_pad = self.batch_safe or not hear_padding(self.encoder, self.decoder)
        if self.apart and not hasattr(self.decoder, "buckets") and not may_pad:
            warnings.warn(
                "fastspeech runs without one CUDA graph: with mask_padding: false its network hears padding; "
                "give it buckets if it may",
                stacklevel=2,
            )
            return None
        if not hasattr(self.encoder, "alone"):
            return None
        if not self.apart:
            halves = importlib.import_module("common.synthesis.two_graphs")
            between = halves.between(self.encoder, self.decoder) or (regulate.regulating, regulate.expanding)
            return halves.Halves(self.encoder, self.decoder, *between, self.batch_safe)
        captured = importlib.import_module("common.engines.cuda_graphs")
        stream = importlib.import_module("torch").cuda.Stream(self.encoder.device)
        return captured.Captured(self.source.model, self._run_for, stream)

    def _run_for(self, inputs: Mapping[str, Array]) -> regulate.Run:
        """Encoder, kernels and mel's side on contexts of their own, at the lengths of these inputs."""
        fixed = Bucket(inputs["symbols"].shape[1], len(inputs["frames"]))
        encode, render = (engine.alone(fixed) for engine in (self.encoder, self.decoder))
        return regulate.join(encode, render, regulate.kernels(), self._table)

    def capture(self, bucket: Bucket | None, batch: int) -> None:
        """Has what a bucket of such a batch runs captured, or what a text of usual length does."""
        dims = {**self.encoder.stage.dynamic_dims, **self.decoder.stage.dynamic_dims}
        text = bucket.text if bucket else dims["text"].typical
        if not self.apart:
            mel = bucket.mel if bucket else dims["mel"].typical
            self.captured.capture(batch, text, mel, alpha=np.array([alpha_of(1.0)]))
            return
        fixed = bucket or self._fixed_lengths(text, 1.0)
        symbols, lengths = self._symbols([np.ones(text, np.int64)] * batch)
        to_numpy((self._launch(symbols, lengths, 1.0, fixed) or {"mel": lengths})["mel"])

    @cached_property
    def _table(self) -> Array:
        """The positions' encodings float32 [longest mel + 1, C], as the network has them."""
        return to_device(self.source.state["position.weight"], self.encoder.device)

    def _run(self, symbols: Array, lengths: Array, pace: float, frames: int) -> dict[str, Array]:
        return self.whole(
            symbols=symbols,
            lengths=lengths,
            alpha=to_device(np.full(1, alpha_of(pace)), self.whole.device),
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


def alpha_of(pace: float) -> np.float32:
    """What durations are multiplied by."""
    return np.float32(1 / pace)
