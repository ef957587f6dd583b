"""Transcribes sound files: their words, when each is said, and word error rates against references."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from melforge.common.cli import options, run
from melforge.common.cli.parser import USER_ERROR
from melforge.common.errors import InputError, counted
from melforge.common.recognition.recordings import Recording, find_recordings

if TYPE_CHECKING:
    from melforge.common.config.deployment import Deployment
    from melforge.common.recognition.recogniser import Recogniser

NOTHING = "(nothing heard)"
EPILOG = """A file that cannot be read as sound is named, the rest is transcribed, and the exit status is 2.
Where a file is missing, nothing is transcribed.

examples:
  %(prog)s speech.wav --timestamps
  %(prog)s recordings/ --json > transcripts.json              # NAME.txt beside a file is its reference
  %(prog)s --manifest dev-clean.json --checkpoint nvidia_jasper.pt
"""
OPTIONS = """
  inputs [PATH...]   sound files at any rate, or folders of them; NAME.txt beside NAME.wav is its reference
  --manifest PATH    JSON lines as NeMo's, with audio_filepath (seen from the manifest's folder), text, offset
        and duration, or a list of such, or of NVIDIA Jasper's, with files and transcript; or a table of
        files and texts
  ear
  --checkpoint       weights of a recogniser, published or trained, instead of an ear
  --backend          onnx, torch, trt or cuda, kernels in half precision (default: onnx)
  precision device threads
  --batch-size       pieces of recordings at a time (default: 8)
  --expect TEXT      the text that is read: score and times of its words; the exit status is 1 where some are
        missing or said twice
  --timestamps       print when each word is said
  --json             print transcripts, words and rates as JSON
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    recordings = find_recordings(args.inputs, args.manifest)
    if args.expect is not None and len(recordings) > 1:
        raise InputError(f"--expect is of one recording, and there are {len(recordings)}")

    from melforge.common.recognition.long_recordings import BATCH
    from melforge.common.recognition.recordings import transcribe_files

    recogniser, how = recogniser_from(args)
    if args.expect is not None:
        return tell_alignment(recogniser, recordings[0], args)
    batch = args.batch_size or how.batch_size or BATCH
    outcomes = (
        (one, made if isinstance(made, Exception) else made.as_json())
        for one, made in transcribe_files(recogniser, recordings, batch)
    )
    _, status = tell(outcomes, recogniser.labels, len(recordings) > 1, args.json, args.timestamps)
    return status


def tell(
    outcomes: Iterable[tuple[Recording, dict[str, Any] | Exception]],
    labels: str,
    several: bool,
    as_json: bool,
    timestamps: bool = False,
) -> tuple[list[dict[str, Any]], int]:
    """Prints each recording's transcript, or why there is none, and the word error rate where references are
    known; or all of it as JSON. Returns the transcripts, and the exit status.
    """
    from melforge.common.recognition.transcript import error_rate, reference_words

    made, pairs, status = [], [], 0
    for recording, outcome in outcomes:
        if isinstance(outcome, Exception):
            print(f"error: {run.words_of(outcome)}", file=sys.stderr)
            by_caller = getattr(outcome, "is_the_callers", True)  # a server's fault is not
            status = USER_ERROR if by_caller else status or run.FAULT
            continue
        entry = {**recording.about(), **outcome}
        if recording.reference is not None:
            pair = reference_words(recording.reference, labels), entry["text"].split()
            pairs.append(pair)
            entry |= {"reference": " ".join(pair[0]), "wer": round(error_rate([pair]), 4)}
        made.append(entry)
        if not as_json:
            show(entry, timestamps, recording.name if several else None)
    rate = error_rate(pairs) if pairs else None
    if as_json and made:
        content = {"recordings": made, "wer": None if rate is None else round(rate, 4)}
        print(json.dumps(content, indent=1, ensure_ascii=False))
    elif rate is not None:
        words = sum(len(reference) for reference, _ in pairs)
        where = f"{counted(words, 'word')} in {counted(len(pairs), 'recording')}"
        print(f"word error rate {100 * rate:.1f} % of {where}")
    return made, status


def make_parser() -> options.Parser:
    return options.make_parser(
        OPTIONS, description=__doc__, epilog=EPILOG, kinds=("recogniser",), choose=models_that_hear
    )


def models_that_hear(args: argparse.Namespace) -> list[str]:
    """The model that is asked for or there; none where no ear is."""
    from melforge.common.weights.ears import list_ears

    return [read_source(args).model] if args.ear or args.checkpoint or list_ears() else []


def read_source(args: argparse.Namespace):
    from melforge.common.weights.ears import read_recogniser

    return read_recogniser(args.ear, args.checkpoint)


def recogniser_from(args: argparse.Namespace) -> tuple[Recogniser, Deployment]:
    """The recogniser that is asked for on its engines, and how these are to be."""
    from melforge.common.config.deployment import Deployment
    from melforge.common.recognition.loading import make_recogniser
    from melforge.common.synthesis.loading import override

    stored = read_source(args)
    source = override(stored, args.overrides.get(stored.model, {}))
    how = args.deployments.get(source.model, Deployment())
    return make_recogniser(source, args.backend, args.device, args.threads, how), how


def tell_alignment(recogniser, recording: Recording, args: argparse.Namespace) -> int:
    """How the recording says the expected text: a row or an entry for each word, in the sound's order."""
    from melforge.common.recognition.long_recordings import expect
    from melforge.common.recognition.transcript import reference_words

    words = reference_words(args.expect, recogniser.labels)
    if not words:
        raise InputError(f"--expect {args.expect!r}: it has no words that the recogniser could hear")
    found = expect(recogniser, *recording.read(), words)
    if args.json:
        content = {**recording.about(), **rounded(asdict(found)), "as_expected": found.as_expected}
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return 0 if found.as_expected else 1
    rows = [
        (w.start, f"{w.end:.2f}", f"{w.score:.2f}", w.word, "said again" if w.again else "")
        for w in found.words
    ]
    rows += [(one.time, "", "", one.word, "left out") for one in found.left_out]
    rows.sort(key=lambda row: row[0])
    run.print_table(
        ("from s", "to s", "score", "word", ""), [(f"{start:.2f}", *rest) for start, *rest in rows]
    )
    missing, again = (" ".join(one.word for one in some) for some in (found.left_out, found.again))
    said = [f"left out: {missing}"] * bool(missing) + [f"said again: {again}"] * bool(again)
    print("; ".join(said) or f"all {len(words)} words are there, each once")
    return 0 if found.as_expected else 1


def rounded(value: Any) -> Any:
    """With three digits behind the point."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def show(entry: dict[str, Any], timestamps: bool, name: str | None) -> None:
    """One transcript as text, behind the recording's name if any."""
    rate = f"  [{100 * entry['wer']:.1f} % of its words differ]" if "wer" in entry else ""
    print((f"{name}: " if name else "") + (entry["text"] or NOTHING) + rate, flush=True)
    if timestamps and entry["words"]:
        rows = [
            (f"{word['start']:.2f}", f"{word['end']:.2f}", f"{word['score']:.2f}", word["word"])
            for word in entry["words"]
        ]
        run.print_table(("from s", "to s", "score", "word"), rows)
