"""A user's function beside our models: symbol ids to audio."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from common.arrays import to_numpy
from common.audio.contract import MelContract
from common.bench.models import Measured, Output, config_of, ids_of, sources_of
from common.bench.worker import Row, run_jobs
from common.bench.workload import Workload
from common.engines import Engine
from common.errors import InputError

LONGEST_IMPORT = 120.0  # seconds, of a user's module


class Peer:
    """A user's "module:function": a list of int64 arrays of ids -> the audio of each, in one array or a list.

    It gets the ids that the workload's acoustic model gets.
    """

    engines: Sequence[Engine] = ()

    def __init__(self, workload: Workload):
        self._function = load_peer(workload.peer)
        if workload.weights == "published":
            config, self._mel, frontend = config_of(workload, workload.target.acoustic), MelContract(), None
        else:
            source = sources_of(workload)["acoustic"]
            config, self._mel, frontend = source.config, source.mel, source.frontend
        self._symbols = config.n_symbols
        self._frontend = frontend.build() if frontend and not workload.symbols else None

    def measured(self, batch: int, symbols: int | None) -> Measured:
        ids = ids_of(self._frontend, self._symbols, batch, symbols)

        def run() -> Output:
            samples = [len(samples) for samples in audio_of(self._function(list(ids)))]
            if len(samples) != batch:
                raise InputError(f"the peer gave audio of {len(samples)} items for {batch}")
            return Output([count // self._mel.hop_length for count in samples], samples)

        return Measured(run, sampling_rate=self._mel.sampling_rate)


def load_peer(path: str) -> Callable[[list[np.ndarray]], Any]:
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise InputError(f"--peer must be module:function, such as my_baseline:speak, not {path!r}")
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise InputError(f"--peer {path}: {error}; it must be importable, as with PYTHONPATH") from None
    if not callable(function):
        raise InputError(f"--peer {path}: module {module} has no function {name!r}")
    return function


def require_peer(path: str) -> None:
    """A ValueError where a user's function is not there; looked for where it will be called."""
    for _, found in run_jobs("common.bench.peer:find", [path], LONGEST_IMPORT):
        raise InputError(found.get("wrong") or f"--peer {path}: {found['ended']}")


def find(path: str) -> Iterator[Row]:
    """What a worker does: a row that says why the function is not there."""
    try:
        load_peer(path)
    except ValueError as error:
        yield {"wrong": str(error)}


def audio_of(answer: Any) -> Iterator[np.ndarray]:
    """The audio of each item that a peer gave."""
    for samples in answer:
        samples = to_numpy(samples)
        if samples.ndim != 1:
            raise InputError(
                f"the peer's audio of an item has the shape {list(samples.shape)}, not samples in a row"
            )
        yield samples
