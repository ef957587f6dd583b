"""What the commands share: arguments with one meaning everywhere, tables, and errors in a line or two."""

from __future__ import annotations

import argparse
import sys

from common.cli.parser import Parser, with_places
from common.cli.run import print_table
from common.config.deployment import PRECISIONS
from common.registry import decoder_forms, names


def add_model_arguments(parser: Parser) -> None:
    """Which models run, and on what; their files are then among what `--hparam` takes."""
    parser.kinds = ("acoustic", "vocoder")
    group = parser.add_argument_group("models")
    group.add_argument("--acoustic", metavar="NAME", help="acoustic model (default: the voice's)")
    group.add_argument("--vocoder", metavar="NAME", help="vocoder (default: the voice's)")
    add_weights_arguments(group)
    group.add_argument(
        "--backend",
        default="onnx",
        metavar="NAME",
        help="onnx, torch or trt (TensorRT), or one for each: acoustic=trt,vocoder=onnx; stages with a CUDA "
        "kernel on that: trt,decoder_loop=cuda (default: onnx)",
    )
    add_precision_argument(group)
    add_decoder_argument(group)
    group.add_argument(
        "--device", default="auto", help="cpu, cuda or cuda:N (default: a GPU if there is one)"
    )
    group.add_argument("--threads", type=positive, metavar="N", help="CPU threads (default: all cores)")


FILES_HELP = "published weights instead of the voice's, also acoustic=FILE or vocoder=FILE; may be repeated"


def add_weights_arguments(parser: argparse._ActionsContainer, files: str = FILES_HELP) -> None:
    """A voice, and files in the place of its weights."""
    parser.add_argument(
        "--voice", metavar="NAME", help="name or folder of a voice (default: the shipped one)"
    )
    parser.add_argument("--checkpoint", action="append", default=[], metavar="FILE", help=files)


def add_decoder_argument(parser: argparse._ActionsContainer, default: str = "the model's") -> None:
    parser.add_argument(
        "--decoder",
        choices=tuple(decoder_forms(*names())),
        help="tacotron2: all steps in one graph (loop), or one step a call (steps); fastspeech: two stages "
        "of any length (dynamic), one for buckets (fixed), or two with kernels between them (kernels) "
        f"(default: {default})",
    )


def add_precision_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="of the engines, for the backend trt (default: fp32, or what use_fp16 says)",
    )


def add_control_arguments(parser: Parser) -> None:
    """How to speak: the fields of Controls. One that the chosen models don't know is an error."""
    group = parser.add_argument_group("how to speak")
    group.add_argument("--pace", type=float, default=1.0, help="speed, 2 is twice as fast (default: 1)")
    group.add_argument(
        "--pitch-shift", type=float, default=0.0, metavar="HZ", help="raise the pitch by so much"
    )
    group.add_argument(
        "--pitch-amplify", type=float, default=1.0, metavar="FACTOR", help="livelier above 1, flatter below"
    )
    group.add_argument("--pitch-flatten", action="store_true", help="one pitch throughout")
    group.add_argument("--pitch-invert", action="store_true", help="mirror the pitch at its mean")
    group.add_argument(
        "--denoising-strength",
        type=float,
        metavar="X",
        help="of the vocoder's hum (default: the voice's; 0: off)",
    )
    group.add_argument(
        "--sharpness",
        type=float,
        metavar="X",
        help="tacotron2: contrast between neighbouring mel bands, 0 adds none (default: the voice's)",
    )
    group.add_argument(
        "--sigma", type=float, metavar="X", help="waveglow: spread of its noise (default: the voice's)"
    )
    group.add_argument(
        "--gate-threshold",
        type=float,
        metavar="P",
        help="tacotron2: how certain it must be to stop, 0 to 1 (default: the model's)",
    )
    group.add_argument(
        "--step-limit",
        type=int,
        metavar="N",
        help="tacotron2: decoder steps for an utterance at most (default: the model's)",
    )
    group.add_argument(
        "--no-dropout", action="store_true", help="tacotron2: the same speech for every seed, but flatter"
    )
    group.add_argument("--volume", type=float, default=1.0, help="times the amplitude (default: 1)")
    group.add_argument("--seed", type=int, default=0, help="for models that draw noise (default: 0)")
    group.add_argument("--speaker", type=int, default=0, help="id of the speaker (default: 0)")


def controls_from(args: argparse.Namespace):
    from common.speech import Controls

    fields = (
        "pace",
        "pitch_shift",
        "pitch_amplify",
        "pitch_flatten",
        "pitch_invert",
        "denoising_strength",
        "sharpness",
        "sigma",
        "gate_threshold",
        "step_limit",
        "volume",
        "seed",
        "speaker",
    )
    try:
        return Controls(**{name: getattr(args, name) for name in fields}, dropout=not args.no_dropout)
    except ValueError as error:
        raise with_places(error, args) from None


def load_from(args: argparse.Namespace):
    from common.runner import TextToSpeech

    return TextToSpeech.load(
        acoustic=args.acoustic,
        vocoder=args.vocoder,
        voice=args.voice,
        checkpoints=args.checkpoint,
        backend=args.backend,
        device=args.device,
        threads=args.threads,
        decoder=args.decoder,
        deployments=args.deployments,
        overrides=args.overrides,
    )


WARM_UP_HELP = (
    "first run every engine once, in every bucket, and print on stderr what it took; "
    "TensorRT compiles for the GPU then and keeps the result beside the engine"
)


def warm_up(tts, batch_size: int | None = None) -> None:
    """Warms up and prints what it took."""
    from common.synthesis.warm_up import HEADINGS

    print_table(HEADINGS, [warmed.row for warmed in tts.warm_up(batch_size)], file=sys.stderr)


def positive(text: str) -> int:
    return _at_least(1, text)


def not_negative(text: str) -> int:
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, not {text!r}")
    return int(text)
