"""Tools for language models, by the client of the protocol's own SDK."""

import asyncio
import base64
import io
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager

import numpy as np
import pytest

from melforge.common.audio.sound_files import decode_audio, read_audio, write_audio
from melforge.common.cli.mcp import main
from melforge.common.errors import InputError
from tests.serve.conftest import PATIENCE, ROOT

pytestmark = pytest.mark.mcp
TEXT = "She said that it was a good day. "


@pytest.fixture(scope="module")
def pairs():
    from melforge.common.serve.pairs import LoadOptions, Pairs

    return Pairs(LoadOptions(device="cpu", threads=1))


@pytest.fixture
def ask(pairs, tmp_path):
    """Calls a tool of a server of the folder `spoken`: the answer, and how far it said to be."""
    from mcp import Client

    from melforge.common.serve.protocols.mcp import make_server

    folder = tmp_path / "spoken"
    folder.mkdir()

    def call(name, folder=folder, **arguments):
        progress = []

        async def note(done, total, message):
            progress.append((done, total))

        async def run():
            async with asyncio.timeout(PATIENCE), Client(make_server(pairs, None, folder)) as client:
                return await client.call_tool(name, arguments, progress_callback=note)

        return asyncio.run(run()), progress

    return call


def test_a_text_is_spoken_into_a_file_of_the_folder(ask, direct, tmp_path):
    answer, _ = ask("speak", text=TEXT, file="day.wav")
    samples, rate = read_audio(tmp_path / "spoken" / "day.wav")
    wanted = direct.speak(TEXT).samples
    assert not answer.is_error and rate == 22050 and len(samples) == len(wanted)
    assert np.abs(samples - wanted).max() < 1e-4
    assert f"{len(samples) / rate:.1f} s of speech in {tmp_path}/spoken/day.wav" in answer.content[0].text


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("<speak>One. <break time='500ms'/> Two <x>three</x>.</speak>", "SSML, line 1: <x> changes nothing"),
        ("One. [pause:0.5s] Two.", ""),
    ],
)
def test_ssml_and_marks_are_spoken(ask, direct, tmp_path, text, warning):
    answer, _ = ask("speak", text=text, file="marked.wav")
    samples, _ = read_audio(tmp_path / "spoken" / "marked.wav")
    assert len(samples) == len(direct.speak(text).samples) and warning in answer.content[-1].text


def test_without_a_file_the_sound_is_in_the_answer(ask, direct):
    answer, _ = ask("speak", text="Hello there 漢.", voice="daniel", speed=1.5)
    sound, length, left_out = answer.content
    samples, rate = decode_audio(io.BytesIO(base64.b64decode(sound.data)))
    assert (sound.type, sound.mime_type, rate) == ("audio", "audio/mpeg", 22050)
    assert length.text.startswith(f"{len(samples) / rate:.1f}"[:2]) and "漢" in left_out.text


def test_what_was_spoken_is_heard(ask, direct, tmp_path):
    write_audio(tmp_path / "spoken" / "day.flac", direct.speak(TEXT * 12).samples, 22050)
    answer, progress = ask("transcribe", file="day.flac", times=True)
    found = answer.structured_content
    assert (
        found["text"]
        == " ".join([TEXT.lower().strip(" .")] * 12)
        == " ".join(w["word"] for w in found["words"])
    )
    assert len(progress) > 1 and progress[-1][0] == progress[-1][1]
    assert [done for done, _ in progress] == sorted({done for done, _ in progress})
    answer, _ = ask("transcribe", file="day.flac")
    assert "words" not in answer.structured_content


