"""The realtime API's beta form, which clients ask for by a header: other names, and flat sessions."""

from __future__ import annotations

from typing import Any

BETA_HEADER, BETA_PROTOCOL = "realtime=v1", "openai-beta.realtime-v1"
TYPES = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "conversation.item.added": "conversation.item.created",
    "conversation.item.done": None,
}
PARTS = {"output_audio": "audio", "output_text": "text"}
FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
NAMES = {name: beta for beta, name in FORMATS.items()}
# A field of the beta form, and where it stands.
PLACES = {
    "voice": ("audio", "output", "voice"),
    "speed": ("audio", "output", "speed"),
    "output_audio_format": ("audio", "output", "format"),
    "input_audio_format": ("audio", "input", "format"),
    "input_audio_transcription": ("audio", "input", "transcription"),
    "turn_detection": ("audio", "input", "turn_detection"),
    "modalities": ("output_modalities",),
}


def from_beta(message: dict[str, Any]) -> dict[str, Any]:
    """A client's event; what is wrong in it is left as it is."""
    found = dict(message)
    if found.get("type") == "transcription_session.update":
        found["type"] = "session.update"
        if isinstance(found.get("session"), dict):
            found["session"] = {**found["session"], "type": "transcription"}
    for name in ("session", "response"):
        if isinstance(found.get(name), dict):
            found[name] = _deep(found[name])
    return found


def to_beta(message: dict[str, Any]) -> dict[str, Any] | None:
    """A server's event; None where the beta form has none."""
    kind = TYPES.get(message["type"], message["type"])
    if kind is None:
        return None
    found = {**message, "type": kind}
    if "session" in found:
        if found["session"]["type"] == "transcription":
            found["type"] = f"transcription_{kind}"
        found["session"] = _flat(found["session"])
    if "item" in found:
        found["item"] = _item(found["item"])
    if "response" in found:
        output = [_item(item) for item in found["response"]["output"]]
        found["response"] = {**_flat(found["response"]), "output": output}
    return found


def _deep(fields: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: value for name, value in fields.items() if name not in PLACES}
    for name, (*path, last) in PLACES.items():
        if name not in fields:
            continue
        value = fields[name]
        if last == "format" and isinstance(value, str):
            value = {"type": FORMATS.get(value, value)}
        at: Any = found
        for step in path:
            at = at.setdefault(step, {}) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at[last] = value
    return found


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in fields.items() if name not in ("audio", "output_modalities")}
    for name, (*path, last) in PLACES.items():
        at = fields
        for step in path:
            at = at.get(step, {})
        if last in at:
            found[name] = NAMES[at[last]["type"]] if last == "format" else at[last]
    if "modalities" in found:
        found["modalities"] = ["audio", "text"]  # audio with its transcript
    return found


def _item(item: dict[str, Any]) -> dict[str, Any]:
    content = [{**part, "type": PARTS.get(part["type"], part["type"])} for part in item["content"]]
    return {**item, "content": content}
