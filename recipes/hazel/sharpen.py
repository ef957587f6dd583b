"""Adds contrast between the bands of a trained FastPitch's or FastSpeech's mels, by its last layer, which is
linear: `python -m recipes.hazel.sharpen WEIGHTS --sharpness 0.1 -o sharper.safetensors`.

Tacotron 2 has a control for it, `--sharpness`: its last layers are those of the postnet.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.hazel.sharpen")

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from melforge.common.audio.sharpness import sharpen_layer
from melforge.common.cli.options import share
from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import rewrite_weights

LAST_LAYERS = {"fastpitch": "proj", "fastspeech": "mel_linear"}


def sharpened(state: Mapping[str, np.ndarray], layer: str, amount: float) -> dict[str, np.ndarray]:
    """Weights whose `layer` answers (T, n_mels) as `sharpen` makes it; the others as they are."""
    names = f"{layer}.weight", f"{layer}.bias"
    weight, bias = (state[name].astype(np.float32) for name in names)
    sharper = sharpen_layer(weight, bias, amount)
    new = {name: value.astype(state[name].dtype) for name, value in zip(names, sharper, strict=True)}
    return {**state, **new}


def main() -> None:
    parser = Parser(prog="python -m recipes.hazel.sharpen", description=__doc__)
    parser.add_argument("weights", type=Path, help="weights.safetensors of a training run")
    what = "how much of what sets a band apart from those around it is added, from 0 to 1"
    parser.add_argument("--sharpness", type=share, required=True, help=what)
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    model = read_checkpoint(args.weights).model
    if model not in LAST_LAYERS:
        raise InputError(
            f"{args.weights} is a {model}: the last layer of {' or '.join(LAST_LAYERS)} is meant"
        )
    rewrite_weights(
        args.weights, args.output, lambda state: sharpened(state, LAST_LAYERS[model], args.sharpness)
    )
