"""Several texts in one request: an answer of JSON with each one's audio or its error, in their order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from melforge.common.serve.answer import KeptBytes, WrittenAnswer, answer_for, json_string, too_large
from melforge.common.serve.errors import ApiError
from melforge.common.serve.requests import BatchFields, SpeechFields, SpeechRequest, parse
from melforge.common.serve.service import Service

WAITING = 2_000_000  # bytes of audio, with which texts behind the first stop

Audio = tuple[bytes, KeptBytes]  # its head, which is known last, and the rest


class BatchAnswer(WrittenAnswer):
    """A text's audio waits until it is whole and all before it are sent.

    The texts begin in their order, as many at a time as the service says. The first of them may have as many
    bytes as one answer.
    """

    def __init__(
        self, service: Service, wanted: BatchFields, key: str, arrived: float, record: dict[str, Any]
    ):
        super().__init__(service, key, arrived, record, [fields.get("input") for fields in wanted.texts])
        self.wanted = wanted
        self._most = service.settings.answer_bytes
        self._first = 0  # text that is not sent yet
        self._speaking = 0  # texts
        self._waiting = 0  # bytes
        self._moved = asyncio.Condition()

    def headers_of(self) -> dict[str, str]:
        return {"content-type": "application/json"}

    async def parts(self, at_once: bool) -> AsyncGenerator[bytes, None]:
        texts = enumerate(self.wanted.texts)
        tasks = [asyncio.create_task(self._speak(number, fields)) for number, fields in texts]
        failed = 0
        try:
            yield b'{"results": ['
            for number, task in enumerate(tasks):
                result, audio = await task
                failed += audio is None
                content = json.dumps({"index": number, **result}).encode()
                yield b", " if number else b""
                if audio is None:
                    yield content
                else:
                    head, kept = audio
                    async for part in json_string("audio_data", kept.taken(head)):
                        yield part
                    yield b", " + content[1:]
                    self._waiting -= kept.size
                async with self._moved:
                    self._first = number + 1
                    self._moved.notify_all()
            content = {"total": len(tasks), "succeeded": len(tasks) - failed, "failed": failed}
            yield b"], " + json.dumps(content).encode()[1:]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _speak(self, number: int, fields: dict[str, Any]) -> tuple[dict[str, Any], Audio | None]:
        """What is said of a text, and its audio; None if what is said is an error."""
        try:
            wanted: SpeechFields = parse(fields, SpeechRequest)
            if wanted.stream_format != "audio":
                raise ApiError(400, "stream_format: the texts of a batch are answered whole", "stream_format")
            most = await self.service.most_together(wanted)
            async with self._moved:
                await self._moved.wait_for(
                    lambda: number == self._first or (self._speaking < most and self._waiting <= WAITING)
                )
                self._speaking += 1
            try:
                return await self._spoken(number, wanted)
            finally:
                self._speaking -= 1
                async with self._moved:
                    self._moved.notify_all()
        except Exception as error:
            return answer_for(error, self.record).content, None

    async def _spoken(self, number: int, wanted: SpeechFields) -> tuple[dict[str, Any], Audio]:
        wanted.alignment = False  # it would be kept for nobody
        spoken = await self.service.speak(wanted, self.arrived, whole=True)
        job, kept = spoken.job, KeptBytes()
        try:
            async for data in job:
                await kept.add(data)
                self._waiting += len(data)
                if kept.size > self._most:
                    raise too_large(self._most, "a format of fewer bytes")
                async with self._moved:
                    await self._moved.wait_for(lambda: number == self._first or self._waiting <= WAITING)
        except BaseException:
            self._waiting -= kept.size
            raise
        finally:
            self.record.setdefault("texts", []).append(self.service.conclude(spoken, self.key))
        content = {"media_type": job.encoder.content_type, "seconds": round(job.progress.made, 6)}
        return content, (job.encoder.head, kept)
