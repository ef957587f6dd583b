"""Mel spectrograms, the mel contract, resampling and sound files."""

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from melforge.common.audio.contract import MelContract, require_same_contract
from melforge.common.audio.mel import mel_basis, mel_spectrogram
from melforge.common.audio.pcm import to_pcm16
from melforge.common.audio.sound_files import (
    DECODED_AT_ONCE,
    decode_audio,
    encode_audio,
    read_audio,
    resample,
    write_audio,
)
from melforge.common.errors import InputError
from tests.conftest import spoken_audio

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "mel" / "mel.npz")
CONTRACT = MelContract()
CONTRACTS = {"hifigan_mel_fmax8000": CONTRACT, "hifigan_mel_fmaxNone": replace(CONTRACT, mel_fmax=None)}


def sine(hz: float, rate: int, seconds: float = 1.0) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate).astype(np.float32)


def snr(signal: np.ndarray, expected: np.ndarray) -> float:
    inner = slice(2000, -2000)  # the ends hear the silence around the signal
    return 10 * np.log10(np.sum(expected[inner] ** 2) / np.sum((signal - expected)[inner] ** 2))


# Mel


def assert_same_mel(mel: np.ndarray, golden: np.ndarray) -> None:
    """1e-4 of the logarithm, but for bands so silent that it shows how the transform rounds beside loud ones.

    Another transform in float32 (another processor's) moves an energy by up to 1.3e-7, a wrong floor by 4e-7.
    """
    np.testing.assert_allclose(np.exp(mel), np.exp(golden), rtol=1e-4, atol=2e-7)


@pytest.mark.parametrize("name", CONTRACTS)
def test_golden_mels(name):
    mel = mel_spectrogram(GOLDEN["audio"], CONTRACTS[name])
    assert mel.dtype == np.float32 and mel.shape == GOLDEN[name].shape
    assert_same_mel(mel, GOLDEN[name])
    np.testing.assert_allclose(mel, GOLDEN[name], rtol=0, atol=6e-3)
    assert np.mean(np.abs(mel - GOLDEN[name]) > 1e-3) < 0.02


def test_golden_filters():
    np.testing.assert_allclose(mel_basis(CONTRACT), GOLDEN["mel_basis_8000"], rtol=0, atol=1e-8)


def test_batch_equals_single_items_and_long_audio_equals_short():
    audio = GOLDEN["audio"]
    np.testing.assert_allclose(
        mel_spectrogram(audio[0], CONTRACT), mel_spectrogram(audio, CONTRACT)[0], atol=1e-5
    )
    small = MelContract(8000, 64, 4, 64, 10, 0.0, None)
    noise = np.random.default_rng(0).standard_normal(40_000).astype(np.float32)
    whole = mel_spectrogram(noise, small)  # more frames than are computed at once
    part = mel_spectrogram(noise[20_000:24_000], small)
    np.testing.assert_allclose(whole[:, 5020:5980], part[:, 20:980], atol=1e-4)


def test_htk_scale_and_short_windows():
    htk = mel_basis(replace(CONTRACT, mel_scale="htk", mel_norm="none"))
    assert htk.shape == (80, 513) and np.isclose(htk.max(), 1.0, atol=0.1)
    assert mel_spectrogram(GOLDEN["audio"], replace(CONTRACT, win_length=800)).shape == (2, 80, 43)


@pytest.mark.parametrize("name", CONTRACTS)
def test_torch_mel_equals_golden_and_numpy(name):
    from melforge.common.audio.mel_torch import MelSpectrogram

    contract = CONTRACTS[name]
    module, audio = MelSpectrogram(contract), torch.from_numpy(GOLDEN["audio"])
    with torch.autocast("cpu", torch.bfloat16):  # must not lower its precision
        mel = module(audio[:, None])
    assert not module.state_dict()
    assert_same_mel(mel.numpy(), GOLDEN[name])
    assert_same_mel(mel.numpy(), mel_spectrogram(GOLDEN["audio"], contract))


def test_torch_mel_of_silence_has_finite_gradients():
    from melforge.common.audio.mel_torch import MelSpectrogram

    audio = torch.zeros(1, 4096, requires_grad=True)
    MelSpectrogram(CONTRACT)(audio).sum().backward()
    assert torch.isfinite(audio.grad).all()


