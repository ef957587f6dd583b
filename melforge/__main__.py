"""The command `melforge`, also python -m melforge: the functions and options of scripts/*.py."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from melforge import __version__
from melforge.common.cli import fail, run_command, tell
from melforge.common.errors import unknown

# Of each command its module in melforge.common, or the commands behind its name, and a line about it.
VOICE_COMMANDS: dict[str, tuple[Any, str]] = {
    "clone": ("cli.voice_clone", "make a voice of recordings: prepare, train, make and check in one"),
    "record": ("cli.voice_record", "record sentences in the browser"),
    "prepare": ("cli.voice_prepare", "make a corpus of recordings, and check them"),
    "train": ("cli.voice_train", "go on training a voice's models on a corpus"),
    "make": ("cli.voice_make", "make a voice of training runs, or of published weights"),
    "check": ("cli.voice_check", "check a voice, or the corpus that one is trained on"),
}
COMMANDS: dict[str, tuple[Any, str]] = {
    "speak": ("cli.speak", "speak text to sound files or standard output"),
    "serve": ("cli.serve", "serve speech over HTTP, as OpenAI's audio API"),
    "wyoming": ("cli.wyoming", "serve speech by the Wyoming protocol, as Home Assistant asks for it"),
    "mcp": ("cli.mcp", "tools for language models: speak, transcribe, list voices (MCP)"),
    "speech-dispatcher": ("cli.speech_dispatcher", "speak for Speech Dispatcher, and so for screen readers"),
    "say": ("cli.say", "have a server speak: play it, or write it to a file"),
    "phonemes": ("cli.phonemes", "show the phonemes of a text, and where they come from"),
    "say-as": ("cli.say_as", "show how words may be said"),
    "triton": ("cli.triton", "write a model repository for NVIDIA's Triton Inference Server"),
    "triton-client": ("cli.triton_client", "have the models in a Triton Inference Server speak"),
    "list": ("cli.list", "list voices, models, backends and what is exported or built"),
    "benchmark": ("cli.benchmark", "measure speed and memory on this machine"),
    "benchmark-server": ("cli.benchmark_server", "measure a server under load"),
    "benchmark-recogniser": ("cli.benchmark_recogniser", "measure a recogniser on this machine"),
    "benchmark-triton": ("cli.benchmark_triton", "measure a Triton Inference Server under load"),
    "verify": ("cli.verify", "compare a backend with PyTorch, layer by layer"),
    "export": ("cli.export", "export models to ONNX and check the graphs"),
    "build": ("cli.build", "build TensorRT engines"),
    "buckets": ("cli.buckets", "propose the lengths of engines for texts"),
    "voice": (VOICE_COMMANDS, "make a voice: of recordings, of training runs, or of published weights"),
    "transcribe": ("cli.transcribe", "write down what is said in sound files, with times and error rates"),
    "check-corpus": ("cli.check_corpus", "list recordings whose audio and text differ"),
    "ear": ("cli.ear", "make an ear of trained or published weights"),
    "copy-synthesis": ("cli.copy_synthesis", "send the mels of sound files through a vocoder"),
    "check-gpu": ("cli.check_gpu", "check TensorRT on this machine's GPU against PyTorch"),
}


def main() -> None:
    run("melforge", COMMANDS, sys.argv[1:])


def run(prefix: str, commands: Mapping[str, tuple[Any, str]], words: Sequence[str]) -> None:
    name, *words = words or [""]
    if name == "help":
        name, *words = (*words, "--help")
    if not name:
        tell_commands(prefix, commands)
        sys.exit(2)
    if name in ("-h", "--help"):
        tell_commands(prefix, commands)
    elif name == "--version":
        tell(f"melforge {__version__}")
    elif name not in commands:
        fail(missing(prefix, commands, name, words))
    elif isinstance(commands[name][0], dict):
        run(f"{prefix} {name}", commands[name][0], words)
    else:
        sys.argv = [f"{prefix} {name}", *words]
        run_command(f"melforge.common.{commands[name][0]}")


def missing(prefix: str, commands: Mapping[str, object], name: str, words: Sequence[str]) -> str:
    """The sentence for a command that is not there; two were called otherwise once."""
    given = (name, *words)
    if commands is VOICE_COMMANDS and name == "check-corpus":
        return f"this command is melforge {shlex.join(given)}"
    if commands is COMMANDS and name in VOICE_COMMANDS:
        return f"this command is melforge voice {shlex.join(given)}"
    if commands is VOICE_COMMANDS and any(word.startswith(("--checkpoint", "--run")) for word in given):
        return f"{prefix} takes a command first: {prefix} make {shlex.join(given)}"
    return unknown("command" if commands is COMMANDS else f"command of {prefix}", name, commands)


def tell_commands(prefix: str, commands: Mapping[str, tuple[Any, str]]) -> None:
    lines = [f"usage: {prefix} COMMAND ...      ({prefix} COMMAND --help shows its options)\n"]
    lines += (f"  {command:<22}{about}" for command, (_, about) in commands.items())
    if commands is COMMANDS:
        lines.append(
            "\n--version prints the version; docs/hparams.md has the options that every command takes"
        )
    tell("\n".join(lines))


if __name__ == "__main__":
    main()
