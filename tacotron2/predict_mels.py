"""Writes a trained Tacotron 2's mels of a whole corpus, for a vocoder to be fine-tuned on:
`python -m melforge.tacotron2.predict_mels --weights RUN/weights.safetensors --corpus DIR -o mels.npy`.

Every step sees the corpus's own frame before it, so that each mel stays in time with its audio; the prenet's
dropout is on, as in speaking.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.tacotron2.predict_mels")

from melforge.common.cli.training import predict_mels_command
from melforge.tacotron2.train import teach


def main() -> None:
    predict_mels_command("tacotron2", 192, teach)
