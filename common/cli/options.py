"""Options that several commands share, and what the commands do with them."""

from __future__ import annotations

import argparse
import functools
import math
import shlex
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from melforge.common.cli.parser import Group, Parser
from melforge.common.cli.run import print_table
from melforge.common.config.deployment import MOST_THREADS, PRECISIONS
from melforge.common.config.typed import located
from melforge.common.errors import InputError
from melforge.common.registry import MODELS
from melforge.common.speech import Controls, control_fields

if TYPE_CHECKING:
    from melforge.common.recognition.listener import Listener
    from melforge.common.synthesis.warm_up import Warmed

LISTEN_LIMIT = 0.15


def positive(text: str, least: int = 1) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, not {text!r}")
    return int(text)


def finite(text: str) -> float:
    """A number, neither NaN nor infinite."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"must be a number, such as 1.5, not {text!r}")
    return number


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"must be a share from 0 to 1, such as 0.3 for 30 %, not {text!r}")
    return number


def threads(text: str) -> int:
    """With tens of thousands, which the system starts one by one, a command would not end."""
    number = positive(text)
    if number > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"must be {MOST_THREADS} at most, not {number}")
    return number


not_negative = functools.partial(positive, least=0)
# The one table of shared options: argparse's keywords by name.
SHARED: dict[str, dict[str, Any]] = {
    "acoustic": {"metavar": "NAME", "help": "acoustic model (default: the voice's)"},
    "vocoder": {"metavar": "NAME", "help": "vocoder (default: the voice's)"},
    "voice": {"metavar": "NAME", "help": "name or folder of a voice (default: the shipped one)"},
    "ear": {
        "metavar": "NAME",
        "help": "name or folder of an ear, which a recogniser hears with (default: the shipped one)",
    },
    "checkpoint": {
        **{"action": "append", "default": [], "metavar": "FILE"},
        "help": "published weights instead of the voice's, also acoustic=FILE or vocoder=FILE; "
        "may be repeated",
    },
    "backend": {
        "default": "onnx",
        "metavar": "NAME",
        "help": "onnx, torch, trt (TensorRT; builds engines that are missing, unless --no-build is given) "
        "or cuda (CUDA kernels, the fastest), or one for each: "
        "acoustic=trt,vocoder=onnx; single stages on kernels: trt,decoder_loop=cuda (default: onnx)",
    },
    "precision": {
        "choices": PRECISIONS,
        "help": "of the engines, for the backend trt (default: fp32, or what files say)",
    },
    "decoder": {
        "choices": [form for model in MODELS.values() for form in model.decoders],
        "help": "; ".join(
            f"{model.name}: {', '.join(f'{form} ({what})' for form, what in model.decoders.items())}"
            for model in MODELS.values()
            if model.decoders
        )
        + " (default: the model's)",
    },
    "device": {"default": "auto", "help": "cpu, cuda or cuda:N (default: a GPU if there is one)"},
    "threads": {"type": threads, "metavar": "N", "help": "CPU threads (default: all cores)"},
    "listen": {
        **{"nargs": "?", "const": "", "metavar": "EAR"},
        "help": "hear what was spoken by this ear (default: the shipped one) and print the word error rate; "
        "the exit status is 1 where it is above --listen-limit",
    },
    "listen-limit": {
        **{"type": share, "metavar": "SHARE"},
        "help": f"of words that may be heard as others, from 0 to 1 (default: {LISTEN_LIMIT})",
    },
    "batch-size": {"type": positive, "metavar": "N", "help": "utterances at a time"},
    "align": {
        **{"choices": ("corpus", "learned"), "default": "corpus"},
        "help": "fastpitch: durations of the corpus, or learned by its own aligner first (default: corpus)",
    },
    "no-check": {
        "action": "store_true",
        "help": "do not compare exported graphs with PyTorch; their notes in the cache say so",
    },
    "warm-up": {
        "action": "store_true",
        "help": "first run every engine once, in every bucket, and print on stderr what it took; "
        "TensorRT compiles for the GPU then and keeps the result beside the engine",
    },
}


def numbers(option: str, text: str | None, whole: bool = False) -> list[Any]:
    """The numbers of an option's value, "1,4,8"; none where it is not given."""
    found = []
    for word in text.split(",") if text else ():
        try:
            number = int(word) if whole else float(word)
        except ValueError:
            number = 0
        if not 0 < number < 1e6:
            raise InputError(
                f"{option} takes {'whole ' if whole else ''}positive numbers with commas, not {word!r}"
            )
        found.append(number)
    return found


