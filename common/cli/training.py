"""The command lines of `python -m melforge.<model>.train` and of what predicts by trained weights."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch.nn import Module

from melforge.common.audio.contract import MelContract
from melforge.common.cli.options import not_negative, positive
from melforge.common.cli.parser import Parser
from melforge.common.registry import get_model
from melforge.common.training.corpus.batches import Utterances
from melforge.common.training.corpus.predict import Predict, load_network, predict_mels
from melforge.common.training.loop import Network, RunSettings, TrainingPlan, pick_device
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import load_voice

CORPUS: dict[str, Any] = {"type": Path, "required": True, "help": "folder of a prepared corpus"}
OUT: dict[str, Any] = {"dest": "out", "type": Path, "required": True}
DEVICE: dict[str, Any] = {"default": "auto", "help": "cpu or cuda (default: a GPU if there is one)"}


def recipe_parser(model: str, recipe: type) -> Parser:
    """The options of every recipe; `built`: configuration, mel contract and recipe."""
    parser = Parser(
        description=f"Trains {model} on a corpus.",
        prog=f"python -m melforge.{model}.train",
        classes=(get_model(model).config_class, MelContract, recipe),
        model=model,
        hparam=Path(f"hparams/{model}/train.yaml"),
    )
    option = parser.add_argument
    option("--corpus", **CORPUS)
    option("-o", "--output", **OUT, help="run folder: last.pt, weights.safetensors, losses")
    option("--steps", type=positive, help="stop after so many steps")
    option("--minutes", type=float, help="stop after so many minutes")
    option("--resume", type=Path, help="checkpoint to continue (its schedule too)")
    option("--init", type=Path, help="checkpoint whose networks start a new run")
    parser.exclude("resume", "init")
    option("--save-minutes", type=float, default=2.0, help="minutes between checkpoints (default 2)")
    option("--seed", type=not_negative, default=0, help="of the weights and of the batches (default 0)")
    option("--device", **DEVICE)
    return parser


def vocoder_parser(model: str, recipe: type) -> Parser:
    parser = recipe_parser(model, recipe)
    parser.add_argument("--mels", type=Path, nargs="*", default=[], help="predicted mels to train on too")
    return parser


def mels_option(parser: Parser) -> None:
    parser.add_argument("--mels", type=Path, help="mels to learn instead of the corpus's own (.npy)")


def durations_option(parser: Parser) -> None:
    parser.add_argument("--durations", type=Path, help="durations instead of the corpus's own (.npy)")


def parse_recipe(parser: Parser) -> tuple[argparse.Namespace, RunSettings, TrainingPlan]:
    """The command line of a recipe: its own options, those of every run, and the recipe's values."""
    args = parser.parse_args()
    settings = RunSettings(**{field.name: getattr(args, field.name) for field in fields(RunSettings)})
    return args, settings, TrainingPlan(*args.built)


def prediction_parser(prog: str, description: str, out: str) -> Parser:
    """Which weights run over which corpus, and what is written."""
    parser = Parser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--weights", type=Path, help="weights.safetensors of a training run")
    parser.add_argument("--voice", help="a voice instead, by name or folder")
    parser.exclude("weights", "voice", required=True)
    parser.add_argument("--corpus", **CORPUS)
    parser.add_argument("-o", "--output", **OUT, help=f"the {out} file to write")
    parser.add_argument("--device", **DEVICE)
    return parser


def load(args: argparse.Namespace, model: str, kind: type[Network]) -> tuple[Network, Utterances]:
    """The network and the corpus that the options of `prediction_parser` name."""
    device = pick_device(args.device)
    source = load_voice(args.voice).source(model) if args.voice else read_checkpoint(args.weights, model)
    return load_network(source, kind, args.corpus, device)


def predict_mels_command(
    model: str, batch_size: int, predict: Predict, freely: Predict | None = None
) -> None:
    """`python -m melforge.<model>.predict_mels`. `freely` predicts what `predict` takes from the corpus, but
    for durations.
    """
    description = "Writes a trained model's mels of a whole corpus, for a vocoder to be fine-tuned on."
    parser = prediction_parser(f"melforge.{model}.predict_mels", description, ".npy")
    if freely:
        what = "pitch and energy as the model predicts them: targets for another model to learn from"
        parser.add_argument("--predicted", action="store_true", help=what)
    args = parser.parse_args()
    network, corpus = load(args, model, Module)
    chosen = freely if freely and args.predicted else predict
    predict_mels(network, corpus, batch_size, chosen, args.out)
