"""FastPitch -> HiFi-GAN behind LitServe: text in, wav out, whole or as it is made.

    pip install -e '.[serve,litserve]'
    python examples/litserve/server.py --port 8010

POST /speech answers with a whole wav, POST /speech/stream with one that leaves as it is made. README.md says
what `melforge serve` does beside this.
"""

import argparse
import asyncio
import functools
import os
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import litserve
import litserve.server
import numpy as np
from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, Field

from melforge.common.audio.wire import DEFAULT_RATE, WireEncoder, encode
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.synthesis.loading import choose_sources
from melforge.common.text import Frontend

ACOUSTIC, VOCODER = "fastpitch", "hifigan"  # of the shipped voice
THREADS = 2  # that speak in a worker; they take turns by chunk, and each keeps memory of its own


@functools.cache
def frontend() -> Frontend:
    source = choose_sources({"acoustic": ACOUSTIC, "vocoder": VOCODER}, None)["acoustic"]
    assert source.frontend is not None
    return source.frontend.build()


def speakable(text: str) -> str:
    """Checked before a worker gets the request: LitServe has sent a stream's 200 by then."""
    if not frontend()(text).utterances:
        raise ValueError("nothing in it can be spoken")
    return text


class Speech(BaseModel):
    """What is asked for. LitServe checks it because `decode_request` is annotated with it."""

    input: Annotated[str, Field(max_length=4096), AfterValidator(speakable)]
    speed: float = Field(1.0, ge=0.25, le=4.0)
    seed: int = Field(0, ge=0)


class Speaker(litserve.LitAPI):
    """One `TextToSpeech` in each worker. Its methods are async so that requests are spoken side by side."""

    def setup(self, device: str) -> None:
        self.tts = TextToSpeech.load(ACOUSTIC, VOCODER, device=device)
        self.threads = ThreadPoolExecutor(THREADS)
        self.tts.speak("Ready.")

    async def decode_request(self, request: Speech) -> tuple[str, Controls]:
        return request.input, Controls(pace=request.speed, seed=request.seed)

    async def in_thread(self, call: Any, *inputs: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.threads, call, *inputs)


class WholeSpeaker(Speaker):
    """POST /speech"""

    async def predict(self, asked: tuple[str, Controls]) -> np.ndarray:
        try:
            return (await self.in_thread(self.tts.speak, *asked)).samples
        except InputError as error:  # else LitServe says 500
            raise HTTPException(400, str(error)) from None

    async def encode_response(self, output: np.ndarray) -> Response:
        wav = await self.in_thread(encode, output, "wav", self.tts.sampling_rate, DEFAULT_RATE)
        return Response(wav, media_type="audio/wav")


class StreamingSpeaker(Speaker):
    """POST /speech/stream"""

    async def predict(self, asked: tuple[str, Controls]) -> AsyncIterator[np.ndarray]:
        stream = await self.in_thread(self.tts.stream, *asked)
        while (chunk := await self.in_thread(next, stream, None)) is not None:
            yield chunk

    # Without a return type: LitServe would take it for the form of the answer.
    async def encode_response(self, output: AsyncIterator[np.ndarray]):
        encoder = WireEncoder("wav", self.tts.sampling_rate, DEFAULT_RATE)
        async for chunk in output:
            yield await self.in_thread(encoder.write, chunk)
        yield encoder.close()


async def bad_request(request: Request, error: Exception) -> JSONResponse:
    """400 with the field and what is wrong with it, where LitServe has 422."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return JSONResponse({"detail": "the body is no JSON"}, 400)
    field = ".".join(str(part) for part in first["loc"] if part != "body")
    return JSONResponse(
        {"detail": f"{field or 'the body'}: {first['msg'].removeprefix('Value error, ')}"}, 400
    )


def stop_all_at(number: int) -> None:
    """At this signal LitServe ends its processes. By itself it leaves workers behind, that keep the port."""
    main_process = os.getpid()

    def stop(*_: object) -> None:
        # The processes that answer HTTP inherit this, and end quietly.
        raise KeyboardInterrupt if os.getpid() == main_process else SystemExit

    signal.signal(number, stop)


def main() -> None:
    parser = argparse.ArgumentParser(description="FastPitch -> HiFi-GAN behind LitServe.")
    parser.add_argument("--port", type=int, default=8010)
    parser.add_argument("--host", default="127.0.0.1", help="127.0.0.1 or 0.0.0.0")
    parser.add_argument("--workers", type=int, default=1, help="processes for each of the two routes")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args = parser.parse_args()
    # LitServe's own tools for language models do not know mcp 2, which `melforge mcp` needs.
    litserve.server._MCP_AVAILABLE = False
    whole = WholeSpeaker(api_path="/speech", enable_async=True)
    streaming = StreamingSpeaker(api_path="/speech/stream", enable_async=True, stream=True)
    server = litserve.LitServer(
        [whole, streaming], accelerator=args.device, devices=1, workers_per_device=args.workers, timeout=False
    )
    server.app.add_exception_handler(RequestValidationError, bad_request)
    frontend()  # here, so that the processes that are forked have it
    stop_all_at(signal.SIGTERM)
    server.run(host=args.host, port=args.port, generate_client_file=False)


if __name__ == "__main__":
    main()
