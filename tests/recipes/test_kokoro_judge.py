"""What judges the speakers of a voice, and who takes them for it."""

import dataclasses
import sys

import numpy as np
import pytest
import torch

from melforge.common.errors import InputError
from melforge.common.weights.published import read_checkpoint
from melforge.fastpitch.model import FastPitch
from recipes.kokoro import cast, judge
from recipes.kokoro.judge import (
    OURS,
    TEACHER,
    SpeakerNetwork,
    height_of_end,
    lasting,
    nearest,
    table,
    texts_to_speak,
)
from tests.conftest import save_trained, tiny_fastpitch

FRAME = 0.0116


def test_a_question_rises_where_its_end_is_higher_than_what_stood_before():
    seconds = np.arange(0, 1.5, FRAME)
    voiced = (seconds > 0.1) & (seconds < 1.2)
    for octaves in (0.5, -0.25):
        pitch = np.where(seconds > 1.0, 110 * 2**octaves, 110)
        pitch[~voiced] = 400.0  # says nothing
        assert height_of_end(pitch, voiced, FRAME) == pytest.approx(12 * octaves)
    assert height_of_end(pitch, voiced & (seconds > 0.9), FRAME) is None
    assert height_of_end(pitch, np.zeros(len(pitch), bool), FRAME) is None


def test_frames_that_are_periodic_by_chance_say_no_pitch():
    sure = np.array([0, 1, 1, 1, 1, 0, 1, 1, 0, 1], bool)
    assert lasting(sure).tolist() == [False, True, True, True, True, *[False] * 5]


def scored(system, speaker, number, kind="sentence", **scores):
    return {
        "system": system,
        "speaker": speaker,
        "number": number,
        "kind": kind,
        "pitch": None,
        "end": None,
        **scores,
    }


def test_the_gates_of_a_speaker():
    rows = [
        scored(TEACHER, "af_ann", n, mos=4.5 + 0.1 * n, pitch=200.0, words=10, errors=0) for n in range(2)
    ]
    rows += [scored(OURS, "af_ann", n, mos=4.4 + 0.1 * n, pitch=400.0, words=10, errors=n) for n in range(2)]
    rows += [scored(s, "af_ann", 2, "question", mos=3, end=end) for s, end in ((TEACHER, 2.0), (OURS, -1.0))]
    rows += [scored(s, "af_ann", 3, "short", mos=mos) for s, mos in ((TEACHER, 4.0), (OURS, 3.0))]
    rows += [scored(TEACHER, "am_ben", n, mos=4) for n in range(2)]
    ann, ben = np.eye(2)
    own = [ann, ann, ann, ben, *[ann] * 4, ben, ben]
    nearest(rows, np.stack(own))
    cells = [cell.strip() for cell in table(rows).splitlines()[2].split("|")[1:-1]]
    assert cells == [
        *("af_ann", "4.55", "4.45", "-0.100 ± 0.000", "4.00", "3.00", "100 %", "50 %", "+12.00"),
        *("1 of 1", "0 of 1", "0.0 %", "5.0 %"),
    ]
    assert len(table(rows).splitlines()) == 3  # a voice of the teacher's alone has no row


def test_a_sentence_is_no_part_of_the_centroid_that_it_is_told_by():
    rows = [scored(TEACHER, who, n) for who in ("af_ann", "am_ben") for n in range(2)]
    nearest(rows, np.array([[1, 0], [0, 1], [0.6, 0.8], [0.6, 0.8]], float))
    assert [row["nearest"] for row in rows] == ["am_ben", "am_ben", "am_ben", "am_ben"]


def test_the_speaker_network_hears_any_length(tmp_path):
    torch.manual_seed(0)
    lstm, linear = torch.nn.LSTM(40, 256, 3), torch.nn.Linear(256, 256)
    state = {f"lstm.{k}": v for k, v in lstm.state_dict().items()}
    state |= {f"linear.{k}": v for k, v in linear.state_dict().items()}
    torch.save({"model_state": state}, tmp_path / "speakers.pt")
    network = SpeakerNetwork(tmp_path / "speakers.pt").eval()
    for samples in (2000, 16000 * 3):
        found = network(torch.randn(samples))
        assert found.shape == (256,) and np.linalg.norm(found) == pytest.approx(1, abs=1e-5)


def test_the_same_texts_are_drawn_for_a_seed(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("".join(f"L{n}|Number {n} is one of these.\n" for n in range(30)) + "L99|Too short.\n")
    texts = texts_to_speak(path, 10, seed=1)
    assert texts == texts_to_speak(path, 10, seed=1) != texts_to_speak(path, 10, seed=2)
    assert [kind for kind, _ in texts] == ["sentence"] * 10 + ["question"] * 20 + ["short"] * 20


def test_speakers_come_under_plain_names_in_the_order_of_the_list(tmp_path, monkeypatch):
    _, config = tiny_fastpitch()
    config = dataclasses.replace(config, n_speakers=3)
    network = FastPitch(config)
    info = {
        "speakers": ["af_ann", "am_ben", "bf_cy"],
        **{"pitch_means": [200.0, 100.0, 180.0], "pitch_deviations": [30.0, 20.0, 25.0]},
    }
    save_trained(tmp_path / "run.safetensors", network, config, **info)
    (tmp_path / "who.yaml").write_text("bf_cy: {}\nzz_other: {}\nam_ben: {}\naf_ann: {}\n")
    words = ["cast", *map(str, (tmp_path / "run.safetensors", "--speakers", tmp_path / "who.yaml"))]
    words += ["-o", str(tmp_path / "cast.safetensors")]
    monkeypatch.setattr(sys, "argv", [*words, "--without", "ben"])
    cast.main()
    found = read_checkpoint(tmp_path / "cast.safetensors")
    assert found.speakers == ("cy", "ann") and found.config.n_speakers == 2
    assert found.settings.pitch_means == (180.0, 200.0) and found.settings.pitch_deviations == (25.0, 30.0)
    rows = network.speaker_emb.weight.detach().numpy()[[2, 0]]
    np.testing.assert_allclose(found.state["speaker_emb.weight"], rows, atol=1e-3)
    monkeypatch.setattr(sys, "argv", [*words, "--without", "dan"])
    with pytest.raises(InputError, match="no speaker 'dan': there are cy, ben, ann"):
        cast.main()


def test_a_package_that_no_extra_brings_is_named_with_its_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    monkeypatch.setattr(sys, "argv", ["judge", "words", str(tmp_path), "--whisper", "base"])
    with pytest.raises(InputError, match="needs faster_whisper: pip install faster_whisper"):
        judge.main()
