"""Published HiFi-GAN generators: NVIDIA's training files (three layouts of names) and the original authors'
`g_XXXXXXXX` with config.json beside it. Weight norm is folded when loading.
"""

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from melforge.common.audio.contract import MelContract
from melforge.common.errors import InputError
from melforge.common.files import read_text
from melforge.common.weights import checkpoint as weights
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.source_filter import make_generator

AUDIO_SETTINGS = ("sampling_rate", "filter_length", "hop_length", "win_length", "mel_fmin", "mel_fmax")
# The original authors' names for them.
THEIR_NAMES = dict(
    zip(("sampling_rate", "n_fft", "hop_size", "win_size", "fmin", "fmax"), AUDIO_SETTINGS, strict=True)
)
# Shapes do not determine dilations: the published ones, by block type and kernel size.
PUBLISHED_DILATIONS = {
    "1": {3: (1, 3, 5), 7: (1, 3, 5), 11: (1, 3, 5)},
    "2": {3: (1, 2), 5: (2, 6), 7: (3, 12)},
}
STATED_SIZES = {  # name -> nesting depth of its lists of integers
    **{"upsample_initial_channel": 0, "upsample_rates": 1, "upsample_kernel_sizes": 1},
    **{"resblock_kernel_sizes": 1, "resblock_dilation_sizes": 2},
}


def load_checkpoint(
    path: str | Path, ema: bool = False, *, content: Mapping[str, Any] | None = None
) -> weights.Checkpoint:
    """Sizes, folded weights and settings of a generator; `ema` asks for the averaged weights.

    The sizes are the file's own, else those of config.json or NAME.json beside it. Missing sizes are inferred
    from the shapes. Where shapes do not determine them, the published values are assumed with a warning, or
    an error names the missing keys.

    `info` holds `ema_available`, `mel` (a MelContract, or None where the file does not state it), `epoch`
    where known, and the audio settings that were found.
    `content` is what `read_pt` gave of the file, where it is read already.
    """
    path = Path(path)
    content = weights.read_pt(path) if content is None else content
    if "mpd" in content and not (content.get("generator") or content.get("gen_ema")):
        raise InputError(
            f"checkpoint {path} holds the discriminators, which only training needs: "
            "give the generator's file (g_XXXXXXXX or hifigan_gen_checkpoint_N.pt)"
        )
    state = weights.find_state(
        content, path, "HiFi-GAN generator", "generator", average="gen_ema" if ema else None
    )
    state = current_names(weights.fold_weight_norm(state, path))
    weights.check_finite(state, path)
    stated, where = _find_config(content, path)
    sizes = _build_config(stated, state, where, path)
    weights.check_keys(
        weights.expected_shapes(lambda: make_generator(sizes, weight_norm=False), path), state, path
    )
    setup = content.get("train_setup")
    return weights.Checkpoint(
        sizes, state, _info(content, setup if isinstance(setup, Mapping) else stated, sizes, path)
    )


