"""Has a server speak: plays the speech while it comes, or writes it to a file, and says how long it took."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import io
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from melforge.common.audio.wire import DEFAULT_RATE, FORMATS, wav_header
from melforge.common.cli import options
from melforge.common.cli.run import FAULT
from melforge.common.config.yaml_file import read_yaml
from melforge.common.errors import InputError, install_command, require_package, unknown
from melforge.common.files import require_writable_file, write_bytes
from melforge.common.progress import counting
from melforge.common.serve.client import Address, Connection, ServerError

SERVER = "http://127.0.0.1:8000"
KEY_VARIABLE = "MELFORGE_API_KEY"
SUFFIXES = {**{name: name for name in FORMATS}, "ogg": "opus"}  # of a file -> its format
# Names that OpenAI's servers certainly have; ours takes them for its first pair and voice.
MODEL, VOICE = "tts-1", "alloy"
EPILOG = f"""examples:
  %(prog)s "Hello there."                                  # plays it, with {install_command("play")}
  %(prog)s "Hello there." -o hello.mp3 --server http://10.0.0.5:8000 --model tacotron2-hifigan
  %(prog)s "Hello there." -o - --format wav | aplay

An API key is taken from ${KEY_VARIABLE}."""


OPTIONS = f"""
  text TEXT          what to say; - is standard input
  --server URL={SERVER}   where it listens
  -o, --output FILE  sound file ({", ".join("." + name for name in SUFFIXES)}), or - for stdout (default: play
        it)
  --format NAME      format of the sound (default: as the file's suffix says; pcm)
  --model NAME={MODEL}   a pair, as the server names it
  --voice NAME={VOICE}   a voice, as the server names it
  --sample-rate HZ   sampling rate of the sound (default: {DEFAULT_RATE})
  lexicon phonemes links
  --json             print what was measured, as JSON on stdout
{options.CONTROLS}"""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    return options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG).parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    address = Address.parse(args.server)
    text = sys.stdin.read() if args.text == "-" else args.text
    format = choose_format(args)
    if args.json and args.output == "-":
        raise InputError("--json and -o - both write to stdout: give -o a file")
    # A file's header has its size, which no stream knows: the samples are asked for, and the header is ours.
    wire = "pcm" if format == "wav" and args.output != "-" else format
    request = make_request(args, text, wire)
    rate = request.get("sample_rate", DEFAULT_RATE)
    target: _Target = _Player(rate=rate) if args.output is None else _Target()
    if args.output == "-":
        target = _Standard()
    # Of coded sound nobody knows the seconds yet.
    per_byte, unit = (0.5 / rate, " s of sound") if wire == "pcm" else (1e-3, " kB")
    connection = Connection(address, os.environ.get(KEY_VARIABLE))
    try:
        with counting("speaking", math.inf, unit) as come:
            measured = asyncio.run(listen(connection, request, target, lambda size: come(size * per_byte)))
    except ServerError as error:
        return report(error, address)
    except (ConnectionRefusedError, socket.gaierror, TimeoutError):
        raise InputError(
            f"no server at {address}: start one (melforge serve), or give --server URL"
        ) from None
    measured.seconds = seconds_of(bytes(target.data), wire, rate)
    if args.output not in (None, "-"):
        data = bytes(target.data)
        header = wav_header(rate, len(data)) if format == "wav" else b""
        write_bytes(Path(args.output), header + data)
    show(args, measured)
    return 0


def choose_format(args: argparse.Namespace) -> str:
    """The format of the sound; refuses wrong options before anything is asked."""
    if args.format and args.format not in FORMATS:
        raise InputError(unknown("audio format", args.format, FORMATS))
    if args.output is None:
        if args.format not in (None, "pcm"):
            raise InputError(f"--format {args.format} is for a file: give -o FILE")
        return "pcm"
    if args.output == "-":
        return args.format or "wav"
    path = Path(args.output)
    suffix = path.suffix.lower().removeprefix(".")
    if not args.format and suffix not in SUFFIXES:
        known = ", ".join("." + name for name in SUFFIXES)
        raise InputError(f"{path}: the suffix does not name a sound format; use one of {known}")
    require_writable_file(path)
    return args.format or SUFFIXES[suffix]


def make_request(args: argparse.Namespace, text: str, format: str) -> dict[str, Any]:
    """OpenAI's fields, and those of ours that were given: other servers do not know them."""
    controls = options.controls_from(args)
    asked = {name: getattr(controls, name) for name in controls.asked()}
    if "pace" in asked:
        asked["speed"] = asked.pop("pace")
    if args.sample_rate:
        asked["sample_rate"] = args.sample_rate
    asked |= {name: value for name in ("phonemes", "links") if (value := getattr(args, name))}
    if args.lexicon:
        asked["lexicon"] = {key: entry.value for key, entry in read_yaml(Path(args.lexicon)).items()}
    return {"model": args.model, "voice": args.voice, "input": text, "response_format": format, **asked}


@dataclass
class SpeechTimes:
    """Seconds since the request was sent, and of the speech where they are known."""

    first_audio: float = 0.0
    total: float = 0.0
    chunks: int = 0
    bytes: int = 0
    seconds: float | None = None


async def listen(
    connection: Connection, request: dict[str, Any], target: _Target, come: Callable[[int], object]
) -> SpeechTimes:
    """One request, from when it is sent to the end of its sound; `come` is told the bytes that came."""
    measured = SpeechTimes()
    try:
        await connection.open()
        target.open()
        start = time.perf_counter()
        async for data in connection.speech(request):
            measured.first_audio = measured.first_audio or time.perf_counter() - start
            measured.chunks += 1
            measured.bytes += len(data)
            await asyncio.to_thread(target.write, data)
            come(len(data))
        measured.total = time.perf_counter() - start
        await asyncio.to_thread(target.close)
    finally:
        connection.close()
    return measured


@dataclass
class _Target:
    """Where the bytes go: kept in memory, for a file that appears when it is complete."""

    data: bytearray = field(default_factory=bytearray)

    def open(self) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        pass


class _Standard(_Target):
    """Writes them to standard output as they come."""

    def write(self, data: bytes) -> None:
        super().write(data)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@dataclass
class _Player(_Target):
    """Plays them as they come, by the package sounddevice."""

    rate: int = DEFAULT_RATE
    played: int = 0

    def open(self) -> None:
        try:
            player = require_package("sounddevice", "playing")
        except InputError as error:
            raise InputError(f"{error}; or write a file: -o speech.wav") from None
        except OSError as error:  # it needs the library PortAudio
            raise InputError(f"sounddevice cannot play here ({error}): write a file, -o speech.wav") from None
        try:
            self.stream = player.RawOutputStream(samplerate=self.rate, channels=1, dtype="int16")
            self.stream.start()
        except player.PortAudioError as error:
            raise InputError(f"there is nothing to play on ({error}): write a file, -o speech.wav") from None

    def write(self, data: bytes) -> None:
        super().write(data)
        whole = (len(self.data) - self.played) // 2 * 2  # a chunk may end within a sample
        self.stream.write(bytes(self.data[self.played : self.played + whole]))
        self.played += whole

    def close(self) -> None:
        self.stream.stop()  # when all is played
        self.stream.close()


def seconds_of(data: bytes, format: str, rate: int) -> float | None:
    """How long the sound is; None if that cannot be told here (aac)."""
    if format == "pcm":
        return len(data) / 2 / rate
    soundfile = importlib.import_module("soundfile")
    try:
        audio, found = soundfile.read(io.BytesIO(data))
    except soundfile.LibsndfileError:
        return None
    return len(audio) / found


def report(error: ServerError, address: Address | str) -> int:
    """Reports an error; exit status 2 if the request is at fault, 1 if the server is."""
    what = f" ({error.status})" if error.status else ""
    later = f"; try again in {error.retry_after} s" if error.retry_after else ""
    message = f"{address}{what}: {error}{later}"
    if error.is_the_callers:
        if error.status == 401:
            message += f"; a key is taken from ${KEY_VARIABLE}"
        raise InputError(message)
    print(f"error: {message}", file=sys.stderr)
    return FAULT


def show(args: argparse.Namespace, measured: SpeechTimes) -> None:
    speed = measured.seconds / measured.total if measured.seconds and measured.total else None
    if args.json:
        record = {
            "file": args.output,
            "first_audio_s": round(measured.first_audio, 6),
            "total_s": round(measured.total, 6),
            "chunks": measured.chunks,
            "bytes": measured.bytes,
            "audio_s": measured.seconds and round(measured.seconds, 6),
            "rtf": speed and round(speed, 3),
        }
        print(json.dumps(record, indent=1))
        return
    length = "" if measured.seconds is None else f"{measured.seconds:.2f} s, "
    times = f"first audio {measured.first_audio * 1e3:.0f} ms, all {measured.total * 1e3:.0f} ms"
    fast = "" if speed is None else f", {speed:.1f} times real time"
    name = args.output if args.output not in (None, "-") else "said"
    print(f"{name}: {length}{times}{fast}", file=sys.stderr if args.output == "-" else sys.stdout)
