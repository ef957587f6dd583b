"""Recordings to an ensemble around a recogniser in a Triton Inference Server, and what it hears in them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from melforge.common.cli.parser import USER_ERROR
from melforge.common.cli.run import FAULT, words_of
from melforge.common.cli.transcribe import NOTHING, Pairs, compare, conclude
from melforge.common.errors import InputError, counted
from melforge.common.recognition.recordings import Recording, Unreadable, find_recordings
from melforge.common.serve.client import ServerError

if TYPE_CHECKING:
    from melforge.common.triton.client import Client

ENSEMBLE = "jasper-onnx-ensemble"


@dataclass(frozen=True)
class TranscriptAnswer:
    """What is heard in a recording, its length, and the seconds that it took."""

    text: str
    audio: float  # seconds
    total: float


def recordings_of(given: str) -> list[Recording]:
    """Of a sound file, a folder of them, or one of NVIDIA's manifests (.json)."""
    path = Path(given)
    manifest = path if path.suffix.lower() in (".json", ".jsonl") else None
    return find_recordings([] if manifest else [path], manifest)


def transcribe(
    args: argparse.Namespace,
    recordings: Sequence[Recording],
    client: Callable[[], Client],
    threads: ThreadPoolExecutor,
) -> int:
    """Prints a transcript for each recording, and the word error rate where references are known.

    `client` gives each thread its own.
    """
    model = args.transcribe
    rate = client().sampling_rate(model)
    labels = client().parameter("labels", model)
    begun, status, seconds = time.perf_counter(), 0, 0.0
    pairs: Pairs = []
    made = []
    answers = threads.map(lambda one: ask(client(), one, model, rate), recordings)
    for recording, answer in zip(recordings, answers, strict=True):
        if isinstance(answer, ServerError):
            print(f"error: {recording.name}: {answer}", file=sys.stderr)
            status = max(status, USER_ERROR) if answer.is_the_callers else status or FAULT
            continue
        if isinstance(answer, Exception):
            print(f"error: {words_of(answer)}", file=sys.stderr)
            status = USER_ERROR
            continue
        seconds += answer.audio
        entry = {**recording.about(), "text": answer.text, "seconds": round(answer.audio, 3)}
        compare(entry, recording.reference, labels, pairs)
        made.append(entry)
        if not args.json:
            named = f"{recording.name}: " if len(recordings) > 1 else ""
            print(f"{named}{answer.text or NOTHING}", flush=True)
    passed = time.perf_counter() - begun
    if made:
        conclude(made, pairs, args.json)
    if not args.json:
        speed = f"{seconds:.1f} s of audio in {passed:.2f} s: {seconds / passed:.1f} x real time"
        print(f"{counted(len(made), 'recording')}, {speed}", file=sys.stderr)
    return status


def ask(
    client: Client, recording: Recording, model: str, rate: int
) -> TranscriptAnswer | ServerError | Unreadable:
    """A recording in the pieces that `melforge transcribe` hears it in, a request for each."""
    from melforge.common.audio.sound_files import resample
    from melforge.common.recognition.long_recordings import audible_pieces

    try:
        samples, given = recording.read()
    except (InputError, OSError) as error:
        return error
    audio = resample(samples, given, rate)
    begun = time.perf_counter()
    try:
        texts: Sequence[str] = [
            text
            for piece in audible_pieces(0, audio, rate, len(audio))
            for text in client.hear([audio[piece.start : piece.end]], model)
        ]
    except ServerError as error:
        return error
    return TranscriptAnswer(
        " ".join(text for text in texts if text), len(audio) / rate, time.perf_counter() - begun
    )