@pytest.mark.parametrize("samples", [0, 384])
def test_too_little_audio_is_refused(samples):
    with pytest.raises(ValueError, match=f"{samples} samples are too few"):
        mel_spectrogram(np.zeros(samples, np.float32), CONTRACT)


# Contract


def test_same_contracts_pass_however_the_nyquist_frequency_is_written():
    require_same_contract(CONTRACT, MelContract())
    require_same_contract(replace(CONTRACT, mel_fmax=None), replace(CONTRACT, mel_fmax=11025))


def test_different_contracts_are_shown_side_by_side():
    other = replace(CONTRACT, mel_fmax=None, hop_length=300)
    assert CONTRACT.differences(other) == {"hop_length": (256, 300), "mel_fmax": (8000.0, None)}
    with pytest.raises(ValueError) as caught:
        require_same_contract(CONTRACT, other, ("fastpitch", "hifigan"))
    first, *rows = str(caught.value).splitlines()
    assert first == "fastpitch and hifigan differ in hop_length, mel_fmax:"
    assert [row.split() for row in rows if row.startswith("*")] == [
        ["*", "hop_length", "256", "300"],
        ["*", "mel_fmax", "8000", "none"],
    ]
    assert len({row.find("hifigan") for row in rows} - {-1}) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hop_length": 0}, "hop_length must be positive"),
        ({"win_length": 2048}, "win_length 2048 exceeds"),
        ({"mel_fmax": 12000.0}, "within 0 to 11025 Hz"),
        ({"mel_fmin": 9000.0}, "must be in order"),
        ({"mel_log": "dB"}, "mel_log must be natural or log10"),
        ({"mel_clamp": 0.0}, "mel_clamp must be positive"),
    ],
)
def test_impossible_contracts_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        replace(CONTRACT, **wrong)


# Resampling


@pytest.mark.parametrize(
    ("source", "target"),
    [(44100, 22050), (22050, 44100), (48000, 22050), (22050, 16000), (16000, 22050), (44101, 16000)],
)
def test_resampled_sines_are_the_sines_at_the_new_rate(source, target):
    low, high = 100, 0.45 * min(source, target)
    assert snr(resample(sine(low, source), source, target), sine(low, target)) > 120
    assert snr(resample(sine(high, source), source, target), sine(high, target)) > 60  # 0.01 dB less


def test_what_the_lower_rate_cannot_hold_is_removed():
    assert np.abs(resample(sine(11600, 44100), 44100, 22050)[2000:-2000]).max() < 1e-4


def test_resampling_keeps_time_axes_and_length():
    noise = np.random.default_rng(0).standard_normal((2, 1001)).astype(np.float32)
    assert resample(noise, 22050, 16000).shape == (2, 726)
    np.testing.assert_allclose(resample(noise, 3, 2)[1], resample(noise[1], 3, 2), atol=1e-6)
    np.testing.assert_array_equal(resample(noise, 8000, 8000), noise)
    assert resample(noise[:, :0], 3, 2).shape == (2, 0)
    click = np.zeros(3000, np.float32)
    click[1000] = 1
    assert np.argmax(resample(click, 3, 2)) in (666, 667)


@pytest.mark.parametrize("rate", [0, -8000, 22050.5])
def test_impossible_rates_are_refused(rate):
    with pytest.raises(ValueError, match="whole positive number of Hz"):
        resample(np.zeros(10, np.float32), 22050, rate)


# Files


def test_a_small_file_of_a_high_rate_does_not_hold_more_samples_than_the_longest_recording_has():
    def silence(rate, seconds):
        return io.BytesIO(encode_audio(np.zeros(rate * seconds, np.float32), rate, "flac"))

    assert len(decode_audio(silence(48000, 10), 10.0)[0]) == 480_000
    assert len(decode_audio(silence(96000, 5), 10.0)[0]) == 480_000
    with pytest.raises(InputError, match="longer than 5 seconds at 96000 Hz"):
        decode_audio(silence(96000, 6), 10.0)
    with pytest.raises(InputError, match="longer than 10 seconds: cut it"):
        decode_audio(silence(16000, 11), 10.0)


