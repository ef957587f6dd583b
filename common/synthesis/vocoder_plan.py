"""What the `stages.py` of a vocoder declares: its forms, and what runs its stages on a GPU. No torch."""

from collections.abc import Callable, Mapping
from typing import Any

from melforge.common.stages import Stage, StagePlan

CAPTURED = "melforge.common.engines.padded:CapturedNetwork"


def vocoder_plan(
    stages: Callable[[Any], tuple[Stage, ...]],
    layers: tuple[str, ...],
    generator: str = CAPTURED,
    ahead: str = "",
    denoiser: str = CAPTURED,
    first: str = "",
    first_engine: str = CAPTURED,
    between: Mapping[str, str] | None = None,
    on_cpu: Mapping[str, str] | None = None,
) -> StagePlan:
    """The plan of a vocoder whose stages are `vocoder_stages`, and their engines on CUDA kernels.

    A stage without kernels of its own runs on PyTorch's, captured in CUDA graphs. Lengths are padded there,
    so that few graphs do for all: the masked stages run. `first` names a stage that comes before the
    generator in some configurations.
    """
    whole, masked = ((first,), (f"masked_{first}",)) if first else ((), ())
    return StagePlan(
        stages=stages,
        # Padded mels (buckets) are masked by their lengths, so that padding changes no sample; it takes time.
        forms={
            "whole": (*whole, "generator", "denoiser"),
            "masked": (*masked, "masked_generator", "masked_denoiser"),
            "unmasked": (*whole, "generator", "masked_denoiser"),
        },
        default="whole",
        bucketed="masked",
        bucketed_unmasked="unmasked",
        kernels={
            **dict.fromkeys(("generator", "masked_generator"), generator),
            "masked_denoiser": denoiser,
            **dict.fromkeys(masked, first_engine),
        },
        on_cuda="masked",
        ahead=ahead,
        kernels_together=True,
        between=between or {},
        on_cpu=on_cpu or {},
        layers=layers,
    )
