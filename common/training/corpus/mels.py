"""A whole corpus on the training device: its mel spectrogram, and mels that a model predicted for it."""

from pathlib import Path

import numpy as np
import torch

from common.audio.contract import MelContract
from common.audio.mel_torch import MelSpectrogram
from common.errors import InputError

BLOCK, CONTEXT = 32_768, 4  # frames computed at once, and frames on each side that settle its edges


@torch.no_grad()
def corpus_mel(audio: torch.Tensor, contract: MelContract) -> torch.Tensor:
    """int16 samples `[frames * hop]` -> float16 mel `[n_mels, frames]`, HiFi-GAN's framing.

    The utterances stand end to end: the first and last frame of each sees a little of its neighbour's
    silence where the mel of the single file would see its own reflected.
    """
    hop = contract.hop_length
    frames = len(audio) // hop
    transform = MelSpectrogram(contract).to(audio.device)
    out = torch.empty(contract.n_mel_channels, frames, dtype=torch.float16, device=audio.device)
    for start in range(0, frames, BLOCK):
        end = min(frames, start + BLOCK)
        first, last = max(0, start - CONTEXT), min(frames, end + CONTEXT)
        block = audio[first * hop : last * hop].float() / 32768
        out[:, start:end] = transform(block[None])[0, :, start - first : end - first].half()
    return out


def save_array(path: Path, array: np.ndarray) -> None:
    """Writes a .npy file; it appears only when it is whole."""
    temporary = path.with_suffix(".tmp.npy")
    np.save(temporary, array)
    temporary.replace(path)


def load_mels(path: Path, frames: int, device: torch.device) -> torch.Tensor:
    """Mels of the whole corpus in its order, float16 `[n_mels, frames]`; InputError for another corpus's."""
    mels = np.load(path, mmap_mode="r")
    if mels.shape[1] != frames:
        raise InputError(f"{path} holds {mels.shape[1]} frames, the corpus has {frames}: predict them again")
    return torch.from_numpy(np.array(mels)).to(device)
