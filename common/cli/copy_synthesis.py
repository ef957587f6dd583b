"""Copy synthesis: the mel of each sound file through a vocoder, to judge the vocoder alone."""

from collections.abc import Sequence
from pathlib import Path

from common.cli import options


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(description=__doc__, kinds=("vocoder",))
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="FILE", help="sound files, at any sampling rate"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the copies go"
    )
    files = "a vocoder's weights instead of the voice's, trained or published"
    backends = "onnx or torch (default: onnx)"
    names = ("vocoder", "voice", "checkpoint", "backend")
    options.add_options(parser, *names, checkpoint=files, backend=backends)
    options.add_control_arguments(parser, "denoising_strength", "sigma", "seed")
    args = parser.parse_args(argv)

    import numpy as np

    from common.audio.mel import mel_spectrogram
    from common.audio.sound_files import read_audio, resample, write_audio
    from common.synthesis.loading import choose_sources, make_driver

    wanted = {"acoustic": None, "vocoder": args.vocoder}
    source = choose_sources(wanted, args.voice, args.checkpoint, args.overrides)["vocoder"]
    controls = options.controls_from(args)
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
