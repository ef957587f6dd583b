"""Writes a trained FastPitch's mels of a whole corpus, for a vocoder to be fine-tuned on:
`python -m melforge.fastpitch.predict_mels --weights RUN/weights.safetensors --corpus DIR -o mels.npy`.

Durations, pitch and energy are the corpus's own, so that each mel stays in time and in tune with its audio.
With `--predicted` only the durations are: a mel is then a function of the text, from which a model that
predicts no pitch (FastSpeech) learns more than from recordings.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.fastpitch.predict_mels")

from melforge.common.cli.training import predict_mels_command
from melforge.fastpitch.train import predict_freely, teach


def main() -> None:
    predict_mels_command("fastpitch", 32, teach, predict_freely)
