"""The fields of a request for speech: OpenAI's, and ours from the table of controls."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)

from melforge.common.audio.wire import DEFAULT_RATE, FORMATS
from melforge.common.config.lexicon import lexemes
from melforge.common.config.yaml_file import entries_of
from melforge.common.errors import InputError
from melforge.common.serve.errors import ApiError, bad_request
from melforge.common.speech import Controls, control_fields
from melforge.common.text.lexicon import Lexicon
from melforge.common.text.markup import PlainText, linked, require_ssml
from melforge.common.text.phonemes import ALPHABETS, as_text

SLOWEST, FASTEST = 0.25, 4.0  # OpenAI's range of `speed`
MOST_RETRIES = 5
LARGEST_NUMBER = 2**63 - 1
NOT_USED = ("instructions",)  # accepted because some clients always send them
MOST_ERRORS = 100  # of a request, of which the first is named
MOST_PARTS = 30_000  # objects, lists or fields of a request's JSON: what others wait for while it is read
# Of a request's lexicon: entries, characters that it says in a text, and such of its own.
MOST_ENTRIES, MOST_SAID, MOST_WRITTEN = 200, 20_000, 30_000
MOST_NAMES = 16  # of unknown fields that are named in a header
LONGEST_NAME = 64  # of an unknown field that is named in a header
Name = Annotated[str, Field(max_length=1000)]  # of a model, a voice, or a mix of speakers
MOST_WARNINGS = 1000  # characters of a header


class VoiceId(BaseModel):
    """A voice as an object, which OpenAI's custom voices are."""

    model_config = ConfigDict(strict=True)
    id: Name


VOICE_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
    ]
}


def given(fields: Any) -> Any:
    """Without those that are null, which clients write for what they leave unset."""
    return {k: v for k, v in fields.items() if v is not None} if isinstance(fields, dict) else fields


class SpeechFields(BaseModel):
    """OpenAI's fields."""

    model_config = ConfigDict(strict=True, extra="allow")
    _given = model_validator(mode="before")(given)
    model: Name = Field(description="a pair such as fastpitch-hifigan, or one of OpenAI's names")
    input: str = Field(description="the text")
    voice: Annotated[Name | VoiceId, WithJsonSchema(VOICE_SCHEMA)] = Field(
        description="a voice's name, or {id: name}"
    )
    response_format: Literal[tuple(FORMATS)] = Field("mp3", description="of the audio")  # type: ignore
    speed: float = Field(1.0, ge=SLOWEST, le=FASTEST, description="2 is twice as fast")
    stream_format: Literal["audio", "sse", "json"] = Field(
        "audio", description="bytes, server-sent events, or JSON with words and subtitles"
    )
    stream: bool = Field(True, description="false: the answer comes when it is whole, with its length")
    timestamps: bool = Field(False, description="with sse: words and phonemes with their seconds")
    alignment: bool = Field(
        False, description="with sse or json: the seconds of each symbol, Tacotron 2's attention, the mel"
    )
    lexicon: dict[str, Any] | None = Field(
        None, description="how words of the input are said, as in a lexicon.yaml, without patterns"
    )
    phonemes: Literal[ALPHABETS] | None = Field(  # type: ignore[valid-type]
        None, description="the input is phonemes of this alphabet, with marks"
    )
    markup: Literal["auto", "ssml", "none"] = Field(
        "auto", description="SSML where input begins with <speak>, else marks in brackets; none: as written"
    )
    links: Literal["words", "addresses"] = Field(
        "words", description="of a link in Markdown its words are read, or the address too"
    )
    instructions: str | None = Field(None, description="accepted and not used")
    sample_rate: int = Field(DEFAULT_RATE, ge=1, le=LARGEST_NUMBER, description="Hz")
    retries: int = Field(
        0, ge=0, le=MOST_RETRIES, description="further seeds for a sentence that attention failed on"
    )

    @model_validator(mode="after")
    def _emptied(self) -> SpeechFields:
        """What has no effect keeps its name alone: it may be large, and a request waits."""
        ignored = sorted(self.model_extra or {})[:MOST_NAMES]
        self.__pydantic_extra__ = {name[:LONGEST_NAME]: None for name in ignored}
        self.instructions = self.instructions and self.instructions[:1]
        return self

    @property
    def voice_name(self) -> str:
        return self.voice if isinstance(self.voice, str) else self.voice.id

    @property
    def text(self) -> str:
        """What is to be spoken; an InputError for what is no SSML or no phonemes, and is said to be."""
        if self.phonemes:
            return PlainText(as_text(self.input, self.phonemes))
        if self.markup == "ssml":
            require_ssml(self.input)
        text = PlainText(self.input) if self.markup == "none" else self.input
        return linked(text) if self.links == "addresses" else text

    @cached_property
    def own_words(self) -> Lexicon | None:
        """The words of the request; an InputError for wrong ones, or too many."""
        if not self.lexicon:
            return None
        if len(self.lexicon) > MOST_ENTRIES:
            raise InputError(f"lexicon: {len(self.lexicon)} entries, of {MOST_ENTRIES} at most")
        if (size := len(json.dumps([*self.lexicon.values()], ensure_ascii=False))) > MOST_WRITTEN:
            raise InputError(f"lexicon: {size} characters of JSON, of {MOST_WRITTEN} at most")
        return Lexicon(lexemes(entries_of(self.lexicon, "lexicon"), patterns=False))

    @property
    def controls(self) -> Controls:
        """Raises an InputError for a value that is out of range."""
        given = {name: getattr(self, name) for name in OWN_CONTROLS if name in self.model_fields_set}
        return Controls(pace=self.speed, **given)

    @property
    def ignored(self) -> list[str]:
        """Fields without effect: unknown ones, and OpenAI's instructions."""
        given = [name for name in NOT_USED if getattr(self, name) is not None]
        return given + sorted(self.model_extra or {})


