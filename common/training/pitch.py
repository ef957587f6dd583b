"""What a vocoder's pitch network learns: the pitch of a teacher's pulses, or WORLD's of recordings."""

import math
from collections.abc import Iterable, Mapping
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from melforge.common.audio.pitch_network import PitchNetwork
from melforge.common.training.loop import GraphedSteps, adamw
from melforge.common.training.vocoder import set_gradients

SEMITONES = 12 / math.log(2)  # in a unit of the natural logarithm
ENTROPY_WEIGHT = 0.3
LESSON_BATCH, LESSON_RATE, LAST_LESSON_RATE = 64, 2e-3, 1e-4  # of a network that learns alone
# Frames that are fainter, or less harmonic, hardly say a pitch.
FAINT, FAINT_WEIGHT = 1e-5, 0.03


def pitch_weight(audio: Tensor, harmonic: Tensor, voiced: Tensor) -> Tensor:
    """How much each frame's pitch counts (B, T): where most of the sound (B, 1, S) is the harmonic part."""
    hop = audio.shape[2] // voiced.shape[1]

    def power(x: Tensor) -> Tensor:
        return F.avg_pool1d(F.pad(x.square(), (hop // 2, hop // 2)), 2 * hop, hop)[:, 0]

    tone, rest = power(harmonic), power(audio - harmonic)
    return voiced * (FAINT_WEIGHT + (tone > 3 * rest) * (tone > FAINT))


def pitch_loss(network: PitchNetwork, mel: Tensor, pitch: Tensor, weight: Tensor) -> Tensor:
    """Of the pitch (B, T) in cycles a sample that the network finds in the mel: semitones off, semitones off
    in steps from frame to frame (jitter is heard), and the cross entropy of its distribution.
    """
    with torch.autocast(mel.device.type, enabled=False):
        logits = network.logits(mel)
        found, wanted = network.mean(logits), pitch.log() - network.middle
        width = network.places[1] - network.places[0]
        target = torch.exp(-0.5 * ((wanted[:, None] - network.places[:, None]) / width).square()) + 1e-8
        entropy = -(target / target.sum(1, keepdim=True) * logits.log_softmax(1)).sum(1)
        off, pairs = found - wanted, weight[:, 1:] * weight[:, :-1]
        semitones = _mean(off.abs(), weight) + _mean((off[:, 1:] - off[:, :-1]).abs(), pairs)
        return SEMITONES * semitones + ENTROPY_WEIGHT * _mean(entropy, weight)


def _mean(values: Tensor, weight: Tensor) -> Tensor:
    return (values * weight).sum() / weight.sum().clamp(min=1)


def teach_pitch(network: PitchNetwork, lessons: Iterable[Mapping[str, Tensor]], steps: int) -> None:
    """Trains the network alone, at a rate that falls: a lesson has mel (B, n_mels, T), and pitch in cycles a
    sample and its weight (B, T).
    """
    optimiser = adamw(network, LESSON_RATE, (0.9, 0.98), 0.0)
    low, high = network.places[[0, -1]].add(network.middle).exp().tolist()

    def step(key: object, mel: Tensor, pitch: Tensor, weight: Tensor) -> dict[str, Tensor]:
        loss = pitch_loss(network, mel, pitch.clamp(low, high), weight)
        set_gradients([*network.parameters()], loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        return {"pitch": loss.detach()}

    graphed = GraphedSteps(step)
    for number, lesson in enumerate(islice(lessons, steps)):
        rate = LAST_LESSON_RATE + (LESSON_RATE - LAST_LESSON_RATE) * (1 - number / steps)
        for group in optimiser.param_groups:
            group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
        graphed("pitch", **lesson)
