"""Forms with files, `multipart/form-data` (RFC 7578), as clients send them with recordings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from melforge.common.serve.errors import ApiError

MOST_PARTS = 64
LARGEST_HEADER = 8192  # bytes of a part's headers
# A parameter of a header. The standard library's parser takes seconds for an open quote and many semicolons.
PARAMETER = re.compile(r';\s*([^\s;="]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))', re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A field of a form."""

    name: str
    content: bytes

    @property
    def text(self) -> str:
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            raise ApiError(400, f"{self.name} is no UTF-8", self.name, "invalid_value") from None


def read_form(content_type: str, body: bytes) -> list[Part]:
    """The parts of a form's body in their order. A 400 where it is none."""
    kind, _, _ = content_type.partition(";")
    boundary = parameters(content_type).get("boundary")
    if kind.strip().lower() != "multipart/form-data" or not boundary:
        raise ApiError(400, "the body must be a form, multipart/form-data with its boundary", "file")
    mark = b"--" + boundary.encode("utf-8", "replace")
    begin = 0 if body.startswith(mark) else body.find(b"\r\n" + mark) + 2
    if begin < 2 and not body.startswith(mark):
        raise ApiError(400, "the form has no part: its boundary is not in the body", "file")
    place, parts = begin + len(mark), []
    while body[place : place + 2] != b"--":
        end = body.find(b"\r\n" + mark, place)
        if end < 0 or len(parts) == MOST_PARTS:
            fault = "the form breaks off" if end < 0 else f"the form has more than {MOST_PARTS} parts"
            raise ApiError(400, fault, "file")
        parts.append(_part(body, place, end))
        place = end + 2 + len(mark)
    return parts


def _part(body: bytes, start: int, end: int) -> Part:
    """The part behind a boundary, in body[start:end]."""
    blank = body.find(b"\r\n\r\n", start, min(end, start + LARGEST_HEADER))
    if blank < 0:
        raise ApiError(400, "a part of the form has no headers", "file")
    name = ""
    for line in body[start:blank].decode("utf-8", "replace").split("\r\n"):
        header, _, value = line.partition(":")
        if header.strip().lower() == "content-disposition":
            name = parameters(value).get("name", "")
    if not name:
        raise ApiError(400, "a part of the form has no name", "file")
    return Part(name, body[blank + 4 : end])


def parameters(header: str) -> dict[str, str]:
    """The parameters of a header's value, such as `form-data; name="file"`; the first of each name."""
    found: dict[str, str] = {}
    for name, quoted, word in PARAMETER.findall(header):
        found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) or word)
    return found
