"""Shows how a text is said: each word's phonemes, where it stands in the text, and where that comes from."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from melforge.common.cli import options, run
from melforge.common.errors import InputError
from melforge.common.stages.choose import KINDS
from melforge.common.text import ACCENTS, Frontend

EPILOG = """examples:
  %(prog)s "Melforge reads SQL." --lexicon lexicon.yaml
  %(prog)s -i chapter.txt --json
"""
MODELS = "voice acoustic checkpoint lexicon"
OPTIONS = f"""
  words [TEXT]       the text
  -i, --input FILE   or its file; - is stdin
  {MODELS} links
  --accent {"|".join(ACCENTS)}   as the frontend of this accent says it, in place of the voice's
  --json             symbols and words as JSON, as the server's /v1/audio/phonemize
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG, kinds=KINDS).parse_args(argv)
    if (args.words is None) == (args.input is None):
        raise InputError("give a text, or its file with -i FILE")

    from melforge.common.cli.phrases import read_whole
    from melforge.common.text.markup import analyse, linked
    from melforge.common.text.readings import phonemized

    text = args.words if args.input is None else read_whole(args.input)
    text = linked(text) if args.links == "addresses" else text
    frontend = frontend_from(args)
    found = phonemized(frontend, text, analyse(frontend, text))
    if args.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    rows = [
        (word["written"], word["word"], word["said"], f"{word['start']}-{word['end']}", word["source"])
        for utterance in found["utterances"]
        for word in utterance["words"]
    ]
    run.print_table(("written", "word", "said", "place", "source"), rows)
    for one in found["unspoken"]:
        print(f"warning: {one['symbol']!r} at {one['position']} is not spoken", file=sys.stderr)
    for warning in found["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def frontend_from(args: argparse.Namespace) -> Frontend:
    """The text frontend of the acoustic model that the options ask for, with its lexicons."""
    if getattr(args, "accent", None):
        from melforge.common.weights.voices import FrontendSpec

        spec = FrontendSpec(ACCENTS[args.accent], lexicons=tuple(map(Path, filter(None, [args.lexicon]))))
        return spec.build()
    from melforge.common.synthesis.loading import choose_sources

    wanted = {"acoustic": args.acoustic}
    sources = choose_sources(wanted, args.voice, args.checkpoint, lexicon=args.lexicon)
    return sources["acoustic"].build_frontend()
