"""Makes a training corpus: the teacher voice reads transcripts, or a real LJSpeech download is labelled."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

from common.cli import options


def main(argv: Sequence[str] | None = None) -> None:
    parser = options.Parser(description=__doc__)
    parser.add_argument(
        "--corpus", type=Path, required=True, help="folder with metadata.csv and wavs/, LJSpeech's format"
    )
    parser.add_argument(
        "--transcripts", type=Path, help="name|text lines for the teacher voice to read into the folder"
    )
    parser.add_argument(
        "--extra", action="store_true", help="with --transcripts: add words, questions, numbers, names"
    )
    parser.add_argument(
        "--respeak", action="store_true", help="let the teacher make the wavs of an existing labels.npz"
    )
    parser.add_argument("--limit", type=int, help="use the first N lines only")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    args = parser.parse_args(argv)

    from common.training.corpus.prepare import (
        Line,
        prepare,
        read_metadata,
        read_transcripts,
        respeak,
        split_sentences_into_lines,
    )

    if args.respeak:
        respeak(args.corpus, args.workers)
        return
    if args.transcripts:
        lines = read_transcripts(args.transcripts)
        if args.extra:
            from common.text.cmudict import load_cmudict
            from common.training.corpus.texts import extra_sentences

            words = [w.lower() for w in load_cmudict().words() if w.isalpha()]
            extra = extra_sentences([line.text for line in lines], words)
            lines += [Line(f"extra-{i:05d}", text) for i, text in enumerate(extra)]
        lines = split_sentences_into_lines(lines)
        random.Random(0).shuffle(lines)  # the recipes validate on the last ones
    else:
        lines = read_metadata(args.corpus)
    if args.limit:
        lines = lines[:: max(1, len(lines) // args.limit)][: args.limit]
    labels = prepare(args.corpus, lines, speak=args.transcripts is not None, workers=args.workers)
    hours = labels.frames.sum() * 256 / 22_050 / 3600
    print(f"{len(labels.names)} of {len(lines)} lines labelled, {hours:.2f} h in {args.corpus}")
