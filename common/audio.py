"""Sound on the way in and out: the mel contract, mel spectrograms, resampling, sound files. NumPy only.

`soundfile` is imported where a file is read or written, so that importing this module costs nothing.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np

FRAMES_AT_ONCE = 4096  # bounds the memory of spectrograms and of resampling
FORMATS = {  # file suffix -> libsndfile's container and coding
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}


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
                raise ValueError(f"mel contract: {name} must be positive, not {getattr(self, name)}")
        if self.win_length > self.filter_length:
            raise ValueError(
                f"mel contract: win_length {self.win_length} exceeds filter_length {self.filter_length}"
            )
        if not 0 <= self.mel_fmin < self.highest_frequency <= self.sampling_rate / 2:
            raise ValueError(
                f"mel contract: mel_fmin {self.mel_fmin} and mel_fmax {self.mel_fmax} must be in order "
                f"and within 0 to {self.sampling_rate / 2:g} Hz"
            )
        for name, known in (
            ("mel_log", ("natural", "log10")),
            ("mel_scale", ("slaney", "htk")),
            ("mel_norm", ("slaney", "none")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"mel contract: {name} must be {' or '.join(known)}, not {getattr(self, name)!r}"
                )
        if not self.mel_clamp > 0:
            raise ValueError(f"mel contract: mel_clamp must be positive, not {self.mel_clamp}")

    @property
    def highest_frequency(self) -> float:
        return self.sampling_rate / 2 if self.mel_fmax is None else self.mel_fmax

    def differences(self, other: MelContract) -> dict[str, tuple[object, object]]:
        """The fields that disagree: name -> (this side's value, the other's)."""
        found = {}
        for field in fields(self):
            pair = getattr(self, field.name), getattr(other, field.name)
            if field.name == "mel_fmax":  # None and half the sampling rate are the same mel
                same = self.highest_frequency == other.highest_frequency
            else:
                same = pair[0] == pair[1]
            if not same:
                found[field.name] = pair
        return found


def require_same_contract(
    acoustic: MelContract, vocoder: MelContract, names: tuple[str, str] = ("acoustic model", "vocoder")
) -> None:
    """A ValueError with both contracts side by side, unless they agree."""
    different = acoustic.differences(vocoder)
    if not different:
        return
    rows = [("", "", *names)]
    for field in fields(acoustic):
        pair = (getattr(side, field.name) for side in (acoustic, vocoder))
        shown = (f"{v:g}" if isinstance(v, int | float) else "none" if v is None else v for v in pair)
        rows.append(("*" if field.name in different else "", field.name, *shown))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
    raise ValueError(f"{names[0]} and {names[1]} differ in {', '.join(different)}:\n{table}")


def _hz_to_mel(hz: np.ndarray, scale: str) -> np.ndarray:
    if scale == "htk":
        return 2595.0 * np.log10(1.0 + hz / 700.0)
    # Slaney's: linear (15 mel for 1000 Hz) below 1000 Hz, logarithmic (27 mel for a factor of 6.4) above.
    return np.where(
        hz < 1000.0, hz * 0.015, 15.0 + np.log(np.maximum(hz, 1e-9) / 1000.0) * 27.0 / np.log(6.4)
    )


def _mel_to_hz(mel: np.ndarray, scale: str) -> np.ndarray:
    if scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    return np.where(mel < 15.0, mel / 0.015, 1000.0 * np.exp((mel - 15.0) * np.log(6.4) / 27.0))


@lru_cache(maxsize=16)
def mel_basis(contract: MelContract) -> np.ndarray:
    """Triangular mel filters, float32 (n_mels, filter_length // 2 + 1), read-only."""
    bins = np.arange(contract.filter_length // 2 + 1) * (contract.sampling_rate / contract.filter_length)
    ends = _hz_to_mel(np.array([contract.mel_fmin, contract.highest_frequency]), contract.mel_scale)
    corners = _mel_to_hz(np.linspace(*ends, contract.n_mel_channels + 2), contract.mel_scale)
    widths = np.diff(corners)
    slopes = corners[:, None] - bins
    rising = -slopes[:-2] / widths[:-1, None]
    falling = slopes[2:] / widths[1:, None]
    basis = np.maximum(0.0, np.minimum(rising, falling))
    if contract.mel_norm == "slaney":  # equal area
        basis *= (2.0 / (corners[2:] - corners[:-2]))[:, None]
    basis = basis.astype(np.float32)
    basis.flags.writeable = False
    return basis


@lru_cache(maxsize=16)
def analysis_window(contract: MelContract) -> np.ndarray:
    """Periodic Hann window of win_length, centred in filter_length: float32, read-only."""
    n = np.arange(contract.win_length)
    window = np.zeros(contract.filter_length, np.float32)
    start = (contract.filter_length - contract.win_length) // 2
    window[start : start + contract.win_length] = 0.5 - 0.5 * np.cos(2 * np.pi * n / contract.win_length)
    window.flags.writeable = False
    return window


def framing_rule(contract: MelContract, framing: str) -> tuple[int, float]:
    """(samples of reflection at each end, what is added to the power before its root) of a framing."""
    if framing == "hifigan":  # T * hop samples give T frames
        return (contract.filter_length - contract.hop_length) // 2, 1e-9
    if framing == "tacotron":  # frame t is centred on sample t * hop
        return contract.filter_length // 2, 0.0
    raise ValueError(f'framing must be "hifigan" or "tacotron", not {framing!r}')


def magnitude_spectrogram(audio: np.ndarray, contract: MelContract, framing: str = "hifigan") -> np.ndarray:
    """audio (..., S) in [-1, 1] -> magnitude, float32 (..., filter_length // 2 + 1, T)."""
    padding, floor = framing_rule(contract, framing)
    audio = np.asarray(audio, np.float32)
    if audio.shape[-1] <= padding:
        raise ValueError(f"{audio.shape[-1]} samples are too few for a spectrogram: give more than {padding}")
    padded = np.pad(audio, [(0, 0)] * (audio.ndim - 1) + [(padding, padding)], mode="reflect")
    if padded.shape[-1] < contract.filter_length:
        raise ValueError(
            f"{audio.shape[-1]} samples are too few for a spectrogram: "
            f"give at least {contract.filter_length - 2 * padding}"
        )
    windows = np.lib.stride_tricks.sliding_window_view(padded, contract.filter_length, axis=-1)
    frames = windows[..., :: contract.hop_length, :]
    window = analysis_window(contract)
    out = np.empty((*audio.shape[:-1], contract.filter_length // 2 + 1, frames.shape[-2]), np.float32)
    for start in range(0, frames.shape[-2], FRAMES_AT_ONCE):
        span = slice(start, start + FRAMES_AT_ONCE)
        spectrum = np.fft.rfft(frames[..., span, :] * window)
        power = spectrum.real**2 + spectrum.imag**2 + floor
        out[..., span] = np.swapaxes(np.sqrt(power), -1, -2)
    return out


def mel_spectrogram(audio: np.ndarray, contract: MelContract, framing: str = "hifigan") -> np.ndarray:
    """audio (..., S) in [-1, 1] -> log mel, float32 (..., n_mels, T).

    `framing` "hifigan" gives S // hop frames, as vocoders are trained; "tacotron" S // hop + 1 frames, as
    NVIDIA's acoustic models are.
    """
    mel = mel_basis(contract) @ magnitude_spectrogram(audio, contract, framing)
    log = np.log if contract.mel_log == "natural" else np.log10
    return log(np.maximum(mel, np.float32(contract.mel_clamp)))


def mel_energy(mel: np.ndarray) -> np.ndarray:
    """log mel (..., n_mels, T) -> energy (..., T): the length of each frame's vector, FastPitch's energy."""
    return np.sqrt(np.sum(np.square(mel), axis=-2))


def resample(audio: np.ndarray, from_rate: int, to_rate: int) -> np.ndarray:
    """audio (..., S) at `from_rate` Hz -> float32 (..., ceil(S * to / from)) at `to_rate` Hz.

    Band-limited interpolation with a Kaiser-windowed sinc, one filter for each phase (Smith, "Digital
    Audio Resampling"): flat to 0.91 of the lower Nyquist frequency, more than 100 dB down from 1.03 of it.
    """
    audio = np.asarray(audio, np.float32)
    for rate in (from_rate, to_rate):
        if rate != int(rate) or rate < 1:
            raise ValueError(f"a sampling rate must be a whole positive number of Hz, not {rate}")
    if from_rate == to_rate or audio.shape[-1] == 0:
        return audio.copy()
    divisor = math.gcd(int(from_rate), int(to_rate))
    up, down = int(to_rate) // divisor, int(from_rate) // divisor
    zero_crossings, beta = 64, 11.0
    cutoff = min(1.0, up / down) * 0.97  # the middle of the transition band, in units of the input's Nyquist
    half = math.ceil(zero_crossings / cutoff)
    count = -(-audio.shape[-1] * up // down)
    padding = [(0, 0)] * (audio.ndim - 1) + [(half, half + down)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(audio, padding), 2 * half, axis=-1)
    out = np.empty((*audio.shape[:-1], count), np.float32)
    for phase in range(min(up, count)):
        # Output number phase + k * up lies at input position phase * down / up + k * down.
        whole, part = divmod(phase * down, up)
        distance = np.arange(1 - half, half + 1) - part / up
        taper = np.i0(beta * np.sqrt(np.maximum(0.0, 1.0 - (distance / half) ** 2))) / np.i0(beta)
        filter_ = (cutoff * np.sinc(cutoff * distance) * taper).astype(np.float32)
        places = out[..., phase::up]
        for start in range(0, places.shape[-1], FRAMES_AT_ONCE):
            stop = min(start + FRAMES_AT_ONCE, places.shape[-1])
            first = whole + 1 + start * down
            inputs = windows[..., first : first + (stop - start - 1) * down + 1 : down, :]
            places[..., start:stop] = inputs @ filter_
    return out


def read_audio(path: str | Path) -> tuple[np.ndarray, int]:
    """A sound file -> (float32 samples (S,), sampling rate); several channels are averaged to one."""
    import soundfile

    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a sound file")
    if not path.exists():
        raise FileNotFoundError(f"sound file {path} not found")
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{path} cannot be read as sound: {error.error_string}") from None
    return np.ascontiguousarray(samples.mean(axis=1, dtype=np.float32)), rate


def to_pcm16(audio: np.ndarray) -> np.ndarray:
    """Audio in [-1, 1] -> int16 as the published vocoders' scripts do (times 32768, truncated); saturates."""
    return np.clip(np.asarray(audio, np.float32) * 32768.0, -32768, 32767).astype(np.int16)


def encode_audio(audio: np.ndarray, rate: int, format: str = "wav") -> bytes:
    """audio (S,) -> the bytes of a sound file: wav and flac with 16 bits, ogg (Vorbis) or mp3.

    Nothing is ever clipped: a signal whose peak is above 1 is scaled down as a whole, with a warning.
    """
    import soundfile

    format = format.lower().removeprefix(".")
    if format not in FORMATS:
        raise ValueError(f"sound format {format!r} is not known; use one of {', '.join(FORMATS)}")
    container, coding = FORMATS[format]
    if container not in soundfile.available_formats():
        raise ValueError(
            f"the installed libsndfile {soundfile.__libsndfile_version__} cannot write {format}; use wav"
        )
    audio = np.asarray(audio)
    if audio.ndim != 1:
        raise ValueError(f"audio to write must have one axis (samples), not the shape {audio.shape}")
    audio = audio.astype(np.float32)
    bad = np.count_nonzero(~np.isfinite(audio))
    if bad:
        raise ValueError(f"audio to write holds {bad} NaN or infinite samples of {audio.size}")
    peak = float(np.max(np.abs(audio), initial=0.0))
    if peak > 1.0:
        warnings.warn(
            f"audio peaks at {peak:.2f}: scaled down as a whole so that it does not clip", stacklevel=2
        )
        audio = audio / peak
    samples = to_pcm16(audio) if coding == "PCM_16" else audio
    buffer = io.BytesIO()
    try:
        with soundfile.SoundFile(buffer, "w", rate, 1, coding, format=container) as file:
            # In pieces: libsndfile's Vorbis encoder overflows its stack on long single writes.
            for start in range(0, len(samples), 1 << 16):
                file.write(samples[start : start + (1 << 16)])
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise ValueError(f"cannot write {format} at {rate} Hz: {error}") from None
    return buffer.getvalue()


def write_audio(
    target: str | Path | IO[bytes], audio: np.ndarray, rate: int, format: str | None = None
) -> None:
    """Write audio (S,) to a path or an open binary file; a path's suffix decides where `format` is None.

    A path appears only when it is complete: the bytes go to a temporary name beside it, which is renamed.
    """
    if not isinstance(target, str | os.PathLike):
        target.write(encode_audio(audio, rate, format or "wav"))
        return
    path = Path(os.path.realpath(target))  # through a link, so that the link stays
    suffix = Path(target).suffix.lower().removeprefix(".")
    if format is None and suffix not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise ValueError(f"{target}: the suffix does not name a sound format; use one of {known}")
    if path.is_dir():
        raise IsADirectoryError(f"{target} is a folder: give a file name")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {path.parent} does not exist")
    write_bytes(path, encode_audio(audio, rate, format or suffix))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or, if anything fails, none."""
    if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced by a file
        path.write_bytes(content)
        return
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise type(error)(error.errno, f"cannot write {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
