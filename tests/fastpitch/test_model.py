"""The FastPitch network against recorded answers of the published one, and what is promised beyond them."""

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from melforge.common.arrays import round_half_up
from melforge.fastpitch.aligner import monotonic_alignment
from melforge.fastpitch.model import FastPitch, average_over_symbols, make_repeat_index
from tests import networks
from tests.conftest import tiny_fastpitch
from tests.networks import assert_close, load_network

GOLDEN = Path(__file__).parent.parent / "golden" / "fastpitch"
TINY = replace(tiny_fastpitch()[1], n_mel_channels=10, n_symbols=20)


def build(**changes) -> FastPitch:
    torch.manual_seed(5)
    network = FastPitch(replace(TINY, **changes)).eval().requires_grad_(False)
    network.duration_predictor.fc.bias += 1.0  # a few frames a symbol
    return network


batch_of_text = partial(networks.batch_of_text, TINY.n_symbols)


def batch_for_training(n_frames: int = 40) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    symbols, lengths = batch_of_text((9, 6, 4))
    mel_lengths = torch.tensor([n_frames, n_frames - 5, n_frames - 11])
    shown = (torch.arange(n_frames) < mel_lengths[:, None])[:, None]
    return {
        "symbols": symbols,
        "lengths": lengths,
        "mel": torch.randn(3, TINY.n_mel_channels, n_frames) * shown,
        "mel_lengths": mel_lengths,
        "pitch": torch.randn(3, 1, n_frames) * shown * (torch.rand(3, 1, n_frames) > 0.3),
        "energy": torch.rand(3, n_frames),
    }


@pytest.fixture(scope="module", params=["", "_noenergy"], ids=["energy", "noenergy"])
def golden(request) -> tuple[FastPitch, dict[str, np.ndarray]]:
    network, _ = load_network("fastpitch", GOLDEN / f"checkpoint{request.param}.pt")
    with np.load(GOLDEN / f"io{request.param}.npz") as file:
        return network, dict(file)


CASES = {
    **{"A": {}, "E": {"durations": "dur_tgt", "pitch": "pitch_tgt"}, "H": {}, "I": {"durations": "dur_half"}},
    "L": {"durations": "dur_tgt", "pitch": "pitch_tgt", "energy": "energy_tgt"},
}


@pytest.mark.parametrize("case", CASES)
def test_infer_equals_published(golden, case):
    network, io = golden
    options = {name: torch.from_numpy(io[value]) for name, value in CASES[case].items()}
    symbols, lengths = torch.from_numpy(io["ids"]), torch.from_numpy(io["lengths"])
    if case == "H":  # item 1 alone
        symbols, lengths = symbols[1:2, : lengths[1]], lengths[1:2]
    out = network.infer(symbols, lengths, **options)
    tensors = {
        "mel": out.mel,
        "dec_lens": out.mel_lengths,
        "dur_pred": out.duration,
        "pitch_pred": out.pitch,
        "energy_pred": out.energy,
    }
    recorded = [name for name in tensors if f"{case}_{name}" in io]
    assert len(recorded) >= 4
    for name in recorded:
        assert_close(f"{case}_{name}", tensors[name], io[f"{case}_{name}"])


def test_activations_equal_published(golden):
    network, io = golden
    seen = {}

    def record(name, module):
        module.register_forward_hook(lambda _, inputs, output: seen.update({name: (inputs, output)}))

    record("layer", network.encoder.layers[0])
    record("encoder", network.encoder)
    record("duration", network.duration_predictor)
    record("decoder", network.decoder)
    network.infer(torch.from_numpy(io["ids"]), torch.from_numpy(io["lengths"]))
    assert_close("enc_layer0", seen["layer"][1], io["A_act_enc_layer0"])
    assert_close("enc_out", seen["encoder"][1], io["A_act_enc_out"])
    assert_close("log_dur", seen["duration"][1][:, :, None], io["A_act_log_dur"])
    assert_close("len_regulated", seen["decoder"][0][0], io["A_act_len_regulated"])
    assert_close("dec_out", seen["decoder"][1], io["A_act_dec_out"])


