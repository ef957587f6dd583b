"""The speech server on Ray Serve: an ingress that forwards, and replicas of the whole server behind it."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from typing import Any

from melforge.common.cluster.connect import connected, require_ray
from melforge.common.cluster.forward import Asked, Forward, ReplicaAnswer, ReplicaLost, answer
from melforge.common.cluster.settings import PROXY_VARIABLES, RaySettings
from melforge.common.errors import InputError
from melforge.common.serve.app import make_app
from melforge.common.serve.errors import overloaded
from melforge.common.serve.health import Probe
from melforge.common.serve.keys import Access
from melforge.common.serve.logs import set_up_logging
from melforge.common.serve.metrics import log
from melforge.common.serve.pairs import LoadOptions
from melforge.common.serve.server import SIGNALS, bind, make_service
from melforge.common.serve.settings import ServeSettings

NAME = "melforge"
HEALTH_SECONDS, HEALTH_TIMEOUT = 10.0, 30.0
LOADING_CHECK = 0.05  # seconds


class Replica:
    """A replica: the server of `melforge serve` without its socket."""

    async def __init__(self, settings: ServeSettings, options: LoadOptions, access: Access):
        set_up_logging()
        self.service = make_service(settings, options, access)
        self.service.orders = None  # which other replicas would not hear of
        self.app = make_app(self.service)
        self.probe = Probe(self.service)
        self._lifespan = self.app.router.lifespan_context(self.app)
        await self._lifespan.__aenter__()
        while not self.service.pairs.is_ready(self.service.pairs.first):
            if self.service.fault is not None:
                raise self.service.fault
            await asyncio.sleep(LOADING_CHECK)

    async def answer(self, request: Asked) -> AsyncIterator[Any]:
        async for message in answer(self.app, request):
            yield message

    async def check_health(self) -> None:
        """As /ready: a real synthesis unless it spoke recently. Ray replaces it after three faults."""
        if fault := await self.probe.fault():
            log("not healthy", logging.ERROR, fault=fault)
            raise RuntimeError(fault)


class ReplicaOnRay(Replica):
    """Its figures are given to Ray, which shows those of all replicas, each with labels of its own."""

    async def __init__(self, settings: ServeSettings, options: LoadOptions, access: Access):
        await super().__init__(settings, options, access)
        self._gauge = import_module("ray.serve.metrics").Gauge
        self._gauges: dict[str, Any] = {}

    async def check_health(self) -> None:
        await super().check_health()
        self.service.note_state()
        samples = [one for family in self.service.metrics.registry.collect() for one in family.samples]
        for sample in samples:
            if sample.name.startswith("melforge_") and not sample.name.endswith("_created"):
                if sample.name not in self._gauges:
                    self._gauges[sample.name] = self._gauge(sample.name, tag_keys=tuple(sample.labels))
                self._gauges[sample.name].set(sample.value, dict(sample.labels))


class Ingress:
    """The ASGI application that Ray's HTTP proxies call."""

    def __init__(self, speech: Any, settings: ServeSettings):
        self._speech = speech.options(stream=True, method_name="answer")
        self._settings = settings

    def __serve_build_asgi_app__(self) -> Forward:
        return Forward(self._ask, self._settings.body_bytes)

    def _ask(self, request: Asked) -> ReplicaAnswer:
        return RayAnswer(self._speech.remote(request))


class RayAnswer:
    """Turns Ray's errors into ours."""

    def __init__(self, response: Any):
        self._response = response

    async def __aiter__(self) -> AsyncIterator[Any]:
        errors, serving = import_module("ray.exceptions"), import_module("ray.serve.exceptions")
        try:
            async for message in self._response:
                yield message
        except (errors.RayActorError, errors.WorkerCrashedError) as error:
            raise ReplicaLost(str(error)) from None
        except serving.RayServeException as error:
            raise overloaded(f"no replica can answer ({type(error).__name__}): try again later") from None

    def cancel(self) -> None:
        self._response.cancel()


def make_application(settings: ServeSettings, options: LoadOptions, access: Access, how: RaySettings) -> Any:
    """Ray Serve's application, for `serve.run` and for Ray's own tools."""
    require_ray()
    serve = import_module("ray.serve")
    replicas: dict[str, Any] = {"num_replicas": how.replicas}
    if how.most > how.replicas:
        scaling = {"min_replicas": how.replicas, "max_replicas": how.most}
        replicas = {"autoscaling_config": {**scaling, "target_ongoing_requests": how.ongoing}}
    settings = replace(settings, workers=settings.workers or 1)
    speech = serve.deployment(
        ReplicaOnRay,
        name="Speech",
        max_ongoing_requests=settings.queue,
        max_queued_requests=settings.queue,  # of each ingress; further ones are refused as they come
        health_check_period_s=HEALTH_SECONDS,
        health_check_timeout_s=HEALTH_TIMEOUT,
        graceful_shutdown_timeout_s=settings.grace,
        ray_actor_options={"num_cpus": settings.workers, "num_gpus": how.gpus_per_replica},
        **replicas,
    )
    ingress = serve.deployment(
        serve.ingress()(Ingress),
        name="Ingress",
        num_replicas=how.ingresses,
        max_ongoing_requests=settings.queue * how.most + settings.connections,
        graceful_shutdown_timeout_s=settings.grace,
        ray_actor_options={"num_cpus": 0},
    )
    return ingress.bind(speech.bind(settings, options, access), settings)


def serve_on_ray(
    settings: ServeSettings, options: LoadOptions, access: Access, how: RaySettings, address: str
) -> int:
    """Serves until a signal comes; the exit status."""
    require_ray()
    set_up_logging()
    with closing(bind(settings.host, settings.port)) as free:  # Ray's proxies share a port in silence
        port = free.getsockname()[1]
    with connected(address, PROXY_VARIABLES) as ray:
        serve = import_module("ray.serve")
        ended = threading.Event()
        for number in SIGNALS:
            signal.signal(number, lambda *_: ended.set())
        listening = {"host": settings.host, "port": port}
        try:
            serve.start(http_options=listening, logging_config={"enable_access_log": False})
            serve.run(make_application(settings, options, access, how), name=NAME)
        except (RuntimeError, ray.exceptions.RayError) as error:  # the latter on a machine that is too busy
            raise InputError(f"Ray could not begin the server: {' '.join(str(error).split())}") from None
        log("listening", url=f"http://{settings.host}:{port}", replicas=how.replicas)
        ended.wait()
        log("draining", grace_s=settings.grace)
        serve.delete(NAME)
        serve.shutdown()
    log("stopped")
    return 0
