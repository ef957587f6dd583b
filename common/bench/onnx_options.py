"""ONNX Runtime's options, each beside those that the engine sets: "onnx-spinning" as a backend."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any


def _level(name: str) -> Callable[[Any], None]:
    def set_level(options: Any) -> None:
        levels = importlib.import_module("onnxruntime").GraphOptimizationLevel
        options.graph_optimization_level = getattr(levels, name)

    return set_level


def _entry(key: str, value: str) -> Callable[[Any], None]:
    return lambda options: options.add_session_config_entry(key, value)


def _set(**values: Any) -> Callable[[Any], None]:
    def set_values(options: Any) -> None:
        for name, value in values.items():
            setattr(options, name, value)

    return set_values


OPTIONS: dict[str, Callable[[Any], None]] = {
    "one-thread": _set(intra_op_num_threads=1),
    "level-none": _level("ORT_DISABLE_ALL"),
    "level-basic": _level("ORT_ENABLE_BASIC"),
    "level-extended": _level("ORT_ENABLE_EXTENDED"),
    "no-arena": _set(enable_cpu_mem_arena=False),
    "memory-plan": _set(enable_mem_pattern=True, enable_mem_reuse=True),
    "memory-reuse": _set(enable_mem_reuse=True),
    "spinning": _entry("session.intra_op.allow_spinning", "1"),
    "denormals-zero": _entry("session.set_denormal_as_zero", "1"),
}


@contextlib.contextmanager
def with_option(name: str) -> Iterator[None]:
    """Sessions that are made within have this option."""
    engine = importlib.import_module("common.engines.onnx_engine")
    plain = engine.session_options

    def session_options(threads: int | None) -> Any:
        options = plain(threads)
        OPTIONS[name](options)
        return options

    engine.session_options = session_options
    try:
        yield
    finally:
        engine.session_options = plain
