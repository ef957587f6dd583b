"""NVIDIA Riva's service RivaSpeechRecognition, with the server's ear."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from melforge.common.audio.pcm import A_LAW, MU_LAW, PCM, SAMPLE_BYTES, wav_header
from melforge.common.audio.sound_files import HIGHEST_RATE, LOWEST_RATE, decode_audio, encode_audio
from melforge.common.errors import InputError
from melforge.common.recognition.endpoints import PAUSE, GrowingRecording
from melforge.common.recognition.transcript import Transcript
from melforge.common.serve.errors import ApiError
from melforge.common.serve.incoming import in_time, recording_file
from melforge.common.serve.protocols.nim import REGIONS, require_language
from melforge.common.serve.protocols.riva_calls import ASR, RivaCall, encoding_of
from melforge.common.serve.protocols.transcriptions import UPLOAD_SECONDS, note_heard
from melforge.common.serve.service import Service

# Codings of samples without a head, by NVIDIA's names.
CODINGS = {"ENCODING_UNSPECIFIED": PCM, "LINEAR_PCM": PCM, "MULAW": MU_LAW, "ALAW": A_LAW}
HEADS, LONGEST_HEAD = (b"RIFF", b"fLaC", b"OggS", b"ID3"), 4  # of sound files
AT_ONCE = 1 << 18  # bytes of samples in which pauses are looked for
READ_AT_ONCE = 2  # recordings, each in memory three times; the ear hears one at a time
MOST_CHANNELS = 8
SHORTEST_PAUSE = 0.2  # seconds
# What clients ask for by default, and an ear of plain words has not.
WITHOUT_EFFECT = (
    "profanity_filter",
    "speech_contexts",
    "enable_automatic_punctuation",
    "verbatim_transcripts",
    "custom_configuration",
)


@dataclass(frozen=True)
class IncomingSound:
    """How samples without a head are to be read, and where pauses are cut."""

    coding: int
    rate: int
    channels: int
    pause: float
    word_times: bool

    def file(self, data: bytes) -> BinaryIO:
        """A sound file, or samples, as a sound file; 400 if it is not known how these are to be read."""
        file = recording_file(len(data))
        if not data.startswith(HEADS):
            if self.coding not in SAMPLE_BYTES:
                raise refusal("encoding", "this is no sound file, and its encoding is for files")
            if not LOWEST_RATE <= self.rate <= HIGHEST_RATE:
                limits = f"samples have {LOWEST_RATE} to {HIGHEST_RATE} Hz"
                raise refusal("sample_rate_hertz", f"{limits}, not {self.rate}")
            if not 1 <= self.channels <= MOST_CHANNELS:
                raise refusal("audio_channel_count", f"1 to {MOST_CHANNELS}, not {self.channels}")
            file.write(wav_header(self.rate, len(data), self.channels, self.coding))
        file.write(data)
        return file

    def samples(self, data: bytes) -> np.ndarray:
        """float32 [S]."""
        try:
            return decode_audio(self.file(data))[0]
        except InputError as error:
            raise ApiError(400, f"audio_content: {error}", "audio_content", "invalid_value") from None


class RivaHearing:
    """The service's methods: each gives its answers as bytes. All results are final, none interim."""

    def __init__(self, service: Service) -> None:
        self.service, self.hearing = service, service.hearing
        self._reading = asyncio.Semaphore(READ_AT_ONCE)

    async def recognize(self, call: RivaCall) -> AsyncGenerator[bytes, None]:
        """The transcript of a recording, which is not read before there is room for it."""
        with self._admitted(call):
            async with self._reading, in_time(UPLOAD_SECONDS):
                request: Any = await call.message(ASR.RecognizeRequest)
                sound = self._sound(call, request.config)
                answer = ASR.RecognizeResponse()
                if request.HasField("id"):
                    answer.id.CopyFrom(request.id)
                file = await asyncio.to_thread(self._file, sound, request)
                del request  # with the memory of its recording
            transcript = await self.hearing.transcribe(file)
            note_heard(self.service, call.record, transcript, call.arrived)
        if transcript.text:
            self._fill(answer.results.add(), transcript, 0.0, sound.word_times)
        yield answer.SerializeToString()

    async def streaming_recognize(self, call: RivaCall) -> AsyncGenerator[bytes, None]:
        """The transcripts of what is said between pauses, as it comes; of a sound file, of all at its end."""
        with self._admitted(call):
            messages = call.messages(ASR.StreamingRecognizeRequest)
            first: Any = await anext(messages, None)
            if first is None or not first.HasField("streaming_config"):
                message = "streaming_config: it has to be in the first message"
                raise ApiError(400, message, "streaming_config", "missing")
            sound = self._sound(call, first.streaming_config.config)
            async with aclosing(self._parts(messages, sound)) as parts:
                async for begin, file in parts:
                    since = self.service.scheduler.clock()
                    transcript = await self.hearing.transcribe(file)
                    note_heard(self.service, call.record, transcript, since)
                    if transcript.text:
                        answer = ASR.StreamingRecognizeResponse()
                        if first.HasField("id"):
                            answer.id.CopyFrom(first.id)
                        result = answer.results.add(is_final=True, stability=1.0)
                        self._fill(result, transcript, begin, sound.word_times)
                        yield answer.SerializeToString()

    async def get_riva_speech_recognition_config(self, call: RivaCall) -> AsyncGenerator[bytes, None]:
        """The ear, once for each of the two methods, as NVIDIA's clients tell models apart."""
        request: Any = await call.message(ASR.RivaSpeechRecognitionConfigRequest)
        answer = ASR.RivaSpeechRecognitionConfigResponse()
        for kind in ("offline", "online") if self.hearing.ear else ():
            if request.model_name in ("", self.hearing.names[0]):
                config = answer.model_config.add(model_name=self.hearing.names[0])
                config.parameters["type"] = kind
                config.parameters["streaming"] = str(kind == "online")
                config.parameters["language_code"] = REGIONS.get(self.hearing.language, self.hearing.language)
        if request.model_name and not answer.model_config:
            raise ApiError(404, f"model_name: there is no model {request.model_name[:50]!r}", "model_name")
        yield answer.SerializeToString()

    @contextmanager
    def _admitted(self, call: RivaCall) -> Iterator[None]:
        with self.service.admitted(call.key, [None]), self.hearing.admitted():
            yield

    def _sound(self, call: RivaCall, config: Any) -> IncomingSound:
        """What a RecognitionConfig says; 400 where it asks for what the ear cannot do."""
        # NVIDIA's names of models mean the ear, as OpenAI's do.
        ours = not config.model or "asr" in config.model.lower()
        self.hearing.require(next(iter(self.hearing.names), "") if ours else config.model)
        require_language(self.hearing.language, config.language_code)
        if config.diarization_config.enable_speaker_diarization:
            raise refusal("diarization_config", "this ear does not tell speakers apart")
        if config.enable_separate_recognition_per_channel and config.audio_channel_count > 1:
            raise refusal("enable_separate_recognition_per_channel", "send each channel by itself")
        call.ignored.update(field for field in WITHOUT_EFFECT if getattr(config, field))
        if config.max_alternatives > 1:
            call.ignored.add("max_alternatives")
        pause = config.endpointing_config.stop_history / 1e3  # ms
        return IncomingSound(
            CODINGS.get(encoding_of(config.encoding), 0),  # others are sound files
            config.sample_rate_hertz,
            config.audio_channel_count or 1,
            max(SHORTEST_PAUSE, pause) if pause > 0 else PAUSE,
            config.enable_word_time_offsets,
        )

    def _file(self, sound: IncomingSound, request: Any) -> BinaryIO:
        """The recording of a RecognizeRequest."""
        audio = request.audio
        if not audio:
            raise ApiError(400, "audio: it is empty", "audio", "missing")
        if len(audio) > (most := self.service.settings.recording_bytes):
            raise ApiError(413, f"audio: {len(audio)} bytes, of {most} at most", "audio")
        return sound.file(audio)

    async def _parts(
        self, messages: AsyncGenerator[Any, None], sound: IncomingSound
    ) -> AsyncGenerator[tuple[float, BinaryIO], None]:
        """Sound files of what is said, each with the seconds at which it begins."""
        data = b""
        async for message in messages:
            data += message.audio_content
            if len(data) >= LONGEST_HEAD:
                break
        if data.startswith(HEADS):
            file = sound.file(data)
            async for message in messages:
                file.write(message.audio_content)
                if file.tell() > (most := self.service.settings.recording_bytes):
                    raise ApiError(413, f"audio_content: more than {most} bytes", "audio_content")
            yield 0.0, file
            return
        sound.file(b"")  # says what is missing
        growing = GrowingRecording(sound.rate, sound.pause)
        width = sound.channels * SAMPLE_BYTES[sound.coding]

        def files(samples: bytes) -> list[tuple[float, BinaryIO]]:
            found = growing.add(sound.samples(samples)) if samples else growing.rest()
            return [(begin, io.BytesIO(encode_audio(audio, sound.rate))) for begin, audio in found]

        while True:
            whole = len(data) - len(data) % width
            step = AT_ONCE - AT_ONCE % width
            for start in range(0, whole, step):
                for part in await asyncio.to_thread(files, data[start : min(start + step, whole)]):
                    yield part
            message = await anext(messages, None)
            if message is None:
                break
            data = data[whole:] + message.audio_content
        for part in await asyncio.to_thread(files, b""):
            yield part

    def _fill(self, result: Any, transcript: Transcript, begin: float, word_times: bool) -> None:
        """A result of one or the other kind."""
        words = transcript.words
        result.channel_tag, result.audio_processed = 1, begin + transcript.seconds
        best = result.alternatives.add(transcript=transcript.text)
        best.confidence = sum(word.score for word in words) / len(words)
        best.language_code.append(REGIONS.get(self.hearing.language, self.hearing.language))
        for word in words if word_times else ():
            times = [round((begin + second) * 1e3) for second in (word.start, word.end)]
            best.words.add(word=word.word, start_time=times[0], end_time=times[1], confidence=word.score)


def refusal(field: str, why: str) -> ApiError:
    return ApiError(400, f"{field}: {why}", field, "unsupported_value")
