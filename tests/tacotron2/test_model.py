"""The Tacotron 2 network against recorded answers of the published one, and what is promised beyond them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.tacotron2.config import Tacotron2Config
from melforge.tacotron2.model import Tacotron2
from tests import networks
from tests.networks import assert_close, load_network

GOLDEN = Path(__file__).parent.parent / "golden" / "tacotron2"
TINY = Tacotron2Config(
    n_mel_channels=10,
    n_symbols=20,
    symbols_embedding_dim=16,
    encoder_kernel_size=3,
    encoder_n_convolutions=2,
    encoder_embedding_dim=16,
    attention_rnn_dim=14,
    attention_dim=8,
    attention_location_n_filters=4,
    attention_location_kernel_size=7,
    decoder_rnn_dim=12,
    prenet_dim=6,
    max_decoder_steps=9,
    postnet_embedding_dim=8,
    postnet_kernel_size=3,
    postnet_n_convolutions=3,
)


def build(**changes) -> Tacotron2:
    torch.manual_seed(5)
    return Tacotron2(replace(TINY, **changes)).eval().requires_grad_(False)


def batch_of_text(*lengths) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    return networks.batch_of_text(TINY.n_symbols, *lengths)


@pytest.fixture(scope="module")
def golden() -> tuple[Tacotron2, dict[str, np.ndarray]]:
    network, _ = load_network("tacotron2", GOLDEN / "checkpoint_ddp.pt")
    with np.load(GOLDEN / "io.npz") as file:
        return network, dict(file)


def options_of(case: str, io: dict[str, np.ndarray]) -> dict:
    keep = torch.from_numpy(io["prenet_keep_masks"])
    threshold = float(io["C_gate_threshold"])
    return {
        "A": {"prenet_noise": keep, "gate_threshold": 1.0},
        "B": {"prenet_noise": None, "gate_threshold": 1.0},
        "C": {"prenet_noise": keep, "gate_threshold": threshold},
        "D": {"prenet_noise": keep[:, :, 1:2], "gate_threshold": threshold},
    }[case]


@pytest.mark.parametrize("case", "ABCD")
def test_infer_equals_published(golden, case):
    network, io = golden
    symbols, lengths = torch.from_numpy(io["ids"]), torch.from_numpy(io["lengths"])
    if case == "D":  # item 1 alone, with the padding that its row of the batch has
        symbols, lengths = symbols[1:2], lengths[1:2]
    out = network.infer(symbols, lengths, **options_of(case, io))
    assert_close("mel", out.mel, io[f"{case}_mel"])
    assert_close("mel_lengths", out.mel_lengths, io[f"{case}_mel_lengths"])
    assert_close("align", out.alignment, io[f"{case}_align"])
    assert out.stopped.all() == (case in "CD")
    if case == "A":
        assert_close("gate", out.gate.sigmoid(), io["A_gate_sigmoid"].T)
        assert_close("mel_before_postnet", out.mel_before_postnet, io["A_mel_before_postnet"])


def test_encoder_equals_published(golden):
    network, io = golden
    seen = []
    handle = network.encoder.convolutions[0].register_forward_hook(lambda *call: seen.append(call[2]))
    memory, processed = network.encode(torch.from_numpy(io["ids"]), torch.from_numpy(io["lengths"]))
    handle.remove()
    assert_close("enc_conv0_bn", seen[0], io["A_enc_conv0_bn"])
    assert_close("encoder_out", memory, io["A_encoder_out"])
    torch.testing.assert_close(processed, network.decoder.attention_layer.memory_layer(memory))


def test_teacher_forced_forward_equals_published(golden):
    network, io = golden
    names = ("ids", "lengths", "E_target_mel", "E_output_lengths", "E_prenet_keep_masks")
    out = network(*(torch.from_numpy(io[name]) for name in names))
    assert_close("mel", out.mel_before_postnet, io["E_mel"])
    assert_close("mel_postnet", out.mel, io["E_mel_postnet"])
    assert_close("gate", out.gate, io["E_gate"])
    assert_close("align", out.alignment, io["E_align"])


def test_padded_outputs_are_overwritten_where_the_config_says_so():
    symbols, lengths = batch_of_text((9, 6))
    mel, mel_lengths = torch.randn(2, TINY.n_mel_channels, 7), torch.tensor([7, 4])
    plain = build()(symbols, lengths, mel, mel_lengths)
    masked = build(mask_padding=True)(symbols, lengths, mel, mel_lengths)
    for name, padding in (("mel_before_postnet", 0.0), ("mel", 0.0), ("gate", 1e3)):
        before, after = getattr(plain, name), getattr(masked, name)
        assert (after[1, ..., 4:] == padding).all() and (before[1, ..., 4:] != padding).all(), name
        assert torch.equal(after[0], before[0]) and torch.equal(after[1, ..., :4], before[1, ..., :4]), name


def test_teacher_forcing_with_its_own_frames_equals_infer():
    network = build()
    symbols, lengths = batch_of_text()
    noise = torch.rand(9, 2, 3, TINY.prenet_dim)
    spoken = network.infer(symbols, lengths, prenet_noise=noise, gate_threshold=1.0)
    forced = network(symbols, lengths, spoken.mel_before_postnet, spoken.mel_lengths, noise.transpose(0, 1))
    torch.testing.assert_close(forced.mel, spoken.mel)
    torch.testing.assert_close(forced.alignment, spoken.alignment)


def test_encoder_equals_packed_sequences():
    network = build()
    symbols, lengths = batch_of_text()
    x = network.embedding(symbols).transpose(1, 2)
    hidden = x
    for convolution in network.encoder.convolutions:
        hidden = torch.relu(convolution(hidden))
    packed = torch.nn.utils.rnn.pack_padded_sequence(hidden.transpose(1, 2), lengths, batch_first=True)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(network.encoder.lstm(packed)[0], batch_first=True)
    torch.testing.assert_close(network.encoder(x, lengths), expected)


def test_stop_frame_is_not_counted_and_the_limit_is_told():
    network = build()
    symbols, lengths = batch_of_text((9, 6))
    gates = network.infer(symbols, lengths, gate_threshold=1.0).gate.sigmoid()
    never = network.infer(symbols, lengths, gate_threshold=1.0, max_steps=4)
    assert never.mel_lengths.tolist() == [4, 4] and not never.stopped.any() and never.mel.shape[2] == 4
    at_once = network.infer(symbols, lengths, gate_threshold=0.0)
    assert at_once.mel_lengths.tolist() == [0, 0] and at_once.stopped.all() and at_once.mel.shape[2] == 1
    # The gate has to exceed the threshold: at its own value it doesn't fire.
    level = float(gates[0, 0])
    assert network.infer(
        symbols[:1], lengths[:1], gate_threshold=level, max_steps=1
    ).mel_lengths.tolist() == [1]
    onward = build(decoder_no_early_stopping=True).infer(symbols, lengths, gate_threshold=0.0)
    assert onward.mel_lengths.tolist() == [0, 0] and onward.mel.shape[2] == TINY.max_decoder_steps


def test_noise_from_a_half_on_keeps():
    network = build()
    x = torch.rand(3, TINY.n_mel_channels)
    all_kept = network.decoder.prenet(x, torch.full((2, 3, TINY.prenet_dim), 0.5))
    torch.testing.assert_close(all_kept, 4 * network.decoder.prenet(x, None))
    assert (network.decoder.prenet(x, torch.full((2, 3, TINY.prenet_dim), 0.49)) == 0).all()


def test_several_frames_a_step():
    network = build(n_frames_per_step=2)
    symbols, lengths = batch_of_text()
    out = network.infer(symbols, lengths, gate_threshold=1.0, max_steps=3)
    assert out.mel.shape == (3, TINY.n_mel_channels, 6) and out.mel_lengths.tolist() == [6, 6, 6]
    assert out.gate.shape == (3, 3)
    forced = network(symbols, lengths, out.mel_before_postnet, out.mel_lengths)
    torch.testing.assert_close(forced.mel, out.mel)


def test_training_reaches_every_parameter():
    network = build().train().requires_grad_(True)
    symbols, lengths = batch_of_text()
    noise = torch.rand(2, 7, 3, TINY.prenet_dim)
    out = network(symbols, lengths, torch.randn(3, TINY.n_mel_channels, 7), torch.tensor([7, 6, 4]), noise)
    (out.mel.square().mean() + out.mel_before_postnet.square().mean() + out.gate.square().mean()).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())


def test_the_decoders_steps_at_once_learn_what_single_steps_do():
    """Dropout that hardly ever drops takes single steps, none at all a whole sequence."""
    made = []
    for dropout in (0.0, 1e-9):
        nothing = {"p_attention_dropout": 0.0, "p_convolution_dropout": 0.0, "p_decoder_dropout": dropout}
        network = build(n_frames_per_step=2, **nothing).train().requires_grad_(True)
        symbols, lengths = batch_of_text()
        torch.manual_seed(3)
        noise, mel = torch.rand(2, 4, 3, TINY.prenet_dim), torch.randn(3, TINY.n_mel_channels, 8)
        out = network(symbols, lengths, mel, torch.tensor([8, 6, 4]), noise)
        (out.mel.square().mean() + out.gate.square().mean() + out.alignment.square().mean()).backward()
        gradients = [p.grad for p in network.parameters()]
        made.append([out.mel, out.gate, out.alignment, *gradients])
    for one, other in zip(*made, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": torch.tensor([9, 6, 0])}, r"lengths \[9, 6, 0\] must lie between 1 and 9"),
        ({"lengths": torch.tensor([10, 6, 1])}, "between 1 and 9, the padded length"),
        ({"lengths": torch.tensor([9, 6])}, r"lengths \(2,\) do not belong to 3 texts"),
        ({"symbols": torch.zeros(3, 0, dtype=torch.int64), "lengths": None}, "must lie between 1 and 0"),
        ({"prenet_noise": torch.rand(9, 2, 1, 6)}, r"\(9, 2, 1, 6\) must be \(9, 2, 3, 6\)"),
        ({"prenet_noise": torch.rand(8, 2, 3, 6)}, "must be"),
        ({"max_steps": 0}, "max_steps is 0"),
    ],
)
def test_inputs_that_do_not_belong_together_are_refused(change, message):
    symbols, lengths = batch_of_text()
    with pytest.raises(ValueError, match=message):
        build().infer(**{"symbols": symbols, "lengths": lengths, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder_embedding_dim": 18}, "must be equal"),
        ({"encoder_embedding_dim": 15, "symbols_embedding_dim": 15}, "must be even"),
        ({"postnet_kernel_size": 4}, "postnet_kernel_size 4 must be odd"),
        ({"postnet_n_convolutions": 1}, "must be at least 2"),
    ],
)
def test_impossible_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **change)
