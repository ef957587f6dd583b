"""Writes a trained Tacotron 2's mels of a whole corpus, for a vocoder to be fine-tuned on:
`python -m tacotron2.predict_mels --weights RUN/weights.safetensors --corpus DIR --out mels.npy`.

Every step sees the corpus's own frame before it, so that each mel stays in time with its audio; the prenet's
dropout is on, as in speaking.
"""

from __future__ import annotations

from torch import Tensor

from common.training.corpus import predict
from common.training.corpus.utterances import Utterances
from tacotron2.model import Prediction, Tacotron2
from tacotron2.train import batch, prenet_noise


def teach(model: Tacotron2, corpus: Utterances, members: Tensor) -> Prediction:
    symbols, frames = corpus.longest(members)
    step = model.config.n_frames_per_step
    given = batch(corpus, members, symbols, -(-frames // step) * step)
    return model(**given, prenet_noise=prenet_noise(model.config, given["mel"]))


def main() -> None:
    predict.main("tacotron2", 192, teach)


if __name__ == "__main__":
    from common.cli.run import run

    run(main)
