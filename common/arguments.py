"""Arguments of the Python interface: one that is not what its parameter's hint says is an InputError."""

from __future__ import annotations

import functools
import inspect
import itertools
import numbers
import os
import reprlib
import threading
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from melforge.common.errors import InputError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_call = threading.local()  # `is_ours`: it comes from within another whose arguments were checked
WIDER = {int: numbers.Integral, float: numbers.Real, Path: os.PathLike}  # numpy's numbers too


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, which checks its arguments first; hints of what only type checkers import it does not.

    What it calls itself is not checked again: that takes a tenth of the host's time for a sentence.
    """
    parameters = inspect.signature(function).parameters.values()
    written = {parameter.name: parameter.annotation for parameter in parameters}
    in_order = [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    several = [parameter.name for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL]

    @functools.cache
    def hints() -> dict[str, Any]:
        names, found = inspect.unwrap(function).__globals__, {}
        for name, text in written.items():
            try:
                found[name] = eval(text, names) if isinstance(text, str) else Any
            except NameError:
                continue
        return found

    @functools.wraps(function)
    def calling(*given: Parameters.args, **named: Parameters.kwargs) -> Result:
        if getattr(_call, "is_ours", False):
            return function(*given, **named)
        # Those that are too many, missing or of no such name are for Python to refuse.
        places = itertools.chain(in_order, itertools.cycle(several))
        for name, value in itertools.chain(zip(places, given), named.items()):  # noqa: B905
            if name in hints() and not fits(value, hints()[name]):
                raise InputError(f"{name} must be {written[name]}, not {reprlib.repr(value)}")
        _call.is_ours = True
        try:
            return function(*given, **named)
        finally:
            _call.is_ours = False

    return calling


def fits(value: object, hint: Any) -> bool:
    """Whether a value is what a hint says; what only iterating would show counts as right."""
    origin, of = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        no_path = Path in of and isinstance(value, str) and "\0" in value
        return not no_path and any(fits(value, one) for one in of)
    if origin is Literal:
        return value in of
    if origin is Callable:
        return callable(value)
    if origin is Any or not isinstance(origin, type):
        return True
    if getattr(origin, "_is_protocol", False):
        return all(
            hasattr(value, name) for name in (*vars(origin), *origin.__annotations__) if name[:1] != "_"
        )
    if isinstance(value, bool) and origin in (int, float):
        return False
    if not isinstance(value, WIDER.get(origin, origin)) or (
        issubclass(origin, Iterable) and isinstance(value, bytes)
    ):
        return False
    if issubclass(origin, Mapping) and isinstance(value, Mapping):
        return not of or all(fits(key, of[0]) and fits(item, of[1]) for key, item in value.items())
    return not of or not isinstance(value, list | tuple | str) or all(fits(item, of[0]) for item in value)
