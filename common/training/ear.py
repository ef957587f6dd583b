"""Makes an ear's folder of a recogniser's weights: half precision, ONNX graphs, checks, ear.yaml."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from melforge.common.cli import options, run
from melforge.common.errors import InputError, require_torch
from melforge.common.registry import KIND_WORDS, get_model
from melforge.common.stages.choose import choose_stages
from melforge.common.training.model_folders import print_size, put_in_place, require_place, write_model
from melforge.common.weights.ears import EAR_FILE, ears_folder
from melforge.common.weights.published import parse_checkpoint, read_checkpoint
from melforge.common.weights.voices import ModelSource

if TYPE_CHECKING:
    from melforge.common.export.to_onnx import Check


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


def write_ear(folder: Path, source: ModelSource, about: Mapping[str, str] | None = None) -> list[Check]:
    """Makes `folder` an ear of a recogniser; its other files stay. Nothing is written unless all is well."""
    if (kind := get_model(source.model).kind) != "recogniser":
        raise InputError(
            f"{source.weights} is a {source.model} ({KIND_WORDS[kind]}): an ear is a recogniser's"
        )
    require_place(folder, EAR_FILE, "ear")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ear-", dir=folder.parent) as name:
        entry, checks = write_model(Path(name), source, choose_stages(source, None))
        content = {"name": folder.name, **(about or {}), "model": source.model, **entry}
        put_in_place(Path(name), folder, [source.model], EAR_FILE, content)
    return checks