def test_training_forward_equals_published(golden):
    network, io = golden
    names = ("mel", "mel_lens", "pitch", "energy", "attn_prior")
    mel, mel_lengths, pitch, energy, prior = (torch.from_numpy(io[f"T_in_{name}"]) for name in names)
    symbols, lengths = torch.from_numpy(io["ids"]), torch.from_numpy(io["lengths"])
    with torch.no_grad():
        out = network(symbols, lengths, mel, mel_lengths, pitch, energy, attn_prior=prior)
    tensors = {
        "mel_out": out.mel.transpose(1, 2),
        "dec_mask": out.mel_mask[:, :, None],
        "dur_pred": torch.clamp(out.log_duration.exp() - 1, 0, 75),
        "log_dur_pred": out.log_duration,
        "pitch_pred": out.pitch,
        "pitch_tgt": out.pitch_target,
        "energy_pred": out.energy,
        "energy_tgt": out.energy_target,
        "attn_soft": out.attn_soft,
        "attn_hard": out.attn_hard,
        "attn_hard_dur": out.duration_target.float(),
        "attn_logprob": out.attn_logprob,
    }
    recorded = {key.removeprefix("T_") for key in io if key.startswith("T_") and not key.startswith("T_in_")}
    assert recorded <= set(tensors)
    for name in recorded:
        assert_close(f"T_{name}", tensors[name], io[f"T_{name}"])
    assert torch.equal(out.attn_hard[:, 0].sum(1), torch.from_numpy(io["T_attn_hard_dur"]))


@pytest.mark.parametrize("energy_conditioning", [True, False])
def test_padded_item_equals_item_alone(energy_conditioning):
    network = build(energy_conditioning=energy_conditioning)
    symbols, lengths = batch_of_text()
    encoded, duration, pitch = network.encode(symbols, lengths)
    repeats = round_half_up(duration)
    mel_lengths = repeats.sum(1)
    # Nothing that stands in the padding may matter, not even given values.
    pitch = pitch + (torch.arange(9) >= lengths[:, None])[:, None] * 3.0
    index = make_repeat_index(repeats, int(mel_lengths.max()) + 3)
    mel, *energy = network.decode(encoded, lengths, pitch, index, mel_lengths)
    assert len(energy) == energy_conditioning
    for i, (n, t) in enumerate(zip(lengths.tolist(), mel_lengths.tolist(), strict=True)):
        one = slice(i, i + 1)
        alone = network.encode(symbols[one, :n], lengths[one])
        for padded, single in zip(
            (encoded[one, :n], duration[one, :n], pitch[one, :, :n]), alone, strict=True
        ):
            torch.testing.assert_close(padded, single, rtol=0, atol=1e-5)
        mel_alone, *energy_alone = network.decode(
            alone[0], lengths[one], alone[2], index[one, :t], mel_lengths[one]
        )
        torch.testing.assert_close(mel[one, :, :t], mel_alone, rtol=0, atol=1e-5)
        for padded, single in zip(energy, energy_alone, strict=True):
            torch.testing.assert_close(padded[one, :n], single, rtol=0, atol=1e-5)


def test_published_padding_leaks():
    symbols, lengths = batch_of_text((9, 6))
    network = build(mask_padding=False)
    padded = network.encode(symbols, lengths)[0][1:, :6]
    assert (padded - network.encode(symbols[1:, :6], lengths[1:])[0]).abs().max() > 1e-3


def test_decode_takes_given_energy():
    network = build()
    symbols, lengths = batch_of_text((5, 3))
    predicted = network.infer(symbols, lengths)
    given = network.infer(symbols, lengths, energy=predicted.energy[:, None])
    torch.testing.assert_close(given.mel, predicted.mel)
    other = network.infer(symbols, lengths, energy=predicted.energy + 1)
    assert torch.equal(other.energy, predicted.energy + 1)
    assert not torch.allclose(other.mel, predicted.mel, atol=1e-3)


def test_padding_symbol_inside_a_text_is_masked_in_both_stages():
    network = build(mask_padding=False)
    symbols, lengths = torch.tensor([[3, 4, 0, 5, 6]]), torch.tensor([5])
    out = network.infer(symbols, lengths)
    assert out.duration[0, 2] == 0 and out.pitch[0, 0, 2] == 0 and out.energy[0, 2] == 0
    assert out.duration[0, 3] > 0
    torch.testing.assert_close(network.infer(symbols).mel, out.mel)


def test_text_of_no_frames_gives_finite_values():
    network = build()
    symbols, lengths = batch_of_text((4, 2))
    out = network.infer(symbols, lengths, durations=torch.tensor([[1, 0, 2, 1], [0, 0, 0, 0]]))
    assert out.mel_lengths.tolist() == [4, 0]
    assert torch.isfinite(out.mel).all()


