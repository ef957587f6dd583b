"""The page at `/`, the one about the API at `/docs`, and what a request may choose from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from melforge.common.audio.wire import DEFAULT_RATE, FORMATS, require_format
from melforge.common.errors import InputError
from melforge.common.serve.errors import ApiError
from melforge.common.serve.pairs import Pair, Pairs
from melforge.common.serve.requests import FASTEST, SLOWEST
from melforge.common.serve.service import Service
from melforge.common.speech import control_fields

FOLDER = Path(__file__).with_name("page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The page loads only its own files and talks only to its own server; no other page may frame it.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
KINDS = {bool: "switch", int: "integer", float: "number", str: "text"}


def make_router(service: Service) -> APIRouter:
    router = APIRouter()
    files = read_files(FOLDER)

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        return answer_file(files, "index.html")

    @router.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return answer_file(files, "docs.html")

    @router.get("/page/{name}", include_in_schema=False)
    async def file_of_page(name: str) -> Response:
        return answer_file(files, name)

    @router.get("/v1/audio/options")
    async def options() -> dict[str, Any]:
        """The choices of a request: pairs, voices, formats, controls, and the longest text."""
        pairs = service.pairs
        return {
            "pairs": [pair_options(pairs, name) for name in pairs.names],
            "voices": [
                {"id": name, "description": pairs.descriptions.get(name, "")} for name in pairs.voices
            ],
            "formats": available_formats(),
            "controls": control_options(),
            "max_characters": service.settings.max_characters,
            "ear": next(iter(service.hearing.names), None),
        }

    return router


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a page, by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in TYPES}


def answer_file(files: Mapping[str, bytes], name: str) -> Response:
    """A page's file, with its type and the headers that keep the page to itself; 404 if there is none."""
    if name not in files:
        raise ApiError(404, f"the page has no file {name[:100]!r}", code="not_found")
    return Response(files[name], headers={**HEADERS, "content-type": TYPES[Path(name).suffix]})


def pair_options(pairs: Pairs, name: str) -> dict[str, Any]:
    """A pair: the voices that have it, each with its mel contract and speakers, and the controls that have an
    effect in any of them.
    """
    spoken_by: list[Pair] = []
    for voice in pairs.voices:
        try:
            spoken_by.append(pairs.find(name, voice))
        except InputError:  # this voice lacks one of its models
            continue
    honoured = frozenset().union(*map(pairs.controls, spoken_by))
    return {
        "name": name,
        "voices": {
            pair.voice: {"mel": asdict(pairs.mel(pair)), "speakers": pairs.speakers(pair)}
            for pair in spoken_by
        },
        "controls": [request_name(control) for control in control_fields() if control in honoured],
    }


def control_options() -> list[dict[str, Any]]:
    """A row for each control, with the names and limits of a request; a `default` of None is the voice's."""
    rows = []
    for name, (kind, about, default) in control_fields().items():
        limits = (SLOWEST, FASTEST) if name == "pace" else (about.low, about.high)
        row = {
            "name": request_name(name),
            "kind": KINDS[kind],
            "help": about.help,
            "unit": about.unit,
            "default": default,
        }
        if kind in (int, float):
            row |= dict(zip(("low", "high"), (x if math.isfinite(x) else None for x in limits), strict=True))
        elif kind is str:
            row |= {"low": None, "high": None}
        elif about.negated:
            row["negated"] = about.negated
        rows.append(row)
    return rows


def request_name(control: str) -> str:
    """OpenAI's name of the pace is `speed`."""
    return "speed" if control == "pace" else control


def available_formats() -> list[str]:
    """The formats that can be made here; aac needs ffmpeg."""
    found = []
    for name in FORMATS:
        try:
            require_format(name, DEFAULT_RATE)
        except InputError:
            continue
        found.append(name)
    return found
