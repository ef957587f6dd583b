"""Makes a training corpus of a folder of recordings with their texts, and reports what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from melforge.common.cli import options
from melforge.common.cli.run import print_table
from melforge.common.errors import require_package
from melforge.common.text import ACCENTS
from melforge.common.training.corpus.defects import KINDS
from melforge.common.training.corpus.from_recordings import prepare_recordings
from melforge.common.training.corpus.report import HEADINGS, Report, by_outcome, next_steps, rows, summary
from melforge.common.training.corpus.takes import SPEAKER_FROM, require_takes

SHOWN = 30  # defects in print; report.md has all
EPILOG = """The folder has metadata.csv (name|text, LJSpeech's three columns, or a heading line such as
file|text|speaker) with sound files in wavs/ or beside it, or NAME.txt beside each sound file; LibriTTS,
LibriSpeech, VCTK, Common Voice and NeMo's manifests are read as they are; NAME.srt and .vtt are texts too.
Files may be wav, flac, ogg or mp3 at any rate, mono or stereo; they stay as they are. Those of more than 20
seconds are cut at pauses, where the ear hears the words of their texts.

Written are wavs/ (22,050 Hz, trimmed to the speech, at one level), labels.npz, metadata.csv, report.md,
report.json and report.png. A second run takes what is finished and works on new and changed files only.

kinds of defects, for --keep:
"""


OPTIONS = f"""
  folder DIR           recordings and texts
  -o, --output DIR!    folder to write the corpus to
  --speaker-from {"|".join(SPEAKER_FROM)}   what names speakers: subfolders, a column of metadata.csv (the
        last, or by its heading), or nothing (default: what is found)
  accent
  --keep KIND...       use lines in spite of this kind of defect, or the line of this name; may be repeated
  --ear NAME           ear that hears every line and compares it with its text; none for none (default: the
        shipped one)
  --no-denoising       keep the steady noise of recordings
  --workers N={os.cpu_count()}   processes
"""


def main(argv: Sequence[str] | None = None) -> None:
    kinds = "\n".join(f"  {kind:<12}{about}" for kind, (about, may_keep) in KINDS.items() if may_keep)
    args = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG + kinds).parse_args(argv)
    require_takes(args.folder)
    for package in ("torch", "pocketsphinx", "pyworld", "soxr"):
        require_package(package, "preparing a voice", "train")
    report = prepare_recordings(
        args.folder,
        args.output,
        args.speaker_from,
        args.keep,
        args.ear,
        args.workers,
        frontend=ACCENTS[args.accent],
        denoise=not args.no_denoising,
    )
    print_report(report, args.output)


def print_report(report: Report, corpus: Path) -> None:
    """Prints speakers, defects, what the run took and what comes next."""
    print_table(HEADINGS, rows(report))
    defects = report["defects"]
    for title, some in by_outcome(defects):
        if some:
            print(f"\n{title}")
            for one in some[:SHOWN]:
                print(f"  {one['source']}: {one['sentence']} [{one['kind']}]")
            if len(some) > SHOWN:
                print(f"  and {len(some) - SHOWN} more, in {corpus / 'report.md'}")
    print(f"\n{summary(report)}")
    if any(one["left_out"] and KINDS[one["kind"]][1] for one in defects):
        print("--keep KIND or --keep NAME uses what is left out, in a second run of a few seconds.")
    print(f"{corpus / 'report.md'} has all of it\n\nnext:")
    for words, about in next_steps(report, corpus):
        print(f"  {words}    {about}" if words else f"  {about}")
