"""What a Triton Inference Server says of its models: how long requests waited, and how long they took."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from melforge.common.bench.report import Columns, Row
from melforge.common.triton.client import Client

COMPUTE = ("compute_input", "compute_infer", "compute_output")
SETTLING, LOOKS = 0.05, 20  # seconds between looks at statistics, which may follow the answers, and how many
# Of each model, by their headings.
SERVER_COLUMNS: Columns = {"queue": "queue_s ms", "compute": "compute_s ms", "batch": "batch .2f"}


@dataclass(frozen=True)
class Counts:
    """What a model has done so far."""

    requests: int = 0
    texts: int = 0
    executions: int = 0
    queue: float = 0.0  # seconds of all requests
    compute: float = 0.0

    def since(self, earlier: Counts) -> dict[str, float]:
        """Means of a request, and of an execution, between two moments; nothing where none was made."""
        requests, executions = self.requests - earlier.requests, self.executions - earlier.executions
        if not requests or not executions:
            return {}
        return {
            "queue_s": (self.queue - earlier.queue) / requests,
            "compute_s": (self.compute - earlier.compute) / requests,
            "batch": (self.texts - earlier.texts) / executions,
        }


def counts_of(models: Sequence[Mapping[str, Any]]) -> dict[str, Counts]:
    """Of each model, from Triton's `model_stats`; numbers may be strings (gRPC), and zeros missing."""

    def number(entry: Mapping[str, Any], name: str) -> int:
        return int(entry.get(name, 0))

    found = {}
    for model in models:
        stats: Mapping[str, Any] = model.get("inference_stats", {})
        nanoseconds = {name: number(stats.get(name, {}), "ns") for name in ("queue", *COMPUTE)}
        found[model["name"]] = Counts(
            number(stats.get("success", {}), "count"),
            number(model, "inference_count"),
            number(model, "execution_count"),
            nanoseconds["queue"] / 1e9,
            sum(nanoseconds[name] for name in COMPUTE) / 1e9,
        )
    return found


def settled(client: Client, models: Sequence[str] | None = None) -> dict[str, Counts]:
    """What these models, or all, have done, once that has stopped to grow."""
    counts = counts_of(client.statistics())
    for _ in range(LOOKS):
        time.sleep(SETTLING)
        before, counts = counts, counts_of(client.statistics())
        if before == counts:
            break
    return {name: counts[name] for name in models or counts if name in counts}


def spent_on_server(before: Mapping[str, Counts], after: Mapping[str, Counts], latency: float) -> Row:
    """Of a request that took `latency` seconds on average: those in queues, computing, and elsewhere.

    Nothing where one of the models did nothing in between.
    """
    server = {name: counts.since(before.get(name, Counts())) for name, counts in after.items()}
    if not server or not all(server.values()):
        return {}
    queue, compute = (sum(found[key] for found in server.values()) for key in ("queue_s", "compute_s"))
    left = max(0.0, latency - queue - compute)
    return {"server": server, "queue_s": queue, "compute_s": compute, "client_s": left}
