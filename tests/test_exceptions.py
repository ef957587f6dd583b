"""Exceptions of ours pass from a process to another as they are: pools, Ray and workers raise them there."""

import ast
import importlib
import inspect
import pickle
from pathlib import Path

import pytest

from melforge.common.errors import PACKAGES

ROOT = Path(__file__).parents[1]
# A value of each parameter's type, as annotations say it.
VALUES = {"str": "why", "int": 503, "Sequence[int]": [2, 0], "Mapping[str, str]": {"Retry-After": "1"}}


def exceptions() -> dict[str, type[BaseException]]:
    """By module and name, of those modules that can be imported here."""
    found = {}
    for path in ROOT.glob("common/**/*.py"):
        name = "melforge." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
            if not any(base.endswith(("Error", "Exception", "Exit")) for base in bases):
                continue
            try:
                kind = getattr(importlib.import_module(name), node.name)
            except ModuleNotFoundError as error:
                assert (error.name or "").partition(".")[0] in PACKAGES
                continue
            if issubclass(kind, BaseException):
                found[f"{name}.{node.name}"] = kind
    return found


EXCEPTIONS = exceptions()


def test_there_are_some():
    assert {kind.__name__ for kind in EXCEPTIONS.values()} >= {"InputError", "MelTooLong", "ServerError"}


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_is_the_same_in_another_process(name):
    kind = EXCEPTIONS[name]
    own = vars(kind).get("__init__")
    given = list(inspect.signature(own).parameters.values())[1:] if own else []
    error = kind(*([VALUES[str(one.annotation).removesuffix(" | None")] for one in given] or ["why"]))
    assert str(error) == "why"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == "why" and vars(again) == vars(error)
