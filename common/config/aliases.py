"""NVIDIA's names of settings, in files, in `--set` and as options: ours are used everywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from melforge.common.config.typed import typed_entry
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError

ALIASES = {
    # CUDA-Optimized/FastSpeech: its files, and the options of generate.py
    "checkpoint_path": "checkpoint",
    "waveglow_path": "checkpoint",
    "results_path": "output",
    "sr": "sampling_rate",
    "n_fft": "filter_length",
    "win_len": "win_length",
    "hop_len": "hop_length",
    "num_mels": "n_mel_channels",
    # FastPitch's and Tacotron 2's inference.py
    "fastpitch": "checkpoint",
    "tacotron2": "checkpoint",
    "hifigan": "checkpoint",
    "waveglow": "checkpoint",
    "sigma_infer": "sigma",
    "waveglow_sigma_infer": "sigma",
    "stft_hop_length": "hop_length",
    "pitch_transform_flatten": "pitch_flatten",
    "pitch_transform_invert": "pitch_invert",
    "pitch_transform_amplify": "pitch_amplify",
    "pitch_transform_shift": "pitch_shift",
}

# What is true or false there is a value here: key -> our key, its value for true and for false. A model that
# is not to run on TensorRT says nothing of its backend.
SWITCHES: dict[str, tuple[str, str, str | None]] = {
    "use_trt": ("backend", "trt", None),
    **dict.fromkeys(("use_fp16", "amp", "amp_run", "fp16"), ("precision", "fp16", "fp32")),
}


def own_name(key: str) -> str:
    """Our name of a key; "fastpitch.hop_len" is "fastpitch.hop_length"."""
    scope, dot, name = key.rpartition(".")
    own = SWITCHES[name][0] if name in SWITCHES else ALIASES.get(name, name)
    return f"{scope}{dot}{own}"


def own_entry(key: str, entry: Entry) -> Entry:
    """The entry of a key with the value that our key has."""
    name = key.rpartition(".")[2]
    if name not in SWITCHES:
        return entry
    _, true, false = SWITCHES[name]
    return Entry(true if typed_entry(name, entry, bool) else false, entry.place)


def with_own_names(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries of one file by our names. The place of an alias has it in brackets, for messages."""
    named: dict[str, Entry] = {}
    for key, entry in entries.items():
        own = own_name(key)
        if own in named:
            names = " and ".join(k for k in entries if own_name(k) == own)
            raise same_setting(names, f"{named[own].place} and {entry.place}")
        entry = own_entry(key, entry)
        named[own] = entry if own == key else replace(entry, place=f"{entry.place} ({key})")
    return named


def same_setting(names: str, places: str = "") -> InputError:
    where = f"{places}: " if places else ""
    return InputError(f"{where}{names} are names of the same setting: leave one of them out")
