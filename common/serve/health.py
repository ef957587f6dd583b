"""Liveness, readiness and metrics, for whoever runs the server."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from melforge.common.serve.errors import ApiError
from melforge.common.serve.requests import SpeechRequest
from melforge.common.serve.service import Service

RECENT = 10.0  # seconds for which speech that was made counts as proof of readiness
STEP_LIMIT = 30.0  # seconds after which a worker's step counts as hanging
PROBE_SECONDS = 10.0
PROBE_TEXT = "Ready."


class Probe:
    """Checks that the server speaks: it did recently, or does now."""

    def __init__(self, service: Service):
        self.service = service
        self._asking = asyncio.Lock()

    async def fault(self) -> str:
        """Why the server does not speak; "" if it does."""
        service = self.service
        if service.draining:
            return "the server is about to stop"
        if not service.pairs.is_ready(service.pairs.first):
            return "the first pair is not loaded yet"
        if service.scheduler.slowest_step() > STEP_LIMIT:
            return f"a worker has been at one step for more than {STEP_LIMIT:g} seconds"
        async with self._asking:
            if service.scheduler.clock() - service.last_step < RECENT:
                return ""
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    return await self._speak()
            except TimeoutError:
                return f"a short text was not spoken within {PROBE_SECONDS:g} seconds"

    async def _speak(self) -> str:
        pairs, clock = self.service.pairs, self.service.scheduler.clock
        fields = {"model": pairs.first.name, "voice": pairs.first.voice, "input": PROBE_TEXT}
        wanted = SpeechRequest(**fields, response_format="pcm")
        job = None
        try:
            job = (await self.service.speak(wanted, clock())).job
            spoken = sum([len(data) async for data in job])
        except Exception as error:
            return f"a short text could not be spoken: {error}"
        finally:
            if job is not None:
                job.cancel()
        return "" if spoken else "a short text gave no audio"


def make_router(service: Service) -> APIRouter:
    router = APIRouter()
    probe = Probe(service)

    @router.get("/health")
    @router.get("/v1/health/live", include_in_schema=False)
    async def health() -> dict[str, Any]:
        """The process is alive and its event loop runs."""
        return {"status": "ok"}

    @router.get("/ready")
    @router.get("/v1/health/ready", include_in_schema=False)
    async def ready() -> Response:
        """200 if speech was made in the last seconds, or a short text is spoken now; else 503."""
        if fault := await probe.fault():
            return ApiError(503, fault, code="not_ready", headers={"Retry-After": "1"}).response
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Figures in Prometheus' form."""
        service.note_state()
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
