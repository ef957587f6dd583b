"""The page of `melforge voice record`: shows sentences, records them in the browser, keeps them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from melforge.common.audio.sound_files import decode_audio, write_audio
from melforge.common.errors import InputError
from melforge.common.files import read_text, write_bytes
from melforge.common.serve.errors import ApiError, bad_request
from melforge.common.serve.gate import require_known_site
from melforge.common.serve.settings import LOOPBACK
from melforge.common.serve.web import FOLDER, answer_file, read_files
from melforge.common.training.corpus.dataset import METADATA
from melforge.common.training.corpus.defects import sound_defects
from melforge.common.training.corpus.quality import measure

PAGE = Path(__file__).with_name("recorder_page")
LONGEST = 60.0  # seconds of a recording
MOST_BYTES = 32 << 20  # of one: 60 s of 32 bits at 96 kHz fit
HOSTS = frozenset(LOOPBACK)


def shipped_sentences() -> list[str]:
    """60 sentences with all phones of American English, and 383 of the 400 commonest pairs of phones."""
    return (PAGE / "sentences.txt").read_text(encoding="utf-8").splitlines()


class RecordingFolder:
    """Sentences by their names, and a folder in a form that `melforge voice prepare` reads."""

    def __init__(self, folder: Path, sentences: Sequence[str]):
        digits = max(3, len(str(len(sentences))))
        self.folder = folder
        self.sentences = {f"{number:0{digits}d}": text for number, text in enumerate(sentences, start=1)}
        for line in read_text(folder / METADATA).splitlines() if (folder / METADATA).exists() else ():
            name, _, text = line.partition("|")
            if self.sentences.get(name) != text:
                raise InputError(f"{folder} has recordings of other sentences: give another folder")
        (folder / "wavs").mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self.folder / "wavs" / f"{name}.wav"

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "text": text, "recorded": self.path(name).is_file()}
            for name, text in self.sentences.items()
        ]

    def keep(self, name: str, sound: bytes) -> dict[str, Any]:
        """Writes a sentence's recording, if anything is said in it; how it is."""
        audio, rate = decode_audio(io.BytesIO(sound), LONGEST)
        found = measure(audio, rate)
        about = {"seconds": found.speech, "level": found.level, "noise": found.noise}
        if found.silent:
            return {**about, "kept": False, "advice": ["nothing is heard: is it the right microphone?"]}
        write_audio(self.path(name), audio, rate)
        done = [f"{row['name']}|{row['text']}\n" for row in self.rows() if row["recorded"]]
        write_bytes(self.folder / METADATA, "".join(done).encode())
        return {**about, "kept": True, "advice": [sentence for _, sentence, _ in sound_defects(found)]}


def make_recorder(kept: RecordingFolder) -> FastAPI:
    """The application; only this machine's own pages may use it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    files = read_files(FOLDER) | read_files(PAGE)

    @app.get("/")
    async def page() -> Response:
        return answer_file(files, "recorder.html")

    @app.get("/page/{name}")
    async def file_of_page(name: str) -> Response:
        return answer_file(files, name)

    @app.get("/sentences")
    async def sentences() -> list[dict[str, Any]]:
        return kept.rows()

    @app.get("/recordings/{name}")
    async def recording(name: str) -> Response:
        if name not in kept.sentences or not kept.path(name).is_file():
            raise ApiError(404, f"there is no recording {name[:100]!r}", code="not_found")
        return Response(kept.path(name).read_bytes(), media_type="audio/wav")

    @app.put("/recordings/{name}")
    async def keep(name: str, request: Request) -> dict[str, Any]:
        if name not in kept.sentences:
            raise ApiError(404, f"there is no sentence {name[:100]!r}", code="not_found")
        sound = b""
        async for part in request.stream():
            sound += part
            if len(sound) > MOST_BYTES:
                raise ApiError(413, f"a recording has {MOST_BYTES} bytes at most", code="too_long")
        try:
            return kept.keep(name, sound)
        except InputError as error:
            raise bad_request(str(error)) from None

    async def answer(request: Request, error: ApiError) -> JSONResponse:
        return error.response

    app.add_exception_handler(ApiError, answer)  # type: ignore[arg-type]
    app.add_middleware(OwnPages)
    return app


class OwnPages:
    """ASGI middleware: the server's gate without keys, for a server of this machine's browser alone."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] != "lifespan":
                require_known_site(scope, dict(scope["headers"]), HOSTS, frozenset())
        except ApiError as error:
            await error.response(scope, receive, send)
            return
        await self.app(scope, receive, send)
