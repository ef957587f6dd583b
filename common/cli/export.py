"""The export command, shared by `melforge export` and every model's export_onnx module."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from melforge.common.cli import options, run
from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError, require_torch
from melforge.common.registry import KIND_WORDS, names

if TYPE_CHECKING:
    from melforge.common.weights.voices import ModelSource

OPTIONS = """
  voice ear
  --checkpoint       published weights instead; their graphs go to the cache ($MELFORGE_CACHE); may be
        repeated
  --check            compare the graphs that are there; write nothing
  no-check
  --force            export what is there already again
files with weights:
  -o, --output DIR   write them there, with a README and a check.py
  --precision        precision of weights and computation (default: fp32)
  --opset N          ONNX operator set, 18 to 22 (default: 20)
  --all              the stages of every form, not only the default's
"""


def main(argv: Sequence[str] | None = None, model: str | None = None) -> int:
    """Exports and checks the graphs of a voice or of published weights; `model` limits it to one model."""
    what = model or "a voice's models"
    parser = options.Parser(
        description=f"Exports {what} to ONNX and compares every graph with PyTorch at several sizes. With "
        "--output: writes files with their weights, for any program that takes ONNX.",
        kinds=tuple(KIND_WORDS),
        choose=lambda args: [one.model for one in sources_of(args, wanted_models(args, model))],
        files_of=model,
    )
    if not model:
        parser.add_argument("model", nargs="?", choices=names(), metavar="MODEL", help="only this one")
    options.add_table(parser, OPTIONS)
    args = parser.parse_args(argv)
    refuse_contradictions(args)

    require_torch("exporting")
    from melforge.common.export.to_onnx import HEADINGS
    from melforge.common.synthesis.loading import override

    sources = sources_of(args, wanted_models(args, model) or args.selected)
    checks = []
    for stored in sources:
        source = override(stored, args.overrides.get(stored.model, {}))
        if args.output:
            write_files(source, args, len(sources) > 1)
        elif args.checkpoint or source.config != stored.config:  # a voice's graphs are of its own config
            checks += export_to_cache(source, args)
        else:
            checks += export_to_voice(source, args)
    if checks:
        run.print_table(HEADINGS, [check.row() for check in checks])
    return 0 if all(check.ok for check in checks) else 1


def sources_of(args: argparse.Namespace, wanted: Collection[str]) -> list[ModelSource]:
    return options.read_sources(args, wanted, every=True)


def export_to_cache(source, args: argparse.Namespace) -> list:
    """Published weights: the checks are of few sizes unless --check asks for all."""
    from melforge.common.export.to_onnx import cached_source, check_source

    source, checks = cached_source(source, sizes="none" if args.check or args.no_check else "few")
    if args.check:
        checks = check_source(source)
    for graph in source.graphs.values():
        print(graph)
    return checks


def export_to_voice(source, args: argparse.Namespace) -> list:
    """A voice's graphs, which lie beside its weights. Those that are there stay unless --force is given."""
    from melforge.common.export.to_onnx import check_source, export_source, source_stages

    # It may have graphs of some forms only.
    stages = [stage for stage in source_stages(source) if stage.name in source.graphs]
    if args.check:
        made, checks = [], check_source(source, stages or None)
    else:
        made = [one for one in stages or source_stages(source) if args.force or not is_there(source, one)]
        folder, sizes = source.weights.parent, "none" if args.no_check else "all"
        source, checks = export_source(source, folder, made, sizes) if made else (source, [])
    names = {stage.name for stage in made}
    for name, graph in source.graphs.items():
        print(graph if args.check or name in names else f"{graph} (there already; --force exports it again)")
    return checks


def is_there(source, stage) -> bool:
    graph = source.graphs.get(stage.name)
    return graph is not None and graph.is_file()


def wanted_models(args: argparse.Namespace, model: str | None) -> list[str]:
    named = model or args.model
    return [named] if named else []


def refuse_contradictions(args: argparse.Namespace) -> None:
    given = {"--precision": args.precision, "--opset": args.opset, "--all": args.all}
    if not args.output and (alone := [name for name, value in given.items() if value]):
        raise InputError(f"{alone[0]} is for files with weights: add --output DIR")
    if args.output and args.check:
        raise InputError("--output checks what it writes: leave out --check")
    if args.check and args.no_check:
        raise InputError("--check and --no-check exclude each other")


def write_files(source, args: argparse.Namespace, several: bool) -> None:
    """The files of one model; of several models each has a folder."""
    from melforge.common.export import self_contained
    from melforge.common.export.to_onnx import OPSET, source_stages
    from melforge.common.stages.choose import choose_stages

    stages = source_stages(source) if args.all else choose_stages(source, None)
    folder = args.output / source.model if several else args.output
    precision = args.deployments.get(source.model, Deployment()).precision
    how = precision, args.opset or OPSET, "none" if args.no_check else "few"
    for file in self_contained.write_files(source, stages, folder, *how):
        print(file)
