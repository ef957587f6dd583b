"""Rows of new texts: each is spoken once, lengths follow the text, and what a model does not take is said."""

import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from melforge.common.bench import run
from melforge.common.bench.models import LoadedModels
from melforge.common.bench.run import measure_workload
from melforge.common.bench.speeds import report_of
from melforge.common.bench.workload import (
    MEASURED_TEXTS,
    SPEAK_MANY,
    STREAM,
    Subject,
    Texts,
    Workload,
    with_texts,
)
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from tests.common.bench.test_models import loaded, sizes
from tests.conftest import tiny_fastspeech, tiny_hifigan, tiny_tacotron2

SHIPPED = Path(__file__).parents[3] / "examples" / "sentences.txt"
TEXTS = Texts("some.txt", ("One.", "Two words.", "And three more."), ("To begin with.", "Then this."))


@pytest.fixture
def workload(tiny_voice, tmp_path):
    def make(acoustic: str, backend: str = "onnx", **how) -> Workload:
        if how.get("weights") == "published":
            made = {"fastspeech": tiny_fastspeech, "tacotron2": tiny_tacotron2, "hifigan": tiny_hifigan}
            how["overrides"] = {model: sizes(made[model]()) for model in (acoustic, "hifigan")}
        fields = Texts.__dataclass_fields__
        how["texts"] = replace(TEXTS, **{key: how.pop(key) for key in list(how) if key in fields})
        return Workload(Subject(acoustic, "hifigan"), backend, **loaded(tiny_voice, tmp_path, **how))

    return make


def found(rows: list[dict]) -> dict:
    return {"machine": {"date": "2026-11-22"}, "rows": rows, "streams": [], "cold": []}


def measured(workload: Workload) -> list[dict]:
    return list(measure_workload(workload, math.inf))


def test_the_shipped_texts_are_of_all_lengths():
    texts = Texts.read(SHIPPED)
    letters = [len(text) for text in (*texts.measured, *texts.warm_up)]
    assert (
        len(letters) == 260
        and len(texts.measured) == MEASURED_TEXTS
        and (min(letters), max(letters)) == (15, 220)
    )
    assert SHIPPED.stat().st_size < 40_000 and len({*texts.measured, *texts.warm_up}) == 260


@pytest.mark.parametrize(("count", "warm_up"), [(2, 1), (40, 4), (200, 20), (220, 20), (1000, 250)])
def test_the_warm_ups_texts_are_never_measured(tmp_path, count, warm_up):
    lines = [f"Text {i}." for i in range(count)]
    (tmp_path / "texts.txt").write_text("# a comment\n\n" + "\n".join(lines) + "\n")
    texts = Texts.read(tmp_path / "texts.txt")
    assert len(texts.warm_up) == warm_up and list(texts.measured) == [
        t for t in lines if t not in texts.warm_up
    ]


def test_one_text_is_not_enough(tmp_path):
    (tmp_path / "texts.txt").write_text("One.\n")
    with pytest.raises(ValueError, match=r"texts\.txt needs at least two texts, a line each"):
        Texts.read(tmp_path / "texts.txt")


@pytest.mark.parametrize("call", ["speak", STREAM])
def test_each_text_is_spoken_once_behind_the_others(workload, monkeypatch, call):
    spoken = []
    plain = getattr(TextToSpeech, call)

    def noted(self, text):
        spoken.append(text)
        return plain(self, text)

    monkeypatch.setattr(TextToSpeech, call, noted)
    (row,) = measured(workload("fastpitch", call=call))
    assert spoken == [*TEXTS.warm_up, *TEXTS.measured]
    assert (row["texts"], row["runs"], row["warm_up_texts"]) == ("some.txt", 3, 2)
    assert row["letters"] == {"mean": pytest.approx(29 / 3), "min": 4, "max": 15}
    latency = row["latency"]
    assert (
        0 < latency["p50"] <= latency["p95"] <= latency["max"]
        and row["first_s"] > 0
        and row["times_real_time"] > 0
    )
    if call == STREAM:
        assert 0 < row["first_audio"]["p50"] <= row["first_audio"]["max"] <= latency["max"]


def test_the_warm_up_ends_with_its_time_but_not_before_the_first_text(workload):
    (row,) = measured(workload("fastpitch", longest_warm_up=0.0))
    assert (row["warm_up_texts"], row["runs"]) == (1, 3)


@pytest.mark.parametrize("acoustic", ["fastspeech", "tacotron2"])
def test_random_weights_speak_as_long_as_the_text(workload, acoustic):
    tts = LoadedModels(workload(acoustic, "torch", weights="published")).tts
    both = tts.speak_many(["Two words.", "And three more words, so to speak."], batch_size=2)
    for audio in both:
        (mel,), (utterance,) = audio.mels, audio.utterances
        assert mel.shape[1] == 5 * len(utterance.ids)
        alone = tts.speak(audio.text)
        assert np.shape(alone.mels[0]) == np.shape(mel)


def test_throughput_of_each_batch_size_and_of_those_that_are_too_large(workload):
    rows = measured(workload("fastpitch", call=SPEAK_MANY, batches=(1, 2, 999)))
    assert [row["batch"] for row in rows] == [1, 2, 999]
    for row in rows[:2]:
        assert row["utterances_per_s"] > 0 and row["again_per_s"] > 0
    assert rows[2]["failed"] == "batch size must be from 1 to 32, not 999"
    text = report_of(found(rows), "it").markdown()
    assert "## fastpitch -> hifigan, throughput of some.txt, the voice" in text


def test_texts_stand_beside_fixed_lengths(workload, monkeypatch):
    monkeypatch.setattr(run, "WARM_UPS", 1)
    loading = workload("fastpitch").loading
    fixed = Workload(Subject("fastpitch", "hifigan"), loading=loading, symbols=(7,), runs=1)
    made = [fixed, *with_texts([fixed], TEXTS)]
    assert [(one.texts.call, one.batches) for one in made[1:]] == [("speak", (1,)), ("stream", (1,))]
    rows = [row for one in made for row in measured(one)]
    whole, new = report_of(found(rows), "it").tables[:2]
    assert (whole.title, new.title) == (
        "fastpitch -> hifigan, 7 symbols, the voice",
        "fastpitch -> hifigan, new texts of some.txt, the voice",
    )
    assert [(row["call"], row["runs"], row["speed_up"]) for row in new.rows] == [
        ("speak", 3, 1),
        ("stream", 3, 1),
    ]
    (many,) = with_texts([fixed], TEXTS, (1, 4))
    assert many.batches == (1, 4) and many.texts.call == SPEAK_MANY


def test_texts_that_are_not_utf8_name_their_line(tmp_path):
    (tmp_path / "texts.txt").write_bytes(b"One.\nCaf\xe9.\n")
    with pytest.raises(InputError, match=r"texts\.txt line 2 is not UTF-8"):
        Texts.read(tmp_path / "texts.txt")


def test_a_process_that_is_timed_ends_with_what_times_it(monkeypatch):
    begun = []

    def interrupted(pid, options):
        begun.append(pid)
        raise SystemExit

    monkeypatch.setattr("os.wait4", interrupted)
    with pytest.raises(SystemExit):
        run.time_process([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(ProcessLookupError):
        os.kill(begun[0], 0)
