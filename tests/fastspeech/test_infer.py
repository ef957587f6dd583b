"""The driver gives the published answers, and all of its forms give the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.config.deployment import Deployment
from melforge.common.speech import Controls, MelTooLong
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.published import read_checkpoint
from melforge.fastspeech import regulate
from melforge.fastspeech.infer import FastSpeechAcoustic
from melforge.fastspeech.operations import DECOMPOSED, Operations

GOLDEN = Path(__file__).parent.parent / "golden" / "fastspeech"
BUCKETS = Deployment(
    trt_multi_engine=True, trt_max_input_seq_len_list=(8, 16, 32), trt_max_output_seq_len_list=(70, 110, 160)
)


@pytest.fixture(scope="module")
def answers():
    return np.load(GOLDEN / "io.npz")


@pytest.fixture(scope="module", params=["torch", pytest.param("onnx", marks=pytest.mark.slow)])
def drivers(request, tmp_path_factory):
    """The masked network in both forms, and the published one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MELFORGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(
            "melforge.common.export.to_onnx.check_sizes",
            lambda stage: [{name: 3 for name in stage.dynamic_dims}],
        )
        source = read_checkpoint(GOLDEN / "checkpoint_320000.pt")
        masked = replace(source, config=replace(source.config, mask_padding=True), networks={})
        how = (request.param, "cpu", None)
        return {
            "published": make_driver(source, *how),
            "published kernels": make_driver(source, *how, "kernels"),
            "dynamic": make_driver(masked, *how),
            "fixed": make_driver(masked, *how, deployment=BUCKETS),
            "kernels": make_driver(masked, *how, "kernels"),
            "kernels in buckets": make_driver(masked, *how, "kernels", deployment=BUCKETS),
        }


def rows(answers) -> list[np.ndarray]:
    return [ids[: (pos > 0).sum()] for ids, pos in zip(answers["ids"], answers["pos"], strict=True)]


@pytest.mark.parametrize(("case", "pace"), [("C", 1 / 0.75), ("E", 1.0)])
def test_published_answers(drivers, answers, case, pace):
    wanted = answers[f"{case}_mel"]
    ids = rows(answers) if case == "C" else rows(answers)[1:2]
    output = drivers["published"].synthesise(ids, Controls(pace=pace))
    for mel, reference, frames in zip(output.mel, wanted, output.mel_lengths, strict=True):
        np.testing.assert_allclose(mel[:, :frames].T, reference[:frames], atol=2e-4)
    assert output.mel_lengths.max() == wanted.shape[1]


def test_fixed_and_dynamic_forms_are_equal_in_every_bucket(drivers, answers):
    texts = rows(answers)
    for ids in ([texts[2]], [texts[1]], [texts[0]], texts):
        fixed, dynamic = (drivers[form].synthesise(ids, Controls(pace=1.5)) for form in ("fixed", "dynamic"))
        assert fixed.mel_lengths.tolist() == dynamic.mel_lengths.tolist()
        assert fixed.mel.shape == dynamic.mel.shape
        assert np.array_equal(fixed.durations[:, : dynamic.durations.shape[1]], dynamic.durations)
        for mel, reference, frames in zip(fixed.mel, dynamic.mel, fixed.mel_lengths, strict=True):
            np.testing.assert_allclose(mel[:, :frames], reference[:, :frames], atol=1e-4)


