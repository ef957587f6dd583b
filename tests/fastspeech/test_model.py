"""The FastSpeech network against recorded answers of the published one, and what is promised beyond them."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from melforge.common.arrays import round_half_even
from melforge.fastspeech.config import FastSpeechConfig
from melforge.fastspeech.model import FastSpeech
from melforge.fastspeech.operations import DECOMPOSED, Operations
from tests import networks
from tests.networks import load_network

GOLDEN = Path(__file__).parent.parent / "golden" / "fastspeech"
TINY = FastSpeechConfig(
    max_seq_len=64,
    d_model=16,
    phoneme_side_n_layer=2,
    phoneme_side_head=1,
    phoneme_side_conv1d_filter_size=24,
    phoneme_side_output_size=16,
    mel_side_n_layer=2,
    mel_side_head=2,
    mel_side_conv1d_filter_size=24,
    mel_side_output_size=16,
    duration_predictor_filter_size=12,
    n_mel_channels=10,
    n_symbols=20,
    mask_padding=True,
)


def build(operations: Operations = DECOMPOSED, **changes) -> FastSpeech:
    torch.manual_seed(5)
    network = FastSpeech(replace(TINY, **changes), operations).eval().requires_grad_(False)
    network.length_regulator.duration_predictor.linear_layer.bias += 1.2  # a few frames a symbol
    return network


def batch_of_text(*lengths) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    return networks.batch_of_text(TINY.n_symbols, *lengths)


class Spoken(NamedTuple):
    mel: torch.Tensor  # (B, n_mels, T)
    mel_lengths: torch.Tensor
    duration: torch.Tensor


def speak(network: FastSpeech, symbols, lengths, alpha: float = 1.0, longest: int | None = None) -> Spoken:
    """As the published program: cut to the longest item, to `longest` and to max_seq_len frames."""
    given = symbols, lengths, torch.tensor([alpha])
    with torch.no_grad():
        total = network.synthesise(*given, torch.arange(1))[2]
        frames = min(int(total.max()), network.config.max_seq_len, longest or network.config.max_seq_len)
        mel, mel_lengths, _, duration = network.synthesise(*given, torch.arange(frames))
    return Spoken(mel, mel_lengths, duration)


@pytest.fixture(scope="module")
def answers():
    return np.load(GOLDEN / "io.npz")


@pytest.fixture(scope="module")
def published():
    return load_network("fastspeech", GOLDEN / "checkpoint_320000.pt")[0]


def texts(answers) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(answers["ids"]), torch.from_numpy((answers["pos"] > 0).sum(1))


def assert_close(name: str, actual: torch.Tensor, golden: np.ndarray) -> None:
    assert tuple(actual.shape) == golden.shape, name
    np.testing.assert_allclose(actual.numpy(), golden, atol=2e-5, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("case", "alpha", "longest"), [("A", 1.0, None), ("B", 1.3, None), ("C", 0.75, None), ("D", 1.0, 150)]
)
def test_published_answers(published, answers, case, alpha, longest):
    found = speak(published, *texts(answers), alpha, longest)
    assert_close("mel", found.mel.transpose(1, 2), answers[f"{case}_mel"])
    inside = torch.arange(found.mel.size(2)) < found.mel_lengths[:, None]
    assert np.array_equal(inside.numpy(), answers[f"{case}_mask"][:, :, 0])
    if f"{case}_duration" in answers:
        assert_close("duration", found.duration, answers[f"{case}_duration"])


def test_published_activations(published, answers):
    ids, lengths = texts(answers)
    network, seen = published, {}

    def keep(name: str, module: torch.nn.Module) -> torch.utils.hooks.RemovableHandle:
        return module.register_forward_hook(lambda _, inputs, output: seen.update({name: (inputs, output)}))

    first = network.phoneme_side.layer_stack[0]
    handles = [
        keep("emb", network.word_emb),
        keep("phoneme_side", network.phoneme_side),
        keep("ln", first.slf_attn.layer_norm),
        keep("fc", first.slf_attn.fc),
        keep("layer", first),
        keep("mel_side", network.mel_side),
    ]
    found = speak(network, ids, lengths)
    for handle in handles:
        handle.remove()
    mask = (torch.arange(ids.size(1)) < lengths[:, None])[:, :, None]
    counts = round_half_even(found.duration)
    repeated = DECOMPOSED.repeat(seen["phoneme_side"][1], counts, torch.arange(found.mel.size(2)))
    layer = "phoneme_side.layer_stack.0"
    for name, value in {
        "emb": seen["emb"][1],
        "phoneme_side.add_pos_enc": seen["phoneme_side"][0][0],
        f"{layer}.slf_attn.scaled_dot": seen["fc"][0][0],
        # The reference masks this tensor in place after it has been recorded.
        f"{layer}.slf_attn.ln": seen["ln"][1] * mask,
        layer: seen["layer"][1],
        "phoneme_side.seq": seen["phoneme_side"][1],
        "length_regulator.dur": counts.float(),
        "length_regulator.seq": repeated,
        "mel_side.seq": seen["mel_side"][1],
    }.items():
        golden = answers[f"A_act.{name}"]
        golden = golden * mask.numpy() if name.endswith(".ln") else golden
        assert_close(name, value, golden)


def test_both_forms_are_equal_and_crop_with_the_true_length_told():
    network = build()
    symbols, lengths = batch_of_text()
    whole = speak(network, symbols, lengths, alpha=1.5)
    for frames in (70, int(whole.mel_lengths.max()), 11):
        mel, mel_lengths, total, duration = network.synthesise(
            symbols, lengths, torch.tensor([1.5]), torch.arange(frames)
        )
        assert mel.shape == (3, TINY.n_mel_channels, frames)
        assert torch.equal(total, whole.mel_lengths) and torch.equal(mel_lengths, total.clamp(max=frames))
        torch.testing.assert_close(duration, whole.duration)
        if frames >= total.max():
            for row, length in enumerate(total.tolist()):
                torch.testing.assert_close(mel[row, :, :length], whole.mel[row, :, :length])


def test_masks_keep_padding_out_and_the_published_network_lets_it_in():
    symbols, lengths = batch_of_text()
    for mask_padding in (True, False):
        network = build(mask_padding=mask_padding)
        together = speak(network, symbols, lengths)
        off = 0.0
        for row, length in enumerate(lengths.tolist()):
            alone = speak(network, symbols[row : row + 1, :length], lengths[row : row + 1])
            frames = int(alone.mel_lengths[0])
            if mask_padding:
                assert int(together.mel_lengths[row]) == frames
            frames = min(frames, int(together.mel_lengths[row]))
            off = max(off, float((together.mel[row, :, :frames] - alone.mel[0, :, :frames]).abs().max()))
        assert off < 1e-5 if mask_padding else off > 1e-3


def test_operations_of_ones_own_take_the_place_of_the_decompositions():
    called = []

    def spying(name: str):
        def call(*inputs):
            called.append(name)
            return getattr(DECOMPOSED, name)(*inputs)

        return call

    network = build(Operations(spying("repeat"), spying("add_pos_enc")))
    found = speak(network, *batch_of_text())
    assert called == ["add_pos_enc", "repeat", "add_pos_enc"] * 2
    torch.testing.assert_close(found.mel, speak(build(), *batch_of_text()).mel)


def test_longer_than_the_table_is_cut_and_half_a_frame_goes_to_even():
    network = build()
    assert speak(network, *batch_of_text((40,)), alpha=9.0).mel_lengths.tolist() == [TINY.max_seq_len]
    assert round_half_even(torch.tensor([0.5, 1.5, 2.5])).tolist() == [0, 2, 2]


def test_training_learns_durations_and_mels():
    torch.manual_seed(0)
    network = FastSpeech(TINY).train()
    symbols, lengths = batch_of_text((9, 6, 4))
    durations = torch.randint(1, 5, symbols.shape) * (symbols > 0)
    out = network(symbols, lengths, durations, torch.arange(40))
    assert out.mel.shape == (3, TINY.n_mel_channels, 40)
    assert torch.equal(out.mel_mask.sum(1), durations.sum(1).clamp(max=40))
    (out.mel.square().mean() + out.log_duration.square().mean()).backward()
    missing = [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []
    assert network.position.weight.grad is None  # the sinusoids stay as they are


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mel_side_output_size": 8}, "mel_side_output_size 8 must be d_model, 16"),
        ({"fft_conv1d_padding": 0}, "fft_conv1d_padding 0 must be half of fft_conv1d_kernel 3"),
        ({"duration_predictor_kernel_size": 4}, "duration_predictor_kernel_size .*odd"),
        ({"max_seq_len": 0}, "max_seq_len must be at least 1"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)
