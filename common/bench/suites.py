"""Tables that belong together, under a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.bench.onnx_options import OPTIONS
from common.bench.workload import Target, Workload, make_workloads
from common.errors import InputError, unknown
from common.stages.choose import kernels_of


@dataclass(frozen=True)
class Table:
    """Workloads of one target."""

    target: Target
    backends: Sequence[str]
    precisions: Sequence[str] = ()
    batches: Sequence[int] = (1,)
    symbols: Sequence[int] = (128,)

    def workloads(self, **how: Any) -> list[Workload]:
        how = {"symbols": self.symbols, **how, "batches": self.batches}
        return make_workloads([self.target], self.backends, self.precisions, **how)


def h200() -> list[Table]:
    """The pairs that NVIDIA's programs have, and Tacotron 2's decoder, in half precision."""
    targets = (
        Target("fastpitch", "hifigan"),
        Target("fastspeech", "hifigan"),
        Target("fastpitch", "waveglow"),
        Target.of("tacotron2.decoder"),
        Target("tacotron2", "waveglow"),
    )
    tables = []
    for target in targets:
        # Masked stages are for buckets, where they take the place of the others; mel_side is another form's.
        others = ("masked_generator", "mel_side")
        stages = [stage for stage in kernels_of(*target.models.values()) if stage not in others]
        kernels = [f"{stage}=cuda" for stage in stages]
        best = [["trt-graph"], ["trt-graph", *kernels]] if kernels else [["trt-graph"]]
        tables.append(Table(target, ["torch"], ("fp16",), (1, 4, 8)))
        tables.append(Table(target, ["torch-graph", "trt"], ("fp16",)))
        tables += [Table(target, [",".join(words)], ("fp16",), (1, 4, 8)) for words in best]
        if target == targets[0]:  # compiling takes long: once is enough
            tables.append(Table(target, ["torch-compile"], ("fp16",)))
    return tables


def cpu() -> list[Table]:
    """The shipped voice's pairs; what is compiled is so for one length, which takes a minute."""
    acoustics, backends = ("fastpitch", "fastspeech", "tacotron2"), ("onnx", "torch")
    pairs = [Target(acoustic, vocoder) for vocoder in ("hifigan", "waveglow") for acoustic in acoustics]
    return [
        Table(pairs[0], backends, batches=(1, 4), symbols=(128, 32)),
        Table(pairs[1], backends, batches=(1, 4)),
        *(Table(pair, backends) for pair in pairs[2:]),
        Table(pairs[0], ["torch-compile"]),
    ]


def onnx_options() -> list[Table]:
    """ONNX Runtime's options on all kinds of stages."""
    backends = ("onnx", *(f"onnx-{name}" for name in OPTIONS))
    targets = (Target("fastpitch", "hifigan"), Target.of("tacotron2"), Target.of("waveglow.generator"))
    return [Table(target, backends) for target in targets]


# The tables, what holds for all of their workloads unless it is given, and the seconds that they may take.
SUITES: dict[str, tuple[Callable[[], Sequence[Table]], dict[str, Any], float | None]] = {
    "h200": (h200, {"weights": "published", "device": "cuda", "runs": 100}, 270.0),
    "cpu": (cpu, {"weights": "voice", "device": "cpu", "runs": 20}, None),
    "onnx-options": (onnx_options, {"device": "cpu", "runs": 10}, None),
}


def suite_workloads(name: str, given: Mapping[str, Any]) -> tuple[list[Workload], float | None]:
    """The workloads of a suite, and the seconds that all of them may take."""
    if name not in SUITES:
        raise InputError(unknown("suite", name, SUITES))
    tables, how, budget = SUITES[name]
    return [one for table in tables() for one in table.workloads(**{**how, **given})], budget
