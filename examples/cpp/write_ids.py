"""Writes a text's symbol ids for speak.cpp: a line for each utterance, the pause after it and its ids.

Needs Melforge, but no PyTorch.
"""

import argparse
import sys

from melforge.common.weights.voices import load_voice


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--voice", help="name or folder (default: the shipped one)")
    args = parser.parse_args()
    analysis = load_voice(args.voice).source("fastpitch").frontend.build()(args.text)
    for utterance in analysis.utterances:
        print(utterance.pause, *utterance.ids)
    for one in analysis.unspoken:
        print(f"not spoken: {one}", file=sys.stderr)


if __name__ == "__main__":
    main()
