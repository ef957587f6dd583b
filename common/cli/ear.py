"""Makes an ear's folder of a recogniser's weights: 16 or 8 bits, ONNX graphs, checks, ear.yaml."""

from __future__ import annotations

from collections.abc import Sequence

from melforge.common.cli import options, run
from melforge.common.errors import require_torch
from melforge.common.training.ear import write_ear
from melforge.common.training.model_folders import print_size
from melforge.common.weights.published import parse_checkpoint, read_checkpoint
from melforge.common.weights.voices import place_of

OPTIONS = """
  name NAME            name of the ear; a path makes the folder there instead of in the folder of ears
  --checkpoint FILE!   weights.safetensors of a training run, or a published file
  --description TEXT=  one sentence about the ear
  --language CODE=en   language code
  --licence TEXT=      licence of the weights
  --delay X=0          seconds by which its outputs come behind the sound: words' times are so much earlier
  --int8               store weights in 8 bits, with a scale a row: half the size
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = options.make_parser(OPTIONS, description=__doc__).parse_args(argv)

    require_torch("making an ear")
    from melforge.common.export.to_onnx import HEADINGS

    folder = place_of("ears", args.name)
    word, path = parse_checkpoint(args.checkpoint)
    about = {key: getattr(args, key) for key in ("description", "language", "licence")}
    checks = write_ear(folder, read_checkpoint(path, word), about, args.int8, args.delay)
    run.print_table(HEADINGS, [check.row() for check in checks])
    print_size(folder)
    return 0
