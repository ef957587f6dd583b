"""Published Jasper and QuartzNet files: NVIDIA's training checkpoints with or without averaged weights, with
names of either generation, and state dicts. NVIDIA's configuration is read where it lies beside the file.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from melforge.common.config.typed import build_section
from melforge.common.errors import InputError
from melforge.common.weights import checkpoint as weights
from melforge.jasper.config import JasperConfig
from melforge.jasper.model import Jasper

# Names of the first generation, whose files hold further modules; and QuartzNet's of a block's convolutions.
RENAMED = (
    (r"^jasper_encoder\.encoder\.", "encoder.layers."),
    (r"^jasper_decoder\.decoder_layers\.", "decoder.layers."),
    (r"^(encoder\.layers\.\d+)\.mconv\.", r"\1.conv."),
)
DROPPED = ("acoustic_model.", "audio_preprocessor.")
# NVIDIA's keys of the features and of a block -> ours.
FEATURE_KEYS = {
    **{"sample_rate": "sampling_rate", "n_fft": "filter_length", "n_filt": "n_mel_channels"},
    **{"preemph": "preemphasis", "lowfreq": "mel_fmin", "highfreq": "mel_fmax"},
    **{name: name for name in ("dither", "normalize", "pad_align")},
}
BLOCK_KEYS = {
    **{"filters": "filters", "kernel_size": "kernel_sizes", "repeat": "repeats", "stride": "strides"},
    **{"dilation": "dilations", "dropout": "dropouts"},
    **{name: name for name in ("residual", "residual_dense", "separable")},
}
BLOCK_DEFAULTS = {
    **{"kernel_size": 11, "repeat": 3, "stride": 1, "dilation": 1, "dropout": 0.2},
    **{"residual": True, "residual_dense": False, "separable": False},
}


def load_checkpoint(
    path: str | Path,
    ema: bool = False,
    config: str | Path | None = None,
    *,
    content: Mapping[str, Any] | None = None,
) -> weights.Checkpoint:
    """Sizes and weights of a recogniser; `ema` asks for the averaged weights.

    The sizes are those of `config` (NVIDIA's YAML file) if given, else the file's own, else those of
    config.yaml or NAME.yaml beside it; they must fit the weights. Without a configuration they are inferred:
    strides and dilations, which no shape shows, are then the published ones, 2 in the first block and in the
    last but one.

    `info` holds `ema_available`, `mel` (a MelContract), `config_file` (the one beside it, if it was read),
    and `epoch`, `step` and `best_wer` where known.
    `content` is what `read_pt` gave of the file, where it is read already.
    """
    path = Path(path)
    content = weights.read_pt(path) if content is None else content
    average = "ema_state_dict" if ema else None
    state = weights.find_state(content, path, "Jasper checkpoint", "state_dict", average=average)
    state = current_names(state)
    weights.check_finite(state, path)
    beside = None if config is not None or content.get("config") is not None else _config_beside(path)
    sizes = _find_config(content, path, config or beside) or infer_sizes(state, path)
    weights.check_keys(weights.expected_shapes(lambda: Jasper(sizes), path), state, path)
    info = {"ema_available": bool(content.get("ema_state_dict")), "mel": sizes.mel, "config_file": beside}
    info |= {key: content[key] for key in ("epoch", "step", "best_wer") if key in content}
    return weights.Checkpoint(sizes, state, info)


def current_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Names as `Jasper` has them, without the modules that only files of the first generation hold."""
    renamed = {}
    for name, value in state.items():
        if name.startswith(DROPPED):
            continue
        for pattern, new in RENAMED:
            name = re.sub(pattern, new, name)
        renamed[name] = value
    return renamed


def infer_sizes(state: Mapping[str, torch.Tensor], path: str | Path) -> JasperConfig:
    """The sizes that names and shapes determine, and the published values of the others."""
    last = state.get("decoder.layers.0.weight")
    first = state.get("encoder.layers.0.conv.0.weight")
    if first is None or first.dim() != 3:
        raise InputError(
            f"checkpoint {path} is no Jasper: its weights have other names ({', '.join(state)[:80]})"
        )
    count = len({match[1] for name in state if (match := re.match(r"encoder\.layers\.(\d+)\.", name))})
    blocks: dict[str, list[Any]] = {name: [] for name in BLOCK_KEYS}
    for number in range(count):
        prefix = f"encoder.layers.{number}."
        convs = {
            name: value
            for name, value in state.items()
            if value.dim() == 3 and re.fullmatch(rf"{re.escape(prefix)}conv\.\d+\.weight", name)
        }
        if not convs:
            raise InputError(f"checkpoint {path} is no Jasper: its block {number} has no convolutions")
        shapes = [tuple(value.shape) for value in convs.values()]
        panes = len({m[1] for name in state if (m := re.match(rf"{re.escape(prefix)}res\.(\d+)\.", name))})
        separable = f"{prefix}conv.1.weight" in convs
        blocks["separable"].append(separable)
        blocks["filters"].append(shapes[-1][0])
        blocks["kernel_size"].append(shapes[0][2])
        blocks["repeat"].append(len(shapes) // (2 if separable else 1))
        blocks["stride"].append(2 if number == 0 else 1)
        blocks["dilation"].append(2 if number == count - 2 > 0 else 1)
        blocks["dropout"].append(BLOCK_DEFAULTS["dropout"])
        blocks["residual"].append(panes > 0)
        blocks["residual_dense"].append(panes)
    dense = any(panes > 1 for panes in blocks["residual_dense"])
    blocks["residual_dense"] = [dense and panes > 0 for panes in blocks["residual_dense"]]
    # A depthwise convolution's input has as many channels as its output.
    channels = first.shape[0] if blocks["separable"][0] else first.shape[1]
    values: dict[str, Any] = {BLOCK_KEYS[name]: tuple(entries) for name, entries in blocks.items()}
    labels = JasperConfig().labels
    if last is not None and last.shape[0] != len(labels) + 1:
        raise InputError(
            f"checkpoint {path} has {last.shape[0] - 1} labels, but no configuration that names them: "
            "put NVIDIA's config.yaml beside it"
        )
    try:
        return JasperConfig(**values, n_mel_channels=channels, labels=labels)
    except InputError as error:
        raise InputError(f"checkpoint {path}: {error}") from None


def _find_config(content: Mapping[str, Any], path: Path, explicit: str | Path | None) -> JasperConfig | None:
    if explicit is not None:
        if not Path(explicit).is_file():
            raise FileNotFoundError(f"configuration {explicit} not found")
        return read_config(explicit)
    if (own := content.get("config")) is not None:
        if not isinstance(own, Mapping):
            raise InputError(
                f"checkpoint {path}: its config is a {type(own).__name__}, not a mapping of sizes"
            )
        return build_config(own, f"checkpoint {path}: its config")
    return None


def _config_beside(path: Path) -> Path | None:
    """NVIDIA's YAML file that goes with a checkpoint, where one lies in its folder."""
    beside = (path.with_name(name) for name in (f"{path.name}.yaml", f"{path.stem}.yaml", "config.yaml"))
    return next((file for file in beside if file.is_file() and _encoder_key(_read(file))), None)


def _read(path: Path) -> dict[str, Any]:
    """A file of NVIDIA's, which repeats blocks by aliases."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable as YAML: {' '.join(str(error).split())[:200]}") from None
    return content if isinstance(content, dict) else {}


def _encoder_key(content: Mapping[str, Any]) -> str | None:
    """Under which of a configuration's keys the network stands."""
    names = ("jasper", "quartznet")
    return next((n for n in names if isinstance(content.get(n), Mapping) and "encoder" in content[n]), None)


def read_config(path: str | Path) -> JasperConfig:
    """NVIDIA's YAML file of a Jasper or QuartzNet. An InputError names what is wrong in it."""
    return build_config(_read(Path(path)), str(path))


def build_config(content: Mapping[str, Any], path: str) -> JasperConfig:
    """The content of such a file; `path` is named in errors."""
    key = _encoder_key(content)
    encoder = content[key]["encoder"] if key else None
    if not isinstance(encoder, Mapping) or not isinstance(encoder.get("blocks"), list):
        raise InputError(f"{path} is no configuration of Jasper: it has no jasper.encoder.blocks")
    values: dict[str, Any] = {ours: [] for ours in BLOCK_KEYS.values()}
    for number, block in enumerate(encoder["blocks"]):
        if not isinstance(block, Mapping):
            raise InputError(f"{path}: block {number} is no mapping")
        _refuse(path, f"block {number}", block, (*BLOCK_KEYS, "groups", "padding", "kernel_size_factor"))
        for name, wanted in (("groups", 1), ("padding", "same"), ("kernel_size_factor", 1)):
            if _single(block.get(name, wanted)) != wanted:
                raise InputError(
                    f"{path}: block {number} has {name} {block[name]!r}; only {wanted!r} is known"
                )
        for name, ours in BLOCK_KEYS.items():
            if name == "filters" and name not in block:
                raise InputError(f"{path}: block {number} has no filters")
            values[ours].append(_single(block.get(name, BLOCK_DEFAULTS.get(name))))
    if int(_single(encoder.get("frame_splicing", 1))) != 1:
        raise InputError(f"{path}: frame_splicing {encoder['frame_splicing']} is not known, only 1")
    values["activation"] = encoder.get("activation", "relu")
    values["use_conv_masks"] = encoder.get("use_conv_masks", False)
    values["n_mel_channels"] = encoder.get("in_feats", 64)
    inputs = content.get("input_val") or {}
    stated = (inputs.get("filterbank_features") or {}) if isinstance(inputs, Mapping) else {}
    rate = stated.get("sample_rate", 16000)
    values |= {ours: stated[name] for name, ours in FEATURE_KEYS.items() if name in stated}
    for name, ours in (("window_size", "win_length"), ("window_stride", "hop_length")):
        if name in stated:
            values[ours] = int(stated[name] * rate)
    if stated.get("window", "hann") != "hann":
        raise InputError(f"{path}: the window {stated['window']!r} is not known, only 'hann'")
    if isinstance(labels := content.get("labels"), list):
        if any(not isinstance(label, str) or len(label) != 1 for label in labels):
            raise InputError(f"{path}: labels must be single characters")
        values["labels"] = "".join(labels)
    values.setdefault("mel_fmax", None)
    return build_section(JasperConfig, values, path)


def _refuse(path: str, what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise InputError(f"{path}: {what} has {name!r}, which is not known: {', '.join(known)}")


def _single(value: Any) -> Any:
    """NVIDIA's files write sizes as lists of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
