"""Lists models, voices, backends, and what was exported or built."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from common.cli import options, run
from common.files import engines_folder, exports_folder
from common.registry import MODELS
from common.stages.choose import BACKENDS
from common.weights.voices import Voice, list_voices, load_voice


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the lists as JSON")
    return list_available(parser.parse_args(argv).json)


@dataclasses.dataclass(frozen=True)
class Built:
    """One file that was exported or built."""

    model: str
    part: str  # a stage, or "weights"
    kind: str  # "graph", "engine" or "weights"
    owner: str  # the voice, or "cache" and the folder there
    file: Path

    @property
    def megabytes(self) -> float:
        return self.file.stat().st_size / 1e6


def list_built(voices: Iterable[Voice]) -> list[Built]:
    """The graphs of these voices, and what lies in the cache."""
    found = [
        Built(model, stage, "graph", voice.name, graph)
        for voice in voices
        for model, source in voice.models.items()
        for stage, graph in source.graphs.items()
        if graph.is_file()
    ]
    for folder in sorted(exports_folder().glob("*-*")):
        model = folder.name.partition("-")[0]
        owner = f"cache {folder.name.removeprefix(f'{model}-')}"
        found += [Built(model, file.stem, "graph", owner, file) for file in sorted(folder.glob("*.onnx"))]
        found += [
            Built(model, "weights", "weights", owner, file) for file in folder.glob("weights.safetensors")
        ]
    for file in sorted(engines_folder().glob("*.*.trt")):  # fastpitch.encoder.fp16.752f466d2832.trt
        model, stage, *rest = file.stem.split(".")
        found.append(Built(model, stage, "engine", f"cache {'.'.join(rest)}", file))
    return found


def list_available(as_json: bool) -> int:
    voices = [load_voice(name) for name in list_voices()]
    built = list_built(voices)
    if as_json:
        content = {
            "voices": [
                {"name": v.name, "description": v.description, "models": list(v.models)} for v in voices
            ],
            "models": {model.name: model.kind for model in MODELS.values()},
            "backends": list(BACKENDS),
            "built": [
                {
                    "kind": one.kind,
                    "model": one.model,
                    "part": one.part,
                    "owner": one.owner,
                    "file": str(one.file),
                    "mb": round(one.megabytes, 3),
                }
                for one in built
            ],
        }
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return 0
    rows = [("voice", voice.name, voice.description or ", ".join(voice.models)) for voice in voices]
    rows += [(model.kind, model.name, "") for model in MODELS.values()]
    rows += [("backend", name, "") for name in BACKENDS]
    run.print_table(("kind", "name", ""), rows)
    print()
    rows = [(f"{one.model}.{one.part}", one.kind, one.owner, f"{one.megabytes:.2f}") for one in built]
    run.print_table(("built", "kind", "of", "MB"), rows)
    return 0
