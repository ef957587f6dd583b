"""The discriminators: shapes, gradients and widths."""

import pytest
import torch

from common.training.discriminators import MultiPeriodDiscriminator, MultiResolutionDiscriminator


@pytest.mark.parametrize(
    ("panel", "members"),
    [(MultiPeriodDiscriminator(channels=2), 5), (MultiResolutionDiscriminator(channels=2), 3)],
)
def test_each_member_scores_and_shows_its_features(panel, members):
    audio = torch.randn(2, 1, 4096, requires_grad=True)
    scores, features = panel(audio)
    assert len(scores) == len(features) == members
    assert all(score.shape[0] == 2 and score.dim() == 2 for score in scores)
    assert all(len(maps) == 6 for maps in features)
    sum(score.square().mean() for score in scores).backward()
    assert torch.isfinite(audio.grad).all() and audio.grad.abs().sum() > 0


def test_silence_gives_finite_gradients():
    audio = torch.zeros(1, 1, 4096, requires_grad=True)
    sum(score.sum() for score in MultiResolutionDiscriminator(channels=2)(audio)[0]).backward()
    assert torch.isfinite(audio.grad).all()


def test_items_of_a_batch_are_judged_apart():
    audio = torch.randn(2, 1, 4096)
    for panel in (MultiPeriodDiscriminator(channels=2), MultiResolutionDiscriminator(channels=2)):
        together, _ = panel(audio)
        alone, _ = panel(audio[1:])
        for both, one in zip(together, alone, strict=True):
            torch.testing.assert_close(both[1:], one, rtol=1e-4, atol=1e-5)


def test_published_width_has_the_published_size():
    with torch.device("meta"):
        panel = MultiPeriodDiscriminator()
    plain = sum(p.numel() for name, p in panel.named_parameters() if not name.endswith("original0"))
    assert plain == 41_092_165
