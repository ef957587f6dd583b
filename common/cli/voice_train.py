"""Goes on training a voice's models on another corpus: `melforge voice train CORPUS -o RUN`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import fields
from shlex import quote

from melforge.common.cli import options
from melforge.common.errors import InputError, require_torch
from melforge.common.training.fine_tune import FILE, fine_tune, tunable

STEPS = 3000  # a minute of FastPitch's training on a data-centre GPU
EPILOG = """examples:
  melforge voice train corpus -o runs/ann --minutes 10
  melforge voice train corpus -o runs/ann --minutes 10 --resume     # after an interruption
  melforge voice make ann --run runs/ann --licence CC-BY-4.0"""


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    require_torch("training")
    from melforge.common.training.tuning import TuningSettings

    others = {field.name for field in fields(TuningSettings)} - {"out", "resume", "init"}
    settings = TuningSettings(args.output, **{name: getattr(args, name) for name in others})
    fine_tune(
        args.corpus, settings, args.start, args.model, args.resume, args.learning_rate, align=args.align
    )
    print(f"melforge voice make NAME --run {quote(str(args.output))} makes a voice of it")
    return 0


OPTIONS = f"""
  corpus DIR           folder that melforge voice prepare wrote
  -o, --output DIR!    folder of the run, a folder a model
  --model NAME...      model to train, one of {{models}}; may be repeated (default: the acoustic one)
  --minutes X          minutes of training, for each model (default: 10, or {STEPS} steps if they take less)
  --steps N            stop after so many steps
  --resume             go on with a run that was interrupted
  --learning-rate X    the highest learning rate (default: hparams/MODEL/{FILE}'s)
  --sample-minutes X=2   minutes between samples
  --save-minutes X=1   minutes between checkpoints
  align
  --seed N0=0          seed of the batches
  --device NAME=auto   cpu, cuda or cuda:all (auto: a GPU if there is one)
"""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__, epilog=EPILOG)
    options.add_table(parser, OPTIONS.format(models=", ".join(tunable())))
    what = "voice or weights file that it starts from (default: the voice of the most speakers)"
    parser.add_argument("--from", dest="start", metavar="VOICE", help=what)
    args = parser.parse_args(argv)
    for name in ("minutes", "learning_rate", "sample_minutes", "save_minutes"):
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"--{name.replace('_', '-')} must be a number above 0, not {value:g}")
    if args.minutes is None and args.steps is None:
        args.minutes, args.steps = 10.0, STEPS
    return args