def current_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Names as `HifiganGenerator` has them: resblocks by stage and block.

    Older NVIDIA files and the original authors' files number the residual blocks over all stages.
    """
    stages = len({name.split(".")[1] for name in state if name.startswith("ups.")})
    flat = re.compile(r"^resblocks\.(\d+)(?=\.convs)")
    numbers = {int(match[1]) for match in map(flat.match, state) if match}
    blocks = max(1, len(numbers) // max(1, stages))

    def numbered(match: re.Match) -> str:
        return "resblocks.{}.{}".format(*divmod(int(match[1]), blocks))

    return {flat.sub(numbered, name): value for name, value in state.items()}


def _find_config(content: Mapping[str, Any], path: Path) -> tuple[Mapping[str, Any], str]:
    """The stated sizes, and their place for messages; empty if none are stated."""
    if (own := content.get("config")) is not None:
        if not isinstance(own, Mapping):
            raise InputError(
                f"checkpoint {path}: its config is a {type(own).__name__}, not a mapping of sizes"
            )
        return own, f"checkpoint {path}: its config"
    for beside in (f"{path.name}.json", f"{path.stem}.json", "config.json"):
        beside = path.with_name(beside)
        if beside.is_file():
            stated = _read_json(beside)
            if "upsample_rates" in stated:  # else another model's file
                return stated, str(beside)
    return {}, f"checkpoint {path}"


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        stated = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"HiFi-GAN config {path} is not valid JSON: {error}") from None
    if not isinstance(stated, dict):
        raise InputError(f"HiFi-GAN config {path} holds a {type(stated).__name__}, not a mapping of sizes")
    return stated


def _build_config(
    stated: Mapping[str, Any], state: Mapping[str, torch.Tensor], where: str, path: Path
) -> HifiganConfig:
    sizes = infer_sizes(state, path)
    for name, depth in STATED_SIZES.items():
        if stated.get(name) is not None:
            sizes[name] = _whole_numbers(stated[name], f"{where} says {name}:", depth)
    if "resblock_dilation_sizes" in sizes:
        # In both projects blocks have a fixed number of convolutions, and further dilations are ignored.
        convs = {name.split(".")[4] for name in state if re.match(r"resblocks\.0\.0\.convs1?\.", name)}
        sizes["resblock_dilation_sizes"] = tuple(d[: len(convs)] for d in sizes["resblock_dilation_sizes"])
    assumed = {}
    if "upsample_rates" not in sizes:
        assumed["upsample_rates"] = tuple(kernel // 2 for kernel in sizes["upsample_kernel_sizes"])
    if "resblock_dilation_sizes" not in sizes:
        known = PUBLISHED_DILATIONS[sizes["resblock"]]
        if not set(sizes["resblock_kernel_sizes"]) <= set(known):
            raise InputError(
                f"{where} does not state resblock_dilation_sizes, and its residual blocks are not the "
                "published ones: put the config.json that training used beside the checkpoint"
            )
        assumed["resblock_dilation_sizes"] = tuple(known[size] for size in sizes["resblock_kernel_sizes"])
    if assumed:
        listed = ", ".join(f"{name} {json.dumps(value)}" for name, value in assumed.items())
        warnings.warn(
            f"{where} does not state its sizes; assuming {listed} as in the published models. "
            "If it sounds wrong, put the config.json that training used beside the checkpoint.",
            stacklevel=4,
        )
    try:
        return HifiganConfig(**sizes, **assumed)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _whole_numbers(value: Any, place: str, depth: int) -> Any:
    """`value` as an int (depth 0), a tuple of ints (1) or a tuple of such tuples (2)."""
    if depth and isinstance(value, list | tuple) and value:
        return tuple(_whole_numbers(item, place, depth - 1) for item in value)
    if depth == 0 and isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    what = ("a positive whole number", "a list of positive whole numbers", "a list of such lists")[depth]
    raise InputError(f"{place} {value!r} is not {what}")


def infer_sizes(state: Mapping[str, torch.Tensor], path: str | Path) -> dict[str, Any]:
    """The sizes that names and shapes determine: all but upsampling rates and dilations."""

    def kernels(pattern: str) -> tuple[int, ...]:
        found = {}
        for name, value in state.items():
            if (match := re.fullmatch(pattern, name)) and value.dim() == 3:
                found[int(match[1])] = value.shape[2]
        return tuple(found[index] for index in sorted(found))

    first = state.get("conv_pre.weight")
    ups = kernels(r"ups\.(\d+)\.weight")
    two = any(".convs1." in name for name in state)
    blocks = kernels(rf"resblocks\.0\.(\d+)\.{'convs1' if two else 'convs'}\.0\.weight")
    if first is None or first.dim() != 3 or not ups or not blocks:
        raise InputError(
            f"checkpoint {path} is no HiFi-GAN generator: its weights have other names "
            f"({', '.join(state)[:80]})"
        )
    return {
        "n_mel_channels": first.shape[1],
        "upsample_initial_channel": first.shape[0],
        "upsample_kernel_sizes": ups,
        "resblock": "1" if two else "2",
        "resblock_kernel_sizes": blocks,
    }


def _info(
    content: Mapping[str, Any], settings: Mapping[str, Any], config: HifiganConfig, path: Path
) -> dict[str, Any]:
    both = [(name, name) for name in AUDIO_SETTINGS] + list(THEIR_NAMES.items())
    found = {field: settings[name] for name, field in both if name in settings}
    progress = content.get("train_state")
    epoch = progress.get("epoch") if isinstance(progress, Mapping) else content.get("epoch")
    return {
        "ema_available": bool(content.get("gen_ema")),
        "mel": _mel_contract(found, config, path),
        **({} if epoch is None else {"epoch": epoch}),
        **found,
    }


def _mel_contract(found: Mapping[str, Any], config: HifiganConfig, path: Path) -> MelContract | None:
    """The contract from the settings; None if a part of it is missing."""
    if len(found) < len(AUDIO_SETTINGS):
        return None
    for name, value in found.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number and (name, value) != ("mel_fmax", None):
            raise InputError(
                f"checkpoint {path}: its audio settings say {name}: {value!r}, which is no number"
            )
    if found["hop_length"] != config.hop_length:
        warnings.warn(
            f"checkpoint {path} was trained with hop_length {found['hop_length']} by its settings, but its "
            f"generator makes {config.hop_length} samples for each frame; the generator's is taken",
            stacklevel=4,
        )
    top = found["mel_fmax"]
    try:
        return MelContract(
            sampling_rate=int(found["sampling_rate"]),
            filter_length=int(found["filter_length"]),
            hop_length=config.hop_length,
            win_length=int(found["win_length"]),
            n_mel_channels=config.n_mel_channels,
            mel_fmin=float(found["mel_fmin"]),
            mel_fmax=None if top is None else float(top),
        )
    except ValueError as error:
        raise InputError(f"checkpoint {path}: {error}") from None
