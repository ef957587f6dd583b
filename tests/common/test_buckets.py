"""Buckets: what is padded into one and cut equals what runs alone, on the smallest engine that covers it."""

import dataclasses
import gc
from types import SimpleNamespace

import numpy as np
import pytest

from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines.backends import make_engine
from melforge.common.engines.buckets import BucketedEngine, EnginePool
from melforge.common.export.examples import examples_of
from melforge.common.export.to_onnx import example_inputs, source_stages
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls, MelTooLong
from melforge.common.stages import Dim, Stage, TensorSpec
from melforge.common.stages.choose import choose_stages
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.published import read_checkpoint
from tests.conftest import quick_for_the_voice

BUCKETS = (Bucket(20, 40), Bucket(45, 90))
TEXT = "The first sentence is rather long, and it is spoken in some chunks. A second one."
ACOUSTIC = Deployment(
    trt_multi_engine=True, trt_max_input_seq_len_list=(20, 80), trt_max_output_seq_len_list=(40, 300)
)
LONG = {"trt_max_input_seq_len": 600, "trt_max_output_seq_len": 900}
VOCODER = Deployment(trt_multi_engine=True, trt_max_output_seq_len_list=(90, 210))


def alone(tiny_weights, acoustic: str = "fastpitch", vocoder: str = "hifigan") -> dict:
    """What loads a pair without buckets."""
    checkpoints = [str(tiny_weights[acoustic]), str(tiny_weights[vocoder])]
    return {"checkpoints": checkpoints, "backend": "torch", "device": "cpu", "threads": 1}


def bucketed(stage, source, backend, buckets=BUCKETS) -> BucketedEngine:
    def make(stage, bucket):
        for tensor in stage.inputs:  # what TensorRT's profile is made of
            fixed = [d for d in tensor.dims if isinstance(d, Dim) and d.name in ("text", "mel")]
            assert all(dim.min == dim.typical == dim.max == getattr(bucket, dim.name) for dim in fixed)
        return make_engine(stage, source, backend, threads=1)

    return BucketedEngine(stage, buckets, make, EnginePool(), backend, "cpu")


