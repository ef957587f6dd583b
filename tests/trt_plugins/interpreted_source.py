"""Runs the kernels of HiFi-GAN's source in Triton's interpreter and prints their largest error."""

import dataclasses
import sys

import torch
import triton.language as tl  # noqa: F401 (which a kernel must see)

from melforge.common.audio.pitch import source_of
from melforge.hifigan.infer import join_source
from melforge.hifigan.source_filter import SourceFilterGenerator, pulses, sample_mask
from melforge.trt_plugins.hifigan import source_filter
from melforge.trt_plugins.pitch.engine import KernelPitch
from tests.conftest import tiny_source_filter


def join_error() -> float:
    """In cycles, around a whole one; infinite where pitch or noise are not what was given."""
    torch.manual_seed(0)
    largest = 0.0
    for batch, frames, channels in ((1, 1, 32), (2, 300, 3), (3, 1000, 0), (1, 4096, 32)):
        pitch, noise = 0.004 + 0.01 * torch.rand(batch, frames), torch.randn(batch, frames * channels)
        wanted, found = (join(pitch, noise, 256) for join in (join_source, source_filter.join_source))
        if found.shape != wanted.shape or not torch.equal(found[:, 1:], wanted[:, 1:]):
            return float("inf")
        assert (found[:, 0] >= 0).all() and (found[:, 0] <= 1).all()
        apart = (found[:, 0] - wanted[:, 0]).abs()
        largest = max(largest, float(torch.minimum(apart, 1 - apart).max()))
    return largest


def pitch_error() -> float:
    """As part of the pitch, behind an item's end too."""
    largest = 0.0
    for channels, bins, frames in ((16, 32, 70), (20, 9, 33), (40, 50, 1)):
        config = dataclasses.replace(tiny_source_filter()[1], pitch_channels=channels, pitch_bins=bins)
        torch.manual_seed(0)
        network = SourceFilterGenerator(config, weight_norm=False).requires_grad_(False)
        mel, lengths = torch.randn(2, 80, frames) * 2 - 5, torch.tensor([frames, frames // 2])
        (wanted,) = network.find_pitch(mel, lengths)
        (found,) = KernelPitch(network.pitch).find_pitch(mel, lengths)
        assert found.shape == wanted.shape
        largest = max(largest, float((found / wanted - 1).abs().max()))
    return largest


def product_error() -> float:
    """As part of the largest value; depths from few to more than a step, one table and several."""
    torch.manual_seed(0)
    largest = 0.0
    for batch, count, rows, depth, columns in ((2, 3, 34, 32, 70), (1, 1, 64, 64, 170), (2, 5, 8, 4, 1)):
        table, data = torch.randn(count, rows, depth), torch.randn(batch, count, depth, columns)
        found, wanted = source_filter.product(table, data), torch.matmul(table.double(), data.double())
        assert found.shape == wanted.shape
        largest = max(largest, float((found - wanted).abs().max() / wanted.abs().max()))
    return largest


def alone_error() -> float:
    """Of what items of a batch that is padded longer are, against each alone: pitch, source and audio."""
    network, config = tiny_source_filter()
    pitch, kernels = KernelPitch(network.pitch), source_filter.KernelSourceFilter(network)
    ends, generator = (41, 3), torch.Generator().manual_seed(1)
    mel = torch.randn(2, 80, 96, generator=generator) * 2 - 5
    noise = torch.randn(2, 96 * config.noise_channels, generator=generator)

    def made(rows: slice, frames: int) -> tuple[torch.Tensor, ...]:
        lengths, heard = torch.tensor(ends[rows]), mel[rows, :, :frames]
        (found,) = pitch.find_pitch(heard, lengths)
        drawn = noise[rows, : frames * config.noise_channels]
        source = source_filter.join_source(found, drawn, config.hop_length)
        return found, source, *kernels.generate(heard, source, lengths)

    largest, together = 0.0, made(slice(2), 96)
    for row, end in enumerate(ends):
        for frames in (end, -(-end // 32) * 32):
            for one, other in zip(made(slice(row, row + 1), frames), together, strict=True):
                whole = end * one.shape[-1] // frames
                largest = max(largest, float((one[0, ..., :whole] - other[row, ..., :whole]).abs().max()))
    return largest


def windows_of(wave: torch.Tensor, kernels: source_filter.KernelSourceFilter, frames: int) -> torch.Tensor:
    """Audio (B, S) -> its windows as pulse_kernel has them (B, Q, P, T)."""
    padded = torch.nn.functional.pad(wave, (kernels.before, kernels.before))
    windows = padded.unfold(1, kernels.size, kernels.hop)[:, :frames]  # (B, T, N)
    return windows.unflatten(2, (kernels.rows, kernels.columns)).permute(0, 3, 2, 1)


def pulse_error() -> float:
    """Of the pulses, against those in float64, as part of PyTorch's own error in float32."""
    network, lengths = tiny_source_filter()[0], torch.tensor([50, 37])
    kernels = source_filter.KernelSourceFilter(network)
    pitch = 0.004 + 0.012 * torch.rand(2, 50).cumsum(1) / 50
    pitch[:, 20] = 1 / 64  # whole cycles at samples
    source = source_of(pitch, 256)
    mask = sample_mask(lengths, source)
    inside = (torch.arange(50 * 256) < 256 * lengths[:, None]).double()
    exact = pulses(source.double(), 256, mask.double()) * inside
    single = pulses(source, 256, mask) * inside.float()
    found = kernels.pulses(torch.cat((source, torch.randn(2, 4, 50)), 1), lengths)
    wanted, near = windows_of(exact, kernels, 50), windows_of(single, kernels, 50)
    assert not found[windows_of(inside, kernels, 50) == 0].any()
    ours, theirs = (found - wanted).abs(), (near - wanted).abs()
    # A harmonic more or less where the limit falls on one.
    ours, theirs = ours[ours < 0.4], theirs[theirs < 0.4]
    assert len(ours) > 0.999 * found.numel()
    return float(ours.square().mean().sqrt() / theirs.square().mean().sqrt())


def audio_error(lengths: str, blocks: str) -> float:
    """Of the audio, as part of the largest value."""
    network, config = tiny_source_filter()
    if blocks == "two":
        several = {"resblock_kernel_sizes": (3, 5), "resblock_dilation_sizes": ((1, 2), (4,))}
        config = dataclasses.replace(config, **several, noise_channels=0)
        torch.manual_seed(0)
        network = SourceFilterGenerator(config, weight_norm=False)
    network.requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    mel = torch.randn(2, 80, 64, generator=generator) * 2 - 5
    ends = torch.tensor([int(length) for length in lengths.split(",")])
    (pitch,) = network.find_pitch(mel, ends)
    noise = torch.randn(2, 64 * config.noise_channels, generator=generator)
    source = join_source(pitch, noise, config.hop_length)
    (wanted,) = network.generate(mel, source, ends)
    (found,) = source_filter.KernelSourceFilter(network).generate(mel, source, ends)
    assert found.shape == wanted.shape
    for row, end in enumerate(ends.tolist()):
        assert not found[row, end * 256 :].any()
    return float((found - wanted).abs().max() / wanted.abs().max())


measure, *arguments = sys.argv[1:]
measures = {"join": join_error, "pitch": pitch_error, "product": product_error, "alone": alone_error}
measures |= {"pulses": pulse_error, "audio": audio_error}
print(measures[measure](*arguments))
