"""A baseline of the user's in the tables: a function that makes audio of symbol ids."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from melforge.common.arrays import to_numpy
from melforge.common.audio.contract import MelContract
from melforge.common.bench.models import Output, TimedCall, config_of, ids_of, sources_of
from melforge.common.bench.workload import Workload
from melforge.common.engines import Engine
from melforge.common.errors import InputError


class Peer:
    """A user's function: a list of int64 arrays of ids -> the audio of each, in one array or a list."""

    engines: Sequence[Engine] = ()

    def __init__(self, workload: Workload):
        self._function = load_peer(workload.peer)
        if workload.published:
            config, self._mel, frontend = (
                config_of(workload, workload.subject.models["acoustic"]),
                MelContract(),
                None,
            )
        else:
            source = sources_of(workload)["acoustic"]
            config, self._mel, frontend = source.config, source.mel, source.frontend
        self._symbols = config.n_symbols
        self._frontend = frontend.build() if frontend and not workload.symbols else None

    def call_of(self, batch: int, symbols: int | None) -> TimedCall:
        ids = ids_of(self._frontend, self._symbols, batch, symbols)

        def run() -> Output:
            samples = [len(samples) for samples in audio_of(self._function(list(ids)))]
            if len(samples) != batch:
                raise InputError(f"the peer gave audio of {len(samples)} items for {batch}")
            return Output([count // self._mel.hop_length for count in samples], samples)

        return TimedCall(run, sampling_rate=self._mel.sampling_rate)


def load_peer(path: str) -> Callable[[list[np.ndarray]], Any]:
    module, _, name = path.partition(":")
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise InputError(f"--peer {path}: module {module} has no function {name!r}")
    return function


def require_peer(path: str) -> None:
    """An InputError where there is no such module; it is imported where its function is called."""
    module, _, name = path.partition(":")
    if not (module and name):
        raise InputError(f"--peer must be module:function, such as my_baseline:speak, not {path!r}")
    try:
        found = importlib.util.find_spec(module)
    except ImportError:
        found = None
    if not found:
        raise InputError(
            f"--peer {path}: there is no module {module}; it must be importable, as with PYTHONPATH"
        )


def audio_of(answer: Any) -> Iterator[np.ndarray]:
    """The audio of each item that a peer gave."""
    for samples in answer:
        samples = to_numpy(samples)
        if samples.ndim != 1:
            raise InputError(
                f"the peer's audio of an item has the shape {list(samples.shape)}, not samples in a row"
            )
        yield samples