def cut_to(tensors, arrays, row: int, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """One item of a batch, with so many steps along these dimensions."""
    found = {}
    for tensor in tensors:
        if tensor.name in arrays:
            array = arrays[tensor.name]
            for axis, dim in enumerate(tensor.dims):
                if isinstance(dim, Dim) and dim.name == "batch":
                    array = array.take([row], axis)
                elif isinstance(dim, Dim) and (dim.of or dim.name) in sizes:
                    array = array.take(range(sizes[dim.of or dim.name] * dim.times), axis)
            found[tensor.name] = array
    return found


ALL_STAGES = [
    *(("fastpitch", name) for name in ("encoder", "decoder")),
    *(("tacotron2", name) for name in ("encoder", "decoder_iter", "decoder_loop", "postnet")),
    *(("hifigan", name) for name in ("masked_generator", "masked_denoiser")),
    ("waveglow", "masked_generator"),
]


@pytest.mark.parametrize("backend", ["torch", "onnx"])
@pytest.mark.parametrize("model, name", quick_for_the_voice(ALL_STAGES))
@pytest.mark.parametrize("batch, text, mel", [(1, 1, 3), (1, 20, 40), (2, 7, 61), (3, 21, 34), (4, 45, 90)])
def test_an_item_padded_into_a_bucket_equals_itself_alone(
    tiny_sources, model, name, backend, batch, text, mel
):
    source = tiny_sources[model]
    stages = {stage.name: stage for stage in source_stages(source)}
    stage = stages[name]
    roots = {"text": text, "mel": mel}
    sizes = {n: roots[d.of or n] * d.times for n, d in stage.dynamic_dims.items() if (d.of or n) in roots}
    sizes |= {"batch": batch, "steps": sizes.get("steps", 9)}
    inputs = example_inputs(stage, source.config, sizes, seed=batch)
    inputs = examples_of(stage.model).settle_inputs(stage, source, inputs)
    engine = bucketed(stage, source, backend)
    together = engine(**inputs)
    # The vocoders' other forms don't know of padding: what they make of an item alone is the truth.
    plain = stages[name.removeprefix("masked_")]
    alone = make_engine(plain, source, backend, threads=1)
    for row in range(batch):
        own = {}
        if "lengths" in inputs:
            own["mel" if model in ("hifigan", "waveglow") or name == "postnet" else "text"] = "lengths"
        if "mel_lengths" in inputs:
            own["mel"] = "mel_lengths"
        own = {dim: int(inputs[lengths][row]) for dim, lengths in own.items()}
        given = cut_to(stage.inputs, inputs, row, own)
        given = {tensor.name: given[tensor.name] for tensor in plain.inputs}
        expected = alone(**given)
        found = cut_to(stage.outputs, together, row, own)
        for tensor in plain.outputs:
            wanted, got = expected[tensor.name], found[tensor.name]
            if name == "decoder_loop":  # the batch goes on until its last item stops
                steps = int(expected["mel_lengths"][0])
                wanted, got = (
                    (x[:, :, :steps] if tensor.name == "mel" else x[:, :steps] if x.ndim > 1 else x)
                    for x in (wanted, got)
                )
            assert got.dtype == wanted.dtype and got.shape == wanted.shape
            scale = max(1.0, np.abs(wanted.astype(np.float64)).max(initial=0))
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * scale)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "unmasked", "names"),
    [
        ("fastpitch", {"mask_padding": False}, ("encoder", "decoder")),
        ("tacotron2", {"mask_text_padding": False}, ("encoder", "postnet")),
        ("hifigan", {}, ("generator",)),
        ("waveglow", {}, ("generator",)),
    ],
)
def test_what_the_published_forms_make_of_padding_is_not_what_they_make_alone(
    tiny_sources, model, unmasked, names
):
    """So that the test above would fail without masks."""
    source = tiny_sources[model]
    config = dataclasses.replace(source.config, **unmasked)
    source = dataclasses.replace(source, config=config, graphs={}, networks={})
    for stage in (stage for stage in source_stages(source) if stage.name in names):
        roots = {"text": 30, "mel": 60}
        sizes = {n: roots[d.of or n] * d.times for n, d in stage.dynamic_dims.items() if n != "batch"}
        inputs = example_inputs(stage, source.config, sizes | {"batch": 1}, seed=0)
        padded = bucketed(stage, source, "torch")(**inputs)
        alone = make_engine(stage, source, "torch", threads=1)(**inputs)
        worst = 0.0
        for tensor in stage.outputs:
            difference = np.abs(padded[tensor.name] - alone[tensor.name])
            worst = max(worst, float(difference.max()))
            if tensor.dims[-1] != sizes.get("text") and tensor.name in ("mel", "refined"):
                assert np.abs(difference[..., :20]).max() < 1e-5 or model == "fastpitch"
        assert worst > 1e-4, stage.full_name


