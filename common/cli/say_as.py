"""Shows how words may be said, and where each reading comes from; the first one is the usual one."""

from __future__ import annotations

import json
from collections.abc import Sequence

from melforge.common.cli import options, run
from melforge.common.cli.phonemes import MODELS, frontend_from
from melforge.common.stages.choose import KINDS

EPILOG = """examples:
  %(prog)s record "New York" SQL --lexicon lexicon.yaml

What is shown can be written into a lexicon: see docs/reading.md."""
OPTIONS = f"""
  words WORD...      words, or phrases of a lexicon
  {MODELS}
  --json             print them as JSON
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG, kinds=KINDS).parse_args(argv)

    from melforge.common.text.readings import readings_of

    frontend = frontend_from(args)
    found = {word: readings_of(frontend, word) for word in args.words}
    if args.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    rows = [(word, one["said"], one["source"]) for word, readings in found.items() for one in readings]
    run.print_table(("word", "said", "source"), rows)
    return 0
