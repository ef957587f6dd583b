"""Goes on training a voice's models on another corpus: `melforge voice train CORPUS -o RUN`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from melforge.common.cli import options
from melforge.common.errors import InputError, require_torch
from melforge.common.training.fine_tune import FILE, fine_tune, tunable

EPILOG = """examples:
  melforge voice train corpus -o runs/ann --minutes 10
  melforge voice train corpus -o runs/ann --minutes 10 --resume     # after an interruption
  melforge voice make ann --run runs/ann --licence CC-BY-4.0"""


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    require_torch("training")
    from melforge.common.training.tuning import TuningSettings

    taken = [field.name for field in fields(TuningSettings) if field.name not in ("resume", "init")]
    settings = TuningSettings(**{name: getattr(args, name) for name in taken})
    fine_tune(
        args.corpus, settings, args.start, args.model, args.resume, args.learning_rate, align=args.align
    )
    print(f"melforge voice make NAME --run {args.out} makes a voice of it")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__, epilog=EPILOG)
    option = parser.add_argument
    option("corpus", type=Path, metavar="CORPUS", help="folder that melforge voice prepare wrote")
    option("-o", "--out", type=Path, required=True, metavar="RUN", help="folder of the run, a folder a model")
    what = "voice, by name or folder, or weights file that it starts from (default: the shipped voice)"
    option("--from", dest="start", metavar="VOICE", help=what)
    what = f"model to train, one of {', '.join(tunable())}; may be repeated (default: the acoustic one)"
    option("--model", action="append", default=[], metavar="NAME", help=what)
    option("--minutes", type=float, help="of training, for each model (default: 10, or as --steps say)")
    option("--steps", type=options.positive, metavar="N", help="stop after so many steps")
    option("--resume", action="store_true", help="go on with a run that was interrupted")
    option("--learning-rate", type=float, metavar="X", help=f"the highest (default: hparams/MODEL/{FILE}'s)")
    option("--sample-minutes", type=float, default=2.0, metavar="M", help="between samples (default: 2)")
    option("--save-minutes", type=float, default=1.0, metavar="M", help="between checkpoints (default: 1)")
    options.add_options(parser, "align")
    option("--seed", type=options.not_negative, default=0, help="of the batches (default: 0)")
    option("--device", default="auto", help="cpu or cuda (default: a GPU if there is one)")
    args = parser.parse_args(argv)
    for name in ("minutes", "learning_rate", "sample_minutes", "save_minutes"):
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"--{name.replace('_', '-')} must be a number above 0, not {value:g}")
    if args.minutes is None and args.steps is None:
        args.minutes = 10.0
    return args
