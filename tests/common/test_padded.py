"""Stages on PyTorch's kernels with padded lengths, and whole pairs on kernels: PyTorch's numbers."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from melforge.common.arrays import to_device
from melforge.common.engines.backends import make_engine
from melforge.common.engines.limits import PRODUCTS
from melforge.common.engines.torch_engine import META
from melforge.common.export.examples import examples_of
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.stages import plan_of, stages_of
from melforge.common.stages.choose import KERNELS, kernel_stages, parse_backends, parse_kernels
from melforge.common.weights.voices import load_voice
from melforge.trt_plugins.transformer.engine import TransformerNetwork
from tests.conftest import tiny_tacotron2

TEXTS = (
    "Yes.",
    "It just works.",
    "What did she say to the man at the door, and why did he leave so soon?",
    "The earliest book printed with movable types is a work of great beauty.",
    "Twelve men came in at nine o'clock. None of them stayed.",
)


def test_what_is_behind_the_longest_text_changes_nothing_in_an_encoder_that_masks_it():
    network = tiny_tacotron2()[0].eval()
    network.encoder.mask_text_padding = False
    symbols, lengths = torch.randint(1, 20, (2, 11)), torch.tensor([11, 7])
    symbols[1, 7:] = 0
    wanted = network.encode(symbols, lengths)
    network.encoder.mask_behind_longest = True
    got = network.encode(torch.nn.functional.pad(symbols, (0, 5)), lengths)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one[:, :11], other, atol=1e-6, rtol=1e-5)


def test_all_of_a_model_runs_on_kernels_and_a_vocoders_come_together():
    models = {"acoustic": "tacotron2", "vocoder": "hifigan"}
    assert parse_backends("cuda", models) == dict.fromkeys(models, KERNELS)
    assert kernel_stages("tacotron2") == ("encoder", "decoder_loop", "postnet")
    assert parse_kernels("trt,decoder_loop=cuda", "tacotron2") == ("decoder_loop",)
    together = ("masked_pitch", "masked_generator", "masked_denoiser")  # some of them have no pitch
    assert parse_kernels("trt,generator=cuda", "hifigan") == together
    for model in ("tacotron2", "fastpitch", "fastspeech", "hifigan", "waveglow"):
        assert set(kernel_stages(model)) <= set(plan_of(model).kernels)


@pytest.mark.parametrize("model", ["fastpitch", "fastspeech"])
def test_a_stage_on_pytorchs_kernels_takes_what_it_declares(model):
    """Its own lengths, and no others; the shapes are those of the device "meta"."""
    source, kept = load_voice().source(model), []
    for name in kernel_stages(model):
        stage = next(one for one in stages_of(model, source.config) if one.name == name)
        engine = TransformerNetwork(stage, source, META)
        engine._captured = kept.append  # and gives no graph
        sizes = {"batch": 2, "text": 40, "mel": 90}
        made = examples_of(model).example_inputs(stage, source.config, sizes, np.random.default_rng(0))
        outputs = engine(**{name: to_device(value, META) for name, value in made.items()})
        for tensor in stage.outputs:
            wanted = [dim if isinstance(dim, int) else sizes[dim.name] for dim in tensor.dims]
            assert list(outputs[tensor.name].shape) == wanted
        assert kept.pop().keys() == made.keys()


def near(got: torch.Tensor, wanted: torch.Tensor, tolerance: float = 5e-3) -> bool:
    """By the root mean square."""
    return float((got - wanted).square().mean().sqrt()) <= tolerance * float(wanted.square().mean().sqrt())


@pytest.mark.gpu
@pytest.mark.parametrize("masked", [True, False])
def test_tacotron2s_encoder_and_postnet_are_pytorchs_at_any_length(masked):
    source = load_voice().source("tacotron2")
    config = replace(source.config, mask_text_padding=masked)
    source = replace(source, config=config, graphs={}, networks={})
    encoder, _, _, postnet = stages_of("tacotron2", source.config)
    mine, theirs = (
        [make_engine(s, source, b, "cuda") for s in (encoder, postnet)] for b in (KERNELS, "torch")
    )
    rng = np.random.default_rng(0)
    # cuDNN's LSTM in half precision was a tenth off in batches of 8 and more.
    for lengths in ([5], [32], [61, 40, 7], [200, 3], list(range(150, 110, -5)), list(range(75, 5, -4))):
        ends = torch.tensor(lengths, device="cuda")
        symbols = torch.tensor(rng.integers(1, 90, (len(lengths), max(lengths))), device="cuda")
        symbols *= torch.arange(max(lengths), device="cuda") < ends[:, None]
        wanted = theirs[0](symbols=symbols, lengths=ends)
        got = mine[0](symbols=symbols, lengths=ends)
        assert all(near(got[name], wanted[name]) for name in wanted)
        mel = torch.randn(len(lengths), 80, 3 * max(lengths), device="cuda") * 2 - 5
        inputs = {"mel": mel, "lengths": 3 * ends} if masked else {"mel": mel}
        assert near(mine[1](**inputs)["refined"], theirs[1](**inputs)["refined"])


@pytest.mark.gpu
@pytest.mark.parametrize("vocoder", ["hifigan", "waveglow"])
@pytest.mark.parametrize("acoustic", ["fastpitch", "fastspeech", "tacotron2"])
def test_a_batch_on_kernels_is_each_text_alone_and_pytorchs(acoustic, vocoder, whole_float32):
    """To the bit where nothing is autoregressive and kernels are ours: they add sums in one order."""
    tts = TextToSpeech.load(acoustic, vocoder, backend="cuda")
    controls = Controls(denoising_strength=0.1)
    alone = [tts.speak(text, controls) for text in TEXTS]
    many = tts.speak_many(2 * TEXTS, controls, batch_size=12)
    theirs = TextToSpeech.load(acoustic, vocoder, backend="torch", device="cuda")
    for one, other in zip(2 * alone, many, strict=True):
        if acoustic != "tacotron2":
            same = torch.as_tensor(one.samples), torch.as_tensor(other.samples)
            assert near(*same, 2e-2 if PRODUCTS.lacking("cuda") else 0.0)
        assert one.mel.shape == other.mel.shape and len(one.samples) == len(other.samples)
        assert np.abs(one.mel - other.mel).mean() < 0.02
    mel = torch.as_tensor(alone[3].mels[0], device="cuda")
    short = mel[:, : mel.shape[1] // 3]
    got = tts.vocoder.vocode_each([mel, short], controls)
    for samples, given in zip(got, (mel, short), strict=True):
        (wanted,) = theirs.vocoder.vocode_each([given], controls)
        assert len(samples) == len(wanted)
        # 40 dB: a vocoder in half precision
        assert near(torch.as_tensor(samples), torch.as_tensor(wanted), 1e-2)


@pytest.mark.gpu
def test_after_a_warm_up_a_new_text_meets_no_new_shape():
    tts = TextToSpeech.load("fastpitch", "hifigan", backend="cuda")
    warmed = list(tts.warm_up(1))
    assert all(one.again < 1 for one in warmed)
    vocoder = tts.vocoder
    runs = vocoder.one_graph, vocoder.generator, vocoder.engines["masked_pitch"]
    captured = [one._captured for one in runs]
    kept = [set(one.graphs) for one in captured]
    for text in TEXTS:
        tts.speak(text)
        list(tts.stream(text))
    assert [set(one.graphs) for one in captured] == kept and all(kept)
    assert not any(one._met for one in captured)


@pytest.mark.gpu
@pytest.mark.parametrize("pair", ["fastpitch hifigan", "tacotron2 waveglow"])
def test_many_threads_on_a_gpu_get_what_they_would_get_alone(pair):
    """500 calls of 16 threads on two objects, spoken and streamed."""
    objects = [TextToSpeech.load(*pair.split(), backend="cuda") for _ in range(2)]
    spoken = [objects[0].speak(text).samples for text in TEXTS]
    streamed = [np.concatenate(list(objects[0].stream(text))) for text in TEXTS]
    wrong: list[str] = []

    def work(thread: int) -> None:
        rng = np.random.default_rng(thread)
        for call in range(32):
            tts, i = objects[(thread + call) % 2], int(rng.integers(len(TEXTS)))
            streams = (thread + call) % 3 == 0
            try:
                got = np.concatenate(list(tts.stream(TEXTS[i]))) if streams else tts.speak(TEXTS[i]).samples
                if not np.array_equal(got, (streamed if streams else spoken)[i]):
                    wrong.append(f"thread {thread}, call {call}: text {i} has other samples")
            except Exception as error:
                wrong.append(f"thread {thread}, call {call}: {error!r}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:5]
