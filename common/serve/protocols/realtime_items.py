"""What a realtime conversation holds: what was written or recorded, and responses."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from melforge.common.serve.errors import ApiError, overloaded
from melforge.common.serve.incoming import Held
from melforge.common.serve.protocols.live import MOST_WAITING
from melforge.common.serve.protocols.realtime_fields import AudioOutput, ResponseFields

MOST_ITEMS, MOST_CHARACTERS = 2 * MOST_WAITING, 1 << 20  # older ones are forgotten
ROOT = "root"  # the item before the first


def new_id(kind: str) -> str:
    return f"{kind}_{os.urandom(10).hex()}"


@dataclass(eq=False)
class Item:
    """Something said in a conversation; `texts` are those that no response has spoken."""

    id: str
    role: str
    content: list[dict[str, Any]]
    texts: list[str] = field(default_factory=list)
    status: str = "completed"
    seconds: float | None = None  # of a response's audio
    truncated: bool = False

    @property
    def characters(self) -> int:
        return sum(len(part.get("text") or part.get("transcript") or "") for part in self.content)

    @property
    def as_json(self) -> dict[str, Any]:
        about = {"id": self.id, "object": "realtime.item", "type": "message"}
        return {**about, "status": self.status, "role": self.role, "content": self.content}


@dataclass(eq=False)
class SpokenResponse:
    """A response: texts that are spoken one after the other, as the audio of one item."""

    asked: ResponseFields
    output: AudioOutput
    speech: dict[str, Any]  # the fields of each text's request
    texts: list[str]
    id: str = field(default_factory=partial(new_id, "resp"))
    item: Item = field(
        default_factory=lambda: Item(new_id("item"), "assistant", [], status="in_progress", seconds=0.0)
    )
    status: str = "in_progress"
    error: ApiError | None = None
    cancelled: bool = False
    saying: asyncio.Task[ApiError | None] | None = None
    transcript: str = ""
    characters: int = 0
    seconds: float = 0.0

    @property
    def as_json(self) -> dict[str, Any]:
        ended = self.status != "in_progress"
        details: dict[str, Any] | None = None
        if self.error is not None:
            details = {"type": self.status, "error": self.error.content["error"]}
        elif self.status == "cancelled":
            details = {"type": self.status, "reason": "client_cancelled"}
        output = self.output.model_dump(include={"format", "voice"})
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": self.status,
            "status_details": details,
            "output": [self.item.as_json] if ended else [],
            "output_modalities": ["audio"],
            "audio": {"output": output},
            "metadata": self.asked.metadata,
            "usage": self.usage if ended else None,
        }

    @property
    def usage(self) -> dict[str, Any]:
        """As in server-sent events: characters spoken, and seconds of audio."""
        seconds = round(self.seconds)
        return {
            "total_tokens": self.characters + seconds,
            "input_tokens": self.characters,
            "output_tokens": seconds,
            "input_token_details": {"text_tokens": self.characters, "audio_tokens": 0, "cached_tokens": 0},
            "output_token_details": {"text_tokens": 0, "audio_tokens": seconds},
        }


class Conversation:
    """Items in their order."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._held = Held()

    def add(self, item: Item, place: int | None = None) -> None:
        """At a place of `place_for`, or at the end. The oldest ones that wait for nothing make room."""
        characters = item.characters + sum(one.characters for one in self.items)
        for old in [one for one in self.items if not one.texts]:
            if len(self.items) < MOST_ITEMS and characters <= MOST_CHARACTERS:
                break
            self.items.remove(old)
            characters -= old.characters
        self.items.insert(len(self.items) if place is None else place, item)

    def place_for(self, name: str | None, before: Any) -> int:
        """The place of a new item behind the one of the id `before`; 400 or 503 if it cannot be had."""
        waiting = [item for item in self.items if item.texts]
        characters = sum(item.characters for item in waiting)
        if len(waiting) >= MOST_WAITING or characters >= MOST_CHARACTERS:
            words = f"{len(waiting)} items wait to be spoken, of {characters} characters"
            raise overloaded(f"{words}: this one was not taken")
        self._held.note(sum(item.characters for item in self.items))
        if name and any(item.id == name for item in self.items):
            raise ApiError(400, "item.id: there is an item of this id", "item.id", "invalid_value")
        if before in (None, ROOT):
            return 0 if before else len(self.items)
        return 1 + self.items.index(self.find(before, "previous_item_id"))

    def before(self, item: Item) -> str | None:
        """The id of the item before this one, which may be new."""
        place = self.items.index(item) if item in self.items else len(self.items)
        return self.items[place - 1].id if place else None

    def find(self, name: Any, param: str = "item_id") -> Item:
        """400 if there is none of this id."""
        for item in self.items:
            if item.id == name:
                return item
        raise ApiError(400, f"{param}: this conversation has no such item", param, "item_not_found")
