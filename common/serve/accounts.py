"""What keys used, for their owners."""

from __future__ import annotations

import asyncio
import csv
import io
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from melforge.common.serve.errors import ApiError
from melforge.common.serve.gate import caller_of
from melforge.common.serve.service import Service
from melforge.common.serve.usage import COLUMNS

DAYS = 30  # of usage, where a request does not say which


def make_router(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.get("/usage", response_model=None)
    async def usage(
        request: Request,
        start: date | None = None,
        end: date | None = None,
        key: str | None = None,
        format: Literal["json", "csv"] = "json",
    ) -> dict[str, Any] | Response:
        """What a key used by day (in UTC), kind, model and voice: one's own, for an admin all."""
        if service.usage is None:
            raise ApiError(404, "usage is not kept here: start the server with --usage FILE", code="not_kept")
        caller = caller_of(request)
        if service.keys and not service.is_admin(caller):
            if key not in (None, caller):
                raise ApiError(403, "the usage of others is for keys with admin: true", "key", "not_admin")
            key = caller
        end = end or datetime.now(UTC).date()
        start = start or max(end, date.min + timedelta(DAYS)) - timedelta(DAYS)
        try:
            rows = await asyncio.to_thread(service.usage.database.read, start, end, key)
        except Exception as error:
            raise ApiError(503, f"usage cannot be read: {error}", code="not_readable") from None
        if format == "json":
            return {"object": "list", "data": rows}
        text = io.StringIO()
        csv.DictWriter(text, COLUMNS).writeheader()
        csv.DictWriter(text, COLUMNS).writerows(rows)
        return Response(text.getvalue(), media_type="text/csv")

    return router
