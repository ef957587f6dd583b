"""Reading, resampling and writing sound files."""

from __future__ import annotations

import io
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from melforge.common.audio.pcm import AT_ONCE, UNKNOWN_SIZE, to_pcm16, wav_header
from melforge.common.errors import InputError, require_package
from melforge.common.files import require_writable_file, what_it_is, write_bytes

LIBSNDFILE = {"flac": ("FLAC", "PCM_16"), "ogg": ("OGG", "VORBIS"), "mp3": ("MP3", "MPEG_LAYER_III")}
FORMATS = ("wav", *LIBSNDFILE, "opus", "aac")  # a file's suffix; the last two as a server encodes them
LOWEST_RATE, HIGHEST_RATE = 4000, 384000  # Hz, of recordings that others send
DECODED_AT_ONCE = 1 << 18  # samples
LOUDEST = 2.0**31  # of samples: some files hold whole numbers as floats; far above, spectra are infinite
RIFF_HEAD = b"RIFF\0\0\0\0WAVE"
NO_FILE = 7  # libsndfile's word for some damaged mp3 too
STDERR = 2
USUAL_RATE = 48000  # Hz; a recording of a higher one may have as many samples, and so last less long


def resample(audio: np.ndarray, from_rate: int, to_rate: int) -> np.ndarray:
    """audio (..., S) at `from_rate` Hz -> float32 (..., about S * to / from) at `to_rate` Hz, by libsoxr."""
    audio = np.asarray(audio, np.float32)
    for rate in (from_rate, to_rate):
        if rate != int(rate) or rate < 1:
            raise InputError(f"a sampling rate must be a whole positive number of Hz, not {rate}")
    if from_rate == to_rate or audio.shape[-1] == 0:
        return audio.copy()
    soxr = require_package("soxr", f"audio at {to_rate} Hz instead of {from_rate}")
    channels = np.ascontiguousarray(audio.reshape(-1, audio.shape[-1]).T)
    made = soxr.resample(channels, from_rate, to_rate, quality="VHQ")
    return np.ascontiguousarray(made.T).reshape(*audio.shape[:-1], -1)


def resample_blocks(blocks: Iterable[np.ndarray], from_rate: int, to_rate: int) -> Iterator[np.ndarray]:
    """The same for audio float32 (S,) that comes in blocks."""
    if from_rate == to_rate:
        yield from blocks
        return
    soxr = require_package("soxr", f"audio at {to_rate} Hz instead of {from_rate}")
    stream = soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="VHQ")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


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
    sound: BinaryIO | Path, longest: float = math.inf, start: float = 0.0, length: float = math.inf
) -> tuple[np.ndarray, int]:
    """A sound file, from anybody -> (float32 samples (S,), sampling rate). Errors as of `decode_blocks`.

    `start` and `length` select a part, in seconds; it may end after the recording, but not begin there.
    """
    blocks, rates = zip(*decode_blocks(sound, longest, start, length), strict=True)
    return np.concatenate(blocks), rates[0]


def decode_blocks(
    sound: BinaryIO | Path, longest: float = math.inf, start: float = 0.0, length: float = math.inf
) -> Iterator[tuple[np.ndarray, int]]:
    """The same in blocks of at most 2^18 samples, each with the rate; at least one, which may be empty.

    Several channels are averaged to one, or the loudest is taken where they cancel each other. An InputError
    if it is no sound, has a rate unusual for speech or impossible samples, or is longer than `longest`
    seconds at 48 kHz (less at higher rates: a small file of silence may hold any number of samples).
    """
    import soundfile

    if not isinstance(sound, Path):
        sound.seek(0)
    try:
        with soundfile.SoundFile(sound) as file:
            if not file.frames and (whole := _unfinished_wav(sound)):
                with whole:
                    yield from decode_blocks(whole, longest, start, length)
                return
            # Else soundfile seeks to where each block ends: mp3 is decoded otherwise from there on, and FLAC
            # from a pipe has no known end.
            file.seekable = lambda: False
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
            yield np.zeros(0, np.float32), rate
            step, end = max(1, DECODED_AT_ONCE // file.channels), round(min(length * rate, 2.0**62))
            count = 0
            while len(block := file.read(min(step, end - count), "float32", always_2d=True)):
                count += len(block)
                if count > seconds * rate:
                    at = f" at {rate} Hz" if rate > USUAL_RATE else ""
                    raise InputError(f"it is longer than {seconds:g} seconds{at}: cut it at a pause")
                samples = _mono(block)
                if not max(np.max(samples), -np.min(samples)) <= LOUDEST:  # NaN is not either
                    raise InputError("its samples are not all numbers that sound has: save it in 16 bits")
                yield samples, rate
    except soundfile.LibsndfileError as error:
        what = what_it_is(sound, "sound")
        why = f"it is {what}" if what else error.error_string if error.code != NO_FILE else "it is damaged"
        raise InputError(f"it cannot be read as sound: {why}") from None


def _mono(block: np.ndarray) -> np.ndarray:
    """Channels float32 (S, C) -> their mean (S,), or the loudest one where they cancel each other."""
    mean, count = block.mean(axis=1, dtype=np.float32), block.shape[1]
    if count > 1:
        powers = np.square(block, dtype=np.float64).sum(axis=0)
        # Half of what is left of one channel among silent ones.
        if np.vdot(mean, mean) * (2 * count) ** 2 < powers.max():
            return block[:, powers.argmax()].copy()
    return mean


def _unfinished_wav(sound: BinaryIO | Path) -> BinaryIO | None:
    """A wav file whose header says that it has no samples, as of a recorder that died, but has some: as a
    copy on disk whose header leaves their number open. None for other files.
    """
    with sound.open("rb") if isinstance(sound, Path) else nullcontext(sound) as file:
        file.seek(0)
        start, place = file.read(len(RIFF_HEAD)), len(RIFF_HEAD)
        if start[:4] + start[8:] != RIFF_HEAD[:4] + RIFF_HEAD[8:]:
            return None
        while (head := file.read(8))[:4] != b"data":
            if len(head) < 8:
                return None
            place += 8 + (size := int.from_bytes(head[4:], "little")) + size % 2
            file.seek(place)
        rest = file.read(8)  # samples, or a further chunk
        end, length = place + 16 + int.from_bytes(rest[4:], "little"), file.seek(0, io.SEEK_END)
        if any(head[4:]) or not rest or (rest[:4].isalnum() and 0 <= length - end <= 1):
            return None
        copy = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
        file.seek(0)
        shutil.copyfileobj(file, copy)
        copy.seek(place + 4)
        copy.write(UNKNOWN_SIZE.to_bytes(4, "little"))
        return copy


@contextmanager
def c_libraries_silenced() -> Iterator[None]:
    """For calls of libraries that write to stderr themselves, as libmpg123 does for mp3 read from within."""
    kept, nowhere = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STDERR)
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(nowhere)
        os.close(kept)


