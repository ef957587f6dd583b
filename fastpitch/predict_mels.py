"""Writes a trained FastPitch's mels of a whole corpus, for a vocoder to be fine-tuned on:
`python -m fastpitch.predict_mels --weights RUN/weights.safetensors --corpus DIR --out mels.npy`.

Durations, pitch and energy are the corpus's own, so that each mel stays in time and in tune with its audio.
With `--predicted` only the durations are: a mel is then a function of the text, from which a model that
predicts no pitch (FastSpeech) learns more than from recordings.
"""

from __future__ import annotations

from torch import Tensor

from common.training.corpus import predict
from common.training.corpus.utterances import Utterances
from fastpitch.model import FastPitch, Prediction, Synthesis
from fastpitch.train import batch


def teach(model: FastPitch, corpus: Utterances, members: Tensor) -> Prediction:
    return model(**batch(corpus, members, *corpus.longest(members)))


def predict_freely(model: FastPitch, corpus: Utterances, members: Tensor) -> Synthesis:
    symbols, _ = corpus.longest(members)
    durations = corpus.durations[members, :symbols]
    return model.infer(corpus.ids[members, :symbols], corpus.lengths[members], durations=durations)


def main() -> None:
    predict.main("fastpitch", 32, teach, predict_freely)


if __name__ == "__main__":
    from common.cli.run import run

    run(main)
