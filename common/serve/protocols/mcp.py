"""Tools for language models, by the Model Context Protocol: speak, transcribe, list voices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
import numpy as np
from mcp.server.mcpserver import Audio, Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from melforge.common.audio.sound_files import FORMATS, encode_audio, read_audio, resample, write_audio
from melforge.common.errors import InputError
from melforge.common.files import require_writable_file, version
from melforge.common.recognition.loading import load_recogniser
from melforge.common.recognition.long_recordings import hear_blocks, transcript_of
from melforge.common.recognition.recogniser import Recogniser
from melforge.common.recognition.recordings import SUFFIXES
from melforge.common.serve.pairs import Pairs
from melforge.common.serve.settings import ServeSettings
from melforge.common.speech import Controls
from melforge.common.synthesis.stream import Stream

T = TypeVar("T")
RETURNED = "mp3"  # of a sound that is no file; about 4 kB a second
TEXT = Field(description="What to say: plain text, or SSML in <speak>")
VOICE = Field(description="A voice or a speaker, as list_voices names them; leave it out for the usual one")
SPEED = Field(description="1 is normal, 2 twice as fast", ge=0.25, le=4)
FILE = Field(
    description=f"Name of the sound file to write ({', '.join(FORMATS)} by its suffix), which must not exist "
    "yet; left out, the sound is in the answer"
)
HEARD_FILE = Field(description="Name of a sound file in the folder")


class Tools:
    """What the tools do. Files are those of one folder; without it nothing is read or written."""

    def __init__(self, pairs: Pairs, ear: str | None, folder: Path | None):
        self.pairs, self.ear = pairs, ear
        self.folder = folder and folder.resolve()
        self.most = ServeSettings.max_characters  # of a text whose sound is in the answer
        self._recogniser: Recogniser | None = None
        self._hearing = anyio.Lock()
        self._writing = set[Path]()

    async def speak(
        self,
        context: Context,
        text: Annotated[str, TEXT],
        voice: Annotated[str | None, VOICE] = None,
        speed: Annotated[float, SPEED] = 1.0,
        file: Annotated[str | None, FILE] = None,
    ) -> list[Any]:
        """Speak a text, into a sound file or into the answer."""
        if file is None and len(text) > self.most:
            way_out = "cut it" if self.folder is None else "give a file"
            raise InputError(f"{len(text)} characters, of {self.most} at most in an answer: {way_out}")
        with nullcontext() if file is None else self.new_file(file) as path:
            stream = await anyio.to_thread.run_sync(self.stream_of, text, voice, speed)
            chunks, told, utterances = [], 0, len(stream.utterances)
            async for chunk in in_threads(stream):
                chunks.append(chunk)
                if stream.spoken > told:  # what is reported has to grow
                    told = stream.spoken
                    await context.report_progress(told, utterances, f"sentence {told} of {utterances}")
            samples, rate = np.concatenate(chunks), stream.sampling_rate
            said = [f"{len(samples) / rate:.1f} s of speech" + (f" in {path}" if path else "")]
            said += [f"{one.symbol!r} cannot be spoken and was left out" for one in stream.analysis.unspoken]
            said += [*map(str, stream.problems), *stream.analysis.warnings]
            if path is not None:
                await anyio.to_thread.run_sync(write_audio, path, samples, rate)
                return said
        sound = await anyio.to_thread.run_sync(encode_audio, samples, rate, RETURNED)
        return [Audio(data=sound, format="mpeg"), *said]

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """The path of a sound file that is to be written, by one call at a time."""
        path = self.inside(name)
        if path.suffix.lower().removeprefix(".") not in FORMATS:
            raise InputError(f"{name}: a sound file ends in .{', .'.join(FORMATS)}")
        if path.exists() or path in self._writing:
            raise InputError(f"{name} exists already: give another name")
        require_writable_file(path)
        self._writing.add(path)
        try:
            yield path
        finally:
            self._writing.remove(path)

    def stream_of(self, text: str, voice: str | None, speed: float) -> Stream:
        pairs = self.pairs
        pair = pairs.first if voice is None else pairs.find(pairs.names[0], voice)
        controls = Controls(pace=speed)
        if voice is not None and (speaker := pairs.speaker(pair, voice)):
            controls = replace(controls, speaker=speaker)
        pairs.require_controls(pair, controls)
        tts = pairs.get(pair)
        return tts.stream(text, controls, sizes=pairs.chunk_sizes(tts))

    async def transcribe(
        self,
        context: Context,
        file: Annotated[str, HEARD_FILE],
        times: Annotated[bool, Field(description="Also when each word is said, in seconds")] = False,
    ) -> dict[str, Any]:
        """Write down what is said in a sound file."""
        path = self.inside(file)
        if path.suffix.lower() not in SUFFIXES:  # a text file's content is not told by an error either
            raise InputError(f"{file}: a sound file ends in {', '.join(SUFFIXES)}")
        async with self._hearing:
            if self._recogniser is None:
                self._recogniser = await anyio.to_thread.run_sync(partial(load_recogniser, self.ear))
            recogniser = self._recogniser
            samples, rate = await anyio.to_thread.run_sync(read_audio, path)
            audio = await anyio.to_thread.run_sync(resample, samples, rate, recogniser.sampling_rate)
            heard = []
            async for one in in_threads(hear_blocks(recogniser, [audio])):
                heard.append(one)
                await context.report_progress(one[0].end, len(audio))
        found = transcript_of(recogniser, heard, len(samples) / rate).as_json()
        return found if times else {"text": found["text"], "seconds": found["seconds"]}

    def list_voices(self) -> dict[str, Any]:
        """List the voices, and the speakers of each."""
        pairs = self.pairs
        voices = [
            {
                "name": name,
                "description": pairs.descriptions[name],
                "language": pairs.languages[name] or "en",
                "speakers": list(pairs.speakers_of(name)),
            }
            for name in pairs.voices
        ]
        return {"voices": voices, "default": pairs.first.voice}

    def inside(self, name: str) -> Path:
        """The path of a file in the folder, through links; an InputError where it is elsewhere."""
        if self.folder is None:
            raise InputError("files need a folder: start this server as melforge mcp --folder DIR")
        try:
            path = (self.folder / name).resolve()
        except (OSError, ValueError, RuntimeError):
            path = None
        if path is None or self.folder not in path.parents:
            raise InputError(f"{name!r} is not in the folder {self.folder}: give the name of a file there")
        return path


def make_server(pairs: Pairs, ear: str | None = None, folder: Path | None = None) -> MCPServer:
    """A server of these tools; without a folder there is no `transcribe`."""
    tools = Tools(pairs, ear, folder)
    about = "Text to speech and back on this machine. "
    about += f"Files are in {tools.folder}." if folder else "Sound is in the answers."
    server = MCPServer(
        "melforge", title="Melforge", instructions=about, version=version(), log_level="WARNING"
    )
    server.add_tool(in_words(tools.speak), structured_output=False)
    if folder is not None:
        server.add_tool(in_words(tools.transcribe))
    server.add_tool(tools.list_voices)
    return server


def in_words(tool: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """The tool, whose callers are told of the errors that they can mend."""

    @wraps(tool)
    async def run(*arguments: Any, **named: Any) -> T:
        try:
            return await tool(*arguments, **named)
        except (InputError, OSError) as error:
            raise ToolError(str(error)) from None

    return run


async def in_threads(steps: Iterator[T]) -> AsyncIterator[T]:
    """What an iterator gives, each made in a thread: a call that is cancelled ends behind a step."""
    while (made := await anyio.to_thread.run_sync(next, steps, None)) is not None:
        yield made
