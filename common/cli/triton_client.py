"""Has the models of `melforge triton` in a Triton server speak a phrase a line, or transcribe recordings."""

from __future__ import annotations

import argparse
import errno
import functools
import stat
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.audio.sound_files import write_audio
from melforge.common.cli import options
from melforge.common.cli.parser import USER_ERROR
from melforge.common.cli.phrases import Phrase, describe_unspoken, from_phonemes, read_phrases
from melforge.common.cli.run import FAULT, words_of
from melforge.common.cli.triton_transcribe import ENSEMBLE, transcribe
from melforge.common.errors import InputError, counted
from melforge.common.files import require_writable_folder
from melforge.common.recognition.recordings import Recording, find_recordings
from melforge.common.serve.client import Address, ServerError
from melforge.common.speech import shown
from melforge.common.text import Unspoken
from melforge.common.triton.client import CLIENTS, Client, TritonAudio

SERVERS = {"http": "http://127.0.0.1:8000", "grpc": "http://127.0.0.1:8001"}
EPILOG = """examples:
  %(prog)s phrases.txt -o speech
  %(prog)s phrases.txt -o speech --concurrency 8 --protocol grpc --server http://10.0.0.5:8001
  %(prog)s phrases.txt -o speech --stream --pace 1.2
  %(prog)s speech.wav --transcribe
  %(prog)s dev-clean.json --transcribe jasper-trt-ensemble --concurrency 8"""


@dataclass
class SpokenPhrase:
    """A phrase's audio, what is left out of it, and the seconds since it was asked for."""

    audio: np.ndarray
    unspoken: tuple[Unspoken, ...]
    first_audio: float
    total: float


SERVER_OPTIONS = f"""
  --protocol {"|".join(CLIENTS)}=http   how it is asked
  --server URL         where it listens (default: {SERVERS["http"]}, and for gRPC port 8001)
  --timeout SECONDS=300   longest wait for an answer
"""
OPTIONS = f"""
  phrases FILE         a phrase a line, or - for stdin; to transcribe a sound file, a folder of them, or a
        manifest (.json)
  -o, --output DIR     folder of the wavs, by line: 1.wav ...
  --transcribe [MODEL]   hear recordings by this ensemble around a recogniser (default: {ENSEMBLE})
  --json               print transcripts and rates as JSON
{SERVER_OPTIONS}
  phonemes
  --stream             take the audio in chunks as it is made
  --concurrency N=1    phrases or recordings at a time
{options.CONTROLS}"""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    args = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG).parse_args(argv)
    args.transcribe = ENSEMBLE if args.transcribe == "" else args.transcribe
    return args


def asked(args: argparse.Namespace) -> tuple[Address, dict[str, Any]]:
    """The server, and the controls as parameters of requests."""
    controls = options.controls_from(args)
    parameters = {name: getattr(controls, name) for name in controls.asked()}
    return Address.parse(args.server or SERVERS[args.protocol]), parameters


@contextmanager
def reported(address: Address) -> Iterator[None]:
    """Turns what is wrong with the server into an InputError."""
    try:
        yield
    except ServerError as error:
        raise InputError(f"{address}: {error}") from None
    except OSError as error:
        raise InputError(f"no server at {address} ({error.strerror or error}): give --server URL") from None


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    address, parameters = asked(args)
    phrases: list[Phrase] = []
    recordings: list[Recording] = []
    if args.transcribe:
        if parameters or args.stream or args.output:
            raise InputError("--transcribe takes no --output, --stream or controls: nothing is spoken")
        recordings = find_recordings([Path(args.phrases)])
    elif args.json:
        raise InputError("give --transcribe, which --json is for")
    else:
        if args.phrases != "-":
            require_file(args.phrases)
        if not args.output:
            raise InputError("give --output DIR for the wavs, or --transcribe")
        phrases = from_phonemes(read_phrases(args.phrases), args.phonemes)
        require_writable_folder(args.output)
    begun = time.perf_counter()
    with (
        closing(Clients(args.protocol, address, args.timeout)) as clients,
        reported(address),
        ThreadPoolExecutor(args.concurrency) as threads,
    ):
        if args.transcribe:
            return transcribe(args, recordings, lambda: clients.mine, threads)
        rate = clients.mine.sampling_rate()
        answers = threads.map(lambda phrase: clients.speak(phrase, parameters, args.stream), phrases)
        status, made = write_answers(zip(phrases, answers, strict=True), rate, args)
    passed = time.perf_counter() - begun
    speed = f"{made:.1f} s of audio in {passed:.2f} s: {made / passed:.1f} x real time"
    print(f"{counted(len(phrases), 'phrase')}, {speed}")
    return status