def test_a_long_text_says_how_far_it_is(ask):
    _, progress = ask("speak", text=TEXT * 4, file="long.mp3")
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_voices_and_speakers_are_listed(ask):
    answer, _ = ask("list_voices")
    voices = {voice["name"]: voice for voice in answer.structured_content["voices"]}
    assert answer.structured_content["default"] == "hazel" and "daniel" in voices["orchard"]["speakers"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"file": "../out.wav"}, "is not in the folder"),
        ({"file": "/out.wav"}, "is not in the folder"),
        ({"file": "link.wav"}, "is not in the folder"),
        ({"file": "a\0.wav"}, "is not in the folder"),
        ({"file": "."}, "is not in the folder"),
        ({"file": "here.wav"}, "exists already"),
        ({"file": "program.exe"}, "ends in .wav"),
        ({"file": "no/folder.wav"}, "does not exist"),
        ({"text": "..."}, "can be spoken"),
        ({"text": "x" * 5000}, "4096 at most in an answer: give a file"),
        ({"voice": "nobody"}, "unknown voice 'nobody'"),
        ({"speed": 5}, "less than or equal to 4"),
        ({"folder": None, "file": "x.wav"}, "--folder"),
    ],
)
def test_what_cannot_be_spoken_is_an_error_in_words_and_writes_nothing(ask, tmp_path, arguments, message):
    folder = tmp_path / "spoken"
    (folder / "here.wav").write_text("mine")
    (folder / "link.wav").symlink_to(tmp_path / "elsewhere.wav")
    answer, _ = ask("speak", **{"text": "Hello.", **arguments})
    assert answer.is_error and message in answer.content[0].text
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here.wav", "link.wav", "spoken"]
    assert (folder / "here.wav").read_text() == "mine"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("../secret.wav", "is not in the folder"),
        ("secret.txt", "ends in .wav"),
        ("none.wav", "not found"),
        ("text.wav", "cannot be read as sound"),
    ],
)
def test_only_sound_files_of_the_folder_are_read(ask, tmp_path, file, message):
    for name in ("secret.wav", "spoken/secret.txt", "spoken/text.wav"):
        (tmp_path / name).write_text("nobody's business")
    answer, _ = ask("transcribe", file=file)
    assert answer.is_error and message in answer.content[0].text and "nobody" not in answer.content[0].text


def test_a_client_starts_the_command_and_ends_it(tmp_path):
    from mcp import Client, StdioServerParameters, stdio_client

    words = ["-m", "melforge", "mcp", "--folder", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = StdioServerParameters(command=sys.executable, args=words, env=environment)

    async def run():
        async with asyncio.timeout(PATIENCE), Client(stdio_client(command)) as client:
            assert str(tmp_path) in client.instructions
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            return tools, await client.call_tool("speak", {"text": "Hello.", "file": "hello.ogg"})

    tools, answer = asyncio.run(run())
    assert set(tools) == {"speak", "transcribe", "list_voices"}
    assert set(tools["speak"].input_schema["properties"]) == {"text", "voice", "speed", "file"}
    assert not answer.is_error and (tmp_path / "hello.ogg").exists()


@asynccontextmanager
async def under_way(pairs, folder, text, file):
    """A client of ours, and its call that speaks, which has begun."""
    from mcp import Client

    from melforge.common.serve.protocols.mcp import make_server

    begun = asyncio.Event()

    async def note(done, total, message):
        begun.set()

    async with asyncio.timeout(PATIENCE), Client(make_server(pairs, None, folder)) as client:
        said = {"text": text, "file": file}
        call = asyncio.create_task(client.call_tool("speak", said, progress_callback=note))
        await begun.wait()
        yield client, call


def test_a_call_that_is_cancelled_writes_nothing_and_the_next_one_is_answered(pairs, tmp_path):
    async def run():
        async with under_way(pairs, tmp_path, TEXT * 500, "long.wav") as (client, call):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return await client.call_tool("speak", {"text": "Hello.", "file": "hello.wav"})

    assert not asyncio.run(run()).is_error
    assert [path.name for path in tmp_path.iterdir()] == ["hello.wav"]


def test_two_calls_do_not_write_one_file(pairs, tmp_path):
    async def run():
        async with under_way(pairs, tmp_path, TEXT * 20, "same.wav") as (client, call):
            return await client.call_tool("speak", {"text": "Hello.", "file": "same.wav"}), await call

    second, first = asyncio.run(run())
    assert second.is_error and "same.wav exists already" in second.content[0].text
    assert not first.is_error and len(read_audio(tmp_path / "same.wav")[0]) > 20 * 22050


def test_a_client_that_dies_takes_the_server_along(tmp_path):
    words = [sys.executable, "-m", "melforge", "mcp", "--folder", str(tmp_path), "--device", "cpu"]
    environment, pipe = os.environ | {"PYTHONPATH": str(ROOT)}, subprocess.PIPE
    about = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "one", "version": "1"},
    }
    call = {"name": "speak", "arguments": {"text": TEXT * 500, "file": "long.wav"}}
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server:
        for message in (
            {"id": 0, "method": "initialize", "params": about},
            {"method": "notifications/initialized"},
            {"id": 1, "method": "tools/call", "params": {**call, "_meta": {"progressToken": 1}}},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        server.stdin.flush()
        while "notifications/progress" not in server.stdout.readline():
            pass
        server.stdout.close()
        server.stdin.close()
        assert server.wait(PATIENCE) == 0 and not server.stderr.read()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no folder: make it"):
        main(["--folder", str(tmp_path / "none")])
