"""Bias removal: a vocoder's hum, measured on a silent mel, is taken out of the spectra of what it says.

The published WaveGlow denoiser, for any vocoder, as a stage of its own: here its declaration, its measures
and the spectrum of the hum; common/audio/denoiser_network.py has the network. No torch.
"""

from __future__ import annotations  # np.random, which speaking does not need, stays unloaded

from dataclasses import replace

import numpy as np

from melforge.common.arrays import random_lengths
from melforge.common.audio.mel import OVERLAP, analysis_window, spectra_of
from melforge.common.stages import Dim, Stage, TensorSpec

BIAS_FRAMES = 88  # of the silent mel, as published
NETWORK = "melforge.common.audio.denoiser_network:DenoiserNetwork"


def fewest_samples(hop_length: int) -> int:
    """The reflection at both ends of the audio needs so many."""
    return OVERLAP * hop_length // 2 + 1


def denoiser_stage(model: str, hop_length: int, batch: Dim, mel: Dim) -> Stage:
    """The stage of a vocoder that makes audio of so many frames.

    The bias is an input and no weight: it is measured on the engine that runs the vocoder.
    """
    fewest = fewest_samples(hop_length)
    low, typical, high = (max(fewest, frames * hop_length) for frames in (mel.min, mel.typical, mel.max))
    samples, whole = Dim("samples", low, typical, high), Dim("whole", low, typical, high)
    audio = TensorSpec("audio", "float32", (batch, samples))
    denoised = TensorSpec("denoised", "float32", (batch, whole))
    strength = TensorSpec("strength", "float32", (batch,))
    bias = TensorSpec("bias", "float32", (fewest,))  # a bin for each of half a window's samples, and one
    inputs, outputs = (audio, strength, bias), (denoised,)
    # In float32: it takes a small spectrum from a large one.
    return Stage(model, "denoiser", NETWORK, "denoise", inputs, outputs, float32_layers=("*",))


def vocoder_stages(generator: Stage, hop_length: int) -> tuple[Stage, ...]:
    """The generator and its denoiser, and both for padded mels: an item is processed as if it ended at its
    length.

    A masked denoiser's audio has whole frames, and so many of them that it is long enough for a spectrum.
    """
    batch, mel = generator.batch, generator.dynamic_dims["mel"]
    fewest = -(-fewest_samples(hop_length) // hop_length)
    sizes = [max(fewest, frames) * hop_length for frames in (mel.min, mel.typical, mel.max)]
    dims = batch, Dim("samples", *sizes, of=mel.name, times=hop_length)
    denoiser = denoiser_stage(generator.model, hop_length, batch, mel)
    inputs = TensorSpec("audio", "float32", dims), *denoiser.inputs[1:]
    whole = replace(denoiser, inputs=inputs, outputs=(TensorSpec("denoised", "float32", dims),))
    return generator, denoiser, generator.masked(), whole.masked()


def denoiser_examples(
    hop_length: int, sizes: dict[str, int], rng: np.random.Generator, masked: bool = False
) -> dict[str, np.ndarray]:
    """Noise, with a hum that is as loud as some of its bins."""
    bins = fewest_samples(hop_length)
    lengths = {}
    if masked:
        frames, fewest = sizes["samples"] // hop_length, -(-bins // hop_length)
        lengths["lengths"] = random_lengths(sizes["batch"], frames, rng, fewest)
    return {
        **lengths,
        "audio": 0.1 * rng.standard_normal((sizes["batch"], sizes["samples"]), np.float32),
        "strength": rng.uniform(0, 1, sizes["batch"]).astype(np.float32),
        "bias": rng.uniform(0, 2, bins).astype(np.float32),
    }


def bias_spectrum(audio: np.ndarray, hop_length: int) -> np.ndarray:
    """What a vocoder adds to everything: the magnitudes of the first window of its audio for a mel of zeros.

    audio (S,), WaveGlow's with noise of zeros -> float32 (bins,). The window's centre is the first sample, so
    that half of it is a reflection.
    """
    half = OVERLAP * hop_length // 2
    window = np.concatenate((audio[half:0:-1], audio[:half])) * analysis_window(spectra_of(hop_length))
    return np.abs(np.fft.rfft(window)).astype(np.float32)
