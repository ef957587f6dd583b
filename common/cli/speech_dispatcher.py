"""Speaks for Speech Dispatcher, and so for the screen readers of Linux desktops, as one of its modules.

The daemon starts this, talks to it by stdin and stdout, and plays the samples itself ("server" audio, from
0.11 on). The protocol is that of its manual, "Communication Protocol for Output Modules".
"""

from __future__ import annotations

import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO
from xml.sax.saxutils import escape

import numpy as np

from melforge.common.audio.pcm import to_pcm16
from melforge.common.cli import options
from melforge.common.cli.serve import MODEL_OPTIONS, load_options, models_offered
from melforge.common.errors import InputError
from melforge.common.serve.pairs import Pair, Pairs
from melforge.common.serve.settings import ServeSettings
from melforge.common.speech import Controls
from melforge.common.stages.choose import KINDS
from melforge.common.synthesis.timestamps import bookmarks

EPILOG = (
    """docs/clients.md says how Speech Dispatcher finds it; then spd-say -o melforge "Hello there." speaks."""
)
OPTIONS = f"""
  config [FILE]    what the daemon gives every module; it is not read
  --pairs NAMES    a pair such as fastspeech-hifigan, which speaks (default: the voice's first)
{MODEL_OPTIONS}"""
FASTEST = 4.0  # the pace of the rate 100; that of -100 is its inverse
OCTAVE = 12.0  # semitones of the pitch 100
# The daemon reads byte by byte, 6 ms for 32 kB: a whole message before it sounds, and all that is in the pipe
# before the answer to a stop. It plays a message until 20 ms of it are left, and wants the next one then.
PIECE = 1 << 12  # samples of a message
PIPE = 1 << 12  # bytes
KEPT = 512  # sounds of short texts: screen readers say the same letters, keys and words again and again
SHORT = 80  # characters, with those of tags
SILENCE = 3e-3  # of samples at the usual volume, -50 dB
LEFT_SILENT = 200  # samples of the silence before the first sound, 9 ms
SWITCHING_SECONDS = 5e-4  # until a thread that waits has its turn in Python; by default it is 5 ms
SPELT = '<say-as interpret-as="characters">{}</say-as>'
BAD_VALUE = "303 ERROR INVALID PARAMETER OR VALUE"


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(description=__doc__, epilog=EPILOG, kinds=KINDS, choose=models_offered)
    options.add_table(parser, OPTIONS)
    args = parser.parse_args(argv)
    sys.setswitchinterval(SWITCHING_SECONDS)
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):  # it is no pipe
            fcntl.fcntl(sys.stdout, fcntl.F_SETPIPE_SZ, PIPE)
    pairs = Pairs(load_options(args, ServeSettings()), args.pairs)
    Module(pairs, sys.stdin.buffer, sys.stdout.buffer).run()
    return 0


