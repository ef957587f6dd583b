"""Options that several commands share, and what the commands do with them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from melforge.common.cli.option import (
    finite,
    in_argparses_words,
    not_negative,
    positive,
    read_table,
    share,
    threads,
)
from melforge.common.cli.parser import Group, Parser
from melforge.common.cli.run import print_table
from melforge.common.config.deployment import PRECISIONS
from melforge.common.config.typed import located
from melforge.common.errors import InputError
from melforge.common.registry import MODELS
from melforge.common.speech import Controls, control_fields
from melforge.common.stages.choose import KINDS
from melforge.common.text import ACCENTS
from melforge.common.text.phonemes import ALPHABETS

if TYPE_CHECKING:
    from melforge.common.recognition.listener import Listener
    from melforge.common.synthesis.warm_up import Warmed
    from melforge.common.weights.voices import ModelSource

__all__ = ["Parser", "finite", "not_negative", "positive", "share", "threads"]
LISTEN_LIMIT = 0.15
MODEL_OPTIONS = """
models:
  acoustic vocoder voice checkpoint backend precision decoder device threads
"""
FORMS = {model.name: model.decoders for model in MODELS.values() if model.decoders}
# The one table of the options that commands share; common/cli/option.py says how to read it.
SHARED = f"""
  --acoustic NAME   acoustic model (default: the voice's)
  --vocoder NAME    vocoder (default: the voice's)
  --voice NAME      name or folder of a voice (default: the shipped one)
  --ear NAME        name or folder of an ear: a recogniser (default: the shipped one)
  --checkpoint FILE...   published weights instead of the voice's, also acoustic=FILE or vocoder=FILE; may
        be repeated
  --backend NAME=onnx   onnx, torch, trt (TensorRT; builds engines that are missing, unless --no-build is
        given) or cuda (CUDA kernels, the fastest), or one for each: acoustic=trt,vocoder=onnx; single stages
        on kernels: trt,decoder_loop=cuda
  --precision {"|".join(PRECISIONS)}   precision of TensorRT engines (default: fp32, or what files say)
  --decoder {"|".join(form for forms in FORMS.values() for form in forms)}   {
    "; ".join(f"{model}: {', '.join(map(' is '.join, forms.items()))}" for model, forms in FORMS.items())
} (default: the model's)
  --device NAME=auto   cpu, cuda or cuda:N (auto: a GPU if there is one)
  --threads THREADS    CPU threads (default: all cores)
  --listen [EAR]    hear what was spoken by this ear (default: the shipped one) and print the word error
        rate; the exit status is 1 where it is above --listen-limit
  --listen-limit SHARE   share of words that may be misheard, from 0 to 1 (default: {LISTEN_LIMIT})
  --batch-size N    utterances at a time
  --phonemes {"|".join(ALPHABETS)}   the text is phonemes of this alphabet, with marks; ARPAbet's words are
        divided by a "|"
  --lexicon FILE    how words are said, in a lexicon.yaml (docs/reading.md); it comes before the voice's own
  --links words|addresses   of a link in Markdown its words are read, or the address too (default: words)
  --accent {"|".join(ACCENTS)}=en-US   of the speakers: American or British words, letters and vowels
  --align corpus|learned=corpus   durations of the corpus, or learned by the model's own aligner first
  --no-check        do not compare exported graphs with PyTorch
  --warm-up         first run every engine once, in every bucket, and print on stderr what it took; TensorRT
        compiles for the GPU then and keeps the result beside the engine
"""


def control_rows() -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The fields of Controls as options."""
    for name, (kind, about, default) in control_fields().items():
        how: dict[str, Any] = {"action": "store_true"}
        if kind is not bool:
            how = {"type": kind, "default": default, "metavar": about.unit or None}
        yield (f"--{(about.negated or name).replace('_', '-')}",), {**how, "help": about.help}


ROWS = {
    names[-1][2:]: (names, how)
    for names, how in (
        *(in_argparses_words(words, about) for _, words, about in read_table(SHARED)),
        *control_rows(),
    )
}
CONTROLS = f"""
how to speak:
  {" ".join(names[0][2:] for names, _ in control_rows())}
"""


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


def make_parser(table: str, **how: Any) -> Parser:
    """A parser of the table's options; `how` it is made besides."""
    parser = Parser(**how)
    add_table(parser, table)
    return parser


def add_table(parser: Group, table: str) -> None:
    """Adds the options of a table. A row of names alone is of shared options, `--name   help` is such a one
    with other words.
    """
    for title, words, about in read_table(table):
        group = parser.add_argument_group(title) if title else parser
        if not about:
            add_options(group, *words.split())
        elif words[2:] in ROWS:
            add_options(group, words[2:], **{words[2:].replace("-", "_"): about})
        else:
            names, how = in_argparses_words(words, about)
            group.add_argument(*names, **how)


def add_options(parser: Group, *options: str, default: str | None = None, **helps: str) -> None:
    """Adds shared options; `helps` are the words of this command for some of them, `default` that of all."""
    for name in options:
        names, how = ROWS[name]
        changed = {"help": helps.get(name.replace("-", "_"), how["help"])}
        parser.add_argument(*names, **how | changed | ({} if default is None else {"default": default}))


def add_decoder_argument(parser: Group, default: str = "the model's") -> None:
    add_options(parser, "decoder", decoder=str(ROWS["decoder"][1]["help"]).replace("the model's", default))


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
    how = {name: getattr(args, name) for name in (*same, "deployments", "overrides", "lexicon")}
    return {"checkpoints": args.checkpoint, **how}


def load_from(args: argparse.Namespace):
    """The models that the options ask for, as a `TextToSpeech`."""
    from melforge.common.runner import TextToSpeech

    return TextToSpeech.load(**load_options(args))


def read_sources(args: argparse.Namespace, names: Collection[str], every: bool) -> list[ModelSource]:
    """The models asked for by name; without names those of checkpoints, an ear, or a voice: of that `every`
    one, or its pair.
    """
    from melforge.common.synthesis.loading import choose_sources
    from melforge.common.weights.ears import load_ear, stored_source
    from melforge.common.weights.published import read_checkpoints
    from melforge.common.weights.voices import load_voice

    published = {source.model: source for source in read_checkpoints(args.checkpoint, names)}
    if names := names or list(published):
        return [published.get(name) or stored_source(name, args.voice, args.ear) for name in names]
    if args.ear:
        return [load_ear(args.ear).only]
    if every:
        return list(load_voice(args.voice).models.values())
    return list(choose_sources(dict.fromkeys(KINDS), args.voice).values())


def listener_from(args: argparse.Namespace) -> Listener | None:
    """What hears the speech, where `--listen` asks for it."""
    if args.listen is None:
        if args.listen_limit is not None:
            raise InputError("--listen-limit is for --listen: give that too, or leave the limit out")
        return None
    from melforge.common.recognition.listener import Listener
    from melforge.common.recognition.loading import load_recogniser
    from melforge.common.weights.ears import list_ears, no_ear

    if not args.listen and not list_ears():
        raise InputError(f"{no_ear()}: give one with --listen FOLDER")
    return Listener(load_recogniser(args.listen or None, threads=args.threads), listen_limit(args))


def listen_limit(args: argparse.Namespace) -> float:
    return LISTEN_LIMIT if args.listen_limit is None else args.listen_limit


def warm_up(tts, *batch_sizes: int) -> None:
    """Warms up and prints what it took, on stderr."""
    from melforge.common.synthesis.warm_up import HEADINGS

    rows = [one.row for one in with_progress(tts.warm_up(*batch_sizes))]
    print_table(HEADINGS, rows, file=sys.stderr)


def with_progress(warmed: Iterable[Warmed]) -> Iterable[Warmed]:
    """Counts the runs on a terminal."""
    from tqdm import tqdm

    return tqdm(warmed, desc="warming up", unit=" runs", leave=False, disable=None)