@pytest.mark.parametrize(
    ("suffix", "tolerance"), [("wav", 3.1e-5), ("flac", 3.1e-5), ("ogg", 0.1), ("mp3", 0.1)]
)
def test_written_files_hold_the_signal(suffix, tolerance, tmp_path):
    path, audio = tmp_path / f"tone.{suffix}", 0.5 * sine(440, 22050)
    write_audio(path, audio, 22050)
    back, rate = read_audio(path)
    assert rate == 22050 and back.dtype == np.float32 and abs(len(back) - len(audio)) < 4000
    if suffix != "mp3":  # its decoders begin earlier or later
        np.testing.assert_allclose(back[: len(audio)], audio[: len(back)], atol=tolerance)
    assert np.isclose(np.sqrt(np.mean(back**2)), np.sqrt(np.mean(audio**2)), rtol=0.05)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_opus_is_saved_as_a_server_sends_it(tmp_path, monkeypatch):
    """At the next higher of its rates; aac needs a program."""
    audio = 0.5 * sine(440, 22050)
    write_audio(tmp_path / "tone.opus", audio, 22050)
    back, rate = read_audio(tmp_path / "tone.opus")
    wanted = resample(audio, 22050, 24000)
    assert rate == 24000 and abs(len(back) - len(wanted)) < 2000
    np.testing.assert_allclose(back[1000 : len(wanted) - 1000], wanted[1000 : len(back) - 1000], atol=0.05)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="aac needs ffmpeg"):
        write_audio(tmp_path / "tone.aac", audio, 22050)
    assert [p.name for p in tmp_path.iterdir()] == ["tone.opus"]


def test_wav_holds_16_bits_as_the_published_scripts_make_them(tmp_path):
    audio = np.random.default_rng(0).uniform(-1, 1, 1000).astype(np.float32)
    write_audio(tmp_path / "a.WAV", audio, 22050)
    samples, _ = soundfile.read(tmp_path / "a.WAV", dtype="int16")
    np.testing.assert_array_equal(samples, (audio * 32768.0).astype(np.int16))
    assert to_pcm16(np.array([1.0, -1.0, 0.99997])).tolist() == [32767, -32768, 32767]


@pytest.mark.parametrize("rate", [1, 22050, 2**31 - 1])
def test_wav_is_what_libsndfile_writes(rate):
    audio, buffer = np.random.default_rng(0).uniform(-1, 1, 1001).astype(np.float32), io.BytesIO()
    soundfile.write(buffer, to_pcm16(audio), rate, "PCM_16", format="WAV")
    assert encode_audio(audio, rate) == buffer.getvalue()


def test_long_ogg_is_written_in_pieces(tmp_path):
    write_audio(tmp_path / "long.ogg", 0.1 * sine(300, 8000, 150), 8000)
    assert len(read_audio(tmp_path / "long.ogg")[0]) == 8000 * 150


def test_loud_audio_is_scaled_down_as_a_whole_and_said(tmp_path):
    path, tone = tmp_path / "loud.wav", sine(2205, 22050)
    with pytest.warns(UserWarning, match=r"peaks at 2\.00"):
        write_audio(path, 2 * tone / tone.max(), 22050)
    np.testing.assert_allclose(read_audio(path)[0], tone / tone.max(), atol=1e-4)


def test_open_files_are_written_to():
    buffer = io.BytesIO()
    write_audio(buffer, sine(440, 8000, 0.1), 8000, "flac")
    assert buffer.getvalue()[:4] == b"fLaC" and encode_audio(sine(440, 8000, 0.1), 8000)[:4] == b"RIFF"
    assert soundfile.info(io.BytesIO(encode_audio(np.zeros(0), 8000))).frames == 0


def test_channels_are_averaged(tmp_path):
    soundfile.write(tmp_path / "stereo.wav", np.tile([[0.5, 0.25]], (100, 1)), 8000)
    np.testing.assert_allclose(read_audio(tmp_path / "stereo.wav")[0], 0.375, atol=1e-4)


