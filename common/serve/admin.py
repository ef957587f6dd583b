"""Routes of a server's administrators: its state, and voices that are loaded, unloaded and read again."""

from __future__ import annotations

import logging
import platform
import time
from typing import Any, Literal

import onnxruntime
from fastapi import APIRouter, Depends, Request

from melforge.common.errors import InputError
from melforge.common.files import version
from melforge.common.serve.errors import ApiError, bad_request
from melforge.common.serve.gate import caller_of, record_of
from melforge.common.serve.metrics import log
from melforge.common.serve.orders import Orders
from melforge.common.serve.service import Service

Action = Literal["load", "unload", "reload"]


def make_router(service: Service, orders: Orders) -> APIRouter:
    async def admins_only(request: Request) -> None:
        if not service.is_admin(caller := caller_of(request)):
            log("audit", logging.WARNING, id=record_of(request)["id"], key=caller, refused="no admin")
            raise ApiError(403, "this needs an API key with admin: true (docs/serving.md)", code="not_admin")

    router = APIRouter(prefix="/v1/admin", dependencies=[Depends(admins_only)])

    @router.get("/state")
    async def state() -> dict[str, Any]:
        """What each process does and has."""
        versions = {"melforge": version(), "python": platform.python_version()}
        return {
            "versions": {**versions, "onnxruntime": onnxruntime.__version__},
            "keys": service.keys.count,
            "processes": orders.states(),
        }

    @router.post("/voices/{voice}/{action}")
    async def voices(request: Request, voice: str, action: Action) -> dict[str, Any]:
        """Loads a voice of the voices' folder, unloads one, or reads one again, with its lexicon."""
        begun, fault = time.monotonic(), ""
        try:
            await orders.give(voice, action)
        except Exception as error:
            fault = str(error) or type(error).__name__
            if not isinstance(error, (InputError, OSError)):
                raise
            raise bad_request(fault, ("voice",), "invalid_value") from None
        finally:
            done = {"voice": voice, "action": action, "error": fault, "seconds": time.monotonic() - begun}
            log("audit", id=record_of(request)["id"], key=caller_of(request), **done)
        return {"voice": voice, "voices": list(service.pairs.voices), "loaded": service.pairs.loaded}

    return router