def encode_audio(
    audio: np.ndarray,
    rate: int,
    format: str = "wav",
    progress: Callable[[int], object] = lambda samples: None,
) -> bytes:
    """audio (S,) -> the bytes of a sound file, as `write_sound` writes it."""
    file = io.BytesIO()
    write_sound(file, audio, rate, format, progress)
    return file.getvalue()


def write_sound(
    file: BinaryIO,
    audio: np.ndarray,
    rate: int,
    format: str,
    progress: Callable[[int], object] = lambda samples: None,
) -> None:
    """audio (S,) -> a sound file: wav and flac with 16 bits, ogg (Vorbis), mp3, opus or aac.

    Hours need little memory. Nothing is ever clipped: a signal whose peak is above 1 is scaled down as a
    whole, with a warning. `progress` is told how many further samples are written.
    """
    format = format.lower().removeprefix(".")
    if format not in FORMATS:
        raise InputError(f"sound format {format!r} is not known; use one of {', '.join(FORMATS)}")
    audio = np.asarray(audio)
    if audio.ndim != 1:
        raise ValueError(f"audio to write must have one axis (samples), not the shape {audio.shape}")

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, len(audio), AT_ONCE):
            yield np.asarray(audio[start : start + AT_ONCE], np.float32)

    # A maximum is NaN where any sample is.
    peak = float(np.max([[-block.min(), block.max()] for block in blocks()], initial=0.0))
    if not np.isfinite(peak):
        bad = sum(np.count_nonzero(~np.isfinite(block)) for block in blocks())
        raise ValueError(f"audio to write holds {bad} NaN or infinite samples of {audio.size}")
    if peak > 1.0:
        what = "scaled down as a whole so that it does not clip"
        warnings.warn(f"audio peaks at {peak:.2f}: {what}", stacklevel=3)

    def scaled() -> Iterator[np.ndarray]:
        for block in blocks():
            yield block / peak if peak > 1.0 else block
            progress(len(block))

    if format == "wav":
        _write_wav(file, scaled(), len(audio), rate)
    elif format in LIBSNDFILE:
        _write_by_libsndfile(file, scaled(), rate, format)
    else:
        _write_as_sent(file, scaled(), rate, format)


def _write_wav(file: BinaryIO, blocks: Iterable[np.ndarray], samples: int, rate: int) -> None:
    """As libsndfile writes it, which takes longer to import than a sentence's samples to write."""
    if not (isinstance(rate, int) and 0 < rate < 1 << 31):
        raise InputError(f"cannot write wav at {rate} Hz: a sampling rate is a whole positive number")
    file.write(wav_header(rate, 2 * samples))
    for block in blocks:
        file.write(to_pcm16(block).astype("<i2", copy=False).tobytes())


def _write_by_libsndfile(target: BinaryIO, blocks: Iterable[np.ndarray], rate: int, format: str) -> None:
    import soundfile

    container, coding = LIBSNDFILE[format]
    if container not in soundfile.available_formats():
        version = soundfile.__libsndfile_version__
        raise InputError(f"the installed libsndfile {version} cannot write {format}; use wav")
    try:
        with soundfile.SoundFile(target, "w", rate, 1, coding, format=container) as file:
            for block in blocks:
                file.write(to_pcm16(block) if coding == "PCM_16" else block)
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise InputError(f"cannot write {format} at {rate} Hz: {error}") from None


def _write_as_sent(file: BinaryIO, blocks: Iterable[np.ndarray], rate: int, format: str) -> None:
    """As a server sends it: at the next higher rate that the format can have."""
    from melforge.common.audio import wire

    rates = wire.FORMATS[format].rates
    assert isinstance(rates, tuple)
    encoder = wire.WireEncoder(format, rate, next((one for one in rates if one >= rate), rates[-1]))
    try:
        for block in blocks:
            file.write(encoder.write(block))
        file.write(encoder.close())
    finally:
        encoder.discard()


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
