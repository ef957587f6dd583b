"""The settings of a server: one table, of which each is an option, a YAML key and a name for `--set`."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, fields
from typing import Any, get_args, get_type_hints

from melforge.common.config.deployment import MOST_THREADS
from melforge.common.errors import InputError

# Texts in a batch. On a CPU larger batches are slower per text, and the first sound waits for all of them.
GPU_BATCH, CPU_BATCH = 32, 3
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Setting:
    """A setting's help text and its limits."""

    help: str
    unit: str = ""
    low: float = 1
    high: float = sys.float_info.max


def setting(default: Any, help: str, unit: str = "", **limits: float) -> Any:
    return field(default=default, metadata={"setting": Setting(help, unit, **limits)})


@dataclass(frozen=True)
class ServeSettings:
    """Where the server listens, and its limits."""

    host: str = setting("127.0.0.1", "address to listen at (default: 127.0.0.1)", "ADDRESS")
    port: int = setting(8000, "port to listen at, 0 for any free one (default: 8000)", "N", low=0, high=65535)
    wyoming_port: int | None = setting(
        None,
        "port for the Wyoming protocol (Home Assistant), which has no keys; usual is 10200 (default: none)",
        "N",
        low=0,
        high=65535,
    )
    riva_port: int | None = setting(
        None,
        "port for NVIDIA Riva's gRPC services, with the same keys; usual is 50051 (default: none)",
        "N",
        low=0,
        high=65535,
    )
    certificate: str | None = setting(
        None, "file of the certificates for TLS, of HTTP and of gRPC, in PEM (default: no TLS)", "FILE"
    )
    certificate_key: str | None = setting(None, "file of the certificate's key, in PEM", "FILE")
    pairs: str | None = setting(
        None,
        "the pairs that are offered, such as fastpitch-hifigan,tacotron2-waveglow; the first is spoken "
        "by OpenAI's model names (default: all of the voice, beginning with its first of each kind)",
        "NAMES",
    )
    max_characters: int = setting(4096, "longest text (default: 4096)", "N")
    queue: int = setting(
        256, "requests that may be running or waiting; further ones get 503 (default: 256)", "N"
    )
    connections: int = setting(
        1000, "connections at a time; a further one ends the one that is idle longest (default: 1000)", "N"
    )
    key_requests: int = setting(64, "requests of one key at a time; further ones get 429 (default: 64)", "N")
    key_requests_minute: int | None = setting(
        None, "requests of one key in a minute; further ones get 429 (default: no limit)", "N"
    )
    key_characters_minute: int | None = setting(
        None, "characters of one key's texts in a minute; further ones get 429 (default: no limit)", "N"
    )
    key_audio_seconds_minute: float | None = setting(
        None,
        "seconds of audio of one key, spoken and heard, in a minute; further requests get 429 "
        "(default: no limit)",
        "S",
    )
    batch_items: int = setting(64, "texts in a batch request (default: 64)", "N")
    seconds: float = setting(1800.0, "seconds that a request may take (default: 1800)", "S", low=0)
    body_bytes: int = setting(1 << 20, "bytes of a request's body (default: 1048576)", "N")
    answer_bytes: int = setting(
        25 << 20,
        "bytes of an answer that is sent only when it is complete, as with stream false; a longer one is 413 "
        "(default: 26214400)",
        "N",
    )
    ahead: float = setting(
        20.0,
        "seconds of unread audio after which the speech for a slow reader is paused (default: 20)",
        "S",
        low=0,
    )
    grace: float = setting(
        30.0, "seconds after SIGTERM for running requests to finish (default: 30)", "S", low=0
    )
    workers: int | None = setting(
        None,
        "threads that speak (default: one a core; one where a GPU or PyTorch speaks)",
        "N",
        high=MOST_THREADS,
    )
    processes: int = setting(
        1,
        "processes at this port, each with its own models; one that dies is replaced. The other settings "
        "apply to each process (default: 1)",
        "N",
        high=MOST_THREADS,
    )
    workers_per_gpu: int | None = setting(
        None,
        "processes that share a GPU, with --device cuda:all (every GPU), cuda:0,cuda:2 or one (default, of "
        "several or all: as many as have 4 GB of it and two cores each, 16 at most)",
        "N",
        high=MOST_THREADS,
    )
    max_batch: int | None = setting(
        None,
        "texts whose next audio is computed together, where the models gain by it; 1: each alone "
        f"(default: {GPU_BATCH} with --backend cuda, {CPU_BATCH} on a CPU)",
        "N",
    )
    memory_limit: float | None = setting(
        None, "MB of weights, above which the least recently used pair is unloaded (default: none)", "MB"
    )
    idle_unload: float | None = setting(
        None, "seconds without use after which a pair is unloaded (default: never)", "S"
    )
    ear: str | None = setting(
        None, "name or folder of the ear that transcribes recordings (default: the shipped one)", "NAME"
    )
    recordings: int = setting(
        8, "recordings that may be running or waiting; further ones get 429 (default: 8)", "N"
    )
    recording_bytes: int = setting(25 << 20, "bytes of a recording (default: 26214400)", "N")
    recording_seconds: float = setting(1200.0, "seconds of a recording (default: 1200)", "S")
    keys: str | None = setting(
        None,
        "file of API keys, which is read again when it changes: lines of a key and its owner's name, or a "
        ".yaml or .json of names, each with its key's SHA-256 and limits "
        "(or $MELFORGE_API_KEYS, with commas; default: none)",
        "FILE",
    )
    usage: str | None = setting(
        None,
        "where to keep what each key used by day, for /v1/usage: a file (SQLite) or a postgresql:// URL "
        "(default: nowhere)",
        "PLACE",
    )
    origins: str | None = setting(
        None,
        "origins whose pages may send requests, such as http://localhost:3000, with commas; * allows all "
        "(default: the server's own page only)",
        "URLS",
    )
    hosts: str | None = setting(
        None,
        "names of this machine that requests may be sent to, with commas; * allows all (default: where it "
        "listens at localhost and needs no keys, localhost and its addresses; else all)",
        "NAMES",
    )
    without_keys: bool = setting(False, "allow other machines without API keys")

    def __post_init__(self) -> None:
        for name, (kind, about, _) in setting_fields().items():
            value = getattr(self, name)
            if kind not in (int, float) or value is None or about.low <= value <= about.high:
                continue
            limit = f"at most {about.high:g}" if about.low <= value < math.inf else f"at least {about.low:g}"
            raise InputError(f"{name} must be {limit}, not {value!r}")

    def texts_together(self, on_cpu: bool) -> int:
        """The largest batch: of how many texts the next audio is computed together."""
        return self.max_batch or (CPU_BATCH if on_cpu else GPU_BATCH)


def listed(words: str | None) -> tuple[str, ...]:
    """The words of a setting that has several, with commas."""
    return tuple(word.strip() for word in (words or "").split(",") if word.strip())


def setting_fields(of: type[Any] = ServeSettings) -> dict[str, tuple[type, Setting, Any]]:
    """Type, words and default of each setting by its name."""
    hints = get_type_hints(of)
    return {
        f.name: ((get_args(hints[f.name]) or (hints[f.name],))[0], f.metadata["setting"], f.default)
        for f in fields(of)
    }
