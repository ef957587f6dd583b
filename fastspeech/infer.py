"""Drives FastSpeech: two stages with the length regulator's index between them, or one for a bucket."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from melforge.common.arrays import Array, read_later, repeat_index, round_half_even, to_device, to_numpy
from melforge.common.engines import Run
from melforge.common.errors import InputError
from melforge.common.speech import AcousticOutput, Controls
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.driver import bucket_for
from melforge.common.synthesis.regulation import Regulation, expanding_by_index
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource
from melforge.fastspeech.config import FastSpeechConfig

# What goes from the encoder's CUDA graph to the decoder's, and the axis that is as long as the text.
SHARED = {"encoded": 1, "repeats": 1, "lengths": None}
# mel [B, n_mels, T] on its device, and durations int64 [B, T_text].
Spoken = tuple[Array, np.ndarray]


class FastSpeechAcoustic(AcousticModel[FastSpeechConfig]):
    """Symbols to mel, with `encoder` and `decoder`, or with `synthesis` in buckets.

    Where engines are captured, `encoder` and `decoder` are one CUDA graph each, with what is computed for it.
    The published network calls the inverse of `pace` alpha.
    """

    def __init__(self, source: ModelSource, engines: StageEngines):
        whole = engines.get("synthesis")
        if whole is not None and not whole.buckets:
            raise InputError(
                "the fixed form of fastspeech needs lengths to be fixed to: give it buckets, such as "
                "trt_max_input_seq_len: 128 and trt_max_output_seq_len: 1024"
            )
        self.is_whole = whole is not None
        super().__init__(source, engines, whole or engines["encoder"], whole or engines["decoder"])
        self.padding_id = self.config.padding_idx
        if not self.is_whole:
            self.two_graphs = self.make_two_graphs(Regulation(regulating, expanding), SHARED)

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
            spoken = self._by_whole(symbols, lengths, each)
        else:
            spoken = self._by_graphs(symbols, lengths, each) or self._by_engines(symbols, lengths, each)
        mel, durations = spoken
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
        return encoded["encoded"], round_half_even(encoded["duration"] * alpha[:, None])

    def _silence(self, durations: np.ndarray) -> Spoken:
        """The mels of items without a frame."""
        return np.zeros((len(durations), self.config.n_mel_channels, 0), np.float32), durations

    def _by_engines(self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]) -> Spoken:
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
        buckets = self.encoder.buckets
        assert buckets  # as the constructor asks for
        bucket = bucket_for(self.encoder, text=symbols.shape[1])
        out = self._run_whole(symbols, lengths, controls, bucket.mel)
        total = to_numpy(out["total_frames"])
        if total.max() > bucket.mel:
            self.require_fit(total, lengths, controls)
            buckets.count_miss(bucket)
            bucket = bucket_for(self.encoder, text=symbols.shape[1], mel=int(total.max()))
            out = self._run_whole(symbols, lengths, controls, bucket.mel)
        buckets.count_padding(bucket, len(total) * bucket.mel - int(total.sum()))
        return out["mel"], round_half_even(to_numpy(out["duration"]) * alphas_of(controls)[:, None])

    def _run_whole(
        self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls], frames: int
    ) -> dict[str, Array]:
        given = {"symbols": symbols, "lengths": lengths}
        given |= {"alpha": alphas_of(controls[:1]), "frames": np.arange(frames)}  # they have one pace
        return self.encoder(**{name: to_device(value, self.encoder.device) for name, value in given.items()})


def regulating(encode: Run) -> Run:
    """The encoder's run with what follows it: `repeats` int64 [B, N], of durations times `alpha` [B]."""

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        lengths = inputs["lengths"]
        encoded = encode({"symbols": inputs["symbols"], "lengths": lengths})
        repeats = round_half_even(encoded["duration"] * inputs["alpha"][:, None])
        return {"encoded": encoded["encoded"], "lengths": lengths.clone(), "repeats": repeats}

    return run


def expanding(decode: Run) -> Run:
    """The decoder's run with what precedes it."""
    return expanding_by_index(decode, ("encoded",))


def alphas_of(controls: Sequence[Controls]) -> np.ndarray:
    """What each item's durations are multiplied by, float32 [B]."""
    return np.array([1 / one.pace for one in controls], np.float32)
