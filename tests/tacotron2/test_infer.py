"""The driver: items of a batch as alone, noise of their own, lengths, durations, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.arrays import pad_batch
from melforge.common.audio.contract import MelContract
from melforge.common.speech import Controls
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.voices import ModelSource
from melforge.tacotron2.config import Tacotron2Config
from melforge.tacotron2.decode import NOISE_BLOCK, SeededNoise, decode
from melforge.tacotron2.examples import firing_threshold
from melforge.tacotron2.infer import durations
from melforge.tacotron2.model import Tacotron2
from melforge.tacotron2.stages import PLAN

CONFIG = Tacotron2Config(
    n_symbols=30,
    symbols_embedding_dim=16,
    encoder_kernel_size=5,
    encoder_embedding_dim=16,
    attention_rnn_dim=24,
    attention_dim=8,
    attention_location_n_filters=4,
    attention_location_kernel_size=7,
    decoder_rnn_dim=20,
    prenet_dim=16,
    max_decoder_steps=90,
    postnet_embedding_dim=16,
    n_frames_per_step=2,
    mask_text_padding=True,
)
RNG = np.random.default_rng(4)
LONG, SHORT, MIDDLE = (RNG.integers(1, 30, size) for size in (400, 1, 37))


def make(form: str = "loop", backend: str = "torch", gate_weight: float = 20.0, **changes):
    torch.manual_seed(1)
    config = replace(CONFIG, **changes)
    network = Tacotron2(config)
    with torch.no_grad():
        network.decoder.linear_projection.linear_layer.weight.mul_(6)
        network.decoder.prenet.layers[0].linear_layer.weight.mul_(4)
        network.decoder.gate_layer.linear_layer.weight.mul_(gate_weight)
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    source = ModelSource("tacotron2", config, Path("weights"), MelContract(), given_state=state)
    return make_driver(source, backend, "cpu", decoder=form)


@pytest.fixture(scope="module", params=PLAN.forms)
def acoustic(request):
    return make(request.param)


def threshold_of(acoustic, ids, seeds) -> float:
    """One at which items stop, at different steps."""
    symbols, lengths = pad_batch(ids)
    encoded = acoustic.encoder(symbols=symbols, lengths=lengths)
    noise = SeededNoise(seeds, CONFIG.prenet_dim)
    out = decode(acoustic.decoder, acoustic.config, encoded, lengths, noise, 0.5, 1.0, 90)
    assert not out.stopped.any() and out.mel.shape == (len(ids), 80, 180)
    return firing_threshold(out.gate)


@pytest.mark.slow
def test_a_very_long_and_a_very_short_text_in_a_batch_equal_themselves_alone(acoustic):
    ids = [SHORT, LONG, MIDDLE]
    seeds = [3, 0, 8]
    controls = Controls(gate_threshold=threshold_of(acoustic, ids, seeds))
    assert acoustic.batch_safe
    together = acoustic.synthesise(ids, [replace(controls, seed=seed) for seed in seeds])
    assert len(set(together.mel_lengths.tolist())) > 1
    for row, (item, seed) in enumerate(zip(ids, seeds, strict=True)):
        alone = acoustic.synthesise([item], replace(controls, seed=seed))
        frames, steps = together.mel_lengths[row], together.alignment_lengths[row]
        assert frames == alone.mel_lengths[0] == alone.mel.shape[2] == 2 * steps
        np.testing.assert_allclose(together.mel[row, :, :frames], alone.mel[0], atol=1e-5)
        own = together.alignment[row, :steps, : len(item)]
        np.testing.assert_allclose(own, alone.alignment[0], atol=1e-5)
        assert (together.alignment[row, :, len(item) :] == 0).all()
        assert together.durations[row].sum() == frames and not together.durations[row, len(item) :].any()
        assert together.problems[row] == alone.problems[0]


def test_the_step_at_which_the_gate_fires_is_heard_by_the_postnet_and_cut():
    """What the postnet sees of an item ends there, in a batch and alone; the mel ends before it."""
    acoustic = make()
    ids = [SHORT, LONG, MIDDLE]
    controls = Controls(gate_threshold=threshold_of(acoustic, ids, [0, 0, 0]))
    seen, postnet = [], acoustic.postnet

    class Watching:
        stage, device = postnet.stage, postnet.device

        def __call__(self, mel, **lengths):
            seen.append((mel.shape, *(x.tolist() for x in lengths.values())))
            return postnet(mel=mel, **lengths)

    acoustic.postnet = Watching()
    out = acoustic.synthesise(ids, controls)
    stopped = out.mel_lengths < 180
    assert stopped.any()
    ((shape, lengths),) = seen
    assert shape[0] == 3 and lengths == (out.mel_lengths + 2 * stopped).tolist()
    seen.clear()
    published = make(mask_text_padding=False)
    assert not published.batch_safe
    published.postnet, postnet = Watching(), published.postnet
    published.synthesise(ids, controls)
    (((batch, *_),),) = seen
    assert batch == 3  # as published: over all that the batch made


@pytest.mark.slow
def test_forms_and_seeds():
    loop, steps = make("loop"), make("steps")
    ids, controls = [MIDDLE, SHORT], Controls(seed=5)
    one, other = loop.synthesise(ids, controls), steps.synthesise(ids, controls)
    np.testing.assert_array_equal(one.mel_lengths, other.mel_lengths)
    np.testing.assert_allclose(one.mel, other.mel, atol=1e-5)
    np.testing.assert_array_equal(one.mel, loop.synthesise(ids, [controls, Controls(seed=5)]).mel)
    assert np.abs(one.mel[0, :, :2] - loop.synthesise(ids, Controls(seed=6)).mel[0, :, :2]).max() > 1e-4


def test_noise_does_not_depend_on_the_batch_or_on_the_blocks_it_is_drawn_in():
    whole = SeededNoise([1, 2], 5).rows(3 * NOISE_BLOCK)
    alone = SeededNoise([2], 5)
    blocks = np.concatenate([alone.rows(1), alone.rows(NOISE_BLOCK), alone.rows(2 * NOISE_BLOCK - 1)])
    np.testing.assert_array_equal(whole[:, :, 1:], blocks)
    assert whole.dtype == np.float32 and whole.min() >= 0 and whole.max() < 1
    assert abs(whole.mean() - 0.5) < 0.05


def test_a_gate_that_never_fires_is_reported(acoustic):
    out = acoustic.synthesise([MIDDLE, SHORT], Controls(gate_threshold=1.0, step_limit=7))
    assert all(what.startswith("the step limit of 7 was reached: ") for what in out.problems)
    assert out.mel.shape == (2, 80, 14) and out.mel_lengths.tolist() == [14, 14]


def test_a_gate_that_fires_at_once_leaves_something_to_vocode(acoustic):
    out = acoustic.synthesise([MIDDLE, SHORT], Controls(gate_threshold=0.0))
    assert out.problems == ("the speech stopped at its first step: nothing was said",) * 2
    assert out.mel.shape == (2, 80, 2) and out.mel_lengths.tolist() == [2, 2]
    assert out.alignment.shape == (2, 1, 37) and out.durations.sum(axis=1).tolist() == [2, 2]
    assert np.isfinite(out.mel).all()


def test_durations_are_the_steps_that_looked_at_a_symbol_most():
    alignment = np.eye(4, dtype=np.float32)[[[0, 0, 1, 3, 3], [2, 1, 1, 0, 0]]]
    assert durations(alignment, np.array([5, 3])).tolist() == [[2, 1, 0, 2], [0, 2, 1, 0]]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([np.array([], np.int64)], "an utterance without symbols cannot be spoken"),
        ([MIDDLE, np.ones(513, np.int64)], "an utterance of 513 symbols; this model goes up to 512"),
        ([np.array([3, 30])], "symbol ids from 3 to 30, but the model has 30 symbols"),
        ([np.array([-1, 3])], "symbol ids from -1 to 3"),
        ([], "there is no utterance"),
        ([SHORT] * 33, "33 utterances at a time; this model goes up to 32"),
    ],
)
def test_texts_that_cannot_be_spoken_are_refused(acoustic, ids, message):
    with pytest.raises(ValueError, match=message):
        acoustic.synthesise(ids)


def test_limits_and_controls_that_do_not_fit_are_refused(acoustic):
    with pytest.raises(ValueError, match="a step limit of 2001; this model goes up to 2000"):
        acoustic.synthesise([SHORT], Controls(step_limit=2001))
    with pytest.raises(ValueError, match="1 controls for 2 texts"):
        acoustic.synthesise([SHORT, SHORT], [Controls(seed=1)])
    for other in (Controls(step_limit=7), Controls(gate_threshold=0.1), Controls(dropout=False)):
        with pytest.raises(ValueError, match="tacotron2 cannot have these controls in one batch"):
            acoustic.synthesise([SHORT, SHORT], [Controls(), other])
    # What the model has is the same as what is asked for.
    config = acoustic.config
    asked = Controls(gate_threshold=config.gate_threshold, step_limit=config.max_decoder_steps)
    assert acoustic.batch_key(asked) == acoustic.batch_key(Controls(seed=4, sharpness=0.5, volume=2.0))
