"""NVIDIA's names of voices and of what a request for speech has, and the HTTP routes of its Speech NIM.

They are those of its documentation; gRPC has the same fields (`riva`).
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import UploadFile

from melforge.common.errors import InputError, unknown
from melforge.common.serve.answer import SpeechAnswer
from melforge.common.serve.errors import ApiError
from melforge.common.serve.gate import caller_of, record_of
from melforge.common.serve.incoming import read_body
from melforge.common.serve.pairs import OPENAI_MODELS, Pairs
from melforge.common.serve.protocols.transcriptions import MOST_FIELDS, read_form
from melforge.common.serve.requests import OWN_CONTROLS, SpeechFields, SpeechRequest, parse
from melforge.common.serve.service import Service

ENGLISH = "English-US"  # what NVIDIA's English models are called in the names of their voices
REGIONS = {"en": "en-US"}
ANY_LANGUAGE = "multi"
ENCODINGS = {"": "pcm", "LINEAR_PCM": "pcm", "OGGOPUS": "opus"}  # by NVIDIA's names; "": none was asked for
# Speakers of NVIDIA's English models, whose names its clients have as defaults: each means an OpenAI voice.
SPEAKERS = {
    "female-1": "alloy",
    "male-1": "ash",
    "aria": "nova",
    "mia": "coral",
    "sofia": "sage",
    "jason": "ash",
    "leo": "echo",
    "ray": "onyx",
}
EMOTIONS = ("neutral", "calm", "angry", "happy", "sad", "fearful", "disgust", "pleasantsurprised")
CONFIGURABLE = (*OWN_CONTROLS, "speed", "retries", "markup", "phonemes")  # by a custom configuration
ARPABET = re.compile(r"[A-Z]{1,2}[0-2]?(?:\s+[A-Z]{1,2}[0-2]?)*")
ZERO_SHOT = "this server clones no voices from a prompt: leave {} out; `melforge voice clone` makes a voice"
LONGEST_DICTIONARY, LONGEST_NUMBER = 1 << 16, 64  # characters
LONGEST_ENCODED = 1 << 19  # bytes of a form: a dictionary's characters may have nine each
MOST_CONFIGURED = 2 * MOST_FIELDS
URL_ENCODED = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class VoiceModel:
    """A pair and a voice, as NVIDIA's clients list it: its speakers are named `name`.SPEAKER."""

    pair: str
    language: str  # en-US
    name: str
    speakers: tuple[str, ...]
    rate: int  # Hz


def voice_models(pairs: Pairs) -> Iterator[VoiceModel]:
    """Those of the first pair are of English-US, others of English-US-PAIR."""
    for number, model in enumerate(pairs.names):
        for voice in pairs.voices:
            try:
                pair = pairs.find(model, voice)
            except InputError:  # this voice lacks one of its models
                continue
            language = pairs.languages[voice] or "en"
            name = ENGLISH if language == "en" else language
            speakers = pairs.speakers(pair) or (voice,)
            rate = pairs.mel(pair).sampling_rate
            yield VoiceModel(
                model, REGIONS.get(language, language), f"{name}-{model}" if number else name, speakers, rate
            )


def voice_fields(pairs: Pairs, name: str) -> dict[str, Any]:
    """The fields of a request that mean a voice by its listed name, one of NVIDIA's, or this server's own.

    "" is the first voice. An emotion of NVIDIA's has no effect, which the answer says of fields it ignores.
    """
    first = {"model": OPENAI_MODELS[0], "voice": name or pairs.voices[0]}
    if not name or name in pairs.voice_names:
        return first
    model, _, speaker = name.partition(".")
    listed = list(voice_models(pairs))
    known = {f"{ENGLISH}-{one.pair}": one.pair for one in listed} | {one.name: one.pair for one in listed}
    if model in known and (speaker in pairs.voice_names or ":" in speaker):
        return {"model": known[model], "voice": speaker}
    *_, speaker, last = ["", *name.lower().removeprefix(f"{ENGLISH.lower()}-").split(".")]
    emotion = {"emotion": last} if last in EMOTIONS else {}
    if (speaker if emotion else last) in SPEAKERS:
        return {**first, "voice": SPEAKERS[speaker if emotion else last], **emotion}
    return first


def lexicon_of(dictionary: str) -> dict[str, dict[str, str]]:
    """A custom dictionary, "WORD  PHONEMES" with commas or a line each, as the lexicon of a request."""
    if len(dictionary) > LONGEST_DICTIONARY:
        size = f"{len(dictionary)} characters, of {LONGEST_DICTIONARY} at most"
        raise ApiError(400, f"custom_dictionary: {size}", "custom_dictionary", "string_above_max_length")
    entries = {}
    for entry in filter(None, map(str.strip, re.split(r"[,\n]", dictionary))):
        word, gap, phonemes = entry.partition("  ")
        if not gap:
            message = f"custom_dictionary: {entry[:50]!r} has no two blanks between a word and its phonemes"
            raise ApiError(400, message, "custom_dictionary", "invalid_value")
        said = phonemes.strip()
        entries[word.strip()] = {"arpabet" if ARPABET.fullmatch(said) else "ipa": said}
    return entries


