"""Short-lived tokens for browsers, which should not have an API key and cannot send one with a WebSocket.

A token says until when it holds, for which key, and what sessions it opens are like; it is signed with that
key. Nothing is stored: every process and replica with the same keys knows it, and it ends with its key.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "ek_"
MOST_CHARACTERS = 4096  # of a token, which has to fit into a header
ROUNDS = 100_000  # a token must not tell a weak key to who guesses


@dataclass(frozen=True)
class Token:
    """`key` is the name of the API key that it stands for, and `session` a realtime session's fields."""

    key: str
    expires: int  # seconds since 1970
    session: Mapping[str, Any]


def write_token(token: Token, keys: Mapping[bytes, str]) -> str:
    """The token, signed with one of `keys` (names by key), which has its key's name."""
    data = _in_base64(json.dumps([token.expires, token.key, token.session]).encode())
    return f"{PREFIX}{data}.{_in_base64(_signatures(data, token.key, keys)[0])}"


def read_token(text: str, keys: Mapping[bytes, str]) -> Token | None:
    """None if it is no token of these keys, or holds no longer."""
    data, _, signed = text.removeprefix(PREFIX).partition(".")
    try:
        expires, key, session = json.loads(_from_base64(data))
        given = _from_base64(signed)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(key, str):
        return None
    signatures = _signatures(data, key, keys)
    if not any(hmac.compare_digest(one, given) for one in signatures) or expires <= time.time():
        return None
    return Token(key, expires, session)


def _signatures(data: str, name: str, keys: Mapping[bytes, str]) -> list[bytes]:
    """By each key of that name; a server without keys signs with none."""
    fitting = [key for key, one in (keys or {b"": ""}).items() if one == name]
    return [hmac.digest(_signing_key(key), data.encode(), "sha256") for key in fitting]


@functools.cache
def _signing_key(key: bytes) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", key, b"melforge token", ROUNDS)


def _in_base64(data: bytes) -> str:
    """In the characters of a WebSocket's subprotocol."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
