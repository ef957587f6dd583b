"""Makes a voice folder of trained or published weights: half precision, ONNX graphs, checks, voice.yaml."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from common import cli


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of the voice; a path makes the folder there instead of in voices/")
    parser.add_argument(
        "--checkpoint",
        action="append",
        required=True,
        metavar="FILE",
        help="weights.safetensors of a training run, or a published file; once for each model",
    )
    parser.add_argument("--frontend", help="text frontend (default: the acoustic model's)")
    parser.add_argument("--description", default="", help="one sentence about the voice")
    parser.add_argument("--language", default="en", help="language code (default: en)")
    parser.add_argument(
        "--denoising-strength", type=float, metavar="X", help="how much of the vocoder's hum is taken out"
    )
    parser.add_argument("--licence", default="", help="licence of the weights")
    args = parser.parse_args()

    from common.export import HEADINGS
    from common.make_voice import write_voice
    from common.published import parse_checkpoint, read_checkpoint
    from common.registry import get_model
    from common.voices import FrontendSpec, voices_folder

    folder = Path(args.name) if "/" in args.name else voices_folder() / args.name
    sources = [read_checkpoint(path, word) for word, path in map(parse_checkpoint, args.checkpoint)]
    if args.denoising_strength:
        settings = {"denoising_strength": args.denoising_strength}
        sources = [replace(s, extra=settings) if get_model(s.model).kind == "vocoder" else s for s in sources]
    about = {key: getattr(args, key) for key in ("description", "language", "licence")}
    checks = write_voice(folder, sources, FrontendSpec(args.frontend) if args.frontend else None, about)
    cli.print_table(HEADINGS, [check.row() for check in checks])
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    cli.run(main)