def _control_fields() -> dict[str, Any]:
    """A field for each control except `pace`, which OpenAI calls `speed`."""
    found = {}
    for name, (kind, about, default) in control_fields().items():
        if name != "pace":
            limits: dict[str, Any] = {}
            if kind is not bool:
                high = about.high if math.isfinite(about.high) else LARGEST_NUMBER
                limits = {"ge": about.low, "le": high}
            hint: Any = Annotated[int if kind is str else kind, Field(**limits)]
            found[name] = (hint | Name if kind is str else hint, Field(default, description=about.help))
    return found


OWN_CONTROLS = tuple(_control_fields())
SpeechRequest: Any = create_model("SpeechRequest", __base__=SpeechFields, **_control_fields())


class PhonemizeRequest(SpeechRequest):
    """A request for speech, of which a text suffices."""

    model: Name = Field("tts-1", description="a pair, whose acoustic model's text frontend is asked")
    voice: Annotated[Name | VoiceId, WithJsonSchema(VOICE_SCHEMA)] = Field(
        "alloy", description="a voice's name"
    )


class BatchFields(BaseModel):
    """Several requests; `defaults` are for fields that a request lacks."""

    model_config = ConfigDict(strict=True, extra="forbid")
    _given = model_validator(mode="before")(given)
    items: list[dict[str, Any]] = Field(min_length=1, fail_fast=True, description="requests for speech")
    defaults: dict[str, Any] = Field(default_factory=dict, description="fields of all of them")

    @property
    def texts(self) -> list[dict[str, Any]]:
        """The fields of each, without unknown ones."""
        defaults = known_fields(self.defaults)
        return [{**defaults, **known_fields(given(item))} for item in self.items]


def known_fields(fields: dict[str, Any]) -> dict[str, Any]:
    known = SpeechRequest.model_fields.keys() - NOT_USED
    return {name: value for name, value in fields.items() if name in known}


def require_few_parts(written: bytes) -> None:
    """413 for JSON that takes long to read; what stands in texts counts too."""
    if max(map(written.count, (b"{", b"[", b":"))) > MOST_PARTS:
        message = f"there are more than {MOST_PARTS} objects, lists or fields"
        raise ApiError(413, message, code="request_too_large")


def parse(body: bytes | dict[str, Any], kind: type[BaseModel]) -> Any:
    """A request from JSON or from a form's fields; 400 names the field that is wrong."""
    try:
        if isinstance(body, bytes):
            require_few_parts(body)
            return kind.model_validate_json(body.removeprefix(codecs.BOM_UTF8))
        return kind.model_validate(body)
    except ValidationError as error:
        raise invalid(error, kind) from None


def invalid(error: ValidationError, kind: type[BaseModel]) -> ApiError:
    """The first error: its field, what is wrong, and the value unless it is text."""
    if (count := error.error_count()) > MOST_ERRORS:  # to write down each takes longer than to find them
        return ApiError(400, f"the body has {count} mistakes", code="invalid_value")
    found = error.errors(include_url=False, include_context=False)
    first = min(found, key=lambda one: one["type"] != "string_too_long")  # of what else it could be
    where = [str(part) for part in first["loc"] if isinstance(part, int) or re.fullmatch(r"\w{1,64}", part)]
    param = where[0] if where and where[0] in kind.model_fields else None
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is no JSON: {first['msg']}", code="invalid_json")
    if first["type"] == "missing":
        return ApiError(400, f"{'.'.join(where)} is missing", param, "missing")
    shown = first["input"]
    value = f", not {shown!r}" if isinstance(shown, int | float | bool) or shown is None else ""
    return ApiError(400, f"{param or 'the body'}: {first['msg']}{value}", param, "invalid_value")


def controls_of(request: SpeechFields) -> Controls:
    """The controls; 400 names one that is out of range."""
    try:
        return request.controls
    except InputError as error:
        raise bad_request(str(error).replace("pace", "speed"), SpeechRequest.model_fields) from None


def ignored_header(ignored: Sequence[str]) -> str:
    """The names of fields without effect, for a header."""
    names = [re.sub(r"[^\w.-]", "?", name, flags=re.ASCII)[:LONGEST_NAME] for name in ignored[:MOST_NAMES]]
    return ", ".join(names)


def warnings_header(warnings: Sequence[str]) -> str:
    """What of a text's marks changes nothing, for a header."""
    return re.sub(r"[^ -~]", "?", "; ".join(warnings[:MOST_NAMES]))[:MOST_WARNINGS]
