"""Runs FastPitch's or FastSpeech's kernels in Triton's interpreter and prints their largest error.

It is a part of the largest value of an output, within items. Arguments: the model, whether it masks, and its
channels.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
import triton.language as tl  # noqa: F401 (which a kernel must see)

from melforge.common.audio.contract import MelContract
from melforge.common.registry import load_attribute
from melforge.common.stages import Stage, plan_of
from melforge.common.weights.voices import ModelSource
from melforge.fastpitch.config import FastPitchConfig
from melforge.fastpitch.infer import expanding, regulating
from melforge.fastpitch.model import FastPitch
from melforge.fastspeech import infer as fastspeech_infer
from melforge.fastspeech.config import FastSpeechConfig
from melforge.fastspeech.model import FastSpeech
from melforge.trt_plugins import graphs
from melforge.trt_plugins.transformer import fastpitch, fastspeech, length_regulator

CHANNELS, TEXT, MEL = int(sys.argv[3]), 13, 21
LENGTHS, MEL_LENGTHS = torch.tensor([13, 9]), torch.tensor([21, 15])
SIDES = {
    **{"in_fft_n_layers": 2, "in_fft_n_heads": 2, "in_fft_d_head": 24, "in_fft_conv1d_filter_size": 80},
    **{"out_fft_n_layers": 2, "out_fft_d_head": 16, "out_fft_conv1d_filter_size": 96},
    **dict.fromkeys(("symbols_embedding_dim", "in_fft_output_size", "out_fft_output_size"), CHANNELS),
}
PREDICTORS = {
    **{"dur_predictor_filter_size": 40, "pitch_predictor_filter_size": 24},
    **{"energy_predictor_filter_size": 24, "pitch_embedding_kernel_size": 5},
}
SPEECH = {
    **{"phoneme_side_n_layer": 2, "phoneme_side_conv1d_filter_size": 80, "mel_side_n_layer": 1},
    **{"mel_side_head": 1, "mel_side_conv1d_filter_size": 64, "duration_predictor_filter_size": 24},
    **dict.fromkeys(("d_model", "phoneme_side_output_size", "mel_side_output_size"), CHANNELS),
}
MADE = {
    "fastpitch": (
        *(FastPitch, fastpitch),
        FastPitchConfig(n_mel_channels=20, n_speakers=2, **SIDES, **PREDICTORS),
    ),
    "fastspeech": (*(FastSpeech, fastspeech), FastSpeechConfig(n_mel_channels=20, max_seq_len=64, **SPEECH)),
}


def padded(tensor: torch.Tensor) -> torch.Tensor:
    """Texts and mels are filled up, as the engine does on a GPU."""
    sizes = {TEXT: 32, MEL: 64}
    larger = tensor.new_zeros([sizes.get(size, size) for size in tensor.shape])
    larger[tuple(slice(size) for size in tensor.shape)] = tensor
    return larger


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Of valid steps, along the axis that counts them."""
    found = found[tuple(slice(size) for size in wanted.shape)]
    axis, lengths = next(
        (axis, {TEXT: LENGTHS, MEL: MEL_LENGTHS}[size])
        for axis, size in enumerate(wanted.shape)
        if size in (TEXT, MEL)
    )
    errors = [
        float((a.narrow(axis - 1, 0, length) - b.narrow(axis - 1, 0, length)).abs().max())
        for a, b, length in zip(found, wanted, lengths.tolist(), strict=True)
    ]
    return max(errors) / max(0.05, float(wanted.abs().max()))


def run(stage: Stage, source: ModelSource, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    made = load_attribute(plan_of(source.model).kernels[stage.name])(stage, source, "cpu")
    return made.capturable()({name: padded(tensor) for name, tensor in inputs.items()})


model, masks = sys.argv[1], sys.argv[2] == "masked"
torch.manual_seed(0)
config = replace(MADE[model][2], mask_padding=masks)
network = MADE[model][0](config).eval().requires_grad_(False)
for parameter in network.parameters():
    if parameter.dim() == 1:
        parameter += 0.1 * torch.randn_like(parameter)
graphs.build_network = lambda stage, source, device: network
source = ModelSource(model, config, Path(model), MelContract(n_mel_channels=20))
symbols = torch.randint(1, 100, (2, TEXT))
symbols[0, 4] = symbols[1, 9:] = config.padding_idx
index = torch.randint(0, TEXT, (2, MEL)).sort(1).values.clamp(max=(LENGTHS - 1)[:, None])
index[1, 15:] = 0
known = {"symbols": symbols, "lengths": LENGTHS, "repeat_index": index, "mel_lengths": MEL_LENGTHS}
known["speaker"] = torch.tensor([[0.0, 1.0], [0.7, 0.3]])
errors = []
for stage in plan_of(model).stages(config):
    if stage.name not in plan_of(model).kernels:
        continue
    inputs = {tensor.name: known[tensor.name] for tensor in stage.inputs}
    outputs = getattr(network, stage.method)(**inputs)
    wanted = dict(zip((tensor.name for tensor in stage.outputs), outputs, strict=True))
    found = run(stage, source, inputs)
    errors += [error(found[name], value) for name, value in wanted.items()]
    known |= {"encoded": wanted.get("encoded"), "pitch": wanted.get("pitch", torch.zeros(1)) * 1.3 + 0.2}


def length_regulator_error() -> float:
    """Of what is computed between encoder and decoder: it is the same, or it is wrong."""
    lengths = torch.tensor([40, 7])
    duration = torch.rand(2, 64) * torch.tensor([[8.0], [0.05]])  # the second item would vanish
    duration[0, :4] = torch.tensor([200.0, 2.5, 3.5, 0.5])
    duration *= torch.arange(64) < lengths[:, None]
    encoded = {"encoded": torch.zeros(2, 64, 4), "duration": duration}
    given = {"symbols": lengths, "lengths": lengths, "settings": 0.5 + torch.rand(2, 1, 64)}
    plain = fastspeech_infer.regulating, fastspeech_infer.expanding
    if model == "fastpitch":
        encoded["pitch"] = torch.randn(2, 1, 64)
        given = {
            "symbols": lengths,
            "lengths": lengths,
            "settings": torch.tensor([[1.3, -0.5, 2.0], [0.7, 1.5, -1.0]])[:, :, None]
            * (0.5 + torch.rand(64)),
        }
        plain = regulating, expanding
    worst = 0.0
    found, wanted = (first(lambda _: encoded)(given) for first in (length_regulator.regulating, plain[0]))
    taken = {name: value for name, value in wanted.items() if name != "numbers"}
    taken["frames"] = torch.arange(256)
    for made, right in (
        (found, wanted),
        [last(dict)(taken) for last in (length_regulator.expanding, plain[1])],
    ):
        assert made.keys() >= right.keys()
        worst = max(worst, *(float((made[name].double() - right[name]).abs().max()) for name in right))
    return worst


print(max(*errors, length_regulator_error()))