def speech_request(
    service: Service,
    *,
    text: str,
    voice: str = "",
    language: str = "",
    encoding: str = "",
    rate: int = 0,
    dictionary: str = "",
    configuration: Mapping[str, str] | None = None,
) -> SpeechFields:
    """The request that NVIDIA's fields mean; without a rate it is the voice's own. Raises ApiError."""
    if encoding not in ENCODINGS:
        usual = unknown("encoding", encoding, filter(None, ENCODINGS))
        raise ApiError(400, f"encoding: {usual}", "encoding", "unsupported_value")
    if rate < 0:
        raise ApiError(400, f"sample_rate_hz: {rate} is no rate", "sample_rate_hz", "invalid_value")
    require_few_configured(len(configuration or {}))
    free = {
        key: value for key, value in (configuration or {}).items() if key not in SpeechRequest.model_fields
    }
    own = {key: value_of(value) for key, value in (configuration or {}).items() if key in CONFIGURABLE}
    fields = {**free, **own, **voice_fields(service.pairs, voice), "input": text}
    fields["response_format"] = ENCODINGS[encoding]
    if dictionary:
        fields["lexicon"] = lexicon_of(dictionary)
    wanted: SpeechFields = parse(fields, SpeechRequest)
    try:
        pair = service.pairs.find(wanted.model, wanted.voice_name)
    except InputError as error:
        raise ApiError(400, str(error), "voice", "model_not_found") from None
    require_language(service.pairs.languages[pair.voice] or "en", language)
    wanted.sample_rate = rate or service.pairs.mel(pair).sampling_rate
    service.require(wanted)
    return wanted


def require_few_configured(count: int) -> None:
    if count > MOST_CONFIGURED:
        message = f"custom_configuration: {count} fields, of {MOST_CONFIGURED} at most"
        raise ApiError(400, message, "custom_configuration", "invalid_value")


def require_language(known: str, asked: str) -> None:
    """400 if what is `known`, such as en, is not the language of en-US."""
    if re.split("[-_]", asked.strip().lower(), maxsplit=1)[0] not in ("", ANY_LANGUAGE, known):
        message = f"language: this is for {known}, not for {asked[:50]!r}"
        raise ApiError(400, message, "language", "unsupported_value")


def value_of(text: str) -> Any:
    """What a text of a custom configuration means: a number, true, false, or itself."""
    if len(text) > LONGEST_NUMBER:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float) else text


async def read_fields(request: Request, most: int, turn: asyncio.Lock) -> dict[str, str]:
    """A form's fields, whichever way it is encoded; 400 for a file, which could only be a voice's prompt.

    One at a time is decoded: escapes take sixty times their size meanwhile.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == URL_ENCODED:
        text = (await read_body(request, min(most, LONGEST_ENCODED))).decode(errors="replace")
        try:
            async with turn:
                fields = await asyncio.to_thread(urllib.parse.parse_qsl, text, max_num_fields=MOST_FIELDS)
            return dict(fields)
        except ValueError:
            raise ApiError(
                400, f"the form has more than {MOST_FIELDS} fields", code="invalid_value"
            ) from None
    form = await read_form(request, most, most, with_file=False)
    try:
        if files := [name for name, value in form.items() if isinstance(value, UploadFile)]:
            raise ApiError(400, ZERO_SHOT.format(files[0]), files[0], "unsupported_value")
        return {name: value for name, value in form.items() if isinstance(value, str)}
    finally:
        await form.close()


def wanted_of(service: Service, given: dict[str, str]) -> SpeechFields:
    """What a form asks for; 400 names the field that is wrong."""
    if "text" not in given:
        raise ApiError(400, "text is missing", "text", "missing")
    rate = given.pop("sample_rate_hz", "") or "0"
    if not re.fullmatch(r"\d{1,9}", rate, re.ASCII):
        raise ApiError(400, "sample_rate_hz: a whole number is wanted", "sample_rate_hz", "invalid_value")
    fields = {name: given.pop(name, "") for name in ("text", "voice", "language", "encoding")}
    dictionary = given.pop("custom_dictionary", "")
    configured = given.pop("custom_configuration", "")
    require_few_configured(configured.count(","))
    configuration = dict(pair.split(":", 1) for pair in configured.split(",") if ":" in pair)
    # What is left is nothing that is known here; the answer says so.
    return speech_request(
        service, **fields, rate=int(rate), dictionary=dictionary, configuration={**given, **configuration}
    )


def make_router(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1/audio", tags=["NVIDIA's Speech NIM"])
    turn = asyncio.Lock()

    async def answer(request: Request, whole: bool) -> Response:
        arrived = service.scheduler.clock()
        fields = await read_fields(request, service.settings.body_bytes, turn)
        wanted = wanted_of(service, fields)
        if whole:
            wanted.stream = False
            if wanted.response_format == "pcm":
                wanted.response_format = "wav"
        return SpeechAnswer(service, wanted, caller_of(request), arrived, record_of(request))

    @router.post("/synthesize", response_class=Response)
    async def synthesize(request: Request) -> Response:
        """Speaks a form's text: a whole wav."""
        return await answer(request, whole=True)

    @router.post("/synthesize_online", response_class=Response)
    async def synthesize_online(request: Request) -> Response:
        """The same as raw samples of 16 bits, as they are made."""
        return await answer(request, whole=False)

    @router.get("/list_voices")
    async def list_voices() -> dict[str, Any]:
        """The voices by language."""
        listed: dict[str, dict[str, list[str]]] = {}
        for one in voice_models(service.pairs):
            names = listed.setdefault(one.language, {"voices": []})["voices"]
            names += [f"{one.name}.{speaker}" for speaker in one.speakers]
        return listed

    return router
