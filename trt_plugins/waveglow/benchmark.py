"""python -m trt_plugins.waveglow.benchmark: times the kernels and PyTorch's half precision on this GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from common import cli
from common.arrays import to_device
from common.audio import MelContract
from common.engines.torch_engine import build_network
from common.voices import ModelSource
from trt_plugins.timing import time_calls
from trt_plugins.waveglow.engine import Generator
from waveglow.config import WaveglowConfig
from waveglow.examples import example_inputs
from waveglow.model import Waveglow
from waveglow.stages import stages

RUNS = 20
SAMPLING_RATE = MelContract().sampling_rate
HEADINGS = ("batch", "what", "first s", "median ms", "p95 ms", "x real time", "TFLOP/s", "error")


def random_source(config: WaveglowConfig) -> ModelSource:
    """A network of the published sizes with seeded weights: speed doesn't depend on what they say."""
    torch.manual_seed(0)
    network = Waveglow(config, weight_norm=False)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith(("end.weight", "end.bias")):  # zeros would leave a flow's net out
                weight.normal_(0, 0.01)
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    return ModelSource("waveglow", config, Path("waveglow"), MelContract(), given_state=state)


def operations(config: WaveglowConfig, frames: int) -> float:
    """Floating-point operations of the published network for an item: its layers as they are, unfolded."""
    channels, steps = config.wn_channels, config.noise_length(frames)
    layer = 2 * channels * (config.wn_kernel_size * channels + config.wn_cond_channels)
    res_skip = (2 * config.wn_layers - 1) * channels * channels
    flows = 0
    for flow in range(config.n_flows):
        size = config.flow_channels(flow)
        flows += config.wn_layers * layer + res_skip + size // 2 * channels + channels * size + size * size
    upsampling = config.n_mel_channels**2 // config.upsample_groups * config.upsample_kernel_size * frames
    return 2.0 * (flows * steps + upsampling)


def measure(source: ModelSource, batch: int, frames: int, runs: int) -> list[tuple[str, ...]]:
    """The rows of one batch: the kernels and the network in half precision, against float32."""
    stage = stages(source.config)[0]
    inputs = example_inputs(stage, source.config, {"batch": batch, "mel": frames}, np.random.default_rng(0))
    mel, z = (to_device(inputs[name], "cuda") for name in ("mel", "z"))
    kernels = Generator(stage, source)
    network = build_network(stage, source).cuda()
    rows = []
    with torch.inference_mode():
        wanted = network.generate(mel, z)[0]
        network.half()
        half = mel.half(), z.half()
        ways = {
            "kernels": lambda: kernels(mel=mel, z=z)["audio"],
            "PyTorch, float16": lambda: network.generate(*half)[0],
        }
        for name, call in ways.items():
            first, median, p95 = time_calls(call, runs)
            error = float((call().float() - wanted).abs().max() / wanted.abs().max())
            seconds = batch * frames * source.config.hop_length / SAMPLING_RATE
            rate = batch * operations(source.config, frames) / median / 1e9
            times = (f"{first:.2f}", f"{median:.2f}", f"{p95:.2f}", f"{seconds / median * 1000:.0f}")
            rows.append((str(batch), name, *times, f"{rate:.0f}", f"{error:.1e}"))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="trt_plugins.waveglow.benchmark", description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 8], help="items (default: 1 4 8)")
    parser.add_argument("--frames", type=int, default=640, help="mel frames of an item (default: 640)")
    parser.add_argument("--channels", type=int, default=256, help="WN channels (default: 256)")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"timed calls (default: {RUNS})")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise ValueError("PyTorch sees no GPU here")
    for setting in (torch.backends.cudnn, torch.backends.cuda.matmul):
        setting.allow_tf32 = False
    config = WaveglowConfig(wn_channels=args.channels)
    source = random_source(config)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {args.frames} frames,", end=" ")
    print(f"{operations(config, args.frames) / 1e12:.2f} TFLOP an item; errors are of the largest value")
    rows = [row for batch in args.batch for row in measure(source, batch, args.frames, args.runs)]
    cli.print_table(HEADINGS, rows)
    return 0


if __name__ == "__main__":
    cli.run(main)
