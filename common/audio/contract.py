"""The mel contract: which mel spectrogram an acoustic model makes and a vocoder takes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from melforge.common.errors import InputError

WORDS = {"mel_log": ("natural", "log10"), "mel_scale": ("slaney", "htk"), "mel_norm": ("slaney", "none")}


@dataclass(frozen=True)
class MelContract:
    """How a mel spectrogram is made: an acoustic model and a vocoder fit together only if theirs agree.

    Lengths are in samples, frequencies in Hz; `mel_fmax` None is half the sampling rate.
    """

    sampling_rate: int = 22050
    filter_length: int = 1024
    hop_length: int = 256
    win_length: int = 1024
    n_mel_channels: int = 80
    mel_fmin: float = 0.0
    mel_fmax: float | None = 8000.0
    mel_log: str = "natural"
    mel_clamp: float = 1e-5
    mel_scale: str = "slaney"
    mel_norm: str = "slaney"

    def __post_init__(self) -> None:
        for name in ("sampling_rate", "filter_length", "hop_length", "win_length", "n_mel_channels"):
            if getattr(self, name) < 1:
                raise InputError(f"mel contract: {name} must be positive, not {getattr(self, name)}")
        sizes = f"win_length {self.win_length} exceeds filter_length {self.filter_length}"
        if self.win_length > self.filter_length:
            raise InputError(f"mel contract: {sizes}")
        if not 0 <= self.mel_fmin < self.highest_frequency <= self.sampling_rate / 2:
            raise InputError(
                f"mel contract: mel_fmin {self.mel_fmin} and mel_fmax {self.mel_fmax} must be in order "
                f"and within 0 to {self.sampling_rate / 2:g} Hz"
            )
        for name, known in WORDS.items():
            if (value := getattr(self, name)) not in known:
                raise InputError(f"mel contract: {name} must be {' or '.join(known)}, not {value!r}")
        if not self.mel_clamp > 0:
            raise InputError(f"mel contract: mel_clamp must be positive, not {self.mel_clamp}")

    @property
    def highest_frequency(self) -> float:
        return self.sampling_rate / 2 if self.mel_fmax is None else self.mel_fmax

    def differences(self, other: MelContract) -> dict[str, tuple[object, object]]:
        """The fields that disagree: name -> (this side's value, the other's)."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        different = {name for name, (here, there) in pairs.items() if here != there} - {"mel_fmax"}
        if self.highest_frequency != other.highest_frequency:  # None and half the sampling rate are the same
            different.add("mel_fmax")
        return {name: pair for name, pair in pairs.items() if name in different}


def require_same_contract(
    acoustic: MelContract, vocoder: MelContract, names: tuple[str, str] = ("acoustic model", "vocoder")
) -> None:
    """An InputError with both contracts side by side, unless they agree."""
    if not (different := acoustic.differences(vocoder)):
        return
    rows: list[tuple[str, ...]] = [("", "", *names)]
    for field in fields(acoustic):
        pair = (getattr(side, field.name) for side in (acoustic, vocoder))
        shown = (f"{v:g}" if isinstance(v, int | float) else "none" if v is None else v for v in pair)
        rows.append(("*" if field.name in different else "", field.name, *shown))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
    raise InputError(f"{names[0]} and {names[1]} differ in {', '.join(different)}:\n{table}")
