"""Samples as whole numbers, and the header of a wav file."""

from __future__ import annotations

import struct

import numpy as np

AT_ONCE = 1 << 16  # samples in a call of libsndfile, whose encoders keep them on the stack
PCM, A_LAW, MU_LAW = 1, 6, 7  # codings of a wav file
SAMPLE_BYTES = {PCM: 2, A_LAW: 1, MU_LAW: 1}
UNKNOWN_SIZE = 0xFFFFFFFF  # in a wav header: until the stream ends


def to_pcm16(audio: np.ndarray) -> np.ndarray:
    """Audio in [-1, 1] -> int16 as the published vocoders' scripts do (times 32768, truncated); saturates."""
    scaled = np.multiply(audio, 32768.0, dtype=np.float32)
    return np.clip(scaled, -32768, 32767, out=scaled).astype(np.int16)


def wav_header(rate: int, data_bytes: int | None = None, channels: int = 1, coding: int = PCM) -> bytes:
    """The header of a wav file: PCM of 16 bits, or 8 of A-law or mu-law by their numbers in RFC 2361. Without
    `data_bytes`, that of a stream that may have any length.
    """
    data = UNKNOWN_SIZE if data_bytes is None else data_bytes
    riff = UNKNOWN_SIZE if data_bytes is None else data_bytes + 36
    width = channels * SAMPLE_BYTES[coding]
    bits = 8 * SAMPLE_BYTES[coding]
    format = struct.pack("<4sIHHIIHH", b"fmt ", 16, coding, channels, rate, width * rate, width, bits)
    return struct.pack("<4sI4s", b"RIFF", riff, b"WAVE") + format + struct.pack("<4sI", b"data", data)
