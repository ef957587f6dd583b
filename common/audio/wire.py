"""Audio encoded for the wire as it is made: mp3, opus, aac, flac, wav, pcm, and telephones' pcmu and pcma
(G.711). No torch."""

from __future__ import annotations

import contextlib
import functools
import io
import shutil
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from melforge.common.audio.pcm import AT_ONCE, to_pcm16, wav_header
from melforge.common.errors import InputError, require_package, unknown

DEFAULT_RATE = 24000  # Hz: what OpenAI's clients take pcm to have
ANY_RATE = range(8000, 192001)
MPEG_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
G711_RATES = (8000,)
# Samples at the higher of both rates: a resampler keeps buffers of several times as many, and has the other
# threads of a server take Python's lock between two calls.
ENCODED_AT_ONCE = 1 << 14
HEAD = 4096  # bytes at the beginning of a file of libsndfile's, more than it writes again at the end

# 96 kbit/s at 24 kHz. Constant: readers of a stream take its length from its first frame's bit rate.
MP3_OPTIONS = {"bitrate_mode": "CONSTANT", "compression_level": 0.4}
# About 74 kbit/s. Below 64 kbit/s libopus codes speech with SILK, in more than twice the time.
OPUS_OPTIONS = {"compression_level": 0.75}
SET_OGG_PAGE_LATENCY = 0x1302  # libsndfile's SFC_SET_OGG_PAGE_LATENCY_MS
OGG_PAGE_LATENCY = 60.0  # ms

