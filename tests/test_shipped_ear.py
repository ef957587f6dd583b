"""The shipped ear hears where none is named: a recording of the teacher and the shipped voice. Its card."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from melforge import TextToSpeech
from melforge.common.files import read_text
from melforge.common.recognition.loading import load_recogniser
from melforge.common.recognition.long_recordings import transcribe
from melforge.common.synthesis.timestamps import timestamps
from melforge.common.weights.ears import EAR_FILE, load_ear
from melforge.common.weights.voices import load_voice

ROOT = Path(__file__).parent.parent
(FOLDER,) = (path.parent for path in (ROOT / "ears").glob(f"*/{EAR_FILE}"))
RECORDING = ROOT / "tests" / "data" / "heard" / "teacher.ogg"  # its text stands beside it
TEXT = read_text(RECORDING.with_suffix(".txt"))
NAMES = {
    **{"fastpitch": "FastPitch", "fastspeech": "FastSpeech", "tacotron2": "Tacotron 2"},
    **{"hifigan": "HiFi-GAN", "waveglow": "WaveGlow"},
}


@pytest.fixture
def run(monkeypatch, melforge):
    """Runs a command in this process with the shipped ears."""
    monkeypatch.delenv("MELFORGE_EARS", raising=False)
    monkeypatch.delenv("MELFORGE_VOICES", raising=False)
    return melforge


@pytest.fixture(scope="module")
def card() -> str:
    return read_text(FOLDER / "README.md")


def test_it_is_listed_and_says_what_it_is(run, monkeypatch):
    monkeypatch.delenv("MELFORGE_EARS", raising=False)
    ear = load_ear()
    assert (ear.name, ear.language, ear.licence) == (FOLDER.name, "en", "Apache-2.0") and ear.description
    assert re.search(rf"^ear +{ear.name} +\S", run("list")[1], re.MULTILINE)


@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_it_transcribes_the_teacher_where_no_ear_is_named(run, backend):
    status, out, errors = run("transcribe", RECORDING, "--json", "--backend", backend, "--device", "cpu")
    assert status == 0, errors
    assert json.loads(out)["wer"] == 0


def test_it_tells_a_word_that_was_not_said(run):
    assert run("transcribe", RECORDING, "--expect", TEXT)[0] == 0
    words = TEXT.split()
    more = " ".join([*words[:3], "yesterday", *words[3:]])
    status, out, _ = run("transcribe", RECORDING, "--expect", more, "--json")
    assert status == 1 and [one["word"] for one in json.loads(out)["left_out"]] == ["yesterday"]


def test_it_hears_the_shipped_voice(run, tmp_path):
    status, _, errors = run("speak", TEXT, "-o", tmp_path / "it.wav", "--listen", "--device", "cpu")
    assert status == 0 and "heard again: word error rate" in errors, errors


def test_words_are_where_the_voice_has_said_them():
    said = TextToSpeech.load(voice="hazel", device="cpu").speak(TEXT)
    recogniser = load_recogniser(FOLDER, device="cpu")
    (heard,) = transcribe(recogniser, [(said.samples, said.sampling_rate)])
    spoken = timestamps(said)
    assert len(heard.words) == len(spoken)
    late = np.array([(h.start - s.start, h.end - s.end) for h, s in zip(heard.words, spoken, strict=True)])
    assert np.abs(np.median(late, axis=0)).max() < 0.07, late


def test_a_tone_holds_no_words_and_others_are_heard(run, tmp_path):
    tone = 0.25 * np.sin(2 * np.pi * 440 / 16000 * np.arange(16000))
    for name in ("a.wav", "z.wav"):
        soundfile.write(tmp_path / name, tone, 16000)
    (tmp_path / "b.flac").symlink_to(RECORDING)
    status, out, errors = run("transcribe", tmp_path)
    assert (status, errors) == (0, "")
    first, heard, last = (line.partition(": ")[2] for line in out.splitlines())
    assert first == last == "(nothing heard)" and heard
    status, out, _ = run("transcribe", tmp_path / "a.wav", "--expect", TEXT, "--json")
    # "He" may be found: it is hardly more than a breath.
    assert status == 1 and len(json.loads(out)["left_out"]) >= len(TEXT.split()) - 1


@pytest.mark.slow
def test_verifying_listens_to_a_text_that_it_hears(run):
    pair = "--acoustic", "fastpitch", "--layers", "pitch_emb"
    status, out, errors = run("verify", *pair, "--backend", "onnx", "--device", "cpu", "--listen")
    assert status == 0 and out.count("word error rate 0.0 % of 12 words") == 2, errors


def test_its_card_has_every_part_and_pair(card):
    for part in ("Origin", "Network", "Training", "Scores", "Known weaknesses"):
        assert f"\n## {part}\n" in card
    voice = load_voice(ROOT / "voices" / "hazel")
    spoken = [
        f"{NAMES[a]} -> {NAMES[v]}" for v in voice.models_of("vocoder") for a in voice.models_of("acoustic")
    ]
    for row in (*spoken, "the teacher", "LJSpeech's reader", "LibriVox's and LibriSpeech's readers"):
        assert re.search(rf"^\| {re.escape(row)} \| \d+ \| \d+ \| [\d.]+ \|", card, re.MULTILINE), row
    for row in ("a word left out, found", "a word said twice, found", "right, false alarms"):
        assert re.search(rf"^\| {row} \| \d+ of \d+ \|", card, re.MULTILINE), row
    assert "no general recogniser" in card and "GAP" not in card and "@" not in card


def test_its_card_has_the_sizes_of_its_files(card):
    weights = sum(path.stat().st_size for path in FOLDER.rglob("*.safetensors"))
    assert weights <= 6e6 and f"{weights / 1e6:.1f} MB int8" in card