@pytest.mark.parametrize(
    "acoustic, vocoder, decoder",
    [
        ("fastpitch", "hifigan", None),
        ("fastpitch", "waveglow", None),
        ("tacotron2", "waveglow", None),
        ("tacotron2", "hifigan", "steps"),
        (None, None, None),  # the tiny voice, on ONNX Runtime
    ],
)
def test_speech_in_buckets_equals_speech_without(tiny_weights, tiny_voice, acoustic, vocoder, decoder):
    how = {"voice": tiny_voice, "device": "cpu"}
    if acoustic:
        how = alone(tiny_weights, acoustic, vocoder) | {"decoder": decoder}
    plain = TextToSpeech.load(**how)
    names = acoustic or "fastpitch", vocoder or "hifigan"
    tts = TextToSpeech.load(**how, deployments=dict(zip(names, (ACOUSTIC, VOCODER), strict=True)))
    controls = Controls(seed=2, denoising_strength=0.3)
    texts = [TEXT, "Short.", "Of middle length."]
    answers = zip(plain.speak_many(texts, controls), tts.speak_many(texts, controls), strict=True)
    for expected, audio in answers:
        assert not any(audio.notes)
        np.testing.assert_allclose(audio.samples, expected.samples, atol=2e-5)
    samples = np.concatenate(list(tts.stream(TEXT, controls)))
    np.testing.assert_allclose(samples, plain.speak(TEXT, controls).samples, atol=1e-4)
    rows = tts.bucket_report()
    assert {row["stage"].split(".")[0] for row in rows} == set(names)
    assert all(row["masked"] and not row["misses"] for row in rows)
    for row in rows:
        assert (row["calls"] > 0) == row["loaded"] == (row["loads"] == 1)
        assert 0 <= row["waste"] < 1
    assert plain.bucket_report() == []


def test_a_text_longer_than_the_largest_bucket_is_split(tiny_weights):
    how = Deployment(batch_size=3, trt_max_input_seq_len=25, trt_max_output_seq_len=300)
    tts = TextToSpeech.load(**alone(tiny_weights), deployments={"fastpitch": how})
    assert (tts.choose_batch_size(None), tts.choose_batch_size(5)) == (3, 5)  # the deployment's
    audio = tts.speak(TEXT)
    assert max(len(u.ids) for u in audio.utterances) <= 25
    assert "".join(u.text for u in audio.utterances).replace(" ", "") == TEXT.replace(" ", "")


def test_a_mel_longer_than_the_largest_bucket_is_spoken_in_pieces(tiny_weights):
    """No frame is lost, batch mates are as ever, and the table says that the bucket was too small."""
    how = Deployment(trt_max_input_seq_len=100, trt_max_output_seq_len=80)
    load = alone(tiny_weights)
    plain, tts = TextToSpeech.load(**load), TextToSpeech.load(**load, deployments={"fastpitch": how})
    texts = [TEXT, "Short.", "Two words."]
    long, *others = tts.speak_many(texts)
    assert long.notes[0].startswith("spoken in ") and max(m.shape[1] for m in plain.speak(TEXT).mels) > 80
    for mel, durations in zip(long.mels, long.durations, strict=True):
        assert mel.shape[1] == durations.sum()
    for text, audio in zip(texts[1:], others, strict=True):
        assert audio.notes == ("",)
        np.testing.assert_allclose(audio.samples, plain.speak(text).samples, atol=2e-5)
    assert sum(row["misses"] for row in tts.bucket_report() if row["stage"] == "fastpitch.decoder") >= 1
    np.testing.assert_allclose(np.concatenate(list(tts.stream(TEXT))), tts.speak(TEXT).samples, atol=1e-4)


def test_what_cannot_be_cut_any_more_is_an_error_with_a_way_out(tiny_weights):
    how = Deployment(trt_max_input_seq_len=100, trt_max_output_seq_len=2)
    tts = TextToSpeech.load(**alone(tiny_weights), deployments={"fastpitch": how})
    with pytest.raises(MelTooLong, match="this model goes up to 2: raise the pace or shorten the sentence"):
        tts.speak("Hello there.", Controls(pace=0.2))


@pytest.mark.slow
def test_frames_beyond_the_largest_bucket_pass_the_postnet_in_pieces(tiny_weights):
    how = Deployment(trt_max_input_seq_len=60, trt_max_output_seq_len=16)
    load = (read_checkpoint(tiny_weights["tacotron2"]), "torch", "cpu")
    plain, small = make_driver(*load), make_driver(*load, deployment=how)
    ids = [np.arange(1, 31), np.arange(5, 9)]
    controls = Controls(gate_threshold=1.0, step_limit=60)
    expected, found = (driver.synthesise(ids, controls) for driver in (plain, small))
    assert found.mel.shape == expected.mel.shape == (2, 80, 60)
    np.testing.assert_allclose(found.mel, expected.mel, atol=1e-5)


