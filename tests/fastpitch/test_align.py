"""The aligner's prior and losses, and what it learns from a corpus whose symbols sound different."""

import itertools
import math

import numpy as np
import pytest
import soundfile
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.training.corpus.batches import Utterances
from melforge.common.training.corpus.dataset import Labels, save_labels
from melforge.fastpitch import align
from melforge.fastpitch.align import (
    BLANK_LOGPROB,
    binarisation_loss,
    durations_of,
    forward_sum_loss,
    learn,
    padded_prior,
    realign,
)
from tests.conftest import tiny_fastpitch

RATE, HOP = 22_050, 256


def test_the_prior_is_a_beta_binomial_distribution_along_the_diagonal():
    (prior,) = padded_prior(torch.tensor([4]), torch.tensor([6]))
    assert prior.shape == (6, 4)

    def beta(a, b):
        return math.gamma(a) * math.gamma(b) / math.gamma(a + b)

    for frame, symbol in itertools.product(range(6), range(4)):
        late, early = frame + 1, 6 - frame
        wanted = math.comb(4, symbol) * beta(symbol + late, 4 - symbol + early) / beta(late, early)
        assert prior[frame, symbol].item() == pytest.approx(wanted, rel=1e-5)
    assert prior[0].argmax() == 0 and prior[5].argmax() == 3
    both = padded_prior(torch.tensor([4, 2]), torch.tensor([6, 3]))
    torch.testing.assert_close(both[0], prior)
    torch.testing.assert_close(both[1:, :3, :2], padded_prior(torch.tensor([2]), torch.tensor([3])))
    assert not both[1, 3:].any() and not both[1, :, 2:].any()


def test_the_forward_sum_is_over_all_monotonic_alignments():
    torch.manual_seed(0)
    logprob = torch.randn(2, 1, 5, 3)
    lengths, mel_lengths = torch.tensor([3, 2]), torch.tensor([5, 4])
    wanted = []
    for item, n, frames in zip(logprob[:, 0], lengths.tolist(), mel_lengths.tolist(), strict=True):
        blank = torch.full((frames, 1), BLANK_LOGPROB)
        scores = torch.cat([blank, item[:frames, :n]], 1).log_softmax(1)
        total = 0.0
        for path in itertools.product(range(n + 1), repeat=frames):
            spoken = [symbol for symbol, _ in itertools.groupby(path) if symbol]
            if spoken == list(range(1, n + 1)):
                total += math.exp(sum(scores[t, symbol].item() for t, symbol in enumerate(path)))
        wanted.append(-math.log(total) / n)
    assert forward_sum_loss(logprob, lengths, mel_lengths).item() == pytest.approx(np.mean(wanted), rel=1e-5)


def test_one_path_is_cheapest_where_the_attention_is_on_it():
    hard = torch.eye(3)[None, None]
    assert binarisation_loss(hard, hard).item() == pytest.approx(0)
    assert binarisation_loss(hard, torch.full((1, 1, 3, 3), 1 / 3)).item() == pytest.approx(math.log(3))


@pytest.fixture
def tones(tmp_path) -> Utterances:
    """Each symbol is a tone of its own; the corpus's durations are all alike, and wrong."""
    (tmp_path / "wavs").mkdir()
    rng = np.random.default_rng(0)
    labels, true = Labels([], [], [], [], []), []
    for number in range(32):
        ids = rng.permutation(20)[:12] + 1
        durations = rng.integers(2, 9, 12)
        steps = np.repeat(150.0 * 1.2**ids, durations * HOP) / RATE
        soundfile.write(tmp_path / "wavs" / f"u{number}.wav", 0.3 * np.sin(2 * np.pi * steps.cumsum()), RATE)
        labels.names.append(f"u{number}")
        labels.texts.append("")
        labels.ids.append(ids)
        even = np.full(12, durations.sum() // 12)
        even[-1] += durations.sum() - even.sum()
        labels.durations.append(even)
        labels.pitch.append(np.full(12, 100.0 + number, np.float32))
        true.append(durations)
    save_labels(tmp_path, labels)
    corpus = Utterances(tmp_path, MelContract(), torch.device("cpu"))
    corpus.true = true
    return corpus


def test_durations_are_learned_from_the_mels(tones, tmp_path):
    torch.manual_seed(0)
    network, _ = tiny_fastpitch()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    learn(network, tones, steps=150)
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all(name.startswith("attention.") for name in changed)
    found = durations_of(network, tones)

    assert all(row.min() >= 1 for row in found)
    assert [row.sum() for row in found] == tones.frames.tolist()

    def off(rows):
        ends = [np.cumsum(row) - np.cumsum(true) for row, true in zip(rows, tones.true, strict=True)]
        return np.abs(ends).mean()

    assert off(found) < 0.7 * off(tones.durations.numpy())
    np.save(tmp_path / "durations.npy", np.concatenate(found))
    pitch = tones.pitch.clone()
    realign(tones, tmp_path / "durations.npy")
    assert tones.durations[3, :12].tolist() == found[3].tolist()
    torch.testing.assert_close(tones.pitch, pitch, rtol=1e-3, atol=1e-3)  # one pitch throughout


def test_the_loss_of_one_path_counts_in_the_second_half(tones, monkeypatch):
    network, _ = tiny_fastpitch()
    calls = []

    def not_a_number(hard, soft):
        calls.append(all(p.isfinite().all() for p in network.attention.parameters()))
        return soft.sum() * math.nan

    monkeypatch.setattr(align, "binarisation_loss", not_a_number)
    learn(network, tones, steps=4)
    assert calls == [True, False]  # after two steps without it; it reaches the weights
    assert not any(p.isfinite().all() for p in network.attention.parameters() if p.grad is not None)
