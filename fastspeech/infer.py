"""Drives FastSpeech: two stages with the length regulator's index between them, or one for a bucket."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from melforge.common.arrays import Array, read_later, round_half_even, to_device, to_numpy
from melforge.common.engines import Run
from melforge.common.errors import InputError
from melforge.common.speech import AcousticOutput, Controls
from melforge.common.synthesis.driver import bucket_for
from melforge.common.synthesis.parallel import ParallelModel, paced, settings_of_symbols
from melforge.common.synthesis.regulation import Regulation, expanding_by_index
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.text.style import Style
from melforge.common.weights.voices import ModelSource
from melforge.fastspeech.config import FastSpeechConfig


class FastSpeechAcoustic(ParallelModel[FastSpeechConfig]):
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
        self.by_symbol = frozenset() if self.is_whole else frozenset({"rate"})
        both = whole or engines["encoder"], whole or engines["decoder"]
        super().__init__(source, engines, *both, Regulation(regulating, expanding))
        self.padding_id = self.config.padding_idx

    @property
    def batch_safe(self) -> bool:
        return self.config.mask_padding

    def batch_key(self, controls: Controls) -> Hashable:
        return controls.pace if self.is_whole else None  # the stage `synthesis` takes one alpha

    def synthesise(
        self,
        ids: Sequence[np.ndarray],
        controls: Controls | Sequence[Controls] | None = None,
        styles: Sequence[Sequence[Style]] = (),
    ) -> AcousticOutput:
        each = self.controls_of_items(ids, controls)
        symbols, lengths = self.pad(ids)
        if self.is_whole:
            mel, durations = self._by_whole(symbols, lengths, each)
        else:
            rendered = self.render(symbols, lengths, each, styles)
            mel, durations = rendered.decoded["mel"], rendered.repeats
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
        if not self.is_whole:
            return super().predict_lengths(ids, controls)
        each = self.controls_of_items(ids, controls)
        symbols, lengths = self.pad(ids)
        first = bucket_for(self.encoder, text=symbols.shape[1]).mel
        return to_numpy(self._run_whole(symbols, lengths, each, first)["total_frames"])

    def read(self, encoded: Mapping[str, Array], text: int) -> tuple[np.ndarray, None]:
        return read_later(encoded["repeats"])()[:, :text], None

    def settings_of(
        self, controls: Sequence[Controls], text: int, styles: Sequence[Sequence[Style]] = ()
    ) -> dict[str, np.ndarray]:
        """`settings` float32 [B, 1, text]: what durations are multiplied by."""

        def numbers(row: int, style: Style) -> tuple[float]:
            return (1 / paced(controls[row], style),)

        return {"settings": settings_of_symbols(numbers, len(controls), text, styles)}

    def _by_whole(
        self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]
    ) -> tuple[Array, np.ndarray]:
        """mel [B, n_mels, T] on its device, and durations int64 [B, T_text].

        The mel's length is known only afterwards: if it does not fit the bucket, a larger one runs.
        """
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
    """The encoder's run with what follows it: `repeats` int64 [B, N], by `settings` [B, 1, N]."""

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        lengths = inputs["lengths"]
        encoded = encode({"symbols": inputs["symbols"], "lengths": lengths})
        repeats = round_half_even(encoded["duration"] * inputs["settings"][:, 0])
        return {"encoded": encoded["encoded"], "lengths": lengths, "repeats": repeats}

    return run


def expanding(decode: Run) -> Run:
    """The decoder's run with what precedes it."""
    return expanding_by_index(decode, ("encoded",))


def alphas_of(controls: Sequence[Controls]) -> np.ndarray:
    """What each item's durations are multiplied by, float32 [B]."""
    return np.array([1 / one.pace for one in controls], np.float32)