@pytest.mark.parametrize(
    ("audio", "rate", "name", "error", "message"),
    [
        (np.zeros(10), 8000, "a.aiff", ValueError, "does not name a sound format; use one of .wav"),
        (np.zeros(10), 8000, "a", ValueError, "does not name a sound format"),
        (np.array([0, np.nan, np.inf]), 8000, "a.wav", ValueError, "2 NaN or infinite samples of 3"),
        (np.zeros((1, 10)), 8000, "a.wav", ValueError, r"not the shape \(1, 10\)"),
        (np.zeros(10), 0, "a.wav", ValueError, "cannot write wav at 0 Hz"),
        (np.zeros(10), 22050.5, "a.wav", ValueError, "cannot write wav at 22050.5 Hz: a sampling rate is"),
        (np.zeros(10), 2**31, "a.wav", ValueError, "cannot write wav at 2147483648 Hz"),
        (np.zeros(10), 12345, "a.mp3", ValueError, "cannot write mp3 at 12345 Hz"),
        (np.zeros(10), 8000, "nowhere/a.wav", FileNotFoundError, "the folder .*nowhere does not exist"),
        (np.zeros(10), 8000, "folder.wav", IsADirectoryError, "is a folder"),
    ],
)
def test_what_cannot_be_written_is_said_and_leaves_nothing(audio, rate, name, error, message, tmp_path):
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(error, match=message):
        write_audio(tmp_path / name, audio, rate)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.wav"]


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.wav"
    write_audio(path, np.zeros(10), 8000)
    before = path.read_bytes()

    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"cannot write .*a\.wav: No space left on device"):
        write_audio(path, np.ones(100), 8000)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_links_stay_links_and_pipes_are_written_through(tmp_path):
    (tmp_path / "link.wav").symlink_to(tmp_path / "target.wav")
    write_audio(tmp_path / "link.wav", np.zeros(10), 8000)
    assert (tmp_path / "link.wav").is_symlink() and (tmp_path / "target.wav").is_file()
    write_audio(os.devnull, np.zeros(10), 8000, "wav")
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(("others", "kept"), [([-1.0], 0), ([-0.9], 0), ([-1.5], 1), ([-0.5, -0.5], 0)])
def test_channels_that_cancel_each_other_give_the_loudest(tmp_path, others, kept, opened):
    tone = (0.2 * np.sin(np.arange(4000) * 0.3)).astype(np.float32)
    channels = [tone, *(factor * tone for factor in others)]
    soundfile.write(path := tmp_path / "a.wav", np.stack(channels, 1), 16000, subtype="FLOAT")
    audio, _ = decode_audio(io.BytesIO(path.read_bytes()) if opened else path, start=0.05)
    np.testing.assert_array_equal(audio, channels[kept][800:])


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_a_wav_whose_header_counts_no_samples_is_read_to_its_end(tmp_path, subtype, opened):
    tone = (0.2 * np.sin(np.arange(4001) * 0.3)).astype(np.float32)
    soundfile.write(path := tmp_path / "a.wav", tone, 16000, subtype=subtype)
    whole, content = read_audio(path)[0], path.read_bytes()
    place = content.index(b"data") + 4
    path.write_bytes(content[:place] + bytes(4) + content[place + 4 :])
    np.testing.assert_array_equal(decode_audio(io.BytesIO(path.read_bytes()) if opened else path)[0], whole)
    ends = content[:place] + bytes(4), content[:place] + bytes(4) + b"LIST\4\0\0\0INFO"
    for empty in ends:  # there are no samples, or only a further chunk
        path.write_bytes(empty)
        assert len(read_audio(path)[0]) == 0


