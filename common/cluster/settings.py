"""The settings of a server on Ray, in addition to those of every server."""

from __future__ import annotations

from dataclasses import dataclass

from melforge.common.errors import InputError
from melforge.common.serve.settings import setting, setting_fields

# Of the environment of Ray Serve: what its proxies import, and how long one may take to begin, of which a
# busy machine needs more than the usual 5 seconds.
PROXY_VARIABLES = {
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "melforge.common.cluster.proxies:middlewares",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "30",
}


@dataclass(frozen=True)
class RaySettings:
    """Replicas, each a server with models of its own, and what they take of the cluster."""

    replicas: int = setting(1, "servers with models of their own on the cluster (default: 1)", "N")
    max_replicas: int | None = setting(
        None, "replicas to scale up to when many requests are running (default: as --replicas)", "N"
    )
    ongoing: int = setting(8, "running requests per replica above which replicas are added (default: 8)", "N")
    gpus_per_replica: float = setting(
        0.0, "GPUs of a replica; several share one with a fraction (default: 0)", "F", low=0
    )
    ingresses: int = setting(
        2, "processes that hand requests to the replicas; one that dies is not waited for (default: 2)", "N"
    )

    def __post_init__(self) -> None:
        for name, (_, about, _) in setting_fields(RaySettings).items():
            value = getattr(self, name)
            if value is not None and value < about.low:
                raise InputError(f"{name} must be at least {about.low:g}, not {value!r}")
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise InputError(f"max_replicas is {self.max_replicas}, and there are {self.replicas} replicas")

    @property
    def most(self) -> int:
        return self.max_replicas or self.replicas
