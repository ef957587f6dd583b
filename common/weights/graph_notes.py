"""The JSON beside a graph, by which its export says what it was made from and which weights it takes."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from melforge.common.errors import InputError
from melforge.common.weights.voices import ModelSource

AGAIN = "export the graph again (melforge export --force)"


def read_graph_note(graph: Path) -> dict[str, Any]:
    """The note of a graph, whose `weights` are names; an InputError where it is none."""
    path = graph.with_suffix(".json")
    try:
        note = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {AGAIN}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read ({error}): {AGAIN}") from None
    weights = note.get("weights") if isinstance(note, dict) else None
    if not isinstance(weights, list) or not all(isinstance(name, str) for name in weights):
        raise InputError(f"{path} lists no weights, as an export's does: {AGAIN}")
    return note


def require_config(note: dict[str, Any], graph: Path, source: ModelSource) -> None:
    """An InputError where a graph was exported with another config; older notes do not tell theirs."""
    made = note.get("config")
    now = json.loads(json.dumps(asdict(source.config)))
    for key, value in made.items() if isinstance(made, dict) else ():
        if key in now and now[key] != value:
            says = f"the config of {source.weights} says {key} {now[key]}"
            raise InputError(f"{says}, but {graph.name} was exported with {value}: set it back, or {AGAIN}")
