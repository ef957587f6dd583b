"""`melforge voice clone`: recordings become a voice in one command, which goes on where it was stopped."""

import itertools
import json

import pytest
import soundfile

from melforge.common.cli import voice_clone
from melforge.common.cli.voice_check import SENTENCES
from melforge.common.training.tuning import Tuning


@pytest.mark.align
def test_another_voice_is_not_overwritten(tmp_path, melforge):
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "voice.yaml").touch()
    status, _, errors = melforge("voice", "clone", tmp_path, tmp_path / "bob", "--work", tmp_path / "work")
    assert (
        status == 2 and errors == f"error: {tmp_path / 'bob'} is another voice already: give another name\n"
    )
    for words, why in {
        ("--minutes", "0"): "--minutes must be a number above 0",
        ("--from", "nobody"): "unknown voice 'nobody'",  # before the recordings are prepared
        ("--from", "voices/hazel/waveglow/weights.safetensors"): "holds no config",
        ("--device", "gpu"): "--device 'gpu': give cpu or cuda",
        ("--ear", "nobody"): "unknown ear 'nobody'",
    }.items():
        status, out, errors = melforge("voice", "clone", tmp_path, "ann", *words)
        assert status == 2 and why in errors and not out


@pytest.mark.align
@pytest.mark.slow
def test_recordings_become_a_voice_that_is_heard(tmp_path, monkeypatch, melforge):
    from melforge.common.runner import TextToSpeech

    folder, voice, work = tmp_path / "in", tmp_path / "ann", tmp_path / "work"
    folder.mkdir()
    texts = [f"{first} {second}" for first, second in itertools.pairwise(SENTENCES)] * 2
    for number, audio in enumerate(TextToSpeech.load(threads=1).speak_many(texts)):
        soundfile.write(folder / f"{number}.wav", audio.samples * (1 - number / 50), audio.sampling_rate)
        (folder / f"{number}.txt").write_text(audio.text)
    monkeypatch.setattr(voice_clone, "STEPS", 4)
    monkeypatch.chdir(tmp_path)
    words = ("voice", "clone", folder, "./ann", "--work", work, "--from", "hazel", "--ear", "none")
    words += ("--device", "cpu", "--licence", "CC0")
    look = Tuning.look

    def interrupted(self, losses):
        self.save()
        if self.schedule.step == 2:
            raise KeyboardInterrupt
        look(self, losses)

    with monkeypatch.context() as patch:
        patch.setattr(Tuning, "look", interrupted)
        status, out, errors = melforge(*words)
    assert status == 130 and "interrupted" in errors and not voice.exists()
    assert "18 of 18 lines are used" in out and "18 new lines" in out

    _, out, errors = melforge(*words)
    assert "0 new lines" in out and "step 4" in out and "step 1 " not in out, errors
    assert "CC0" in (voice / "README.md").read_text()
    spoken = sorted((work / "sentences").glob("*.wav"))
    assert [path.name for path in spoken] == ["1.wav", "2.wav", "3.wav"]
    assert all(f"  {path}\n" in out for path in spoken) and "%|" not in errors + out
    assert json.loads((work / "corpus" / "report.json").read_text())["used"] == 18

    _, out, _ = melforge(*words)
    assert "step" not in out and "hear them:" in out  # nothing is trained again