def test_published_weights_keep_the_published_form_unless_asked(tiny_sources):
    source = tiny_sources["hifigan"]
    published = dataclasses.replace(source, given_state=source.state)

    def stages(source, **keys):
        how = Deployment(trt_max_output_seq_len=200, **keys)
        return set(make_driver(source, "torch", "cpu", deployment=how).engines)

    assert stages(source) == stages(published, mask_padding=True) == {"masked_generator", "masked_denoiser"}
    assert stages(published) == stages(source, mask_padding=False) == {"generator", "masked_denoiser"}
    assert [stage.name for stage in choose_stages(source, None)] == ["generator", "denoiser"]
    # The denoiser knows the length all the same; the generator's last frames hear the padding.
    driver = make_driver(published, "torch", "cpu", deployment=Deployment(trt_max_output_seq_len=200))
    assert not driver.batch_safe
    mel = np.random.default_rng(0).standard_normal((1, 80, 70), np.float32) * 2 - 5
    given = mel, np.array([70]), Controls(denoising_strength=0.3)
    (audio,), (alone,) = driver.vocode(*given), make_driver(source, "torch", "cpu").vocode(*given)
    far = (70 - driver.context - 4) * 256
    np.testing.assert_allclose(audio[:far], alone[:far], atol=1e-5)
    assert np.abs(audio - alone).max() > 1e-3


@pytest.mark.parametrize(
    "model, keys, message",
    [
        ("tacotron2", {"trt_max_input_seq_len": 9, "trt_max_output_seq_len": 4}, "one bucket must have 5"),
        ("hifigan", {"engine_memory_limit": 5}, "engine_memory_limit of hifigan: without buckets"),
        ("fastpitch", {"trt_max_output_seq_len": 9}, "fastpitch: .*without trt_max_input_seq_len"),
        ("fastpitch", LONG, r"a bucket of 600 \(text\): stage fastpitch.encoder goes from 1 to 512"),
    ],
)
def test_buckets_that_cannot_be_are_refused(tiny_weights, model, keys, message):
    with pytest.raises(ValueError, match=message):
        make_driver(read_checkpoint(tiny_weights[model]), "torch", "cpu", deployment=Deployment(**keys))


def test_the_shortest_bucket_that_the_error_names_works(tiny_sources):
    def load(length: int):
        how = Deployment(trt_max_output_seq_len=length)
        return make_driver(tiny_sources["hifigan"], "torch", "cpu", deployment=how)

    with pytest.raises(
        ValueError, match=r"hifigan: buckets of up to 9 frames .* must have \d+ frames"
    ) as told:
        load(9)
    least = int(str(told.value).split()[-2])
    mel = np.zeros((1, 80, 5), np.float32)
    audio = load(least).vocode(mel, np.array([5]), Controls(denoising_strength=0.1))
    assert audio[0].shape == (5 * 256,)
    with pytest.raises(ValueError, match="too short"):
        load(least - 1)


# One stage on engines that only count


DIMS = Dim("batch", 1, 1, 8), Dim("text", 1, 10, 500), Dim("mel", 1, 10, 4000)
STAGE = Stage(
    *("fastpitch", "decoder", "", ""),
    (TensorSpec("x", "float32", (DIMS[0], DIMS[1])), TensorSpec("y", "float32", (DIMS[0], DIMS[2]))),
    (TensorSpec("z", "float32", (DIMS[0], Dim("samples", 2, 20, 8000, of="mel", times=2))),),
)


class Fake:
    """Doubles each frame. It has a memory of its own, in MB."""

    def __init__(self, stage, megabytes=1):
        self.stage, self.memory_bytes, self.memory_owner = stage, megabytes * 1_000_000, self
        self.shapes = []

    def __call__(self, x, y):
        self.shapes.append((x.shape, y.shape))
        return {"z": np.repeat(y, 2, axis=1)}