@pytest.mark.parametrize(
    ("form", "other"),
    [("kernels", "dynamic"), ("kernels in buckets", "dynamic"), ("published kernels", "published")],
)
@pytest.mark.parametrize("pace", [1.0, 1.5])
def test_operations_between_two_stages_make_the_mel_of_the_other_forms(drivers, answers, form, other, pace):
    texts = [row[: len(row) // 2] for row in rows(answers)]  # whose mels the largest bucket holds
    for ids in (texts[:1], texts):
        made, wanted = (drivers[name].synthesise(ids, Controls(pace=pace)) for name in (form, other))
        assert made.mel_lengths.tolist() == wanted.mel_lengths.tolist()
        assert np.array_equal(made.durations, wanted.durations) and made.mel.shape == wanted.mel.shape
        for mel, reference, frames in zip(made.mel, wanted.mel, made.mel_lengths, strict=True):
            np.testing.assert_allclose(mel[:, :frames], reference[:, :frames], atol=2e-5)


def test_a_mel_that_outgrows_its_texts_bucket_takes_the_next_and_counts(drivers, answers):
    fixed = drivers["fixed"]
    before = {bucket: use.misses for bucket, use in fixed.encoder.uses.items()}
    output = fixed.synthesise([rows(answers)[2]], Controls(pace=0.8))  # 7 symbols, 80 frames
    assert 70 < output.mel_lengths[0] <= 110
    missed = [str(bucket) for bucket, use in fixed.encoder.uses.items() if use.misses > before[bucket]]
    assert missed == ["8x70"]


def test_what_has_no_place_is_refused_by_name_and_never_cropped(drivers, answers):
    for form in ("fixed", "dynamic", "kernels"):
        with pytest.raises(MelTooLong, match="goes up to 160") as caught:
            drivers[form].synthesise(rows(answers), Controls(pace=0.7))
        assert 2 not in caught.value.rows and set(caught.value.rows) <= {0, 1}


def test_lengths_are_predicted_as_they_come_out(drivers, answers):
    for form in ("fixed", "dynamic", "kernels"):
        driver = drivers[form]
        made = driver.synthesise(rows(answers), Controls(pace=1.5)).mel_lengths
        assert driver.predict_lengths(rows(answers), Controls(pace=1.5)).tolist() == made.tolist()


def test_a_text_of_no_frames_is_reported(drivers, answers):
    for form in ("fixed", "dynamic", "kernels"):
        output = drivers[form].synthesise([rows(answers)[2]], Controls(pace=10.0))
        if output.mel_lengths[0] == 0:
            assert output.problems[0].endswith("nothing was said") and output.mel.shape[2] == 0


def test_the_fixed_form_needs_buckets():
    with pytest.raises(ValueError, match="needs lengths to be fixed to"):
        make_driver(read_checkpoint(GOLDEN / "checkpoint_320000.pt"), "torch", "cpu", decoder="fixed")


class OnOneStream(dict):
    """Engines that may be captured together."""

    captures = True


@pytest.fixture
def in_one(drivers, monkeypatch):
    """Makes a driver that runs encoder, operations and mel's side as one function, uncaptured: on the CPU."""

    def capturable(engine, bucket=None):
        def run(inputs):
            outputs = engine(**{name: tensor.numpy() for name, tensor in inputs.items()})
            return {name: torch.from_numpy(array) for name, array in outputs.items()}

        return run

    def positions(x, lengths, table):
        return DECOMPOSED.add_pos_enc(x, lengths, torch.from_numpy(table))

    def make(form: str):
        driver = drivers[form]
        for engine in (driver.encoder, driver.decoder):
            inner = engine._engine(engine.buckets[0]) if engine.buckets else engine
            monkeypatch.setattr(type(inner), "capturable", capturable)
        monkeypatch.setattr(regulate, "kernels", lambda: Operations(DECOMPOSED.repeat, positions))
        made, launches = {}, []

        def captured(inputs):
            inputs = {name: torch.as_tensor(array) for name, array in inputs.items()}
            key = tuple(tuple(tensor.shape) for tensor in inputs.values())
            launches.append(key)
            made.setdefault(key, driver._run_for(inputs))
            return made[key](inputs)

        monkeypatch.setattr(driver, "one_graph", captured)
        return driver, launches

    return make


@pytest.mark.parametrize("form", ["kernels", "kernels in buckets"])
def test_all_in_one_launch_makes_the_mel_of_single_engines(drivers, answers, in_one, form):
    texts = [row[: len(row) // 2] for row in rows(answers)]
    driver, launches = in_one(form)
    for ids in (texts[:1], texts, texts[:1]):
        controls = [Controls(pace=1.5 + row / 4) for row in range(len(ids))]
        made, wanted = (one.synthesise(ids, controls) for one in (driver, drivers["dynamic"]))
        assert made.mel_lengths.tolist() == wanted.mel_lengths.tolist()
        assert np.array_equal(made.durations, wanted.durations) and made.mel.shape == wanted.mel.shape
        for mel, reference, frames in zip(made.mel, wanted.mel, made.mel_lengths, strict=True):
            np.testing.assert_allclose(mel[:, :frames], reference[:, :frames], atol=2e-5)
    assert launches[0] == launches[-1]


def test_a_mel_that_outgrows_what_was_captured_takes_a_longer_one(answers, in_one):
    driver, launches = in_one("kernels in buckets")
    driver.engines.count_anew()
    output = driver.synthesise([rows(answers)[2]], Controls(pace=0.8))  # 7 symbols, 80 frames
    assert 70 < output.mel_lengths[0] <= 110
    assert [key[-1] for key in launches] == [(70,), (110,)]
    used = {row["bucket"]: row for row in driver.decoder.report() if row["calls"] or row["misses"]}
    assert used["8x70"]["misses"] == 1 and used["16x110"]["calls"] == 1
    assert used["16x110"]["valid"] == output.mel_lengths[0]
    with pytest.raises(MelTooLong, match="goes up to 160"):
        driver.synthesise(rows(answers), Controls(pace=0.7))


def test_lengths_without_buckets_are_rounded_up(answers, in_one):
    driver, launches = in_one("kernels")
    driver.synthesise([rows(answers)[2]], Controls(pace=2.0))
    (symbols, _, _, frames), *more = launches
    assert symbols == (1, 32) and frames == (128,) and not more


def test_without_a_graph_it_runs_as_single_engines(drivers, answers, monkeypatch):
    driver, ids = drivers["kernels"], [rows(answers)[2]]
    wanted = driver.synthesise(ids).mel
    monkeypatch.setattr(driver, "one_graph", lambda inputs: None)
    assert np.array_equal(driver.synthesise(ids).mel, wanted)


def test_a_network_that_attends_to_padding_is_not_captured_without_buckets(drivers):
    published = drivers["published kernels"]
    engines = OnOneStream(encoder=published.encoder, mel_side=published.decoder)
    with pytest.warns(UserWarning, match="runs without one CUDA graph: with mask_padding: false"):
        driver = FastSpeechAcoustic(published.source, engines)
    assert driver.one_graph is None
