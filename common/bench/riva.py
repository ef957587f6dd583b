"""A load on a server of NVIDIA Riva's gRPC: this one, or Riva itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from riva.client.proto import riva_audio_pb2, riva_tts_pb2

from melforge.common.bench.load import Load, TimedAnswer
from melforge.common.bench.targets import HttpTarget
from melforge.common.serve.client import ServerError
from melforge.common.serve.pairs import OPENAI_MODELS
from melforge.common.serve.protocols.nim import ENGLISH

METHOD = "/nvidia.riva.tts.RivaSpeechSynthesis/SynthesizeOnline"
TTS: Any = riva_tts_pb2  # protobuf makes their classes when they are imported
PCM = riva_audio_pb2.AudioEncoding.Value("LINEAR_PCM")  # type: ignore[attr-defined]
STATUSES = {  # of HTTP, by gRPC's codes
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
}


@dataclass(frozen=True)
class RivaTarget(HttpTarget):
    """The same, of `SynthesizeOnline`. A pair is named in front of the voice, as the server lists them."""

    def __str__(self) -> str:
        return super().__str__().replace("http", "grpc", 1)

    def connect(self) -> RivaCaller:  # type: ignore[override]
        return RivaCaller(self)

    def message(self, number: int) -> bytes:
        model, voice = self.fields["model"], self.fields["voice"]
        request = TTS.SynthesizeSpeechRequest(
            text=self.texts[number % len(self.texts)],
            voice_name=voice if model in OPENAI_MODELS else f"{ENGLISH}-{model}.{voice}",
            language_code="en-US",
            encoding=PCM,
            sample_rate_hz=self.rate,
        )
        return request.SerializeToString()


class RivaCaller:
    """A channel that has its connection for itself."""

    def __init__(self, target: RivaTarget):
        self._target = target
        self._metadata = (("authorization", f"Bearer {target.key}"),) if target.key else ()
        address = f"{target.address.host}:{target.address.port}"
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
        if target.address.secure:
            self._channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(), options)
        else:
            self._channel = grpc.aio.insecure_channel(address, options)

    async def ask(self, answer: TimedAnswer, first: int, load: Load) -> None:
        target = self._target
        asking = self._channel.stream_stream(METHOD, None, TTS.SynthesizeSpeechResponse.FromString)
        call = asking(iter([target.message(first)]), timeout=target.timeout, metadata=self._metadata)
        try:
            async for one in call:
                answer.chunks.append((time.perf_counter(), len(one.audio) / 2 / target.rate))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and not error.trailing_metadata():
                raise ConnectionError(error.details()) from None
            raise ServerError(STATUSES.get(error.code(), 500), error.details() or "") from None

    def close(self) -> None:
        del self._channel
