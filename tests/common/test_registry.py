"""The table of models: what it says of each, and what the rest of common/ may say."""

import ast
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from melforge.common.errors import InputError, unknown
from melforge.common.registry import MODELS, get_model, names

COMMON = Path(__file__).resolve().parents[2] / "common"
# Files of common/ that may name models, and why.
NAMING = {
    "registry.py": "the table",
    "config/aliases.py": "NVIDIA's keys",
    "text/frontends.py": "NVIDIA's text frontends",
    "text/symbols.py": "NVIDIA's text frontends",
    "text/published/frontends.py": "NVIDIA's text frontends",
}
ROOMS = ("audio", "config", "engines", "errors.py", "export", "recognition", "registry.py", "runner.py")
ROOMS = (*ROOMS, "speech.py", "stages", "synthesis", "text", "weights")


def texts_of(tree: ast.Module) -> list[str]:
    """The strings of a module but for its docstrings."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docs = {ast.get_docstring(node, clean=False) for node in nodes}
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [value for value in strings if isinstance(value, str) and value not in docs]


@pytest.mark.parametrize("room", ROOMS)
def test_the_ground_of_the_house_names_no_model(room):
    files = [COMMON / room] if room.endswith(".py") else (COMMON / room).rglob("*.py")
    model = re.compile(rf"\b({'|'.join(names())})\b")
    wrong = {
        str(file.relative_to(COMMON)): found
        for file in files
        if (found := [text for text in texts_of(ast.parse(file.read_text("utf-8"))) if model.search(text)])
    }
    assert not (extra := {file: found for file, found in wrong.items() if file not in NAMING}), extra


def test_published_weights_are_of_one_model_by_their_names():
    marks = list(chain.from_iterable(model.marks for model in MODELS.values()))
    assert len(marks) == len(set(marks)), "of equal marks only the first model's weights would be known"


@pytest.mark.parametrize("name", names())
def test_every_model_has_the_classes_that_the_table_says(name):
    model = get_model(name)
    assert all(
        isinstance(kind, type) for kind in (model.config_class, model.settings_class, model.driver_class)
    )


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("hifigna", "hifigan"),
        ("fastpich", "fastpitch"),
        ("hifi", "hifigan"),
        ("jsapr", "jasper"),
        ("nope", None),
    ],
)
def test_a_guess_at_what_was_meant_is_near(word, near):
    hint = f"did you mean {near!r}? " if near else ""
    assert unknown("model", word, names()).startswith(f"unknown model {word!r}: {hint}available: ")


def test_a_misspelt_class_is_the_mistake_of_the_models_author():
    model = replace(get_model("hifigan"), classes="HifiGan")
    with pytest.raises(InputError) as caught:
        _ = model.driver_class
    assert str(caught.value) == (
        "common/registry.py: classes 'HifiGan' of hifigan: unknown class in hifigan/infer.py "
        "'HifiGanVocoder': did you mean 'HifiganVocoder'? available: HifiganVocoder"
    )


def test_a_long_name_is_not_compared_or_told_whole():
    assert len(unknown("model", "fastpitch" * 100_000, names())) < 1000