class Module:
    """Answers the daemon. A message is spoken by another thread than the one before, of which, stopped, the
    last step runs on. Threads are kept: on a busy machine a new one has to wait.
    """

    def __init__(self, pairs: Pairs, commands: BinaryIO, answers: BinaryIO):
        self.pairs, self._commands, self._answers = pairs, commands, answers
        self.settings: dict[str, str] = {}
        self._writing = threading.RLock()
        self._speakers = ThreadPoolExecutor()
        self._message: object = None  # that is spoken; what threads of others send is left out
        self._stopping: object = None  # a message whose thread is not to take another turn at writing
        self._begun = False
        self._kept: OrderedDict[tuple[object, ...], list[bytes]] = OrderedDict()

    def run(self) -> None:
        """Until QUIT, or the daemon is gone."""
        answers: dict[str, Callable[[], object]] = {
            "INIT": self.load,
            "SPEAK": lambda: self.speak(self.text),
            "CHAR": lambda: self.speak(self.character),
            "KEY": lambda: self.speak(key),
            "SOUND_ICON": lambda: self.speak(key),
            "STOP": lambda: self.end("703 STOP"),
            "PAUSE": lambda: self.end("704 PAUSE"),
            "LIST VOICES": self.list_voices,
            "SET": self.set,
            "AUDIO": self.set_audio,
            "LOGLEVEL": lambda: self.take("207 OK RECEIVING LOGLEVEL SETTINGS", "203 OK LOGLEVEL SET"),
        }
        for line in self._commands:
            command = line.decode(errors="replace").strip()
            if command == "QUIT":
                self.end("703 STOP")
                self.send("210 OK QUIT")
                break
            if command.startswith("DEBUG "):
                self.send(f"200 OK DEBUGGING {command.split()[1]}")
            elif command in answers:
                answers[command]()
            else:
                self.send("300 ERR UNKNOWN COMMAND")
        self._stopping = self._message  # the process ends with its thread

    def load(self) -> None:
        try:
            for _ in self.sound(self.character("a")):  # loads what the first words would wait for
                pass
        except (InputError, OSError) as error:
            self.send(f"399-{' '.join(str(error).split())}", "399 ERR CANT INIT MODULE")
        else:
            self.send("299-Melforge is ready to speak", "299 OK LOADED SUCCESSFULLY")

    def list_voices(self) -> None:
        pairs = self.pairs
        named = [(one, voice) for voice in pairs.voices for one in (voice, *pairs.speakers_of(voice))]
        lines = [f"200-{one}\t{pairs.languages[voice] or 'en'}\tnone" for one, voice in named]
        self.send(*lines, "200 OK VOICE LIST SENT")

    # Settings

    def set(self) -> None:
        settings = {**self.settings, **self.take("203 OK RECEIVING SETTINGS")}
        try:
            controls_of(settings)
        except ValueError:
            self.send(BAD_VALUE)
        else:
            self.settings = settings
            self.send("203 OK SETTINGS RECEIVED")

    def set_audio(self) -> None:
        given = self.take("207 OK RECEIVING AUDIO SETTINGS")
        by_daemon = given.get("audio_output_method") == "server"
        self.send("203 OK AUDIO INITIALIZED" if by_daemon else BAD_VALUE)

    def take(self, opening: str, closing: str = "") -> dict[str, str]:
        self.send(opening)
        pairs = (line.partition("=") for line in self.lines())
        given = {name: value for name, _, value in pairs}
        if closing:
            self.send(closing)
        return given

    def lines(self) -> Iterator[str]:
        """Up to a line with a dot; one that begins with a dot has another one in front."""
        for line in self._commands:
            text = line.decode(errors="replace").rstrip("\n")
            if text == ".":
                return
            yield text[1:] if text.startswith("..") else text

    # What is spoken

    def text(self, text: str) -> str:
        if self.settings.get("spelling_mode") != "on":
            return text
        return f"<speak>{SPELT.format(re.sub('<[^>]*>', ' ', text))}</speak>"

    def character(self, text: str) -> str:
        """A character, or its name where the daemon gives that."""
        capital = text.isupper() and self.settings.get("cap_let_recogn", "none") != "none"
        return f"<speak>{'capital ' if capital else ''}{word(text.strip() or 'space')}</speak>"

    def sound(self, text: str) -> Iterator[bytes]:
        """A text's samples and marks as the daemon has them; short ones are made once."""
        pairs, voice = self.pairs, self.settings.get("synthesis_voice", "")
        pair, controls = pairs.first, controls_of(self.settings)
        if voice in pairs.voice_names:
            pair = pairs.find(pairs.names[0], voice)
            if speaker := pairs.speaker(pair, voice):
                controls = replace(controls, speaker=speaker)
        usual, known = Controls(), pairs.controls(pair)
        controls = replace(controls, **{n: getattr(usual, n) for n in controls.asked() if n not in known})
        asked = pair, controls, text
        if kept := self._kept.get(asked):
            with suppress(KeyError):  # the thread of a message that was stopped may have pushed it out
                self._kept.move_to_end(asked)
            yield from kept
            return
        made = list[bytes]()
        for part in self.parts(*asked):
            made.append(part)
            yield part
        if len(text) <= SHORT:
            self._kept[asked] = made
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def parts(self, pair: Pair, controls: Controls, text: str) -> Iterator[bytes]:
        tts = self.pairs.get(pair)
        stream = tts.stream(text, controls, sizes=self.pairs.chunk_sizes(tts))
        position, told, silent = 0, 0, True
        for chunk in stream:
            if silent:  # a voice begins with a tenth of a second of it
                loud = np.flatnonzero(np.abs(chunk) > SILENCE * controls.volume)
                left_out = max(0, int(loud[0]) - LEFT_SILENT) if len(loud) else len(chunk)
                chunk, position, silent = chunk[left_out:], position + left_out, not len(loud)
            for mark in bookmarks(stream)[told:]:
                place = max(0, round(mark.time * stream.sampling_rate) - position)
                if place > len(chunk):
                    break
                yield from audio(chunk[:place], stream.sampling_rate)
                yield f"700-{mark.name}\n700 INDEX MARK\n".encode()
                chunk, position, told = chunk[place:], position + place, told + 1
            yield from audio(chunk, stream.sampling_rate)
            position += len(chunk)

    # Speaking

    def speak(self, reading: Callable[[str], str]) -> None:
        """Takes a text, which is spoken as `reading` reads it."""
        self.send("202 OK RECEIVING MESSAGE")
        text = "\n".join(self.lines())
        if not text:
            self.send("301 ERROR CANT SPEAK")
            return
        message = object()
        with self._writing:
            self._message, self._begun = message, False
            self.send("200 OK SPEAKING")
        self._speakers.submit(self._speak, message, reading(text))

    def _speak(self, message: object, text: str) -> None:
        if message is not self._message:  # it was stopped before its turn came
            return
        try:
            for part in self.sound(text):
                if not self._pass_on(message, part):
                    return
        except BrokenPipeError:  # the daemon is gone
            return
        except InputError as error:  # such as a text of nothing but marks
            print(f"not spoken: {error}", file=sys.stderr)
        except Exception as error:
            print(f"fault: {type(error).__name__}: {error}", file=sys.stderr)
        with suppress(BrokenPipeError), self._writing:
            if message is self._message:
                self.end("702 END")

    def _pass_on(self, message: object, part: bytes) -> bool:
        with self._writing:
            if message is not self._message or message is self._stopping:
                return False
            if not self._begun:
                self._begun = True
                self.send("701 BEGIN")
            self._answers.write(part)
            self._answers.flush()
            return True

    def end(self, event: str) -> None:
        """Ends what is spoken, at once; each end has a beginning before it."""
        self._stopping = self._message
        with self._writing:
            if self._message is not None:
                self.send(*([] if self._begun else ["701 BEGIN"]), event)
                self._message = None

    def send(self, *lines: str) -> None:
        with self._writing:
            self._answers.write("".join(f"{line}\n" for line in lines).encode())
            self._answers.flush()


