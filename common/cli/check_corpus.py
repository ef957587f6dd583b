"""Lists the recordings of a corpus whose audio and text differ, before a voice is trained on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from melforge.common.cli import options
from melforge.common.cli.parser import USER_ERROR
from melforge.common.cli.run import words_of
from melforge.common.cli.transcribe import models_that_hear, recogniser_from
from melforge.common.errors import InputError, counted
from melforge.common.recognition.recordings import Recording, Unreadable
from melforge.common.training.corpus.dataset import METADATA
from melforge.common.training.corpus.takes import find_takes

LIMIT = 0.3
EPILOG = """A recording is listed where more than --limit of its words are heard as others, or where words of
its text are left out or said twice. The exit status is 1 if there are any, and 2 if some sound files cannot
be read. An ear mistakes words too: listen to what is listed."""


OPTIONS = f"""
  folder DIR     folder with {METADATA} (name|text) and wavs/, or with sound files and NAME.txt beside them
  ear
  --checkpoint   a recogniser's weights instead of an ear
  --backend      onnx, torch or trt (default: onnx)
  precision device threads
  --limit SHARE={LIMIT}   share of a recording's words that may be misheard, from 0 to 1
  --json         print all recordings as JSON, the worst first
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = options.make_parser(
        OPTIONS, description=__doc__, epilog=EPILOG, kinds=("recogniser",), choose=models_that_hear
    ).parse_args(argv)
    corpus = read_corpus(args.folder)

    recogniser, _ = recogniser_from(args)
    found = list(check(recogniser, corpus))
    unread = [one for one in found if isinstance(one, Exception)]
    for error in unread:
        print(f"error: {words_of(error)}", file=sys.stderr)
    checked = [one for one in found if not isinstance(one, Exception)]
    checked.sort(key=lambda one: (-one["wer"], one["file"]))
    bad = [one for one in checked if one["wer"] > args.limit or one["left_out"] or one["again"]]
    if args.json:
        print(json.dumps(checked, indent=1, ensure_ascii=False))
    elif checked:
        for one in bad:
            print(f"{one['file']}: {describe(one)}")
            print(f"    text  {one['text']}\n    heard {one['heard']}")
        of_all = f"{len(bad)} of {counted(len(checked), 'recording')}"
        print(f"{of_all} {'differs from its text' if len(bad) == 1 else 'differ from their texts'}")
    return USER_ERROR if unread else 1 if bad else 0


def read_corpus(folder: Path) -> list[Recording | Unreadable]:
    """Its recordings with their texts, or what is wrong with them; an InputError where there are none."""
    if folder.is_file():
        what = f"the corpus's folder, with {METADATA} and wavs/, or with NAME.txt beside sound files"
        raise InputError(f"{folder} is a file: give {what}")
    if not folder.is_dir():
        raise FileNotFoundError(f"corpus {folder} not found")
    return [
        Recording(take.sound, take.text)
        if take.sound
        else FileNotFoundError(f"{folder / take.source}: its sound file is missing")
        for take in find_takes(folder)
        if take.text is not None
    ]


def check(recogniser, corpus: Sequence[Recording | Unreadable]) -> Iterator[dict[str, Any] | Unreadable]:
    """What is heard in each recording and how it differs from its text, or why it cannot be read."""
    from tqdm import tqdm

    from melforge.common.recognition.listener import hear_again

    for recording in tqdm(corpus, desc="checking", unit=" files", leave=False, disable=None):
        if isinstance(recording, Exception):
            yield recording
            continue
        try:
            audio = recording.read()
        except (InputError, OSError) as error:
            yield error
            continue
        found = hear_again(recogniser, *audio, recording.reference or "")
        left_out, again = found.alignment.left_out, found.alignment.again
        yield {
            "file": str(recording.path),
            "wer": round(found.rate, 4),
            "left_out": [{"word": one.word, "time": round(one.time, 3)} for one in left_out],
            "again": [{"word": one.word, "time": round(one.start, 3)} for one in again],
            "text": " ".join(found.words),
            "heard": " ".join(found.heard),
        }


def describe(one: dict[str, Any]) -> str:
    parts = [f"{100 * one['wer']:.0f} % of its words are heard as others"] if one["wer"] else []
    for key, what in (("left_out", "left out"), ("again", "said twice")):
        if one[key]:
            words = ", ".join(f"{entry['word']} ({entry['time']:.2f} s)" for entry in one[key])
            parts.append(f"{what}: {words}")
    return "; ".join(parts)
