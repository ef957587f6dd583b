"""Drives Tacotron 2's stages: symbols to memory, the decoder as a loop or step by step, the postnet."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from melforge.common.arrays import Array, concatenate, to_device
from melforge.common.audio.sharpness import sharpen
from melforge.common.config.deployment import Bucket
from melforge.common.errors import InputError
from melforge.common.speech import AcousticOutput, Controls
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.driver import WarmUp
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.text.style import Style
from melforge.common.weights.voices import ModelSource
from melforge.tacotron2.attention import attention_problem
from melforge.tacotron2.config import PRENET_DROPOUT, Tacotron2Config
from melforge.tacotron2.decode import Decoded, NoNoise, SeededNoise, decode
from melforge.tacotron2.stages import longest_steps

WARM_UP_STEPS = 64  # more than are captured together


class Tacotron2Acoustic(AcousticModel[Tacotron2Config]):
    """Symbols to mel, with `decoder_loop` or `decoder_iter`. `longest_mel` is the postnet's, at a time."""

    def __init__(self, source: ModelSource, engines: StageEngines):
        decoder = "decoder_loop" if "decoder_loop" in engines else "decoder_iter"
        stages = ("encoder", decoder, "postnet")
        super().__init__(source, engines, *(engines[name] for name in stages))
        self.postnet = engines["postnet"]
        self.longest_steps = longest_steps(self.config)
        self.postnet_context = self.config.postnet_n_convolutions * (self.config.postnet_kernel_size // 2)
        shortest = 1 + 2 * self.postnet_context
        if self.longest_mel < shortest:
            raise InputError(
                f"tacotron2: buckets of up to {self.longest_mel} frames are too short, since the postnet's "
                f"receptive field has {self.postnet_context} on each side: at least one bucket must have "
                f"{shortest}"
            )
        self.sharpness = source.settings.sharpness
        self.step_seconds = self.config.n_frames_per_step * source.mel.hop_length / source.mel.sampling_rate

    @property
    def batch_safe(self) -> bool:
        return self.config.mask_text_padding

    def batch_key(self, controls: Controls) -> Hashable:
        return self._decoding(controls)

    def _decoding(self, controls: Controls) -> tuple[float, float, int]:
        """The prenet's dropout, the gate's threshold and the step limit: the decoder takes one of each."""
        threshold = controls.gate_threshold
        return (
            PRENET_DROPOUT if controls.dropout else 0.0,
            self.config.gate_threshold if threshold is None else threshold,
            controls.step_limit or self.config.max_decoder_steps,
        )

    def synthesise(
        self,
        ids: Sequence[np.ndarray],
        controls: Controls | Sequence[Controls] | None = None,
        styles: Sequence[Sequence[Style]] = (),
    ) -> AcousticOutput:
        """One batch: each entry of `ids` int64 [T_text], its noise from its controls' seed.

        An item that stops at its first step keeps that step's frames, so that there is something to vocode.
        """
        each = self.controls_of_items(ids, controls)
        texts = self.pad(ids)
        dropout, threshold, limit = self._decoding(each[0])
        if limit > self.longest_steps:
            raise InputError(f"a step limit of {limit}; this model goes up to {self.longest_steps}")
        symbols, lengths = (to_device(x, self.encoder.device) for x in texts)
        encoded = self.encoder(symbols=symbols, lengths=lengths)
        channels = self.config.prenet_dim
        drawn = SeededNoise([one.seed for one in each], channels, self.decoder.draw)
        noise = drawn if dropout else NoNoise(len(ids), channels)
        decoded = decode(self.decoder, self.config, encoded, lengths, noise, dropout, threshold, limit)
        sharpness = [self.sharpness if one.sharpness is None else one.sharpness for one in each]
        mel = sharpen(self._refine(decoded), np.array(sharpness, np.float32))
        per_step = self.config.n_frames_per_step
        mel_lengths = np.maximum(decoded.mel_lengths, per_step)
        steps = mel_lengths // per_step
        alignment = decoded.alignment[:, : int(steps.max())]
        return AcousticOutput(
            mel=mel[:, :, : int(mel_lengths.max())],
            mel_lengths=mel_lengths,
            durations=durations(alignment, steps) * per_step,
            alignment=alignment,
            alignment_lengths=steps,
            problems=tuple(self._problem(decoded, row, len(item)) for row, item in enumerate(ids)),
        )

    def _refine(self, decoded: Decoded) -> Array:
        """The postnet over the batch's frames as published, or over each item's own, its stop included.

        What the decoder makes may be longer than the postnet's largest bucket: it goes in chunks then, each
        with the frames around it in the receptive field.
        """
        before = to_device(decoded.mel, self.postnet.device)
        ends = decoded.mel_lengths + decoded.stopped * self.config.n_frames_per_step
        frames, context = before.shape[2], self.postnet_context
        size = frames if frames <= self.longest_mel else self.longest_mel - 2 * context
        chunks = []
        for start in range(0, frames, size):
            left, right = max(0, start - context), min(frames, start + size + context)
            inputs = {"mel": before[:, :, left:right]}
            if self.batch_safe:
                inputs["lengths"] = to_device((ends - left).clip(0, right - left), self.postnet.device)
            refined = self.postnet(**inputs)["refined"]
            chunks.append(refined[:, :, start - left : min(start + size, frames) - left])
        return concatenate(chunks, axis=2)

    def _problem(self, decoded: Decoded, row: int, symbols: int) -> str:
        steps = int(decoded.mel_lengths[row]) // self.config.n_frames_per_step
        if not steps:
            return "the speech stopped at its first step: nothing was said"
        alignment = decoded.alignment[row, :steps, :symbols]
        return attention_problem(alignment, bool(decoded.stopped[row]), self.step_seconds)

    def warm_ups(self, bucket: Bucket | None, batch: int) -> Iterator[WarmUp]:
        """Steps of the decoder, which run together where that is faster."""
        text = bucket.text if bucket else self._dims["text"].typical
        # Any symbols do: speech that goes wrong takes as long.
        ids = [np.arange(text) % (self.config.n_symbols - 1) + 1] * batch
        controls = Controls(step_limit=min(WARM_UP_STEPS, self.longest_steps))
        what = f"{self.source.model}, {controls.step_limit} steps"
        yield WarmUp(what, f"text {text}", lambda: self.synthesise(ids, controls))


def durations(alignment: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Alignment (B, S, N) -> int64 (B, N): of an item's steps, how many looked at each symbol most."""
    counts = np.zeros((len(alignment), alignment.shape[2]), np.int64)
    for count, path, made in zip(counts, alignment.argmax(axis=2), steps, strict=True):
        count += np.bincount(path[:made], minlength=len(count))
    return counts
