"""Short-lived tokens for browsers, which should not have an API key and cannot send one with a WebSocket.

A token says until when it holds, for which key, and what sessions it opens are like; it is signed. Nothing is
stored: every process and replica with the same keys and secret knows it, and it ends with its key.
"""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "ek_"
MOST_CHARACTERS = 4096  # of a token, which has to fit into a header


@dataclass(frozen=True)
class Token:
    """`key` is the name of the API key that it stands for, and `session` a realtime session's fields."""

    key: str
    expires: int  # seconds since 1970
    session: Mapping[str, Any]


def write_token(token: Token, secret: bytes) -> str:
    """The token, signed with its key's secret."""
    data = _in_base64(json.dumps([token.expires, token.key, token.session]).encode())
    return f"{PREFIX}{data}.{_in_base64(_signature(data, secret))}"


def read_token(text: str, secret_of: Callable[[str], bytes | None]) -> Token | None:
    """None if it is no token of these keys, or holds no longer; `secret_of` a key's name, None: unknown."""
    data, _, signed = text.removeprefix(PREFIX).partition(".")
    try:
        expires, key, session = json.loads(_from_base64(data))
        given = _from_base64(signed)
    except (ValueError, TypeError, RecursionError):
        return None
    secret = secret_of(key) if isinstance(key, str) else None
    if secret is None or not hmac.compare_digest(_signature(data, secret), given) or expires <= time.time():
        return None
    return Token(key, expires, session)


def _signature(data: str, secret: bytes) -> bytes:
    return hmac.digest(secret, data.encode(), "sha256")


def _in_base64(data: bytes) -> str:
    """In the characters of a WebSocket's subprotocol."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