def test_speakers_differ_and_default_to_the_first():
    network = build(n_speakers=3, speaker_emb_weight=0.5)
    symbols, lengths = batch_of_text((5, 5))
    encoded = network.encode(symbols, lengths, torch.tensor([0, 2]))[0]
    first = network.encode(symbols, lengths)[0]
    torch.testing.assert_close(encoded[0], first[0])
    assert (encoded[1] - first[1]).abs().max() > 1e-2
    torch.testing.assert_close(
        network.infer(symbols, lengths, 2).duration[1],
        network.encode(symbols, lengths, torch.tensor([2, 2]))[1][1],
    )


def test_average_leaves_unvoiced_frames_out():
    pitch = torch.tensor([[[1.0, 3.0, 0.0, 0.0, 4.0, 7.0]]])
    average = average_over_symbols(pitch, torch.tensor([[3, 1, 0, 1]]))
    assert average.tolist() == [[[2.0, 0.0, 0.0, 4.0]]]


def test_alignment_is_the_best_monotonic_path():
    torch.manual_seed(1)
    lengths, mel_lengths = torch.tensor([3, 1, 4, 2]), torch.tensor([6, 4, 5, 7])
    log_attn = torch.randn(4, 7, 4).log_softmax(2)
    hard = monotonic_alignment(log_attn, lengths, mel_lengths)
    for i, (n, t) in enumerate(zip(lengths.tolist(), mel_lengths.tolist(), strict=True)):
        paths = [
            (0, *itertools.accumulate(steps))
            for steps in itertools.product((0, 1), repeat=t - 1)
            if sum(steps) == n - 1
        ]
        best = max(float(log_attn[i, range(t), path].sum()) for path in paths)
        assert hard[i].sum() == t and hard[i, t:].sum() == 0 and hard[i, :, n:].sum() == 0
        path = hard[i, :t].argmax(1)
        assert path[0] == 0 and path[-1] == n - 1 and set(path.diff().tolist()) <= {0, 1}
        assert float((log_attn[i] * hard[i]).sum()) == pytest.approx(best, abs=1e-5)


def test_given_durations_train_like_learned_ones():
    network, batch = build(), batch_for_training()
    learned = network(**batch)
    given = network(**batch, durations=learned.duration_target)
    assert given.attn_soft is None
    for name in ("mel", "mel_mask", "log_duration", "pitch", "energy", "pitch_target", "energy_target"):
        torch.testing.assert_close(getattr(given, name), getattr(learned, name))


def test_a_symbol_without_frames_has_the_energy_that_is_predicted():
    """Zero would be learnt as its energy, and be very loud where the symbol is given frames in inference."""
    network, batch = build(), batch_for_training()
    durations = torch.tensor([[4, 4, 0, 8, 4, 4, 4, 4, 8], [5] * 6 + [0] * 3, [7] * 4 + [0] * 5])
    out = network(**batch, durations=durations)
    assert out.energy[0, 2].abs() > 1e-4 and torch.equal(out.energy_target[0, 2], out.energy[0, 2])
    assert not torch.isclose(out.energy_target[0, 3], out.energy[0, 3], atol=1e-4)
    spoken = network.infer(
        batch["symbols"],
        batch["lengths"],
        durations=durations,
        pitch=out.pitch_target,
        energy=out.energy_target,
    )
    torch.testing.assert_close(spoken.mel, out.mel)


def test_training_reaches_every_parameter():
    network, batch = build().train().requires_grad_(True), batch_for_training()
    out = network(**batch)
    loss = sum(
        x.square().mean() for x in (out.mel, out.log_duration, out.pitch, out.energy, out.attn_logprob)
    )
    loss.backward()
    without = {name for name, p in network.named_parameters() if p.grad is None}
    assert without == {"attention.attn_proj.weight", "attention.attn_proj.bias"}
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


def test_given_durations_never_wait_for_the_host():
    """On fake tensors every look at a value raises, so a step that passes can be captured in a CUDA graph."""
    with FakeTensorMode():
        network = FastPitch(TINY)
        batch = {key: torch.empty_like(value) for key, value in batch_for_training().items()}
        out = network(**batch, durations=torch.empty(3, 9, dtype=torch.int64))
        (out.mel.mean() + out.log_duration.mean() + out.pitch.mean() + out.energy.mean()).backward()
    assert out.mel.shape == (3, TINY.n_mel_channels, 40)


def test_bfloat16_autocast_stays_near_float32():
    network, batch = build(), batch_for_training()
    durations = torch.tensor([[4] * 9, [5] * 6 + [0] * 3, [7] * 4 + [0] * 5])
    exact = network(**batch, durations=durations)
    with torch.autocast("cpu", torch.bfloat16):
        rough = network(**batch, durations=durations)
    assert (rough.mel.float() - exact.mel).abs().max() < 0.1 * exact.mel.abs().max()
