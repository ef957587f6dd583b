"""The commands in the documents: each exists with its options, and those that need nothing special run."""

import functools
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from melforge.__main__ import COMMANDS
from melforge.common.config.aliases import own_name
from melforge.common.config.deployment import Deployment

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "recipes/**/README.md")
STARTS = re.compile(r"(?:\w+=\S* )*(?:\.venv/bin/)?(?:python3?|melforge) ")
# What a command needs that a clone with `.[dev]` does not have, or what it takes. The others are run.
NEEDS = {
    "a GPU or TensorRT": r"cuda|check[-_]gpu|torchrun|build_trt|scripts/build\.py|melforge build|_plugins\."
    r"|onnx-provider|trt_fp16|fastpitch/trt\.yaml|--backend trt|h200",
    "weights, recordings or a corpus": r"\b(FILE|DIR|FOLDER|NAME|RUN|WEIGHTS)\b|\.pt\b|corpus|recordings"
    r"|runs/|dev-clean|recipes\.|\./two",
    "a server, or others' programs": r"melforge (serve|say|wyoming|mcp|triton-client)|curl|docker|helm"
    r"|(probe|watch)\.py|ray",
    "an install": r"\bpip\b|-m venv|parquet|sounddevice",
    "minutes": r"benchmark|pytest|verify|melforge export|scripts/export|hifigan-onnx|--write|\.train\b"
    r"|link_package",
}


@dataclass(frozen=True)
class Command:
    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"

    @property
    def words(self) -> list[str]:
        """The words of the last of our programs in it, without pipes and redirections."""
        words = shlex.split(re.sub(r"\$\(.*?\)", "x", self.text), comments=True)
        starts = [at for at, word in enumerate(words) if re.fullmatch(r"(.*/)?(python3?|melforge)", word)]
        words = words[starts[-1] :]
        ends = (at for at, word in enumerate(words) if word in ("|", ">", "<", "&&", "||", ";"))
        return words[: next(ends, len(words))]

    @property
    def need(self) -> str | None:
        return next((need for need, pattern in NEEDS.items() if re.search(pattern, self.text)), None)


def commands_of(page: Path) -> Iterator[Command]:
    """In fenced blocks of bash, and in indented ones; a line that ends in a backslash goes on."""
    fence, text = None, ""
    for number, row in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if row.startswith("```"):
            fence = row[3:] if fence is None else None
        elif fence == "bash" or (fence is None and row.startswith("    ")):
            text += row.strip().removesuffix("\\")
            if not row.endswith("\\"):
                if STARTS.match(text):
                    yield Command(str(page.relative_to(ROOT)), number, text)
                text = ""


ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
KEYS = {field.name for field in fields(Deployment)}  # of files, and options too, which --help does not list
EVERY = [command for pattern in PAGES for page in sorted(ROOT.glob(pattern)) for command in commands_of(page)]


def module_of(words: list[str]) -> str | None:
    """What runs: a module's name, or the path of a script. None: nothing of ours."""
    program, *rest = words
    if program.endswith("melforge"):
        return "melforge"
    if rest[0] == "-m":
        return rest[1] if rest[1].partition(".")[0] in ("melforge", "recipes") else None
    return rest[0] if rest[0].startswith(("scripts/", "examples/")) else None


@functools.cache
def options_of(module: str, command: tuple[str, ...]) -> frozenset[str]:
    """What --help lists."""
    run = runpy.run_path if module.endswith(".py") else runpy.run_module
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(warnings, "showwarning", warnings.showwarning)
        patch.setattr(sys, "argv", [module, *command, "--help"])
        patch.syspath_prepend(ROOT / "scripts")
        patch.chdir(ROOT)
        with pytest.raises(SystemExit) as stopped:
            run(module, run_name="__main__")
    assert not stopped.value.code, printed.getvalue()
    return frozenset(re.findall(r"--[a-z][\w-]*", printed.getvalue()))


def test_there_are_commands_in_the_documents():
    assert len(EVERY) > 100 and len([command for command in EVERY if command.need is None]) > 20


@pytest.mark.parametrize("page", sorted({command.page for command in EVERY}))
def test_every_command_of_the_documents_exists(page):
    for command in (one for one in EVERY if one.page == page and "..." not in one.words):
        words, module = command.words, module_of(command.words)
        if module == "melforge" and not words[1].startswith("-"):
            assert words[1] in COMMANDS, command
            if isinstance(COMMANDS[words[1]][0], dict):
                assert words[2] in COMMANDS[words[1]][0], command
        elif module not in (None, "melforge"):
            path = module.removeprefix("melforge.").removesuffix(".py").replace(".", "/")
            assert (ROOT / f"{path}.py").exists(), command


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({command.page for command in EVERY}))
def test_every_option_of_the_documents_is_one_of_its_command(page):
    for command in (one for one in EVERY if one.page == page):
        words, module = command.words, module_of(command.words)
        options = {word.partition("=")[0].replace("_", "-") for word in words if re.match(r"--[a-z]", word)}
        if module is None or module.startswith("examples/") or not options:
            continue
        names = () if module != "melforge" else words[1:3] if words[1] == "voice" else words[1:2]
        asked = {own_name(option[2:].replace("-", "_")) for option in options}
        listed = {option[2:].replace("-", "_") for option in options_of(module, tuple(names))} | KEYS
        unknown = asked - listed
        assert not unknown, f"{command}: {unknown}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A reader's checkout, whose environment is activated."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("scripts", "examples", "hparams", "docs", "voices", "ears", "tests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "bin").mkdir()
    for name, program in {
        "python": f'exec {sys.executable} "$@"',
        "melforge": f'exec {sys.executable} -m melforge "$@"',
        "aplay": "exec cat >/dev/null",
    }.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{program}\n")
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({one.page for one in EVERY if one.need is None}))
def test_commands_that_need_nothing_run_as_they_stand(page, folder):
    environment = ENVIRONMENT | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    if not (folder / "speech.wav").exists():  # of the README's first command, which installs too
        subprocess.run(["melforge", "speak", "Hello there."], cwd=folder, env=environment, check=True)
    for command in (one for one in EVERY if one.page == page and one.need is None):
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command.text.replace(".venv/bin/", "")],
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
        )
        heard = "--expect" in command.text or "--listen-limit" in command.text  # 1: it was another sentence
        assert result.returncode in ((0, 1) if heard else (0,)), f"{command}\n{result.stderr}"
