"""`melforge say` and the load of `melforge benchmark-server` against a real server."""

import numpy as np
import pytest
import soundfile

from melforge.common.audio.pcm import to_pcm16
from melforge.common.bench.load import CLOSED, LISTENERS, OPEN, Load, row_of, run_load
from melforge.common.bench.targets import HttpTarget
from melforge.common.cli import say
from melforge.common.errors import InputError
from melforge.common.serve.client import Address

pytestmark = pytest.mark.serve
TEXT = "The first sentence is here. The second one follows."
TEXTS = ("One.", "Two words.", TEXT)


def test_say_writes_what_speak_gives(server, direct, tmp_path):
    own = tmp_path / "own.wav"
    words = (TEXT, "--server", server.url, "-o", str(own))
    assert say.main([*words, "--sample-rate", "22050", "--seed", "0"]) == 0
    samples, rate = soundfile.read(own, dtype="int16")
    expected = to_pcm16(direct.speak(TEXT).samples)
    assert rate == 22050 and len(samples) == len(expected)
    assert np.abs(samples.astype(int) - expected).max() <= 1


def test_say_passes_controls_on(server, direct, tmp_path, capsys):
    for pace in ("1", "2"):
        say.main([TEXT, "--server", server.url, "-o", str(tmp_path / f"{pace}.pcm"), "--pace", pace])
    usual, fast = ((tmp_path / f"{pace}.pcm").stat().st_size for pace in ("1", "2"))
    assert fast < 0.7 * usual
    with pytest.raises(InputError, match=r"\(400\): .*speed"):
        words = ["--model", "tacotron2-hifigan", "--pace", "2", "-o", str(tmp_path / "x.pcm")]
        say.main([TEXT, "--server", server.url, *words])


@pytest.mark.parametrize(
    "load",
    [Load(CLOSED, 4, requests=3), Load(OPEN, 8, seconds=1.0), Load(LISTENERS, 3, seconds=1.0)],
    ids=lambda load: load.kind,
)
def test_loads_are_answered_whole(server, direct, load):
    target = HttpTarget(Address.parse(server.url), None, {"model": "tts-1", "voice": "alloy"}, 24000, TEXTS)
    target.warm_up()
    answers = run_load(target, load)
    row = row_of(load, answers)
    assert row["errors"] == 0 and row["answers"] >= 3
    lengths = [round(direct.speak(text).seconds, 2) for text in TEXTS]
    assert {min(lengths, key=lambda known: abs(known - answer.audio)) for answer in answers} <= set(lengths)
    assert all(min(abs(known - answer.audio) for known in lengths) < 0.01 for answer in answers)
    assert 0 < row["first_audio"]["p50"] <= row["total"]["p99"] and row["times_real_time"] > 0
