"""NVIDIA's other names of settings, in files, in `--set` and as options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

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
    "amp": "use_fp16",
    "amp_run": "use_fp16",
    "fp16": "use_fp16",
    "sigma_infer": "sigma",
    "waveglow_sigma_infer": "sigma",
    "stft_hop_length": "hop_length",
    "pitch_transform_flatten": "pitch_flatten",
    "pitch_transform_invert": "pitch_invert",
    "pitch_transform_amplify": "pitch_amplify",
    "pitch_transform_shift": "pitch_shift",
}


def own_name(key: str) -> str:
    """Our name of a key; "fastpitch.hop_len" is "fastpitch.hop_length"."""
    scope, dot, name = key.rpartition(".")
    return f"{scope}{dot}{ALIASES.get(name, name)}"


def with_own_names(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries of one file by our names. The place of an alias has it in brackets, for messages."""
    named: dict[str, Entry] = {}
    for key, entry in entries.items():
        own = own_name(key)
        if own in named:
            both = f"{named[own].place} and {entry.place}"
            names = " and ".join(k for k in entries if own_name(k) == own)
            raise InputError(f"{both}: {names} are names of the same setting: leave one of them out")
        named[own] = entry if own == key else replace(entry, place=f"{entry.place} ({key})")
    return named


def require_one_name(keys: Iterable[str], dashes: str = "", repeated: Iterable[str] = ()) -> None:
    """An InputError where two names of one setting stand on a command line.

    Of those that may be `repeated` each alias is one more, but not beside the setting's own name.
    """
    written: dict[str, str] = {}
    repeated = set(repeated)
    for key in keys:
        own = own_name(key)
        first = written.setdefault(own, key)
        if key != first and (own not in repeated or own in (first, key)):
            raise InputError(
                f"{dashes}{first} and {dashes}{key} are names of the same setting: leave one of them out"
            )
