"""HiFi-GAN's generator with a harmonic source on kernels of our own, beside PyTorch's."""

from torch import Tensor

from trt_plugins.graphs import TritonLaunch

JOIN_FRAMES = 128  # of a program


def join_source(pitch: Tensor, noise: Tensor, hop: int) -> Tensor:
    """As `hifigan.infer.join_source`, in one launch on the current stream."""
    from trt_plugins.hifigan import source_kernels

    batch, frames = pitch.shape
    channels = noise.shape[1] // frames
    out = pitch.new_empty(batch, 2 + channels, frames)
    columns = 1 << max(channels - 1, 0).bit_length()
    grid = -(-frames // JOIN_FRAMES), batch
    options = {"HOP": hop, "CHANNELS": channels, "COLUMNS": columns, "BLOCK": JOIN_FRAMES}
    tensors = pitch.contiguous(), noise.contiguous(), out
    TritonLaunch(source_kernels.join_kernel, grid, (*tensors, frames), options)()
    return out
