"""A Ray cluster: one that runs already, or one on this machine that ends with the program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from melforge.common.errors import InputError, require_package

LOCAL = "local"  # the address of a cluster that is begun here
ATTEMPTS = 3  # to begin it: on a busy machine the 30 s that Ray knows are too short
WITH_TOKEN = "RAY_AUTH_MODE=token where the cluster has a token"
# Enough for texts, reports and chunks of sound; Ray's default is a third of the memory.
OBJECT_STORE_BYTES = 200_000_000


def require_ray() -> Any:
    """The package; an InputError says how to get it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return require_package("ray", "--ray")


@contextmanager
def connected(address: str, variables: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Ray's module, connected meanwhile; an InputError if there is no cluster at the address.

    `variables`: of the environment of what is begun there.
    """
    ray = require_ray()
    how: dict[str, Any] = {}
    if address == LOCAL:
        for name, value in (variables or {}).items():  # not by runtime_env, which no process begun ahead has
            os.environ.setdefault(name, value)
        how = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
        # As many as this process may use: Ray counts those of the machine.
        if hasattr(os, "sched_getaffinity"):
            how["num_cpus"] = len(os.sched_getaffinity(0))
        attempts, fault = ATTEMPTS, "Ray did not begin on this machine, which may be too busy: try again"
    else:
        if variables:
            how = {"runtime_env": {"env_vars": dict(variables)}}
        attempts, fault = 1, f"no Ray cluster at {address!r}: give --ray HOST:PORT, and {WITH_TOKEN}"
    why = ""
    for _ in range(attempts):
        try:
            ray.init(address=address, logging_level="error", **how)
            break
        except Exception as error:  # Ray raises no other where a cluster of this machine begins too slowly
            why = " ".join(str(error).split())[:200]
            ray.shutdown()
    else:
        raise InputError(f"{fault} ({why})")
    try:
        yield ray
    finally:
        ray.shutdown()
