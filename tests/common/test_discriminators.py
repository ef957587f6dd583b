"""The discriminators: shapes, gradients and widths."""

import pytest
import torch

from melforge.common.training.vocoder import SpectrogramDiscriminator, make_discriminators


def judges(channels: int = 2, complex_spectra: bool = False) -> list:
    panels = make_discriminators(channels, channels, complex_spectra)
    return [judge for panel in panels for judge in panel["judges"]]


@pytest.mark.parametrize("complex_spectra", [False, True])
def test_each_judge_scores_and_shows_its_features(complex_spectra):
    assert [len(panel["judges"]) for panel in make_discriminators(2, 2)] == [5, 3]
    for judge in judges(2, complex_spectra):
        audio = torch.randn(2, 1, 4096, requires_grad=True)
        score, maps = judge(audio)
        assert score.shape[0] == 2 and score.dim() == 2
        assert len(maps) == 6
        score.square().mean().backward()
        assert torch.isfinite(audio.grad).all() and audio.grad.abs().sum() > 0


@pytest.mark.parametrize("complex_spectra", [False, True])
def test_silence_gives_finite_gradients(complex_spectra):
    audio = torch.zeros(1, 1, 4096, requires_grad=True)
    sum(judge(audio)[0].sum() for judge in judges(2, complex_spectra)[5:]).backward()
    assert torch.isfinite(audio.grad).all()


@pytest.mark.parametrize("complex_spectra", [False, True])
def test_only_complex_spectra_show_the_sign_of_audio(complex_spectra):
    audio, judge = torch.randn(1, 1, 4096), SpectrogramDiscriminator(512, 2, complex_spectra)
    assert torch.equal(judge(audio)[0], judge(-audio)[0]) is not complex_spectra


def test_items_of_a_batch_are_judged_apart():
    audio = torch.randn(2, 1, 4096)
    for judge in judges():
        torch.testing.assert_close(judge(audio)[0][1:], judge(audio[1:])[0], rtol=1e-4, atol=1e-5)


def test_published_width_has_the_published_size():
    with torch.device("meta"):
        panel = make_discriminators(32, 1)[0]
    plain = sum(p.numel() for name, p in panel.named_parameters() if not name.endswith("original0"))
    assert plain == 41_092_165
