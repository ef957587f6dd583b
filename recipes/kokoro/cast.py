"""Takes speakers of a trained FastPitch for a voice, in the order of speakers.yaml and under plain names:
`python -m recipes.kokoro.cast RUN/weights.safetensors -o weights.safetensors`. af_heart becomes heart.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.cast")

import json
from pathlib import Path

import numpy as np
import yaml

from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.weights.published import OF_SPEAKERS
from melforge.common.weights.voices import read_header, read_weights, save_weights
from recipes.kokoro.teacher import BOTH_ACCENTS, frontend_of

EMBEDDING = "speaker_emb.weight"


def main() -> None:
    parser = Parser(prog="python -m recipes.kokoro.cast", description=__doc__)
    option = parser.add_argument
    option("weights", type=Path, help="weights.safetensors of a run of several speakers")
    option(
        "--speakers",
        type=Path,
        default=Path(__file__).with_name("speakers.yaml"),
        help="whose order is taken",
    )
    option("--without", nargs="*", default=[], metavar="NAME", help="plain names of those that are left out")
    option("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    _, metadata = read_header(args.weights)
    info, config = (json.loads(metadata[key]) for key in ("info", "config"))
    known = info["speakers"]
    order = [name for name in yaml.safe_load(args.speakers.read_text(encoding="utf-8")) if name in known]
    chosen = {name.rpartition("_")[2]: known.index(name) for name in order}
    if unknown := set(args.without) - set(chosen):
        raise InputError(f"no speaker {min(unknown)!r}: there are {', '.join(chosen)}")
    chosen = {name: row for name, row in chosen.items() if name not in args.without}
    rows = list(chosen.values())
    info |= {key: [info[key][row] for row in rows] for key in OF_SPEAKERS} | {"speakers": list(chosen)}
    if british := [name.rpartition("_")[2] for name in order if frontend_of(name) == BOTH_ACCENTS]:
        accents = {name: "en-GB" for name in british if name in chosen}
        info["frontend"] = {"name": "english", "options": {"accents": accents}}
    state = read_weights(args.weights)
    state[EMBEDDING] = state[EMBEDDING][rows]
    half = {name: value.astype(np.float16) for name, value in state.items()}
    config["n_speakers"] = len(rows)
    save_weights(args.output, half, {"info": json.dumps(info), "config": json.dumps(config)})
    print(f"{args.output}: {', '.join(chosen)}")
