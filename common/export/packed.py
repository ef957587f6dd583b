"""Graphs that PyTorch's exporter takes up to half a minute to make, packed in `graphs/`: those of published
sizes, all vocoders' denoisers, and the encoder of a single speaker's voice that is cloned from orchard.

A graph depends on the sizes alone, so that all weights of a published config take the same one.
`recipes/pack_graphs.py` makes the files.
"""

import gzip
from pathlib import Path
from typing import Any

from melforge.common.audio.denoiser import NETWORK as DENOISER
from melforge.common.files import config_hash
from melforge.common.stages import Stage, stages_of

FOLDER = Path(__file__).parent / "graphs"
MADE_WITH = FOLDER / "made_with.json"  # the versions of the packages that made them
ROWS = ("n_symbols", "n_speakers")  # a graph that has several speakers is the same with any number of them
UNUSED = ("dropouts", *ROWS)  # checkpoints without their configuration do not tell the first


def packed_path(stage: Stage, config: Any, version: int) -> Path:
    """The file of a graph, of this version of our exporter. Its name has what it depends on."""
    if stage.network == DENOISER:
        return FOLDER / f"{stage.name}-{config.hop_length}-{version}.onnx.gz"
    return FOLDER / f"{stage.full_name}-{config_hash(config, UNUSED)}-{version}.onnx.gz"


def packed_graph(stage: Stage, config: object, version: int) -> bytes | None:
    """The graph of a stage as its model declares it; None where it is not packed."""
    path = packed_path(stage, config, version)
    if not path.is_file() or stage not in stages_of(stage.model, config):
        return None
    return gzip.decompress(path.read_bytes())
