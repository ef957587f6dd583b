"""A trained network over a whole corpus: its mels, to fine-tune a vocoder on, or its durations."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from melforge.common.engines.torch_engine import build_network
from melforge.common.files import written_whole
from melforge.common.stages import stages_of
from melforge.common.training.corpus.batches import Utterances
from melforge.common.training.loop import Network
from melforge.common.weights.voices import ModelSource

# A network's prediction for utterances (B,); its `mel` is (B, n_mels, T).
Predict = Callable[[Any, Utterances, Tensor], Any]


def trained_network(source: ModelSource, kind: type[Network]) -> Network:
    """The source's network in eval mode, on the CPU."""
    network = build_network(stages_of(source.model, source.config)[0], source)
    assert isinstance(network, kind)
    return network


def load_network(
    source: ModelSource, kind: type[Network], folder: Path, device: torch.device
) -> tuple[Network, Utterances]:
    """The network in eval mode, and the corpus in its speakers' numbers and units of pitch, on the device."""
    network = trained_network(source, kind)
    corpus = Utterances(folder, source.mel, device)
    if source.speakers:
        corpus.number_speakers(source.speakers)
    if means := getattr(source.settings, "pitch_means", ()):
        corpus.measure_pitch_by(means, source.settings.pitch_deviations)
    elif deviation := getattr(source.settings, "pitch_std", 0.0):
        corpus.measure_pitch_by([source.settings.pitch_mean], [deviation])
    return network.to(device), corpus


def by_length(corpus: Utterances, batch_size: int, doing: str) -> Iterable[Tensor]:
    """All utterances, in batches (B,) of similar length."""
    return tqdm(corpus.frames.argsort().split(batch_size), desc=doing, mininterval=5)


@torch.no_grad()
def predict_mels(
    network: torch.nn.Module, corpus: Utterances, batch_size: int, predict: Predict, path: Path
) -> None:
    """Writes mels of the whole corpus in its order, float16 [n_mels, frames]."""
    with written_whole(path) as temporary:
        shape = corpus.n_mels, int(corpus.starts[-1])
        mels = np.lib.format.open_memmap(temporary, "w+", np.float16, shape, fortran_order=True)
        for members in by_length(corpus, batch_size, "predicting mels"):
            found = predict(network, corpus, members).mel.half().cpu().numpy()
            for mel, number in zip(found, members.tolist(), strict=True):
                start, end = corpus.starts[number : number + 2]
                mels[:, start:end] = mel[:, : end - start]
        mels.flush()


def compare_boundaries(found: Sequence[np.ndarray], corpus: Utterances) -> str:
    """How far the boundaries of durations (N,) are from those of the corpus's own, in a sentence."""
    own = corpus.durations.cpu().numpy()
    pairs = zip(found, own, strict=True)
    off = np.concatenate([np.abs(row.cumsum() - other[: len(row)].cumsum())[:-1] for row, other in pairs])
    return (
        f"boundaries differ from the corpus's own by {np.median(off):.0f} frames in the median, "
        f"{np.percentile(off, 95):.0f} at the 95th percentile"
    )
