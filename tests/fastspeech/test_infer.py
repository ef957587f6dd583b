"""The driver gives the published answers, and all of its forms give the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from melforge.common.config.deployment import Deployment
from melforge.common.speech import Controls, MelTooLong
from melforge.common.stages import plan_of
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.published import read_checkpoint

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
        source = read_checkpoint(GOLDEN / "checkpoint_320000.pt")
        masked = replace(source, config=replace(source.config, mask_padding=True), networks={})
        how = (request.param, "cpu", None)
        return {
            "published": make_driver(source, *how),
            "dynamic": make_driver(masked, *how),
            "fixed": make_driver(masked, *how, deployment=BUCKETS),
            "dynamic in buckets": make_driver(masked, *how, "dynamic", deployment=BUCKETS),
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


def test_a_mel_that_outgrows_its_texts_bucket_takes_the_next_and_counts(drivers, answers):
    fixed = drivers["fixed"]
    before = {bucket: use.misses for bucket, use in fixed.encoder.buckets.uses.items()}
    output = fixed.synthesise([rows(answers)[2]], Controls(pace=0.8))  # 7 symbols, 80 frames
    assert 70 < output.mel_lengths[0] <= 110
    missed = [
        str(bucket) for bucket, use in fixed.encoder.buckets.uses.items() if use.misses > before[bucket]
    ]
    assert missed == ["8x70"]


def test_what_has_no_place_is_refused_by_name_and_never_cropped(drivers, answers):
    for form in ("fixed", "dynamic", "dynamic in buckets"):
        with pytest.raises(MelTooLong, match="goes up to 160") as caught:
            drivers[form].synthesise(rows(answers), Controls(pace=0.7))
        assert 2 not in caught.value.rows and set(caught.value.rows) <= {0, 1}


def test_lengths_are_predicted_as_they_come_out(drivers, answers):
    for form in ("fixed", "dynamic", "dynamic in buckets"):
        driver = drivers[form]
        made = driver.synthesise(rows(answers), Controls(pace=1.5)).mel_lengths
        assert driver.predict_lengths(rows(answers), Controls(pace=1.5)).tolist() == made.tolist()


def test_a_text_of_no_frames_is_reported(drivers, answers):
    for form in ("fixed", "dynamic", "dynamic in buckets"):
        output = drivers[form].synthesise([rows(answers)[2]], Controls(pace=10.0))
        if output.mel_lengths[0] == 0:
            assert output.problems[0].endswith("nothing was said") and output.mel.shape[2] == 0


def test_the_fixed_form_needs_buckets():
    with pytest.raises(ValueError, match="needs lengths to be fixed to"):
        make_driver(read_checkpoint(GOLDEN / "checkpoint_320000.pt"), "torch", "cpu", decoder="fixed")


def test_the_former_form_kernels_is_the_dynamic_one():
    forms = plan_of("fastspeech").forms
    assert forms["kernels"] == forms["dynamic"]
