"""Trains the letter-to-sound network of the English frontend on CMUdict (twenty minutes on one CPU thread).

Every letter is aligned with the nought to two phones that it stands for (expectation-maximisation over all
alignments), so that reading a word is one classification a letter: nothing autoregressive, one pass of a
small transformer whose second half also sees what the first half thinks (self-conditioning).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from melforge.common.cli import options


def main(argv: Sequence[str] | None = None) -> None:
    parser = options.Parser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--dictionary", type=Path, required=True, help="CMUdict 0.7b, the text file")
    parser.add_argument("--out", type=Path, required=True, help="safetensors file to write")
    parser.add_argument("--minutes", type=float, default=20.0, help="training time in minutes")
    parser.add_argument("--batch-size", type=int, default=384, help="words a step")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)

    from melforge.common.training.english.letters import train

    train(args)
