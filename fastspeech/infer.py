"""Drives FastSpeech: two stages with the length regulator or its index between them, or one for a bucket."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from melforge.common.arrays import Array, pad_to, read_later, repeat_index, to_device, to_numpy
from melforge.common.config.deployment import Bucket
from melforge.common.engines import LengthRegulator, Run, attend_to_padding
from melforge.common.errors import InputError
from melforge.common.speech import AcousticOutput, Controls
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.driver import bucket_for
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource
from melforge.fastspeech import regulate
from melforge.fastspeech.config import FastSpeechConfig
from melforge.fastspeech.regulate import round_durations

if TYPE_CHECKING:
    from melforge.common.engines.cuda_graphs import Captured

# What goes from the encoder's CUDA graph to the decoder's, and the axis that is as long as the text.
SHARED = {"encoded": 1, "repeats": 1, "lengths": None}
# Without buckets, what is captured as one graph has lengths that are multiples of these, and a mel of so
# many frames a symbol, which is more than most texts take.
TEXT_STEP, MEL_STEP, SYMBOL_FRAMES = 32, 128, 8
# mel [B, n_mels, T] on its device, and durations int64 [B, T_text].
Spoken = tuple[Array, np.ndarray]


class FastSpeechAcoustic(AcousticModel[FastSpeechConfig]):
    """Symbols to mel, with `encoder` and `decoder` or `mel_side`, or with `synthesis` in buckets.

    Where engines are captured, `encoder`, kernels and `mel_side` are one CUDA graph, and `encoder` and
    `decoder` one each with what is computed for it.

    The published network calls the inverse of `pace` alpha.
    """

    one_graph: Captured | None = None  # encoder, kernels and mel's side

    def __init__(self, source: ModelSource, engines: StageEngines):
        whole = engines.get("synthesis")
        self.is_whole, self.has_mel_side = whole is not None, "mel_side" in engines
        if whole is not None and not whole.buckets:
            raise InputError(
                "the fixed form of fastspeech needs lengths to be fixed to: give it buckets, such as "
                "trt_max_input_seq_len: 128 and trt_max_output_seq_len: 1024"
            )
        encoder = whole or engines["encoder"]
        decoder = whole or engines["mel_side" if self.has_mel_side else "decoder"]
        super().__init__(source, engines, encoder, decoder)
        self.padding_id = self.config.padding_idx
        if self.has_mel_side:
            self.one_graph = self._make_one_graph()
        elif not self.is_whole:
            regulator = LengthRegulator(regulate.regulating, regulate.expanding)
            self.two_graphs = self.make_two_graphs(regulator, SHARED)

    @property
    def batch_safe(self) -> bool:
        return self.config.mask_padding

    def batch_key(self, controls: Controls) -> Hashable:
        return controls.pace if self.is_whole else None  # the stage `synthesis` takes one alpha

    def synthesise(
        self, ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None = None
    ) -> AcousticOutput:
        each = self.controls_of_items(ids, controls)
        symbols, lengths = self.pad(ids)
        if self.is_whole:
            mel, durations = self._by_whole(symbols, lengths, each)
        elif self.has_mel_side:
            spoken = self._by_one_graph(symbols, lengths, each)
            mel, durations = spoken or self._by_mel_side(symbols, lengths, each)
        else:
            spoken = self._by_graphs(symbols, lengths, each)
            mel, durations = spoken or self._by_decoder(symbols, lengths, each)
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

    def predict_lengths(
        self, ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None = None
    ) -> np.ndarray:
        each = self.controls_of_items(ids, controls)
        symbols, lengths = self.pad(ids)
        if self.is_whole:
            first = bucket_for(self.encoder, text=symbols.shape[1]).mel
            return to_numpy(self._run_whole(symbols, lengths, each, first)["total_frames"])
        _, durations = self._encode(symbols, lengths, each)
        return to_numpy(durations).sum(1)

    def _encode(
        self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]
    ) -> tuple[Array, Array]:
        """What the encoder gives, and durations int64 [B, T_text]."""
        device = self.encoder.device
        encoded = self.encoder(symbols=to_device(symbols, device), lengths=to_device(lengths, device))
        alpha = to_device(alphas_of(controls), device)
        return encoded["encoded"], round_durations(encoded["duration"], alpha[:, None])

    def _silence(self, durations: np.ndarray) -> Spoken:
        """The mels of items without a frame."""
        return np.zeros((len(durations), self.config.n_mel_channels, 0), np.float32), durations

    def _by_decoder(self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]) -> Spoken:
        encoded, durations = self._encode(symbols, lengths, controls)
        index, mel_lengths = repeat_index(durations)
        self.require_fit(to_numpy(mel_lengths), lengths, controls)
        if not index.shape[1]:
            return self._silence(to_numpy(durations))
        decoded = self.decoder(encoded=encoded, repeat_index=index, mel_lengths=mel_lengths)
        return decoded["mel"], to_numpy(durations)

    def _by_graphs(
        self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]
    ) -> Spoken | None:
        """The same in two launches, with the length regulator's operations in them. None: no graph."""
        if self.two_graphs is None:
            return None
        encoded = self.two_graphs.encode(symbols, lengths, **self.graph_settings(controls))
        if encoded is None:
            return None
        durations = read_later(encoded["repeats"])()[:, : symbols.shape[1]]  # the host waits here only
        mel_lengths = durations.sum(1)
        self.require_fit(mel_lengths, lengths, controls)
        if not mel_lengths.max():
            return self._silence(durations)
        decoded = self.two_graphs.decode(encoded, mel_lengths)
        return None if decoded is None else (decoded["mel"], durations)

    def graph_settings(self, controls: Sequence[Controls]) -> dict[str, np.ndarray]:
        return {"alpha": alphas_of(controls)}

    def _by_whole(self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]) -> Spoken:
        """The same. How long the mel is comes out with it: at times a larger bucket must do it again."""
        bucket = bucket_for(self.encoder, text=symbols.shape[1])
        out = self._run_whole(symbols, lengths, controls, bucket.mel)
        total = to_numpy(out["total_frames"])
        if total.max() > bucket.mel:
            self.require_fit(total, lengths, controls)
            self.encoder.count_miss(bucket)
            bucket = bucket_for(self.encoder, text=symbols.shape[1], mel=int(total.max()))
            out = self._run_whole(symbols, lengths, controls, bucket.mel)
        self.encoder.count_padding(bucket, len(total) * bucket.mel - int(total.sum()))
        return out["mel"], round_durations(to_numpy(out["duration"]), alphas_of(controls)[:, None])

    def _run_whole(
        self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls], frames: int
    ) -> dict[str, Array]:
        given = {"symbols": symbols, "lengths": lengths}
        given |= {"alpha": alphas_of(controls[:1]), "frames": np.arange(frames)}  # they have one pace
        return self.encoder(**{name: to_device(value, self.encoder.device) for name, value in given.items()})

    def _by_mel_side(self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]) -> Spoken:
        """The same, with the length regulator's operations outside of engines."""
        encoded, durations = self._encode(symbols, lengths, controls)
        known = to_numpy(durations)
        self.require_fit(known.sum(1), lengths, controls)
        frames = int(known.sum(1).max())
        if not frames:
            return self._silence(known)
        mel_lengths = durations.sum(1)
        placed = regulate.place(encoded, durations, mel_lengths, frames, self._table)
        return self.decoder(placed=placed, mel_lengths=mel_lengths)["mel"], known

    def _by_one_graph(
        self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]
    ) -> Spoken | None:
        """The same in one launch, at times two: how long the mel is comes out with it. None: no graph."""
        if self.one_graph is None:
            return None
        batch, text = symbols.shape
        arrays = symbols, lengths, alphas_of(controls)
        symbols_there, lengths_there, alpha = (to_device(array, self.encoder.device) for array in arrays)
        slowest = min(one.pace for one in controls)
        padded = self._padded_lengths(text, slowest)
        while True:
            out = self._launch(symbols_there, lengths_there, alpha, padded)
            if out is None:
                return None
            durations = to_numpy(out["durations"])[:, :text]  # the one time that the host waits
            total = durations.sum(1)
            if total.max() <= padded.mel:
                break
            self.require_fit(total, lengths, controls)
            self.decoder.count_miss(padded)
            padded = self._padded_lengths(text, slowest, int(total.max()))
        self.encoder.count_call(padded, batch, lengths.sum())
        self.decoder.count_call(padded, batch, total.sum())
        return out["mel"], durations

    def _launch(
        self, symbols: Array, lengths: Array, alpha: Array, padded: Bucket
    ) -> dict[str, Array] | None:
        torch = importlib.import_module("torch")
        assert self.one_graph is not None
        return self.one_graph(
            {
                "symbols": pad_to(symbols, (len(symbols), padded.text)),
                "lengths": lengths,
                "alpha": alpha,
                "frames": torch.arange(padded.mel, device=symbols.device),
            }
        )

    def _padded_lengths(self, text: int, pace: float, mel: int = 0) -> Bucket:
        """The bucket for so many symbols and frames, or lengths rounded up."""
        if self.decoder.buckets:
            return bucket_for(self.decoder, text=text, mel=mel)
        text = min(-(-text // TEXT_STEP) * TEXT_STEP, self.longest_text)
        mel = mel or round(text * SYMBOL_FRAMES / pace)
        return Bucket(text, min(-(-mel // MEL_STEP) * MEL_STEP, self.longest_mel))

    def _make_one_graph(self) -> Captured | None:
        if not self.engines.captures:
            return None
        may_pad = self.batch_safe or not attend_to_padding(self.encoder, self.decoder)
        if not self.decoder.buckets and not may_pad:
            warnings.warn(
                "fastspeech runs without one CUDA graph: with mask_padding: false its network attends to "
                "padding; give it buckets if it may",
                stacklevel=2,
            )
            return None
        if not self.encoder.can_be_captured:
            return None
        graphs = importlib.import_module("melforge.common.engines.cuda_graphs")
        return graphs.Captured(self.source.model, self._run_for, graphs.new_stream(self.encoder.device))

    def _run_for(self, inputs: Mapping[str, Array]) -> Run:
        """Encoder, kernels and mel's side on contexts of their own, at the lengths of these inputs."""
        padded = Bucket(inputs["symbols"].shape[1], len(inputs["frames"]))
        encode, render = (engine.capturable(padded) for engine in (self.encoder, self.decoder))
        return regulate.join(encode, render, regulate.kernels(), self._table)

    @property
    def is_captured(self) -> bool:
        return self.one_graph is not None or super().is_captured

    def capture(self, bucket: Bucket | None, batch: int) -> None:
        if self.one_graph is None:
            return super().capture(bucket, batch)
        text = bucket.text if bucket else self._dims["text"].typical
        padded = bucket or self._padded_lengths(text, 1.0)
        arrays = *self.pad([np.ones(text, np.int64)] * batch), alphas_of([Controls()] * batch)
        symbols, lengths, alpha = (to_device(array, self.encoder.device) for array in arrays)
        to_numpy((self._launch(symbols, lengths, alpha, padded) or {"mel": lengths})["mel"])

    @cached_property
    def _table(self) -> Array:
        """The positions' encodings float32 [longest mel + 1, C], as the network has them."""
        return to_device(self.source.state["position.weight"], self.encoder.device)


def alphas_of(controls: Sequence[Controls]) -> np.ndarray:
    """What each item's durations are multiplied by, float32 [B]."""
    return np.array([1 / one.pace for one in controls], np.float32)
