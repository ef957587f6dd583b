import sys

import numpy as np
import pytest
import torch

from melforge.common.errors import InputError
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import read_header, read_weights
from melforge.hifigan.source_filter import SourceFilterGenerator
from recipes.hazel.equalise import BIAS, main
from tests.conftest import save_trained, tiny_hifigan, tiny_source_filter


@pytest.fixture
def command(tmp_path, monkeypatch):
    def run(network, *gains):
        before = save_trained(tmp_path / "weights.safetensors", *network)
        after = tmp_path / "equalised.safetensors"
        monkeypatch.setattr(
            sys, "argv", ["recipes.hazel.equalise", str(before), "--gain", *gains, "-o", str(after)]
        )
        main()
        return before, after

    return run


def parts(path):
    """The harmonic part of some audio, and the rest of it, [samples] each."""
    source = read_checkpoint(path, "hifigan")
    network = SourceFilterGenerator(source.config, weight_norm=False).eval()
    network.load_state_dict({name: torch.from_numpy(value) for name, value in source.state.items()})
    random = torch.Generator().manual_seed(0)
    features = torch.randn(1, source.config.upsample_initial_channel, 40, generator=random)
    pulses = torch.stack((torch.rand(40, generator=random), torch.full((40,), 0.01)))[None]
    with torch.no_grad():
        audio, tone = network.head(features, pulses, apart=True)
    return tone[0].numpy(), (audio - tone)[0].numpy()


def test_the_free_spectrum_gets_louder_by_frequency_and_nothing_else_changes(command):
    before, after = command(tiny_source_filter(), "0:0", "4000:0", "5000:6", "11025:6")
    assert read_header(before)[1] == read_header(after)[1]
    old, new = read_weights(before), read_weights(after)
    assert {name for name in old if not np.array_equal(old[name], new[name])} == {BIAS}
    (tone, rest), (same, louder) = parts(before), parts(after)
    np.testing.assert_array_equal(tone, same)
    powers = (np.abs(np.fft.rfft(x)) ** 2 for x in (louder, rest))
    change = 10 * np.log10(np.divide(*(power.reshape(-1, 10).sum(1) for power in (x[1:] for x in powers))))
    assert np.abs(change[:180]).max() < 1 and np.abs(change[240:] - 6).max() < 1


@pytest.mark.parametrize("gain, why", [("2000=3", "must be HZ:DECIBELS"), ("2000:nan", "must be a number")])
def test_gains_that_are_no_numbers_are_refused(command, gain, why):
    with pytest.raises(InputError, match=why):
        command(tiny_source_filter(), gain)


def test_a_generator_without_a_source_is_refused(command):
    with pytest.raises(InputError, match="has no harmonic source"):
        command(tiny_hifigan(), "0:-3")