@pytest.mark.parametrize("suffix", ["flac", "ogg", "mp3"])
def test_what_is_decoded_in_blocks_has_the_samples_of_what_is_decoded_at_once(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    noise = np.random.default_rng(0).standard_normal(DECODED_AT_ONCE + 50_000) * 0.05
    write_audio(path, noise.astype(np.float32), 16000)
    with soundfile.SoundFile(path) as file:
        np.testing.assert_array_equal(read_audio(path)[0], file.read(dtype="float32"))


def test_flac_that_does_not_tell_its_length_is_read_to_its_end(tmp_path):
    """As written to a pipe."""
    path = tmp_path / "a.flac"
    soundfile.write(path, np.linspace(-0.5, 0.5, 70_000), 16000)
    whole, content = read_audio(path)[0], bytearray(path.read_bytes())
    content[21:26] = bytes([content[21] & 0xF0]) + bytes(4)
    path.write_bytes(content)
    np.testing.assert_array_equal(read_audio(path)[0], whole)
    np.testing.assert_array_equal(read_audio(path, 1.0, 2.0)[0], whole[16_000:48_000])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1", "it is a Git LFS pointer: fetch the file itself"),
        (b"\0\0\0\x20ftypM4A ", r"it is an MP4 \(\.m4a, \.mp4\): convert its sound"),
        (b"<!DOCTYPE html>", "it is a web page"),
        (b"", "it is an empty file"),
        (b"\xff\xfb\x90\0" + bytes(range(256)) * 20, "it is damaged"),
        (b"RIFF\0\0\0\0WAVE", "it cannot be read as sound: [^i]"),
    ],
)
def test_a_file_that_is_no_sound_is_called_what_it_is(content, message):
    with pytest.raises(ValueError, match=message):
        decode_audio(io.BytesIO(content))


def test_unreadable_files_are_refused(tmp_path):
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(ValueError, match=r"text\.wav: it cannot be read as sound"):
        read_audio(tmp_path / "text.wav")
    with pytest.raises(FileNotFoundError, match=r"none\.wav not found"):
        read_audio(tmp_path / "none.wav")
    with pytest.raises(IsADirectoryError, match="give a sound file"):
        read_audio(tmp_path)


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.full(100, np.nan), 16000, "its samples are not all numbers that sound has: save it in 16 bits"),
        (np.r_[np.zeros(99), -np.inf], 16000, "its samples are not all numbers"),
        (np.r_[np.zeros(99), 1e30], 16000, "its samples are not all numbers"),
        (np.zeros(100), 1, "its rate is 1 Hz, where speech has 4000 to 384000: save it with its true rate"),
        (np.zeros(100), 1_000_000_000, "its rate is 1000000000 Hz"),
    ],
)
def test_what_cannot_be_speech_is_refused_with_its_name(tmp_path, samples, rate, message):
    soundfile.write(tmp_path / "odd.wav", samples, rate, subtype="FLOAT")
    with pytest.raises(InputError, match=f"odd\\.wav: {message}"):
        read_audio(tmp_path / "odd.wav")


def test_whole_numbers_written_as_floats_are_read(tmp_path):
    soundfile.write(tmp_path / "whole.wav", np.array([0, 32767, -32768.0]), 16000, subtype="FLOAT")
    assert read_audio(tmp_path / "whole.wav")[0].tolist() == [0, 32767, -32768]


def test_importing_loads_neither_torch_nor_soundfile():
    code = (
        "import sys, melforge.common.audio.mel, melforge.common.config.hparams; "
        "import melforge.hifigan.config, melforge.hifigan.stages; "
        "print([m for m in ('torch', 'soundfile', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class TestSavingWhatWasSpoken:
    @pytest.fixture
    def spoken(self):
        return spoken_audio(0.5 * sine(440, 22050))

    @pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
    def test_the_suffix_says_the_format(self, spoken, suffix, tmp_path):
        spoken.save(tmp_path / f"said.{suffix}")
        assert [path.name for path in tmp_path.iterdir()] == [f"said.{suffix}"]
        content = (tmp_path / f"said.{suffix}").read_bytes()
        assert (
            content == encode_audio(spoken.samples, 22050, suffix) or suffix == "ogg"
        )  # with a random serial number
        assert soundfile.info(io.BytesIO(content)).samplerate == 22050

    def test_a_path_may_be_text(self, spoken, tmp_path):
        spoken.save(str(tmp_path / "said.wav"))
        samples, rate = read_audio(tmp_path / "said.wav")
        assert rate == 22050 and np.abs(samples - spoken.samples).max() < 1e-4

    @pytest.mark.parametrize("name", ["said.m4a", "said"])
    def test_another_suffix_is_refused(self, spoken, name, tmp_path):
        with pytest.raises(
            InputError, match=r"suffix does not name a sound format; use one of \.wav, \.flac"
        ):
            spoken.save(tmp_path / name)
        assert not list(tmp_path.iterdir())
