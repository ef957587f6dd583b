"""Warming up: every stage runs in every bucket, and nothing of it is left in the reports."""

import pytest

from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines import MEL_STEP, TEXT_STEP
from melforge.common.runner import TextToSpeech
from melforge.common.synthesis import warm_up
from melforge.common.synthesis.jobs import turn_of
from melforge.common.synthesis.warm_up import IdleWarmUp, padded_mels, padded_texts
from tests.scripts.test_benchmark import benchmark
from tests.scripts.test_infer import infer  # noqa: F401 (a fixture)

BUCKETS = {
    "fastpitch": Deployment(
        trt_multi_engine=True, trt_max_input_seq_len_list=(32, 64), trt_max_output_seq_len_list=(200, 400)
    ),
    "hifigan": Deployment(trt_max_output_seq_len=120),
}


def test_every_stage_runs_in_every_bucket(tiny_voice):
    tts = TextToSpeech.load(voice=tiny_voice, device="cpu", deployments=BUCKETS)
    made = list(tts.warm_up(3))
    assert [(one.what, one.lengths, one.batch) for one in made] == [
        ("fastpitch.encoder", "text 32", 1),
        ("fastpitch.encoder", "text 32", 3),
        ("fastpitch.encoder", "text 64", 1),
        ("fastpitch.encoder", "text 64", 3),
        ("fastpitch.decoder", "text 32, mel 200", 1),
        ("fastpitch.decoder", "text 32, mel 200", 3),
        ("fastpitch.decoder", "text 64, mel 400", 1),
        ("fastpitch.decoder", "text 64, mel 400", 3),
        ("hifigan.masked_generator", "mel 120", 1),
        ("hifigan.masked_denoiser", "mel 120", 1),
        ("a sentence", "", 1),
    ]
    assert all(one.first > 0 and one.again > 0 for one in made)
    report = tts.bucket_report()
    assert len(report) == 6 and all(row["loaded"] and row["calls"] == 0 for row in report)
    assert len(tts.speak("Hello there.").samples) > 4000


def test_without_buckets_the_lengths_are_typical_ones(tts):
    made = {one.what: one.lengths for one in tts.warm_up()}
    assert made["fastpitch.decoder"] == "text 128, mel 640" and made["hifigan.generator"] == "mel 640"


@pytest.mark.parametrize("frames", [5.0, 7.0, 9.5])
def test_on_kernels_texts_of_any_usual_pace_meet_a_warm_shape(frames):
    known, mels = set(padded_texts()), set(padded_mels())
    for symbols in range(7, 100):
        mel = -(-round(symbols * frames) // MEL_STEP) * MEL_STEP
        assert Bucket(-(-symbols // TEXT_STEP) * TEXT_STEP, mel) in known and mel in mels


@pytest.mark.parametrize("dropped", [False, True])
def test_in_the_background_steps_are_made_while_nobody_speaks(tiny_voice, monkeypatch, capsys, dropped):
    monkeypatch.setattr(warm_up, "IDLE", 0.0)
    tts, made = TextToSpeech.load(voice=tiny_voice, device="cpu"), []
    run = warm_up.run_step

    def watched(driver, step):
        made.append(step)
        return run(driver, step)

    monkeypatch.setattr(warm_up, "run_step", watched)
    with turn_of(tts):
        background = IdleWarmUp(tts)
        assert not made
        if dropped:
            background.stop()
    background._thread.join()
    steps = [step for driver in (tts.acoustic, tts.vocoder) for step in warm_up.steps_of(driver)]
    assert len(steps) > 4 and made == steps[: len(steps) if not dropped else len(made)]
    assert len(made) <= 1 or not dropped
    assert capsys.readouterr().err == f"warming up in the background, {len(steps)} steps\n" * bool(made)
    assert len(tts.speak("Hello there.").samples) > 4000


@pytest.mark.slow
def test_the_commands_say_what_it_took(infer, tiny_voice):  # noqa: F811
    result = infer("--text", "Hello there.", "--warm-up")
    assert result.returncode == 0 and result.stderr.startswith("warm-up "), result.stderr
    assert "hifigan.generator" in result.stderr and "a sentence" in result.stderr
    pair = ("--acoustic", "fastpitch", "--vocoder", "hifigan", "--backend", "onnx")
    result = benchmark(tiny_voice, *pair, "--warm-up", "--json")
    assert result.returncode == 0 and "a sentence" in result.stderr, result.stderr
