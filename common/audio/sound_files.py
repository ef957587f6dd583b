"""Reading, resampling and writing sound files."""

from __future__ import annotations

import io
import math
import os
import struct
import warnings
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np

from melforge.common.audio.mel import FRAMES_AT_ONCE
from melforge.common.errors import InputError
from melforge.common.files import require_writable_file, write_bytes

FORMATS = {  # file suffix -> libsndfile's container and coding
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}


ZERO_CROSSINGS, BETA = 64, 11.0  # of resampling's filter: its length, and its window's shape
BLOCK = 128  # outputs that are computed together, at least
LARGEST_TABLE = 1 << 20  # values; rates with few common divisors go without
LOWEST_RATE, HIGHEST_RATE = 4000, 384000  # Hz, of recordings that others send
DECODED_AT_ONCE = 1 << 20  # samples
LOUDEST = 2.0**31  # of samples: some files hold whole numbers as floats; far above, spectra are infinite
UNKNOWN_SIZE = 0xFFFFFFFF  # in a wav header: until the stream ends
USUAL_RATE = 48000  # Hz; a recording of a higher one may have as many samples, and so last less long
PHASES_AT_ONCE = 1 << 16  # values of filters


def resample(audio: np.ndarray, from_rate: int, to_rate: int) -> np.ndarray:
    """audio (..., S) at `from_rate` Hz -> float32 (..., ceil(S * to / from)) at `to_rate` Hz.

    Band-limited interpolation with a Kaiser-windowed sinc, one filter for each phase (Smith, "Digital
    Audio Resampling"): flat to 0.91 of the lower Nyquist frequency, more than 100 dB down from 1.03 of it.
    """
    audio = np.asarray(audio, np.float32)
    for rate in (from_rate, to_rate):
        if rate != int(rate) or rate < 1:
            raise InputError(f"a sampling rate must be a whole positive number of Hz, not {rate}")
    if from_rate == to_rate or audio.shape[-1] == 0:
        return audio.copy()
    divisor = math.gcd(int(from_rate), int(to_rate))
    up, down = int(to_rate) // divisor, int(from_rate) // divisor
    half = half_width(up, down)
    count = -(-audio.shape[-1] * up // down)
    more = max(1, BLOCK // up)  # a product of matrices takes less time than one of a matrix and a vector
    up, down = up * more, down * more
    blocks = -(-count // up)
    padding = [(0, 0)] * (audio.ndim - 1) + [(half, half + (blocks + 1) * down - audio.shape[-1])]
    padded = np.pad(audio, padding)
    if up * (down + 2 * half) <= LARGEST_TABLE:
        # Output number phase + k * up is a product of row `phase` with the inputs of block k.
        windows = np.lib.stride_tricks.sliding_window_view(padded, down + 2 * half, axis=-1)
        table, inputs = phase_table(up, down), windows[..., 1::down, :]
        out = np.empty((*audio.shape[:-1], blocks, up), np.float32)
        step = max(1, FRAMES_AT_ONCE // up)
        for start in range(0, blocks, step):
            np.matmul(
                inputs[..., start : min(start + step, blocks), :],
                table,
                out=out[..., start : start + step, :],
            )
        return np.ascontiguousarray(out.reshape(*audio.shape[:-1], -1)[..., :count])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half, axis=-1)
    out = np.empty((*audio.shape[:-1], count), np.float32)
    together = max(1, PHASES_AT_ONCE // (2 * half))  # filters one by one take longer than what they filter
    for first_phase in range(0, min(up, count), together):
        phases = np.arange(first_phase, min(first_phase + together, up, count))
        for phase, whole, taps in zip(phases, *phase_filters(phases, up, down), strict=True):
            # Output number phase + k * up lies at input position phase * down / up + k * down.
            places = out[..., phase::up]
            for start in range(0, places.shape[-1], FRAMES_AT_ONCE):
                stop = min(start + FRAMES_AT_ONCE, places.shape[-1])
                first = whole + 1 + start * down
                inputs = windows[..., first : first + (stop - start - 1) * down + 1 : down, :]
                places[..., start:stop] = inputs @ taps
    return out


def cutoff_of(up: int, down: int) -> float:
    """The middle of the transition band, in units of the input's Nyquist frequency."""
    return min(1.0, up / down) * 0.97


def half_width(up: int, down: int) -> int:
    """Samples on each side that an output is made of."""
    return math.ceil(ZERO_CROSSINGS / cutoff_of(up, down))


def phase_filters(phases: np.ndarray, up: int, down: int) -> tuple[np.ndarray, np.ndarray]:
    """How many whole samples outputs of these phases [P] lie behind their block's beginning, and their
    filters float32 [P, 2 * half].
    """
    whole, part = np.divmod(phases * down, up)
    half, cutoff = half_width(up, down), cutoff_of(up, down)
    distance = np.arange(1 - half, half + 1) - (part / up)[:, None]
    taper = np.i0(BETA * np.sqrt(np.maximum(0.0, 1.0 - (distance / half) ** 2))) / np.i0(BETA)
    return whole, (cutoff * np.sinc(cutoff * distance) * taper).astype(np.float32)


@lru_cache(maxsize=4)
def phase_table(up: int, down: int) -> np.ndarray:
    """All phases' filters at their places in a block's inputs, float32 (down + 2 * half, up)."""
    half = half_width(up, down)
    table = np.zeros((up, down + 2 * half), np.float32)
    for row, whole, taps in zip(table, *phase_filters(np.arange(up), up, down), strict=True):
        row[whole : whole + 2 * half] = taps
    return np.ascontiguousarray(table.T)


def read_audio(path: str | Path, start: float = 0.0, length: float = math.inf) -> tuple[np.ndarray, int]:
    """A sound file -> (float32 samples (S,), sampling rate), as `decode_audio`; an error names the file."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a sound file")
    if not path.exists():
        raise FileNotFoundError(f"sound file {path} not found")
    try:
        return decode_audio(path, start=start, length=length)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def decode_audio(
    sound: bytes | Path, longest: float = math.inf, start: float = 0.0, length: float = math.inf
) -> tuple[np.ndarray, int]:
    """A sound file or its bytes, from whoever -> (float32 samples (S,), sampling rate).

    Several channels are averaged to one. An InputError where it is no sound, has a rate that no speech has
    or samples that no sound has, or is longer than so many seconds at 48 kHz: those of a higher rate are
    shorter, since a small file of silence may hold any number of samples. `start` and `length` are the
    seconds of a piece of it, which may be longer than what there is but not begin behind it.
    """
    import soundfile

    try:
        with soundfile.SoundFile(sound if isinstance(sound, Path) else io.BytesIO(sound)) as file:
            rate = file.samplerate
            if not LOWEST_RATE <= rate <= HIGHEST_RATE:
                usual = f"speech has {LOWEST_RATE} to {HIGHEST_RATE}"
                raise InputError(f"its rate is {rate} Hz, where {usual}: save it with its true rate")
            if start:
                if round(min(start * rate, 2.0**62)) >= file.frames:
                    there = f"it ends at {file.frames / rate:g} s"
                    raise InputError(f"{there}, and the piece that is asked for begins at {start:g} s")
                file.seek(round(start * rate))
            seconds = longest * min(1.0, USUAL_RATE / rate)
            blocks, count = [np.zeros(0, np.float32)], 0
            step, end = max(1, DECODED_AT_ONCE // file.channels), round(min(length * rate, 2.0**62))
            while len(block := file.read(min(step, end - count), "float32", always_2d=True)):
                count += len(block)
                if count > seconds * rate:
                    at = f" at {rate} Hz" if rate > USUAL_RATE else ""
                    raise InputError(f"it is longer than {seconds:g} seconds{at}: cut it at a pause")
                blocks.append(block.mean(axis=1, dtype=np.float32))
    except soundfile.LibsndfileError as error:
        raise InputError(f"it cannot be read as sound: {error.error_string}") from None
    samples = np.concatenate(blocks)
    loudest = max(np.max(samples, initial=0.0), -np.min(samples, initial=0.0))
    if not loudest <= LOUDEST:  # NaN is not either
        raise InputError("its samples are not all numbers that sound has: save it in 16 bits")
    return samples, rate


def to_pcm16(audio: np.ndarray) -> np.ndarray:
    """Audio in [-1, 1] -> int16 as the published vocoders' scripts do (times 32768, truncated); saturates."""
    return np.clip(np.asarray(audio, np.float32) * 32768.0, -32768, 32767).astype(np.int16)


def encode_audio(audio: np.ndarray, rate: int, format: str = "wav") -> bytes:
    """audio (S,) -> the bytes of a sound file: wav and flac with 16 bits, ogg (Vorbis) or mp3.

    Nothing is ever clipped: a signal whose peak is above 1 is scaled down as a whole, with a warning.
    """
    format = format.lower().removeprefix(".")
    if format not in FORMATS:
        raise InputError(f"sound format {format!r} is not known; use one of {', '.join(FORMATS)}")
    audio = np.asarray(audio)
    if audio.ndim != 1:
        raise ValueError(f"audio to write must have one axis (samples), not the shape {audio.shape}")
    audio = audio.astype(np.float32)
    if bad := np.count_nonzero(~np.isfinite(audio)):
        raise ValueError(f"audio to write holds {bad} NaN or infinite samples of {audio.size}")
    peak = float(np.max(np.abs(audio), initial=0.0))
    if peak > 1.0:
        scaled = "scaled down as a whole so that it does not clip"
        warnings.warn(f"audio peaks at {peak:.2f}: {scaled}", stacklevel=2)
        audio = audio / peak
    return _wav(to_pcm16(audio), rate) if format == "wav" else _by_libsndfile(audio, rate, format)


def wav_header(rate: int, data_bytes: int | None = None) -> bytes:
    """The header of a mono file of 16 bits; without `data_bytes`, of a stream that may have any length."""
    data = UNKNOWN_SIZE if data_bytes is None else data_bytes
    riff = UNKNOWN_SIZE if data_bytes is None else data_bytes + 36
    format = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", riff, b"WAVE") + format + struct.pack("<4sI", b"data", data)


def _wav(samples: np.ndarray, rate: int) -> bytes:
    """As libsndfile writes it, which takes longer to import than a sentence's samples to write."""
    if not (isinstance(rate, int) and 0 < rate < 1 << 31):
        raise InputError(f"cannot write wav at {rate} Hz: a sampling rate is a whole positive number")
    return wav_header(rate, samples.nbytes) + samples.astype("<i2", copy=False).tobytes()


def _by_libsndfile(audio: np.ndarray, rate: int, format: str) -> bytes:
    import soundfile

    container, coding = FORMATS[format]
    if container not in soundfile.available_formats():
        version = soundfile.__libsndfile_version__
        raise InputError(f"the installed libsndfile {version} cannot write {format}; use wav")
    samples = to_pcm16(audio) if coding == "PCM_16" else audio
    buffer = io.BytesIO()
    try:
        with soundfile.SoundFile(buffer, "w", rate, 1, coding, format=container) as file:
            # In pieces: libsndfile's Vorbis encoder overflows its stack on long single writes.
            for start in range(0, len(samples), 1 << 16):
                file.write(samples[start : start + (1 << 16)])
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise InputError(f"cannot write {format} at {rate} Hz: {error}") from None
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
        raise InputError(f"{target}: the suffix does not name a sound format; use one of {known}")
    require_writable_file(path)
    write_bytes(path, encode_audio(audio, rate, format or suffix))