def add_options(parser: Group, *options: str, default: str | None = None, **helps: str) -> None:
    """Adds shared options; `helps` are the words of this command for some of them, `default` that of all."""
    for name in options:
        how = dict(SHARED[name])
        if default is not None:
            how["default"] = default
        how["help"] = helps.get(name.replace("-", "_"), how["help"])
        parser.add_argument(f"--{name}", **how)


def add_model_arguments(parser: Parser) -> None:
    """Which models run, and on what; their files are then among what `--hparam` takes."""
    parser.kinds = ("acoustic", "vocoder")
    group = parser.add_argument_group("models")
    add_options(group, "acoustic", "vocoder", "voice", "checkpoint", "backend", "precision", "decoder")
    add_options(group, "device", "threads")


def add_decoder_argument(parser: Group, default: str = "the model's") -> None:
    add_options(parser, "decoder", decoder=SHARED["decoder"]["help"].replace("the model's", default))


def add_control_arguments(parser: Group, *chosen: str) -> None:
    """The fields of Controls as options, or those chosen; one that the models do not have is an error."""
    group = parser if chosen else parser.add_argument_group("how to speak")
    for name, (kind, about, default) in control_fields().items():
        if chosen and name not in chosen:
            continue
        how: dict[str, Any] = {"type": kind, "default": default, "metavar": about.unit or None}
        if kind is bool:
            how = {"action": "store_true"}
        group.add_argument(f"--{(about.negated or name).replace('_', '-')}", help=about.help, **how)


def controls_from(args: argparse.Namespace) -> Controls:
    """The controls that the options ask for; those that the command does not have keep their defaults."""
    given, values = vars(args), {}
    for name, (_, about, _) in control_fields().items():
        if (word := about.negated or name) in given:
            values[name] = not given[word] if about.negated else given[word]
    try:
        return Controls(**values)
    except InputError as error:
        raise located(error, args.places) from None


def load_options(args: argparse.Namespace) -> dict[str, Any]:
    """What the options ask for, as `TextToSpeech.load` takes it."""
    same = ("acoustic", "vocoder", "voice", "backend", "device", "threads", "decoder")
    how = {name: getattr(args, name) for name in (*same, "deployments", "overrides")}
    return {"checkpoints": args.checkpoint, **how}


def load_from(args: argparse.Namespace):
    """The models that the options ask for, as a `TextToSpeech`."""
    from melforge.common.runner import TextToSpeech

    return TextToSpeech.load(**load_options(args))


def listener_from(args: argparse.Namespace) -> Listener | None:
    """What hears the speech, where `--listen` asks for it."""
    if args.listen is None:
        if args.listen_limit is not None:
            raise InputError("--listen-limit is for --listen: give that too, or leave the limit out")
        return None
    from melforge.common.recognition.listener import Listener
    from melforge.common.recognition.loading import load_recogniser
    from melforge.common.weights.ears import ears_folder, list_ears

    if not args.listen and not list_ears():
        raise InputError(f"there is no ear in {ears_folder()}: give one with --listen FOLDER")
    return Listener(load_recogniser(args.listen or None, threads=args.threads), listen_limit(args))


def listen_limit(args: argparse.Namespace) -> float:
    return LISTEN_LIMIT if args.listen_limit is None else args.listen_limit


def tell_not_checked(source, lines: list[str]) -> None:
    """Says on stderr at which sizes graphs in the cache were not compared with PyTorch, and how to do it."""
    if lines:
        words = shlex.join(["melforge", "export", *source.words, "--check"])
        print(f"not compared with PyTorch ({words} does it):", *lines, sep="\n  ", file=sys.stderr)


def warm_up(tts, *batch_sizes: int) -> None:
    """Warms up and prints what it took, on stderr."""
    from melforge.common.synthesis.warm_up import HEADINGS

    rows = [one.row for one in with_progress(tts.warm_up(*batch_sizes))]
    print_table(HEADINGS, rows, file=sys.stderr)


def with_progress(warmed: Iterable[Warmed]) -> Iterable[Warmed]:
    """Counts the runs on a terminal."""
    from tqdm import tqdm

    return tqdm(warmed, desc="warming up", unit=" runs", leave=False, disable=None)
