"""Audio on the wire: every format is decoded again and compared with what went in."""

import io
import resource
import subprocess
import sys
import tracemalloc
import wave
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import soxr

from melforge.common.audio import wire
from melforge.common.audio.wire import FORMATS, WireEncoder, encode
from melforge.common.errors import InputError

SOURCE, RATE = 22050, 24000
LAME_DELAY = 1105  # samples
LOSSLESS = ("pcm", "wav", "flac")
EVERYWHERE = tuple(name for name in FORMATS if name != "aac" and RATE in FORMATS[name].rates)
STATM = Path("/proc/self/statm")
ALL = (*EVERYWHERE, pytest.param("aac", marks=pytest.mark.ffmpeg))


def resident() -> int:
    return int(STATM.read_text().split()[1]) * resource.getpagesize()


def voiced(seconds: float, rate: int = SOURCE) -> np.ndarray:
    """A gliding voice: thirty harmonics, syllables of a quarter of a second, loud to its last sample."""
    time = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * (120 * time + 20 * np.sin(2 * time))
    harmonics = sum(np.cos(k * phase + k * k) / k for k in range(1, 31))
    return (0.15 * harmonics * (1.2 - np.cos(8 * np.pi * time))).astype(np.float32)


def streamed(
    format: str, audio: np.ndarray, chunk: int, source: int = SOURCE, rate: int = RATE
) -> list[bytes]:
    encoder = WireEncoder(format, source, rate)
    sent = [encoder.write(audio[start : start + chunk]) for start in range(0, len(audio), chunk)]
    last = encoder.close()
    return [*sent, last] if not encoder.head else [encoder.head, *sent, last]


def decoded(format: str, data: bytes, rate: int = RATE) -> np.ndarray:
    if format == "pcm":
        return np.frombuffer(data, "<i2") / 32768
    if format == "aac":
        command = ("ffmpeg", "-loglevel", "error", "-i", "-", "-f", "s16le", "-ar", str(rate), "-")
        return decoded("pcm", subprocess.run(command, input=data, capture_output=True, check=True).stdout)
    audio, found = soundfile.read(io.BytesIO(data))
    assert found == rate and audio.ndim == 1
    return audio


def resampled(audio: np.ndarray) -> np.ndarray:
    return soxr.resample(audio, SOURCE, RATE, quality="VHQ")


def signal_to_noise(expected: np.ndarray, got: np.ndarray) -> float:
    return 10 * np.log10(np.sum(expected**2) / max(np.sum((got - expected) ** 2), 1e-20))


def same_stream(format: str, data: bytes) -> bytes:
    """Ogg pages carry a random number of their stream and a checksum: both are blanked."""
    if format != "opus":
        return data
    pages, start = bytearray(data), 0
    while start < len(pages):
        assert pages[start : start + 4] == b"OggS"
        pages[start + 14 : start + 18] = pages[start + 22 : start + 26] = bytes(4)
        segments = pages[start + 26]
        start += 27 + segments + sum(pages[start + 27 : start + 27 + segments])
    return bytes(pages)


@pytest.mark.parametrize("format", EVERYWHERE)
def test_a_whole_answer_has_the_length_and_the_samples_of_the_input(format):
    audio = voiced(3.3)
    expected = resampled(audio)
    got = decoded(format, encode(audio, format, SOURCE, RATE))
    assert abs(len(got) - len(audio) * RATE / SOURCE) <= RATE / 1000
    assert signal_to_noise(expected, got) >= (60 if format in LOSSLESS else 15)


