"""Errors in OpenAI's form: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi.responses import JSONResponse

INVALID, SERVER = "invalid_request_error", "server_error"
RETRY_AFTER = {"Retry-After": "1"}
LONGEST_MESSAGE = 500  # characters


class ApiError(Exception):
    """An error answer."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, dict(headers or {})

    @property
    def content(self) -> dict[str, Any]:
        kind = INVALID if self.status < 500 else SERVER
        if self.status == 429:
            kind = "rate_limit_error"
        message = str(self)[:LONGEST_MESSAGE]
        return {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.content, self.status, self.headers)


def bad_request(message: str, fields: Iterable[str] = (), code: str | None = None) -> ApiError:
    """400; its param is the first of the fields that the message names."""
    known = set(fields)
    param = next((word for word in re.findall(r"\w+", message) if word in known), None)
    return ApiError(400, message, param, code)


def overloaded(message: str) -> ApiError:
    return ApiError(503, message, code="overloaded", headers=RETRY_AFTER)
