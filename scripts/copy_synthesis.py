"""Copy synthesis: the mel of each sound file through a vocoder, to judge the vocoder alone."""

from __future__ import annotations

from pathlib import Path

from common.cli import options, run


def main() -> int:
    parser = options.Parser(description=__doc__, kinds=("vocoder",))
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="FILE", help="sound files, at any sampling rate"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the copies go"
    )
    parser.add_argument("--vocoder", help="model (default: the voice's)")
    options.add_weights_arguments(parser, "a vocoder's weights instead of the voice's, trained or published")
    parser.add_argument("--backend", default="onnx", help="onnx or torch (default: onnx)")
    parser.add_argument(
        "--denoising-strength", type=float, metavar="X", help="of the vocoder's hum (default: the voice's)"
    )
    parser.add_argument("--sigma", type=float, metavar="X", help="waveglow: spread of its noise")
    parser.add_argument("--seed", type=int, default=0, help="of that noise (default: 0)")
    args = parser.parse_args()

    import numpy as np

    from common.audio.mel import mel_spectrogram
    from common.audio.sound_files import read_audio, resample, write_audio
    from common.speech import Controls
    from common.synthesis.loading import choose_sources, make_driver

    wanted = {"acoustic": None, "vocoder": args.vocoder}
    source = choose_sources(wanted, args.voice, args.checkpoint, args.overrides)["vocoder"]
    try:
        controls = Controls(denoising_strength=args.denoising_strength, sigma=args.sigma, seed=args.seed)
    except ValueError as error:
        raise options.with_places(error, args) from None
    driver = make_driver(source, args.backend, deployment=args.deployments.get(source.model))
    args.output.mkdir(parents=True, exist_ok=True)
    for path in args.inputs:
        audio, rate = read_audio(path)
        mel = mel_spectrogram(resample(audio, rate, source.mel.sampling_rate), source.mel)
        lengths = np.array([mel.shape[-1]])
        copy = driver.vocode(mel[None].astype(np.float32), lengths, controls)[0]
        write_audio(args.output / f"{path.stem}.wav", copy, source.mel.sampling_rate)
    print(f"{args.output}: {len(args.inputs)} files")
    return 0


if __name__ == "__main__":
    run.run(main)