def controls_of(settings: dict[str, str]) -> Controls:
    """Those of the daemon's settings, which go from -100 to 100; a ValueError for what is no number."""

    def share(name: str, default: str = "0") -> float:
        value = settings.get(name, "NULL")
        return max(-1.0, min(1.0, int(default if value == "NULL" else value) / 100))

    return Controls(
        pace=FASTEST ** share("rate"),
        pitch_semitones=OCTAVE * share("pitch"),
        pitch_amplify=1 + share("pitch_range"),
        volume=(1 + share("volume", "100")) / 2,
    )


def key(text: str) -> str:
    """The name of a key, such as shift_a, as it is said."""
    words = text.replace("_", " ").replace("-", " ").split() or [text]
    return f"<speak>{' '.join(map(word, words))}</speak>"


def word(text: str) -> str:
    return SPELT.format(escape(text)) if len(text) == 1 else escape(text)


def audio(samples: np.ndarray, rate: int) -> Iterator[bytes]:
    """Samples float32 [S] in [-1, 1] as events; what would end a line is escaped as in HDLC."""
    for start in range(0, len(samples), PIECE):
        data = to_pcm16(samples[start : start + PIECE]).astype("<i2").tobytes()
        about = {"bits": 16, "num_channels": 1, "sample_rate": rate, "num_samples": len(data) // 2}
        head = "".join(f"705-{name}={value}\n" for name, value in {**about, "big_endian": 0}.items())
        escaped = data.replace(b"}", b"}]").replace(b"\n", b"}*")
        yield head.encode() + b"705-AUDIO\0" + escaped + b"\n705 AUDIO\n"
