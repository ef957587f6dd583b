"""The command `melforge`, and how each of scripts/ starts. It imports only what Python has."""

from __future__ import annotations

import sys
from typing import NoReturn

COMMANDS = {
    "speak": ("common.cli.speak", "speak text to sound files or standard output"),
    "list": ("common.cli.list", "list voices, models, backends and what is exported or built"),
    "benchmark": ("common.cli.benchmark", "measure speed and memory on this machine"),
    "verify": ("common.cli.verify", "compare a backend with PyTorch, layer by layer"),
    "export": ("common.cli.export", "export models to ONNX and check the graphs"),
    "build": ("common.cli.build", "build TensorRT engines"),
    "buckets": ("common.cli.buckets", "propose the lengths of engines for texts"),
    "voice": ("common.training.voice", "make a voice of trained or published weights"),
    "copy-synthesis": ("common.cli.copy_synthesis", "send the mels of sound files through a vocoder"),
    "prepare-corpus": ("common.training.corpus.command", "make a corpus to train on"),
    "check-gpu": ("common.cli.check_gpu", "check TensorRT on this machine's GPU against PyTorch"),
}


def main() -> None:
    """`melforge COMMAND ...`: the same functions and options as scripts/*.py."""
    import melforge

    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print("usage: melforge COMMAND ...      (melforge COMMAND --help shows its options)\n")
        print("\n".join(f"  {command:<16}{about}" for command, (_, about) in COMMANDS.items()))
    elif name == "--version":
        print(f"melforge {melforge.__version__}")
    elif name in COMMANDS:
        sys.argv = [f"melforge {name}", *sys.argv[2:]]
        run(COMMANDS[name][0])
    else:
        from common.errors import unknown

        _fail(unknown("command", name, COMMANDS))


def run(module: str) -> None:
    """Runs the module's `main` on sys.argv and exits; without an install, a sentence says how to make one."""
    try:
        from common.cli.run import run_command
    except ModuleNotFoundError as error:
        from common.errors import install_advice

        _fail(install_advice(str(error.name)))
    run_command(module)


def _fail(sentence: str) -> NoReturn:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)
