"""Makes a voice folder of trained or published weights: half precision, ONNX graphs, checks, voice.yaml."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.cli import options, run

ABOUT = ("description", "language", "licence")


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(description=__doc__, kinds=("acoustic", "vocoder"), choose=models_of)
    parser.add_argument("name", help="name of the voice; a path makes the folder there instead of in voices/")
    several = {"action": "append", "default": []}
    what = "weights.safetensors of a training run, or a published file; once for each model"
    parser.add_argument("--checkpoint", **several, required=True, metavar="FILE", help=what)
    parser.add_argument("--frontend", help="text frontend (default: the acoustic model's)")
    parser.add_argument("--description", default="", help="one sentence about the voice")
    parser.add_argument("--language", default="", help="language code (default: en)")
    parser.add_argument(
        "--add", action="store_true", help="keep the models that the folder holds, but for those given anew"
    )
    for option, what in (
        ("--denoising-strength", "how much of the vocoder's hum is taken out"),
        ("--sigma", "spread of WaveGlow's noise"),
        ("--sharpness", "contrast added to Tacotron 2's mel"),
    ):
        what += "; once for each model, or for all"
        parser.add_argument(option, **several, metavar="[MODEL=]X", help=what)
    parser.add_argument("--licence", default="", help="licence of the weights")
    args = parser.parse_args(argv)

    from common.errors import require_torch

    require_torch("making a voice")
    from common.export.to_onnx import HEADINGS
    from common.synthesis.loading import override
    from common.training.make_voice import with_setting, write_voice
    from common.weights.published import parse_checkpoint, read_checkpoint
    from common.weights.voices import FrontendSpec, read_voice, voices_folder

    folder = Path(args.name) if "/" in args.name else voices_folder() / args.name
    sources = [read_checkpoint(path, word) for word, path in map(parse_checkpoint, args.checkpoint)]
    sources = [override(source, args.overrides.get(source.model, {})) for source in sources]
    about = {key: getattr(args, key) for key in ABOUT}
    if args.add:
        voice = read_voice(folder)
        given = {source.model for source in sources}
        sources = [source for source in voice.models.values() if source.model not in given] + sources
        about = {key: value or getattr(voice, key) for key, value in about.items()}
    for setting in ("denoising_strength", "sigma", "sharpness"):
        for value in getattr(args, setting):
            sources = with_setting(sources, setting, value)
    about["language"] = about["language"] or "en"
    checks = write_voice(folder, sources, FrontendSpec(args.frontend) if args.frontend else None, about)
    run.print_table(HEADINGS, [check.row() for check in checks])
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")
    return 0


def models_of(args: argparse.Namespace) -> list[str]:
    from common.weights.published import parse_checkpoint, read_checkpoint

    return [read_checkpoint(path, word).model for word, path in map(parse_checkpoint, args.checkpoint)]