@pytest.mark.parametrize("format", EVERYWHERE)
def test_a_stream_has_the_samples_of_the_input_to_the_last(format):
    audio = voiced(3.3)
    expected = resampled(audio)
    got = decoded(format, b"".join(streamed(format, audio, 1024)))
    delay = LAME_DELAY if format == "mp3" else 0
    longest = 2 * 576 if format == "mp3" else RATE // 1000  # mp3 ends with whole frames
    assert 0 <= len(got) - delay - len(expected) + 1 <= longest
    got = got[delay : delay + len(expected)]
    assert signal_to_noise(expected, got) >= (60 if format in LOSSLESS else 15)
    tail = slice(-RATE // 20, None)
    assert signal_to_noise(expected[tail], got[tail]) >= (45 if format in LOSSLESS else 8)


@pytest.mark.ffmpeg
def test_aac_is_whole_but_for_its_delay():
    audio = voiced(3.3)
    expected = resampled(audio)
    got = decoded("aac", b"".join(streamed("aac", audio, 1024)))
    assert 0 <= len(got) - len(expected) <= 3 * 1024
    place = np.argmax(np.correlate(got, expected[: RATE // 2], "valid"))
    assert np.corrcoef(got[place : place + len(expected)], expected[: len(got) - place])[0, 1] > 0.95


@pytest.mark.parametrize("format", ALL)
@pytest.mark.parametrize("rates", [(SOURCE, RATE), (RATE, RATE), (SOURCE, 48000), (44100, 16000)])
def test_the_bytes_are_the_same_however_the_samples_are_divided(format, rates):
    audio = voiced(1.1, rates[0])
    once = same_stream(format, b"".join(streamed(format, audio, len(audio), *rates)))
    for chunk in (313, 5000):
        assert same_stream(format, b"".join(streamed(format, audio, chunk, *rates))) == once


@pytest.mark.parametrize("format", LOSSLESS)
def test_a_chunk_at_the_highest_rate_takes_little_beside_its_bytes(format):
    audio, encoder = voiced(10.0), WireEncoder(format, SOURCE, 192000)
    tracemalloc.start()
    try:
        encoder.write(audio)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    encoder.close()
    assert most < 3 * 2 * 192000 * 10


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc")
def test_encoders_between_two_chunks_take_little_memory():
    audio = voiced(1.0)
    encoders = [WireEncoder("pcm", SOURCE, 192000) for _ in range(40)]
    before = resident()
    for encoder in encoders:
        encoder.write(audio)
    assert resident() - before < 40e6


@pytest.mark.parametrize("format", ["pcm", "wav", "mp3", "opus"])
def test_a_stream_leaves_as_it_is_made(format):
    """After half of the samples half of the bytes have left: not more than 0.2 s is held back."""
    sent = streamed(format, voiced(4.0), SOURCE // 50)
    total = sum(map(len, sent))
    assert sum(map(len, sent[: len(sent) // 2 + 10])) >= 0.48 * total
    assert len(sent[-1]) < 0.1 * total


def test_ogg_pages_hold_at_most_sixty_milliseconds():
    data = b"".join(streamed("opus", voiced(2.0), 500))
    positions, start = [], 0
    while start < len(data):
        positions.append(int.from_bytes(data[start + 6 : start + 14], "little"))
        segments = data[start + 26]
        start += 27 + segments + sum(data[start + 27 : start + 27 + segments])
    assert np.diff(positions[1:]).max() <= 48 * 60  # Opus counts samples at 48 kHz


@pytest.mark.parametrize("format", EVERYWHERE)
def test_one_sample_and_none(format):
    one = decoded(format, encode(np.full(1, 0.5, np.float32), format, RATE, RATE))
    assert len(one) == 1 if format != "opus" else len(one) <= 24
    assert len(decoded(format, b"".join(streamed(format, np.zeros(1, np.float32), 1)))) <= LAME_DELAY + 1200
    none = b"".join(streamed(format, np.zeros(0, np.float32), 1))
    assert none == encode(np.zeros(0, np.float32), format, SOURCE, RATE) or format in ("wav", "opus")
    assert len(none) <= {"wav": 44, "opus": 1000}.get(format, 0)


@pytest.mark.parametrize("format", LOSSLESS)
def test_a_rate_that_is_the_source_resamples_nothing(format, monkeypatch):
    monkeypatch.setitem(sys.modules, "soxr", None)
    audio = voiced(0.5)
    got = decoded(format, encode(audio, format, SOURCE, SOURCE), SOURCE)
    assert np.abs(got - audio).max() <= 1 / 32768


def test_without_soxr_the_way_to_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(InputError, match="24000 Hz instead of 22050 needs soxr: run python3 -m venv"):
        WireEncoder("pcm", SOURCE, RATE)


def test_wav_has_its_sizes_when_whole_and_the_largest_when_streamed():
    audio = voiced(0.5)
    whole = encode(audio, "wav", SOURCE, SOURCE)
    with wave.open(io.BytesIO(whole)) as file:
        assert (file.getnframes(), file.getframerate(), file.getsampwidth()) == (len(audio), SOURCE, 2)
    assert int.from_bytes(whole[4:8], "little") == len(whole) - 8
    stream = b"".join(streamed("wav", audio, 1000, SOURCE, SOURCE))
    assert stream[4:8] == stream[40:44] == b"\xff\xff\xff\xff"
    assert stream[44:] == whole[44:]


def test_what_is_too_loud_saturates():
    loud = np.array([2.0, -2.0, 0.25], np.float32)
    assert np.frombuffer(encode(loud, "pcm", RATE, RATE), "<i2").tolist() == [32767, -32768, 8192]


@pytest.mark.parametrize(("format", "coding"), [("pcmu", "ULAW"), ("pcma", "ALAW")])
def test_telephones_have_8_bits_a_sample(format, coding):
    audio = voiced(0.5)
    data = b"".join(streamed(format, audio, 777, SOURCE, 8000))
    assert data == encode(audio, format, SOURCE, 8000)
    expected = soxr.resample(audio, SOURCE, 8000, quality="VHQ")
    how = {"samplerate": 8000, "channels": 1, "subtype": coding, "format": "RAW"}
    got, _ = soundfile.read(io.BytesIO(data), **how)
    assert len(got) == len(expected) and signal_to_noise(expected, got) > 35
    with pytest.raises(InputError, match=f"{format} cannot have 24000 Hz: ask for one of 8000"):
        WireEncoder(format, SOURCE, RATE)


@pytest.mark.parametrize("format", ["mp3", "opus"])
def test_a_long_write_is_as_good_as_short_ones(format):
    audio = np.tile(voiced(4.0), 15)
    got = decoded(format, b"".join(streamed(format, audio, len(audio), RATE, RATE)))
    assert abs(len(got) - len(audio)) <= LAME_DELAY + 1200


def test_without_soundfile_s_handles_opus_is_whole_all_the_same(monkeypatch):
    file = SimpleNamespace()  # has no `_file`
    wire._set_ogg_page_latency(file)
    monkeypatch.setattr(wire, "_set_ogg_page_latency", lambda file: None)
    audio = voiced(1.5)
    got = decoded("opus", b"".join(streamed("opus", audio, 999)))
    assert abs(len(got) - len(audio) * RATE / SOURCE) <= RATE / 1000


@pytest.mark.parametrize(
    ("format", "rate", "sentence"),
    [
        ("vorbis", RATE, "unknown audio format 'vorbis': .*available: mp3, opus, aac, flac, wav, pcm"),
        ("opus", 22050, "opus cannot have 22050 Hz: ask for one of 8000, 12000, 16000, 24000, 48000"),
        ("mp3", 96000, "mp3 cannot have 96000 Hz: ask for one of 8000, .*48000"),
        ("pcm", 10, "pcm cannot have 10 Hz: ask for a whole number from 8000 to 192000"),
    ],
)
def test_what_cannot_be_made_is_named_with_the_way_out(format, rate, sentence):
    with pytest.raises(InputError, match=sentence):
        WireEncoder(format, SOURCE, rate)


def test_aac_without_ffmpeg_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        InputError, match=r"aac needs ffmpeg on PATH, .* or ask for mp3, opus, flac, wav, pcm"
    ):
        WireEncoder("aac", SOURCE, RATE)


@pytest.mark.ffmpeg
def test_an_aac_encoder_that_is_discarded_leaves_no_process():
    encoder = WireEncoder("aac", SOURCE, RATE)
    assert "_coder" not in vars(encoder)  # nothing runs for a text that waits
    encoder.write(voiced(0.1))
    process = encoder._coder.process
    encoder.discard()
    assert process.returncode is not None


def test_samples_that_are_no_audio_are_refused():
    encoder = WireEncoder("pcm", RATE, RATE)
    with pytest.raises(ValueError, match="2 NaN or infinite samples of 3"):
        encoder.write(np.array([0, np.nan, np.inf]))
    with pytest.raises(ValueError, match=r"one axis \(samples\), not the shape \(2, 3\)"):
        encoder.write(np.zeros((2, 3)))


def test_a_closed_encoder_takes_nothing_and_gives_nothing():
    encoder = WireEncoder("mp3", RATE, RATE)
    encoder.write(voiced(0.2))
    assert encoder.close() and encoder.close() == b""
    with pytest.raises(ValueError, match="closed"):
        encoder.write(voiced(0.2))


@pytest.mark.parametrize("end", ["close", "discard"])
def test_an_encoder_that_has_ended_may_live_as_long_as_python(end):
    script = f"""
import gc
import numpy as np
from melforge.common.audio.wire import WireEncoder
encoder = WireEncoder("mp3", {SOURCE}, {RATE})
encoder.write(np.zeros({SOURCE}, np.float32))
encoder.{end}()
gc.freeze()
encoder.itself = encoder
del encoder
"""
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""