def require_file(given: str) -> None:
    """An InputError if this is no file of phrases, perhaps a phrase itself or a folder of recordings."""
    try:
        is_folder = stat.S_ISDIR(Path(given).stat().st_mode)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise
        way_out = "give a file with a phrase a line and --output DIR, or - and the phrases on standard input"
        raise InputError(f"{shown(given, 200)} is no file: {way_out}") from None
    if is_folder:
        way_out = "give a file with a phrase a line, or --transcribe for its recordings"
        raise InputError(f"{given} is a folder: {way_out}")


def write_answers(
    answers: Iterable[tuple[Phrase, SpokenPhrase | ServerError]], rate: int, args: argparse.Namespace
) -> tuple[int, float]:
    """Writes a sound file at `rate` Hz for each spoken phrase; the exit status, and seconds of all audio."""
    status, made = 0, 0.0
    for phrase, spoken in answers:
        if isinstance(spoken, ServerError):
            print(f"error: {phrase.place}: {spoken}", file=sys.stderr)
            status = max(status, USER_ERROR) if spoken.is_the_callers else status or FAULT
            continue
        for line in describe_unspoken(phrase, spoken.unspoken):
            print(f"warning: {line}", file=sys.stderr)
        path = args.output / f"{phrase.name}.wav"
        try:
            args.output.mkdir(parents=True, exist_ok=True)
            write_audio(path, spoken.audio, rate)
        except OSError as error:  # it is not the server's
            raise InputError(words_of(error)) from None
        made += len(spoken.audio) / rate
        first = f"first audio {spoken.first_audio * 1e3:.0f} ms, " if args.stream else ""
        print(f"{path}: {len(spoken.audio) / rate:.2f} s, {first}all {spoken.total * 1e3:.0f} ms")
    return status, made


class Clients:
    """A client for each thread."""

    def __init__(self, protocol: str, address: Address, timeout: float):
        self._make = functools.partial(CLIENTS[protocol], address, timeout)
        self._local = threading.local()
        self._made: list[Client] = []

    @property
    def mine(self) -> Client:
        if not hasattr(self._local, "client"):
            self._local.client = self._make()
            self._made.append(self._local.client)
        return self._local.client

    def speak(self, phrase: Phrase, parameters: dict[str, Any], stream: bool) -> SpokenPhrase | ServerError:
        begun = time.perf_counter()
        first, chunks = 0.0, []
        try:
            for chunk in self._chunks(phrase.text, parameters, stream):
                first = first or time.perf_counter() - begun
                chunks.append(chunk)
        except ServerError as error:
            return error
        if not chunks:
            return ServerError(0, "the stream ended without audio")
        audio = np.concatenate([chunk.audio for chunk in chunks])
        return SpokenPhrase(audio, chunks[0].unspoken, first, time.perf_counter() - begun)

    def _chunks(self, text: str, parameters: dict[str, Any], stream: bool) -> Iterator[TritonAudio]:
        if stream:
            yield from self.mine.stream(text, parameters)
        else:
            yield from self.mine.speak([text], parameters)

    def close(self) -> None:
        for client in self._made:
            client.close()
