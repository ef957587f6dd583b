"""Errors in OpenAI's form: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

INVALID, SERVER = "invalid_request_error", "server_error"
RETRY_AFTER = {"Retry-After": "1"}
LONGEST_MESSAGE = 500  # characters
TAKEN_SECONDS = 8.0  # in which one of several processes or replicas must have a request; else it is refused


class ErrorDetails(BaseModel):
    message: str
    type: str
    param: str | None = Field(description="the field that is wrong")
    code: str | None


class ErrorAnswer(BaseModel):
    """The body of every answer that is no success."""

    error: ErrorDetails


# For /openapi.json: when a request is answered so.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": when}
    for status, when in {
        400: "a field that is wrong, or a body that cannot be read",
        401: "no valid API key",
        403: "a page of another site",
        408: "the body does not come",
        413: "the body, or an answer that has to wait until it is whole, is too long",
        415: "a body of another Content-Type",
        421: "another Host than this server's",
        429: "too many requests; Retry-After says when to try again",
        503: "the queue is full or the server is about to stop (with Retry-After), or the time is over",
        "default": "no such route, model or method (404, 405), or a fault of the server (500)",
    }.items()
}


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
        super().__init__(status, message, param, code, headers)
        self.status, self.param, self.code, self.headers = status, param, code, dict(headers or {})

    def __str__(self) -> str:
        return self.args[1]

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
