"""Writes the trained FastPitch's mels of its corpus, for the vocoder to learn from beside the true ones:
`python -m recipes.kokoro.predict_mels --weights RUN/weights.safetensors --corpus DIR -o mels.npy`.

As `melforge.fastpitch.predict_mels`, but that pitch is each speaker's own.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.predict_mels")

from melforge.common.cli.training import load, prediction_parser
from melforge.common.training.corpus.dataset import save_array
from melforge.common.training.corpus.predict import predict_mels
from melforge.fastpitch.model import FastPitch
from melforge.fastpitch.train import teach
from recipes.kokoro.acoustic import measure_by_speaker

BATCH = 64


def main() -> None:
    args = prediction_parser("recipes.kokoro.predict_mels", __doc__ or "", ".npy").parse_args()
    network, corpus = load(args, "fastpitch", FastPitch)
    measure_by_speaker(corpus)
    mels = predict_mels(network, corpus, BATCH, teach)
    save_array(args.out, mels.cpu().numpy())
    off = (mels.float() - corpus.mel.float()).abs().mean().item()
    print(f"{args.out}: {mels.size(1)} frames, {off:.3f} from the true ones in the mean")
