"""Lists models, voices, ears, backends, and what was exported or built."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from melforge.common.cli import options, run
from melforge.common.engines.backends import kernel_kind
from melforge.common.errors import require_torch
from melforge.common.files import engines_folder, exports_folder
from melforge.common.registry import MODELS
from melforge.common.stages import Stage, stages_of
from melforge.common.stages.choose import BACKENDS, KERNELS, kernel_stages
from melforge.common.weights.ears import list_ears, load_ear
from melforge.common.weights.voices import ModelSource, Voice, list_voices, load_voice

OPTIONS = """
  --voice   only this voice, by name or folder (default: all)
  --device NAME   what this GPU has, and what each stage runs on there with --backend cuda: cuda, cuda:N, or
        of one that is not here its architecture and multiprocessors, such as sm_86:46
  --json    print the lists as JSON
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = options.make_parser(OPTIONS, description=__doc__).parse_args(argv)
    if args.device:
        return list_kernels(args.device, args.json, args.voice)
    return list_available(args.json, args.voice)


def list_kernels(device: str, as_json: bool, voice: str | None = None) -> int:
    """A GPU's limits, and for each stage of the shipped models whether our kernels run on it, or why not."""
    require_torch("what a GPU has")
    limits = importlib.import_module("melforge.common.engines.limits")
    here = device.startswith("cuda")
    found = limits.limits_of(device) if here else limits.limits_like(device)[0]
    owners = [load_voice(name) for name in ([voice] if voice else list_voices())]
    owners += [] if voice else map(load_ear, list_ears())
    sources = [(owner.name, source) for owner in owners for source in owner.models.values()]
    rows = []
    with limits.elsewhere(found):
        for owner, source in sources:
            stages = {stage.name: stage for stage in stages_of(source.model, source.config)}
            for name in kernel_stages(source.model):
                if name in stages:
                    ours, reason = runs_on(stages[name], source, device if here else "meta")
                    rows.append((owner, stages[name].full_name, ours, reason or ""))
    if as_json:
        names = ("owner", "stage", "kernels", "reason")
        content = {**found._asdict(), "stages": [dict(zip(names, row, strict=True)) for row in rows]}
        print(json.dumps(content, indent=1))
    else:
        print(found)
        run.print_table(("of", "stage", "kernels", ""), rows)
    return 0


def runs_on(stage: Stage, source: ModelSource, device: str) -> tuple[str, str | None]:
    """Whose kernels, ours or PyTorch's, and why not ours where there are some."""
    kind, reason = kernel_kind(stage, source, device)
    return "ours" if hasattr(kind, "needs") else "PyTorch's", reason


def speakers_of(voice: Voice) -> dict[str, list[str]]:
    """The names of a voice's speakers, where it has several."""
    names = dict.fromkeys(name for source in voice.models.values() for name in source.speakers)
    return {"speakers": list(names)} if names else {}


def list_built(voices: Iterable[Voice]) -> list[dict[str, Any]]:
    """What these voices (ears too) and the cache have: entries of the kinds graph, weights and engine."""
    owned = [(voice.name, source) for voice in voices for source in voice.models.values()]
    found = [
        ("graph", source.model, stage, owner, graph)
        for owner, source in owned
        for stage, graph in source.graphs.items()
        if graph.is_file()
    ]
    for folder in sorted(exports_folder().glob("*-*")):
        model, _, rest = folder.name.partition("-")
        for file in (*sorted(folder.glob("*.onnx")), *folder.glob("weights.safetensors")):
            kind, part = ("graph", file.stem) if file.suffix == ".onnx" else ("weights", "weights")
            found.append((kind, model, part, f"cache {rest}", file))
    for file in sorted(engines_folder().glob("*.*.trt")):  # fastpitch.encoder.fp16.752f466d2832.trt
        model, stage, *words = file.stem.split(".")
        found.append(("engine", model, stage, f"cache {'.'.join(words)}", file))
    names = ("kind", "model", "part", "owner", "file")
    return [
        {**dict(zip(names, map(str, one), strict=True)), "mb": one[-1].stat().st_size / 1e6} for one in found
    ]


def list_available(as_json: bool, voice: str | None = None) -> int:
    voices = [load_voice(name) for name in ([voice] if voice else list_voices())]
    ears = [load_ear(name) for name in list_ears()]
    built = list_built([*voices, *ears])
    if as_json:
        named = [
            {"name": v.name, "description": v.description, "models": list(v.models), **speakers_of(v)}
            for v in voices
        ]
        content = {
            "voices": named,
            "ears": [{"name": e.name, "description": e.description, "model": e.only.model} for e in ears],
            "models": {model.name: model.kind for model in MODELS.values()},
            "backends": [*BACKENDS, KERNELS],
            "built": [{**one, "mb": round(one["mb"], 3)} for one in built],
        }
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return 0
    rows = [("voice", voice.name, voice.description or ", ".join(voice.models)) for voice in voices]
    rows += [
        ("speaker", name, voice.name) for voice in voices for name in speakers_of(voice).get("speakers", ())
    ]
    rows += [("ear", ear.name, ear.description or ear.only.model) for ear in ears]
    rows += [(model.kind, model.name, "") for model in MODELS.values()]
    rows += [("backend", name, "") for name in (*BACKENDS, KERNELS)]
    run.print_table(("kind", "name", ""), rows)
    for one in voices:
        if names := speakers_of(one).get("speakers"):
            print(f'to hear one: melforge speak --voice {one.name} --speaker {names[0]} --text "Hello."')
    print()
    rows = [(f"{one['model']}.{one['part']}", one["kind"], one["owner"], f"{one['mb']:.2f}") for one in built]
    run.print_table(("built", "kind", "of", "MB"), rows)
    return 0
