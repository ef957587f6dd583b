"""Exports anew the graphs of published sizes that come packed with Melforge (2 minutes)."""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.pack_graphs")

import dataclasses
import gzip
import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from melforge.common.audio.contract import MelContract
from melforge.common.cli.parser import Parser
from melforge.common.config.hparams import ROOT, load_hparams
from melforge.common.export.packed import FOLDER, MADE_WITH, packed_path
from melforge.common.export.to_onnx import EXPORTER_VERSION, OPSET, fresh_graph
from melforge.common.files import write_bytes
from melforge.common.registry import get_model
from melforge.common.stages import Stage, stages_of
from melforge.common.weights.voices import read_voice

# The published sizes whose export takes longest at first use, by files in hparams/<model>/, and their stages
# that are packed.
VOCODER = ("generator", "masked_generator", "denoiser", "masked_denoiser")
PUBLISHED = {
    "waveglow": (("base.yaml", "waveglow512.yaml"), VOCODER),
    "jasper": (("base.yaml",), ("masked_encoder", "encoder", "masked_features", "features")),
}


def published_stages() -> list[tuple[Stage, object]]:
    """The stages that are packed, each with its config."""
    pairs = []
    for model, (files, packed) in PUBLISHED.items():
        for file in files:
            path = ROOT / "hparams" / model / file
            config, _ = load_hparams(path, get_model(model).config_class, MelContract, model=model)
            pairs += [(stage, config) for stage in stages_of(model, config) if stage.name in packed]
    config = read_voice(ROOT / "voices" / "orchard").models["fastpitch"].config
    config = dataclasses.replace(config, n_speakers=1)  # what `voice clone` makes of one speaker's recordings
    return [*pairs, (stages_of("fastpitch", config)[0], config)]


def versions() -> dict[str, str]:
    """Of the packages that a graph depends on."""
    return {name: importlib.metadata.version(name).partition("+")[0] for name in ("torch", "onnxscript")}


def write_graphs(folder: Path) -> None:
    """Exports all of them anew; those of other versions of the exporter go once these are there."""
    folder.mkdir(parents=True, exist_ok=True)
    stages = published_stages()
    files = {folder / packed_path(*one, EXPORTER_VERSION).name: one for one in stages}  # some are of several
    for path, (stage, config) in tqdm(files.items(), "packing", unit="graph", disable=None):
        graph, _ = fresh_graph(stage, config, OPSET)
        write_bytes(path, gzip.compress(graph, mtime=0))
        print(f"{path}: {path.stat().st_size} bytes", flush=True)
    for path in set(folder.glob("*.onnx.gz")).difference(files):
        path.unlink()
    write_bytes(folder / MADE_WITH.name, f"{json.dumps(versions(), indent=1)}\n".encode())


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m recipes.pack_graphs", description=__doc__)
    what = "folder of the graphs (default: common/export/graphs)"
    parser.add_argument("-o", "--output", type=Path, default=FOLDER, metavar="DIR", help=what)
    write_graphs(parser.parse_args(argv).output)
    return 0
