"""ONNX Runtime's options, each beside those that the engine sets: "onnx-spinning" as a backend."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

# Attributes of the session's options, or with a dot in the name its config entries.
OPTIONS: dict[str, dict[str, Any]] = {
    "one-thread": {"intra_op_num_threads": 1},
    "level-none": {"graph_optimization_level": "ORT_DISABLE_ALL"},
    "level-basic": {"graph_optimization_level": "ORT_ENABLE_BASIC"},
    "level-extended": {"graph_optimization_level": "ORT_ENABLE_EXTENDED"},
    "no-arena": {"enable_cpu_mem_arena": False},
    "memory-plan": {"enable_mem_pattern": True, "enable_mem_reuse": True},
    "memory-reuse": {"enable_mem_reuse": True},
    "spinning": {"session.intra_op.allow_spinning": "1"},
    "denormals-zero": {"session.set_denormal_as_zero": "1"},
}


@contextlib.contextmanager
def with_option(name: str) -> Iterator[None]:
    """Sessions that are made within have this option."""
    engine = importlib.import_module("common.engines.onnx_engine")
    levels = importlib.import_module("onnxruntime").GraphOptimizationLevel
    plain = engine.session_options

    def session_options(threads: int | None) -> Any:
        options = plain(threads)
        for key, value in OPTIONS[name].items():
            if "." in key:
                options.add_session_config_entry(key, value)
            else:
                setattr(options, key, getattr(levels, value) if isinstance(value, str) else value)
        return options

    engine.session_options = session_options
    try:
        yield
    finally:
        engine.session_options = plain
