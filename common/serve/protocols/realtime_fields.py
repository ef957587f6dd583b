"""What clients of OpenAI's realtime API may send: a session's fields, items, responses, asking for tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from melforge.common.audio.wire import DEFAULT_RATE
from melforge.common.serve.errors import ApiError
from melforge.common.serve.protocols.live import DEFAULTS
from melforge.common.serve.requests import Name, SpeechRequest, given

PCM = "audio/pcm"
G711_RATE = 8000  # Hz
LONGEST_ID = 64
MOST_PARTS, MOST_INPUTS, MOST_METADATA = 64, 256, 16  # of an item, and of a response
OPENAI = "gpt-"  # begins OpenAI's names of models that converse
# Fields of a request for speech that a session's output may have beside OpenAI's.
OWN = frozenset(SpeechRequest.model_fields) - {
    "model",
    "input",
    "response_format",
    "sample_rate",
    "stream_format",
    "stream",
    "timestamps",
    "alignment",
    "instructions",
}
NO_DETECTION = (
    "this server does not detect turns: leave it null, and end each by input_audio_buffer.commit and, where "
    "something is to be spoken, response.create"
)
ONLY_AUDIO = "this server speaks: a response is audio"

T = TypeVar("T", bound=BaseModel)


class RealtimeObject(BaseModel):
    """Unknown fields have no effect; which of a session have one, `session.updated` shows."""

    model_config = ConfigDict(strict=True, extra="ignore")
    _given = model_validator(mode="before")(given)


def _none(value: Any) -> None:
    if value is not None:
        raise ValueError(NO_DETECTION)


def _audio(value: Any) -> Any:
    if isinstance(value, list) and "audio" not in value:
        raise ValueError(ONLY_AUDIO)
    return ["audio"]


Modalities = Annotated[list[str], BeforeValidator(_audio)]


class AudioFormat(RealtimeObject):
    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"] = "audio/pcm"
    rate: int | None = Field(default=None, ge=8000, le=192000)  # Hz

    @model_validator(mode="after")
    def _with_rate(self) -> AudioFormat:
        self.rate = (self.rate or DEFAULT_RATE) if self.type == PCM else None
        return self

    @property
    def hertz(self) -> int:
        return self.rate or G711_RATE


class HeardLanguage(RealtimeObject):
    """Of whom, and in what, the ear transcribes."""

    model: Name = "whisper-1"
    language: Name = ""


class AudioInput(RealtimeObject):
    format: AudioFormat = AudioFormat()
    transcription: HeardLanguage | None = None
    turn_detection: Annotated[None, BeforeValidator(_none)] = None


class AudioOutput(RealtimeObject):
    """Fields of a request for speech, with which they are checked."""

    model_config = ConfigDict(strict=True, extra="allow")
    format: AudioFormat = AudioFormat()
    voice: Any = DEFAULTS["voice"]
    speed: Any = 1.0

    @model_validator(mode="after")
    def _without_others(self) -> AudioOutput:
        extra = self.model_extra or {}
        for name in extra.keys() - OWN:
            del extra[name]
        return self


class SessionAudio(RealtimeObject):
    input: AudioInput = AudioInput()
    output: AudioOutput = AudioOutput()


class RealtimeFields(RealtimeObject):
    """A session's."""

    type: Literal["realtime", "transcription"] = "realtime"
    model: Name = "gpt-realtime"
    output_modalities: Modalities = ["audio"]
    audio: SessionAudio = SessionAudio()

    @model_validator(mode="after")
    def _heard(self) -> RealtimeFields:
        if self.type == "transcription" and self.audio.input.transcription is None:
            self.audio.input.transcription = HeardLanguage()
        return self

    def updated(self, fields: Mapping[str, Any]) -> RealtimeFields:
        """With other values for those that are given; 400 says which of them is wrong."""
        return valid(RealtimeFields, merged(self.model_dump(), fields), "session")

    def speech(self, output: AudioOutput) -> dict[str, Any]:
        """The fields of a request for speech, but for its text."""
        return {
            **(output.model_extra or {}),
            "model": DEFAULTS["model"] if self.model.startswith(OPENAI) else self.model,
            "voice": output.voice,
            "speed": output.speed,
            "response_format": output.format.type.removeprefix("audio/"),
            "sample_rate": output.format.hertz,
            "alignment": False,  # it would be kept for nobody
        }

    def as_json(self) -> dict[str, Any]:
        """As a server's event shows it."""
        found = self.model_dump()
        if self.type == "transcription":
            return {"type": self.type, "audio": {"input": found["audio"]["input"]}}
        return found


class TextPart(RealtimeObject):
    type: Literal["input_text", "output_text", "text"]
    text: str


class MessageItem(RealtimeObject):
    """Something said in a conversation, in writing."""

    type: Literal["message"] = "message"
    id: str | None = Field(None, min_length=1, max_length=LONGEST_ID)
    role: Literal["user", "assistant", "system"]
    content: list[TextPart] = Field(max_length=MOST_PARTS, fail_fast=True)

    @property
    def texts(self) -> list[str]:
        return [part.text for part in self.content if part.text.strip()]


class ResponseAudio(RealtimeObject):
    output: dict[str, Any] = Field(default_factory=dict)


class ResponseFields(RealtimeObject):
    """What a response is asked to be."""

    audio: ResponseAudio = ResponseAudio()
    input: list[MessageItem] | None = Field(None, max_length=MOST_INPUTS, fail_fast=True)
    instructions: str = ""
    output_modalities: Modalities = ["audio"]
    conversation: Literal["auto", "none"] = "auto"
    metadata: dict[Name, Name] | None = Field(None, max_length=MOST_METADATA)


class Truncation(RealtimeObject):
    """What of an item's audio was heard."""

    item_id: str
    content_index: Literal[0] = 0
    audio_end_ms: int = Field(ge=0)


class Expiry(RealtimeObject):
    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(default=600, ge=10, le=7200)


class SecretFields(RealtimeObject):
    """A request for a short-lived token."""

    expires_after: Expiry = Field(default_factory=Expiry, description="10 to 7200 seconds")
    session: dict[str, Any] = Field(default_factory=dict, description="what its sessions are like")


def merged(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Objects in objects are merged too."""
    found = dict(known)
    for name, value in given.items():
        old = found.get(name)
        found[name] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found


def valid(kind: type[T], fields: Any, where: str) -> T:
    """400 names the field that is wrong, which is in `where`."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    param = ".".join((*filter(None, (where,)), *map(str, first["loc"])))
    code = {"missing": "missing_required_parameter"}.get(first["type"], "invalid_value")
    raise ApiError(400, f"{param}: {first['msg'].removeprefix('Value error, ')}", param, code)
