"""Forms with files, `multipart/form-data` (RFC 7578), as clients send them with recordings."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message

from common.serve.errors import ApiError

MOST_PARTS = 64
LARGEST_HEADER = 8192  # bytes of a part's headers


@dataclass(frozen=True)
class Part:
    """A field of a form; `filename` is None where it is no file."""

    name: str
    content: bytes
    filename: str | None = None

    @property
    def text(self) -> str:
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            raise ApiError(400, f"{self.name} is no UTF-8", self.name, "invalid_value") from None


def read_form(content_type: str, body: bytes) -> list[Part]:
    """The parts of a form's body in their order. A 400 where it is none."""
    header = Message()
    header["content-type"] = content_type
    boundary = header.get_param("boundary")
    if header.get_content_type() != "multipart/form-data" or not isinstance(boundary, str) or not boundary:
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
    header = Message()
    for line in body[start:blank].decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            header["content-disposition"] = value.strip()
    name = header.get_param("name", header="content-disposition")
    if not isinstance(name, str) or not name:
        raise ApiError(400, "a part of the form has no name", "file")
    filename = header.get_filename()
    return Part(name, body[blank + 4 : end], filename)
