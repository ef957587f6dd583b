"""Copy synthesis: the mel of each sound file through a vocoder, to judge the vocoder alone."""

from collections.abc import Sequence
from pathlib import Path

from melforge.common.cli import options
from melforge.common.errors import InputError, counted
from melforge.common.files import require_writable_folder

OPTIONS = """
  inputs PATH...       sound files, at any sampling rate
  -o, --output DIR!    where the copies go
  vocoder voice
  --checkpoint         a vocoder's weights instead of the voice's, trained or published
  --backend            onnx or torch (default: onnx)
  denoising-strength sigma seed
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = options.make_parser(OPTIONS, description=__doc__, kinds=("vocoder",)).parse_args(argv)
    copies = name_copies(args.inputs, args.output)
    require_writable_folder(args.output)

    import numpy as np
    from tqdm import tqdm

    from melforge.common.audio.mel import mel_spectrogram
    from melforge.common.audio.sound_files import read_audio, resample, write_audio
    from melforge.common.synthesis.loading import choose_sources, make_driver
    from melforge.common.synthesis.vocoder import Vocoder

    source = choose_sources({"vocoder": args.vocoder}, args.voice, args.checkpoint, args.overrides)["vocoder"]
    controls = options.controls_from(args)
    driver = make_driver(source, args.backend, deployment=args.deployments.get(source.model))
    assert isinstance(driver, Vocoder)
    for path, target in tqdm(copies.items(), "copying", unit=" files", leave=False, disable=None):
        audio = resample(*read_audio(path), source.mel.sampling_rate)
        try:
            mel = mel_spectrogram(audio, source.mel)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        lengths = np.array([mel.shape[-1]])
        copy = driver.vocode(mel[None].astype(np.float32), lengths, controls)[0]
        args.output.mkdir(parents=True, exist_ok=True)
        write_audio(target, copy, source.mel.sampling_rate)
    print(f"{args.output}: {counted(len(copies), 'file')}")
    return 0


def name_copies(inputs: Sequence[Path], folder: Path) -> dict[Path, Path]:
    """Each file's copy; an InputError where one would take the place of a file or of another copy."""
    copies = {path: folder / f"{path.stem}.wav" for path in inputs}
    given, taken = {path.resolve() for path in inputs}, dict[Path, Path]()
    for path, copy in copies.items():
        if copy.resolve() in given:
            raise InputError(f"{copy} is one of the files to copy: give another folder to --output")
        if (other := taken.setdefault(copy, path)) != path:
            raise InputError(f"{other} and {path} would both become {copy}: copy them to different folders")
    return copies
