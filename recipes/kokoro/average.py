"""The mean of two runs' weights, the second begun with the first's:
`python -m recipes.kokoro.average VOICE RUN/weights.safetensors -o mean.safetensors`.

Where the second run was short, the mean scores better than either (Wortsman et al., 2022). Speakers, pitch
units and sizes are the second's.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.average")

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.files import require_writable_file
from melforge.common.training.fine_tune import find_start
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import rewrite_weights


def averaged(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights of the same names and shapes, of the second's types; InputError where they are not the same."""
    if other := [name for name in second if name not in first or first[name].shape != second[name].shape]:
        raise InputError(f"the two files are of other networks: {min(other)} differs")
    half = {name: (first[name].astype(np.float32) + second[name]) / 2 for name in second}
    return {name: value.astype(second[name].dtype) for name, value in half.items()}


def main() -> None:
    parser = Parser(prog="python -m recipes.kokoro.average", description=__doc__)
    parser.add_argument("first", help="voice or weights.safetensors that the second run began with")
    parser.add_argument("second", type=Path, help="weights.safetensors of that run")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    require_writable_file(args.output)
    first = find_start(args.first, read_checkpoint(args.second).model).state
    rewrite_weights(args.second, args.output, lambda state: averaged(first, state))