def make_counting(buckets, limit=None, sizes=None):
    made = []

    def make(stage, bucket):
        made.append((bucket, Fake(stage, (sizes or {}).get(bucket, 1))))
        return made[-1][1]

    pool = EnginePool(limit)
    return BucketedEngine(STAGE, buckets, make, pool, "torch", "cpu"), made, pool


def call(engine, text, mel, batch=1):
    return engine(x=np.ones((batch, text), np.float32), y=np.ones((batch, mel), np.float32))["z"]


SMALL, MIDDLE, LARGE = Bucket(10, 50), Bucket(20, 100), Bucket(40, 150)


def test_the_smallest_bucket_that_covers_both_lengths_runs():
    engine, made, _ = make_counting((SMALL, MIDDLE, LARGE))
    assert made == []
    for text, mel, bucket in ((10, 50, SMALL), (11, 1, MIDDLE), (3, 51, MIDDLE), (5, 101, LARGE)):
        assert engine.buckets.covering(text=text, mel=mel) == bucket
        before = engine.buckets.uses[bucket].calls
        out = call(engine, text, mel, batch=2)
        assert out.shape == (2, 2 * mel) and (out == 1).all()
        assert engine.buckets.uses[bucket].calls == before + 1
        assert engine._engine(bucket).shapes[-1] == ((2, bucket.text), (2, bucket.mel))
    assert [bucket for bucket, _ in made] == [SMALL, MIDDLE, LARGE]  # each once, when it was needed
    assert engine.buckets.covering(mel=151) is None
    assert engine.stage.dynamic_dims["mel"].max == 150 and engine.stage.outputs[0].dims[1].max == 300


def test_waste_and_misses_are_counted():
    engine, _, _ = make_counting((SMALL, LARGE))
    call(engine, 10, 50)
    call(engine, 5, 10, batch=2)
    use = engine.buckets.uses[SMALL]
    assert (use.calls, use.steps, use.valid) == (2, 3 * 60, 60 + 2 * 15) and use.waste == 0.5
    engine.buckets.count_padding(SMALL, 30)
    assert use.valid == 60
    engine.buckets.count_miss(SMALL)
    with pytest.raises(ValueError, match="has mel = 151, outside 1 to 150"):
        call(engine, 5, 151)
    rows = {row["bucket"]: row for row in engine.buckets.report()}
    assert (rows["10x50"]["misses"], rows["40x150"]["misses"]) == (1, 1)
    assert rows["10x50"]["loaded"] and not rows["40x150"]["loaded"]
    assert rows["40x150"] | {"calls": 0, "loads": 0, "steps": 0, "waste": 0.0} == rows["40x150"]


def test_a_memory_limit_lets_go_of_what_was_not_used_for_longest():
    engine, made, pool = make_counting((SMALL, MIDDLE, LARGE), limit=2)
    for text in (5, 15, 5, 30):  # small, middle, small, large: middle has to go
        call(engine, text, 1)
    assert [row["loaded"] for row in engine.buckets.report()] == [True, False, True]
    assert pool.memory_bytes == 2_000_000
    call(engine, 15, 1)
    assert [row["loads"] for row in engine.buckets.report()] == [1, 2, 1]
    assert [row["loaded"] for row in engine.buckets.report()] == [False, True, True]
    assert len(made) == 4


