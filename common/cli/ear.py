"""Makes an ear's folder of a recogniser's weights: half precision, ONNX graphs, checks, ear.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from melforge.common.cli import options, run
from melforge.common.errors import require_torch
from melforge.common.training.ear import write_ear
from melforge.common.training.model_folders import print_size
from melforge.common.weights.ears import ears_folder
from melforge.common.weights.published import parse_checkpoint, read_checkpoint


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(description=__doc__)
    parser.add_argument("name", help="name of the ear; a path makes the folder there instead of in ears/")
    what = "weights.safetensors of a training run, or a published file"
    parser.add_argument("--checkpoint", required=True, metavar="FILE", help=what)
    parser.add_argument("--description", default="", help="one sentence about the ear")
    parser.add_argument("--language", default="en", help="language code (default: en)")
    parser.add_argument("--licence", default="", help="licence of the weights")
    args = parser.parse_args(argv)

    require_torch("making an ear")
    from melforge.common.export.to_onnx import HEADINGS

    folder = Path(args.name) if "/" in args.name else ears_folder() / args.name
    word, path = parse_checkpoint(args.checkpoint)
    about = {key: getattr(args, key) for key in ("description", "language", "licence")}
    checks = write_ear(folder, read_checkpoint(path, word), about)
    run.print_table(HEADINGS, [check.row() for check in checks])
    print_size(folder)
    return 0
