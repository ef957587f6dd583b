"""NVIDIA Riva's service RivaSpeechSynthesis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

from melforge.common.serve.answer import kept_parts, pieces
from melforge.common.serve.errors import ApiError
from melforge.common.serve.protocols.live import Sentence, in_turn, wait_for_room
from melforge.common.serve.protocols.nim import ZERO_SHOT, speech_request, voice_models
from melforge.common.serve.protocols.riva_calls import MOST_BYTES, TTS, RivaCall, encoding_of
from melforge.common.serve.requests import SpeechFields
from melforge.common.serve.service import Service, Speaking
from melforge.common.synthesis.timestamps import utterance_timestamps

AUDIO = b"\x0a"  # in Protocol Buffers: field 1, with a length


class RivaSpeech:
    """The service's methods: each gives its answers as bytes."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def synthesize(self, call: RivaCall) -> AsyncGenerator[bytes, None]:
        """A text's sound in one message."""
        service = self.service
        request: Any = await call.message(TTS.SynthesizeSpeechRequest)
        with service.admitted(call.key, [request.text]):
            spoken = await service.speak(self._wanted(request), call.arrived, whole=True)
            with self._noted(call, spoken):
                most = min(service.settings.answer_bytes, MOST_BYTES)
                kept = await kept_parts(spoken.job, most, "the method SynthesizeOnline")
                parts = [data async for data in kept.taken()]
                known = len(spoken.stream.durations)
                message = await asyncio.to_thread(speech_answer, request, parts, spoken, 0, known)
                parts.clear()
                yield message

    async def synthesize_online(self, call: RivaCall) -> AsyncGenerator[bytes, None]:
        """The sound of texts, in their order, as it is made. What a message lacks is as in those before."""
        request: Any = TTS.SynthesizeSpeechRequest()
        number = 0

        async def texts() -> AsyncIterator[str]:
            async for more in call.messages(TTS.SynthesizeSpeechRequest):
                request.MergeFrom(more)
                request.text = more.text
                if request.text.strip():
                    yield request.text

        async def begin(sentence: Sentence) -> None:
            nonlocal number
            number += 1
            wanted, arrived = self._wanted(request), call.arrived
            if number == 1:
                sentence.admission.enter_context(self.service.admitted(call.key, [sentence.text]))
            else:
                await wait_for_room(self.service, call.key, sentence, begun=True)
                arrived = self.service.scheduler.clock()
            sentence.spoken = await self.service.speak(wanted, arrived)

        async with aclosing(in_turn(texts(), begin, [])) as sentences:
            async for sentence in sentences:
                if sentence.spoken is None:
                    raise sentence.error or ApiError(500, "nothing was spoken")
                with self._noted(call, sentence.spoken):
                    async for answer in online_answers(request, sentence.spoken):
                        yield answer
        if not number:
            raise ApiError(400, "text: there is none", "text", "missing")

    async def get_riva_synthesis_config(self, call: RivaCall) -> AsyncGenerator[bytes, None]:
        """The voices, as NVIDIA's clients list them: voice_name.SUBVOICE."""
        request: Any = await call.message(TTS.RivaSynthesisConfigRequest)
        answer: Any = TTS.RivaSynthesisConfigResponse()
        for one in voice_models(self.service.pairs):
            if request.model_name in ("", one.pair):
                config = answer.model_config.add(model_name=one.pair)
                config.parameters["language_code"] = one.language
                config.parameters["voice_name"] = one.name
                config.parameters["subvoices"] = ",".join(
                    f"{name}:{number}" for number, name in enumerate(one.speakers)
                )
                config.parameters["sample_rate"] = str(one.rate)
        if not answer.model_config:
            raise ApiError(404, f"model_name: there is no model {request.model_name[:50]!r}", "model_name")
        yield answer.SerializeToString()

    def _wanted(self, request: Any) -> SpeechFields:
        """What a SynthesizeSpeechRequest asks for; 400 says what of it is impossible."""
        if request.HasField("zero_shot_data"):
            message = ZERO_SHOT.format("zero_shot_data")
            raise ApiError(400, message, "zero_shot_data", "unsupported_value")
        return speech_request(
            self.service,
            text=request.text,
            voice=request.voice_name,
            language=request.language_code,
            encoding=encoding_of(request.encoding) if request.encoding else "",
            rate=request.sample_rate_hz,
            dictionary=request.custom_dictionary,
            configuration=request.custom_configuration,
        )

    @contextmanager
    def _noted(self, call: RivaCall, spoken: Speaking) -> Iterator[None]:
        """Ends the work on a text with this block, and notes what was spoken."""
        call.ignored.update(spoken.wanted.ignored)
        try:
            yield
        finally:
            call.record.setdefault("texts", []).append(self.service.conclude(spoken, call.key))


async def online_answers(request: Any, spoken: Speaking) -> AsyncGenerator[bytes, None]:
    """A text's answers; each has the words of utterances that begin with it."""
    told = 0
    async for data in spoken.job:
        for piece in pieces(data):
            known = len(spoken.stream.durations)  # while an answer is made, there may be more
            if request.enable_word_time_offsets and told < known:
                answer = await asyncio.to_thread(speech_answer, request, [piece], spoken, told, known)
            else:
                answer = speech_answer(request, [piece], spoken, told, known)
            told = known
            yield answer


def speech_answer(request: Any, audio: Sequence[bytes], spoken: Speaking, first: int, known: int) -> bytes:
    """A SynthesizeSpeechResponse with this sound, and of the utterances from `first` to `known` their texts,
    as written and as normalised, their symbols' durations in ms, and the times of their words if they are
    asked for.
    """
    answer: Any = TTS.SynthesizeSpeechResponse()
    if request.HasField("id"):
        answer.id.CopyFrom(request.id)
    stream = spoken.stream
    if first < known:
        utterances = stream.utterances[first:known]
        answer.meta.text = " ".join(one.text for one in utterances)
        answer.meta.processed_text = " ".join(one.normalised for one in utterances)
        for durations in stream.durations[first:known]:
            answer.meta.predicted_durations.extend((durations * stream.frame_seconds * 1e3).tolist())
        if request.enable_word_time_offsets:
            for words in utterance_timestamps(stream, first, known):
                for word in words:
                    times = {"start_time": round(word.start * 1e3), "end_time": round(word.end * 1e3)}
                    answer.meta.words.add(word=word.text, **times)
    # A message with the sound would hold it three times while it is written.
    return b"".join((AUDIO, varint(sum(map(len, audio))), *audio, answer.SerializeToString()))


def varint(number: int) -> bytes:
    """As Protocol Buffers write a length."""
    low = number & 127
    return bytes((low,)) if low == number else bytes((low | 128,)) + varint(number >> 7)