SOUND_FILES = {
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "opus": ("OGG", "OPUS"),
    "flac": ("FLAC", "PCM_16"),
    "pcmu": ("RAW", "ULAW"),
    "pcma": ("RAW", "ALAW"),
}
MP3_BITRATES = {  # kbit/s of MPEG 1 and of MPEG 2 and 2.5, layer III
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


@dataclass(frozen=True)
class WireFormat:
    """A format of the wire: the media type of its answers and the sampling rates (Hz) that it can have."""

    content_type: str
    rates: Container[int] = ANY_RATE

    @property
    def rates_in_words(self) -> str:
        if isinstance(self.rates, range):
            return f"a whole number from {self.rates[0]} to {self.rates[-1]}"
        assert isinstance(self.rates, tuple)
        return "one of " + ", ".join(map(str, self.rates))


FORMATS = {
    "mp3": WireFormat("audio/mpeg", MPEG_RATES),
    "opus": WireFormat("audio/ogg", OPUS_RATES),
    "aac": WireFormat("audio/aac", MPEG_RATES),
    "flac": WireFormat("audio/flac"),
    "wav": WireFormat("audio/wav"),
    "pcm": WireFormat("audio/pcm"),
    "pcmu": WireFormat("audio/pcmu", G711_RATES),
    "pcma": WireFormat("audio/pcma", G711_RATES),
}


def require_format(format: str, rate: int) -> WireFormat:
    """The format of that name; an InputError where it is unknown or cannot be made here at `rate` Hz."""
    if format not in FORMATS:
        raise InputError(unknown("audio format", format, FORMATS))
    if rate not in FORMATS[format].rates:
        raise InputError(f"{format} cannot have {rate} Hz: ask for {FORMATS[format].rates_in_words}")
    if format == "aac" and shutil.which("ffmpeg") is None:
        others = ", ".join(name for name in FORMATS if name != "aac")
        raise InputError(f"aac needs ffmpeg on PATH, and there is none: install ffmpeg, or ask for {others}")
    if format in SOUND_FILES:
        soundfile = require_package("soundfile", f"audio as {format}")
        container, coding = SOUND_FILES[format]
        if not soundfile.check_format(container, coding):
            version = soundfile.__libsndfile_version__
            raise InputError(f"the installed libsndfile {version} cannot write {format}: ask for wav or pcm")
    return FORMATS[format]


class WireEncoder:
    """Encodes samples; the bytes do not depend on how the samples are divided.

    A stream begins before its length is known: mp3 has no Xing frame, and begins with its encoder's delay of
    1,105 samples, which no reader cuts off; opus leaves in Ogg pages of 60 ms; wav has sizes of 0xFFFFFFFF;
    aac (ADTS), pcm (16 bits, little endian, mono), pcmu and pcma have none. flac's first bytes, its `head`,
    are known at the end only (`head_comes_last`), as readers refuse an unknown length. `whole`: those of wav
    and mp3 too, wav's with its sizes, mp3's with its delay.

    Encoding takes milliseconds for a second of audio, so an event loop should do it in a thread. What encodes
    is made for the first samples: mp3's takes half a MB, aac's is a process, so an encoder that is not closed
    must be discarded. Raises InputError as `require_format`.
    """

    def __init__(self, format: str, source_rate: int, rate: int, whole: bool = False) -> None:
        self.content_type = require_format(format, rate).content_type
        self._rates, self._asked, self._closed = (source_rate, rate), (format, rate, whole), False
        if source_rate != rate:
            require_package("soxr", f"audio at {rate} Hz instead of {source_rate}")
        self.head_comes_last = format == "flac" or (whole and format in ("wav", "mp3"))
        self.head = b""  # once it is closed: what belongs in front of all other bytes

    def write(self, samples: np.ndarray) -> bytes:
        """float32 (S,) at the source's rate -> the bytes that are ready. Clips to [-1, 1]."""
        if self._closed:
            raise ValueError("the encoder is closed")
        samples = np.ascontiguousarray(samples, np.float32)
        if samples.ndim != 1:
            raise ValueError(f"audio to encode must have one axis (samples), not the shape {samples.shape}")
        if bad := samples.size - np.count_nonzero(np.isfinite(samples)):
            raise ValueError(f"audio to encode holds {bad} NaN or infinite samples of {samples.size}")
        size = ENCODED_AT_ONCE * self._rates[0] // max(self._rates)
        parts = (samples[start : start + size] for start in range(0, len(samples), size))
        return b"".join([self._coder.write(self._resampled(part, last=False)) for part in parts])

    def close(self) -> bytes:
        """Closes the encoder and returns its last bytes; further calls return nothing. See `head`."""
        if self._closed:
            return b""
        rest = self._coder.write(self._resampled(np.zeros(0, np.float32), last=True))
        coder = self._coder
        self._end()
        rest += coder.close()
        self.head = coder.head
        return rest

    def discard(self) -> None:
        """Closes without flushing."""
        coder = vars(self).get("_coder")
        self._end()
        if coder:
            coder.discard()

    def _end(self) -> None:
        # Somebody may keep a closed encoder, and soxr complains of a stream that lives when Python ends.
        self._closed = True
        for one in ("_coder", "_resampler"):
            vars(self).pop(one, None)

    @functools.cached_property
    def _coder(self) -> _Coder:
        return _coder(*self._asked)

    @functools.cached_property
    def _resampler(self) -> Any:
        import soxr

        # VHQ holds back 8 ms; soxr's default, HQ, 20.
        return soxr.ResampleStream(*self._rates, 1, dtype="float32", quality="VHQ")

    def _resampled(self, samples: np.ndarray, last: bool) -> np.ndarray:
        source, rate = self._rates
        return samples if source == rate else self._resampler.resample_chunk(samples, last=last)


def encode(samples: np.ndarray, format: str, source_rate: int, rate: int) -> bytes:
    """float32 (S,) at `source_rate` Hz -> a whole file at `rate` Hz. Raises as `require_format`."""
    encoder = WireEncoder(format, source_rate, rate, whole=True)
    parts = (encoder.write(samples), encoder.close())
    return b"".join((encoder.head, *parts))


class _Coder(ABC):
    """float32 (S,) at the rate of the wire -> bytes; `head` as in `WireEncoder`."""

    head = b""

    @abstractmethod
    def write(self, samples: np.ndarray) -> bytes: ...

    def close(self) -> bytes:
        return b""

    def discard(self) -> None:
        self.close()


def _coder(format: str, rate: int, whole: bool) -> _Coder:
    if format in SOUND_FILES:
        return _SoundFileCoder(format, rate, streamed=format != "flac" and not (whole and format == "mp3"))
    if format == "aac":
        return _FfmpegCoder(rate)
    if format == "wav" and whole:
        return _WholeWavCoder(rate)
    return _PcmCoder(wav_header(rate) if format == "wav" else b"")


def _pcm(samples: np.ndarray) -> bytes:
    return to_pcm16(samples).astype("<i2", copy=False).tobytes()


class _PcmCoder(_Coder):
    def __init__(self, header: bytes) -> None:
        self.header = header

    def write(self, samples: np.ndarray) -> bytes:
        header, self.header = self.header, b""
        return header + _pcm(samples)


class _WholeWavCoder(_Coder):
    def __init__(self, rate: int) -> None:
        self.rate, self.size = rate, 0

    def write(self, samples: np.ndarray) -> bytes:
        pcm = _pcm(samples)
        self.size += len(pcm)
        return pcm

    def close(self) -> bytes:
        self.head = wav_header(self.rate, self.size)
        return b""


class _SoundFileCoder(_Coder):
    """An encoder of libsndfile. Streamed, mp3 loses its first frame: a placeholder until the end."""

    def __init__(self, format: str, rate: int, streamed: bool) -> None:
        import soundfile

        container, coding = SOUND_FILES[format]
        self.sink = _Sink(0 if streamed else HEAD)
        options: dict[str, Any] = {"mp3": MP3_OPTIONS, "opus": OPUS_OPTIONS}.get(format, {})
        sink: Any = self.sink
        self.file = soundfile.SoundFile(sink, "w", rate, 1, coding, None, container, **options)
        self.integers = coding == "PCM_16"
        self.has_placeholder = streamed and format == "mp3"
        if format == "opus":
            _set_ogg_page_latency(self.file)

    def write(self, samples: np.ndarray) -> bytes:
        samples = to_pcm16(samples) if self.integers else np.clip(samples, -1.0, 1.0)
        for start in range(0, len(samples), AT_ONCE):
            self.file.write(samples[start : start + AT_ONCE])
        return self._taken()

    def close(self) -> bytes:
        self.file.close()
        self.head = bytes(self.sink.head)
        return self._taken()

    def discard(self) -> None:
        self.file.close()

    def _taken(self) -> bytes:
        data = self.sink.take()
        if self.has_placeholder and data:
            self.has_placeholder = False
            return data[mp3_frame_bytes(data) :]
        return data


class _Sink:
    """The file that an encoder writes, from which new bytes are taken, but for the first `keep`: its head.

    Bytes that were taken are dropped, and so are later writes to their place (headers updated at the end).
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.head = bytearray()
        self.data = bytearray()
        self.taken = keep  # bytes before `data`
        self.place = self.end = 0

    def take(self) -> bytes:
        data = bytes(self.data)
        self.taken += len(data)
        self.data.clear()
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.end}[whence]
        self.place = start + offset
        return self.place

    def tell(self) -> int:
        return self.place

    def write(self, data: bytes) -> int:
        in_head = max(0, self.keep - self.place)
        if in_head:
            self.head[self.place : self.place + len(data)] = data[:in_head]
        start = max(self.place, self.keep) - self.taken
        rest = data[in_head:]
        if start >= 0:
            self.data[start : start + len(rest)] = rest
        elif start + len(rest) > 0:
            self.data[: start + len(rest)] = rest[-start:]
        self.place += len(data)
        self.end = max(self.end, self.place)
        return len(data)


def _set_ogg_page_latency(file: Any) -> None:
    """Ogg pages of 60 ms instead of a second, as libsndfile can and soundfile has no name for."""
    import soundfile

    # Through soundfile's own cffi handles. Without them pages are larger and everything else is the same.
    with contextlib.suppress(AttributeError):
        latency = soundfile._ffi.new("double *", OGG_PAGE_LATENCY)  # type: ignore
        soundfile._snd.sf_command(file._file, SET_OGG_PAGE_LATENCY, latency, 8)  # type: ignore


def mp3_frame_bytes(data: bytes) -> int:
    """The length of the MPEG layer III frame at the start of `data`."""
    mpeg_1 = (data[1] >> 3 & 3) == 3
    version = {3: 1, 2: 2, 0: 4}[data[1] >> 3 & 3]  # MPEG 1, 2 and 2.5: what divides the sampling rate
    rate = (44100, 48000, 32000)[data[2] >> 2 & 3] // version
    bitrate = 1000 * MP3_BITRATES[mpeg_1][data[2] >> 4]
    return (144 if mpeg_1 else 72) * bitrate // rate + (data[2] >> 1 & 1)


class _FfmpegCoder(_Coder):
    """AAC from the user's own ffmpeg: pcm goes into a pipe, and a thread reads what comes out of another."""

    def __init__(self, rate: int) -> None:
        source = ("-f", "s16le", "-ar", str(rate), "-ac", "1", "-i", "pipe:0")
        command = ("ffmpeg", "-hide_banner", "-loglevel", "error", *source, "-c:a", "aac", "-f", "adts")
        command = (*command, "-flush_packets", "1", "pipe:1")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.errors = b""
        self.lock = threading.Lock()
        self.data = bytearray()
        self.readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)
        ]
        for reader in self.readers:
            reader.start()

    def write(self, samples: np.ndarray) -> bytes:
        if len(samples):
            self._send(_pcm(samples))
        return self._taken()

    def close(self) -> bytes:
        self._end()
        if status := self.process.returncode:
            reason = self.errors.decode(errors="replace").strip()
            raise RuntimeError(f"ffmpeg ended with status {status}: {reason}")
        return self._taken()

    def discard(self) -> None:
        self.process.kill()
        self._end()

    def _send(self, pcm: bytes) -> None:
        stdin = _pipe(self.process.stdin)
        with contextlib.suppress(BrokenPipeError):  # it has ended: `close` says why
            stdin.write(pcm)
            stdin.flush()

    def _end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()
        self.process.wait()
        for reader in self.readers:
            reader.join()

    def _taken(self) -> bytes:
        with self.lock:
            data = bytes(self.data)
            self.data.clear()
        return data

    def _read(self) -> None:
        with _pipe(self.process.stdout) as stdout:
            while data := stdout.read1(1 << 16):  # type: ignore
                with self.lock:
                    self.data += data

    def _read_errors(self) -> None:
        with _pipe(self.process.stderr) as stderr:
            self.errors = stderr.read()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
