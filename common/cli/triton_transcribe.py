"""Recordings to an ensemble around a recogniser in a Triton Inference Server, and what it hears in them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from melforge.common.cli.transcribe import tell
from melforge.common.errors import InputError, counted
from melforge.common.recognition.recordings import Recording
from melforge.common.serve.client import ServerError

if TYPE_CHECKING:
    from melforge.common.triton.client import Client

ENSEMBLE = "jasper-onnx-ensemble"


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
    begun = time.perf_counter()
    answers = threads.map(lambda one: ask(client(), one, model, rate), recordings)
    made, status = tell(zip(recordings, answers, strict=True), labels, len(recordings) > 1, args.json)
    passed = time.perf_counter() - begun
    if not args.json:
        seconds = sum(one["seconds"] for one in made)
        speed = f"{seconds:.1f} s of audio in {passed:.2f} s: {seconds / passed:.1f} x real time"
        print(f"{counted(len(made), 'recording')}, {speed}", file=sys.stderr)
    return status


def ask(client: Client, recording: Recording, model: str, rate: int) -> dict[str, Any] | Exception:
    """A recording in the pieces that `melforge transcribe` hears it in, a request for each."""
    from melforge.common.audio.sound_files import resample
    from melforge.common.recognition.long_recordings import audible_pieces

    try:
        samples, given = recording.read()
    except (InputError, OSError) as error:
        return error
    audio = resample(samples, given, rate)
    pieces = audible_pieces(0, audio, rate, len(audio))
    try:
        texts = [text for one in pieces for text in client.hear([audio[one.start : one.end]], model)]
    except ServerError as error:
        return ServerError(error.status, f"{recording.name}: {error}")
    return {"text": " ".join(filter(None, texts)), "seconds": round(len(audio) / rate, 3)}