def test_one_engine_above_the_limit_is_an_error_with_both_numbers():
    engine, _, _ = make_counting((SMALL, LARGE), limit=3, sizes={LARGE: 4})
    call(engine, 5, 5)
    with pytest.raises(ValueError, match=r"limit is 3 MB, but one engine of fastpitch.decoder holds 4\.0 MB"):
        call(engine, 40, 5)


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_what_engines_share_counts_once_and_goes_with_the_last(tiny_sources, backend):
    source = dataclasses.replace(tiny_sources["hifigan"], networks=type(tiny_sources["hifigan"].networks)())
    stages = {stage.name: stage for stage in source_stages(source)}
    pool = EnginePool()
    for bucket in BUCKETS:
        pool.get(bucket, lambda: make_engine(stages["masked_generator"], source, backend))
    weights = sum(value.nbytes for value in source.state.values())
    assert weights <= pool.memory_bytes < weights + 60_000
    pool.get("denoiser", lambda: make_engine(stages["masked_denoiser"], source, backend))
    assert len(source.networks) == 2
    pool.limit = 0.06
    with pytest.raises(ValueError, match="engine_memory_limit"):
        pool.get(BUCKETS[0], lambda: None)
    pool._engines.clear()
    gc.collect()
    assert not source.networks


def test_lengths_that_do_not_belong_to_a_stage_do_not_count():
    """A loop's own frames are no bucket's: its output stays as long as it is."""
    made = Dim("mel", 1, 10, 4000)
    stage = Stage(
        *("tacotron2", "decoder_loop", "", ""),
        (TensorSpec("x", "float32", (DIMS[0], DIMS[1])),),
        (TensorSpec("mel", "float32", (DIMS[0], made)), TensorSpec("a", "float32", (DIMS[0], made, DIMS[1]))),
    )
    fake = SimpleNamespace(memory_bytes=0, memory_owner=None)

    class Loop:
        memory_bytes, memory_owner = 0, fake

        def __call__(self, x):
            return {"mel": np.ones((1, 77)), "a": np.ones((1, 77, x.shape[1]))}

    engine = BucketedEngine(stage, (SMALL,), lambda *_: Loop(), EnginePool(), "torch", "cpu")
    out = engine(x=np.ones((1, 4), np.float32))
    assert out["mel"].shape == (1, 77) and out["a"].shape == (1, 77, 4)
    assert engine.stage.outputs[0].dims[1] == made and engine.buckets.uses[SMALL].valid == 4


def test_a_batchs_own_padding_is_waste_too(tiny_sources):
    """Where a stage is told the lengths; what of a mel is text and what frames, too."""
    source = tiny_sources["fastpitch"]
    encoder, decoder = source_stages(source)
    inputs = example_inputs(encoder, source.config, {"batch": 3, "text": 15}, seed=0)
    engine = bucketed(encoder, source, "torch")
    engine(**inputs)
    use = engine.buckets.uses[BUCKETS[0]]
    assert use.valid == inputs["lengths"].sum() < 45 < use.steps == 60
    inputs = example_inputs(decoder, source.config, {"batch": 3, "text": 15, "mel": 80}, seed=0)
    engine = bucketed(decoder, source, "torch")
    engine(**inputs)
    use = engine.buckets.uses[BUCKETS[1]]
    assert use.steps == 3 * 135 and use.valid == inputs["lengths"].sum() + inputs["mel_lengths"].sum()


def test_a_chunk_fills_its_bucket(tiny_sources):
    """More frames in the same bucket cost nothing; the samples stay the same."""
    how = Deployment(trt_multi_engine=True, trt_max_output_seq_len_list=(60, 100))
    driver = make_driver(tiny_sources["hifigan"], "torch", "cpu", 1, deployment=how)
    mel = np.random.default_rng(0).standard_normal((1, 80, 170), np.float32) * 2 - 5
    plain = make_driver(tiny_sources["hifigan"], "torch", "cpu", 1)
    for strength, margin in ((0.0, 0), (0.3, 4)):
        controls = Controls(denoising_strength=strength)
        chunks = list(driver.vocode_chunks(mel, ChunkSizes(5, 40), controls))
        assert len(chunks[0]) == (60 - driver.context - margin) * 256
        (whole,) = plain.vocode(mel, np.array([170]), controls)
        np.testing.assert_allclose(np.concatenate(chunks), whole, atol=1e-4)
    assert driver.generator.buckets.uses[Bucket(0, 60)].waste < 0.3
