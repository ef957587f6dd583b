"""The export command, shared by `melforge export` and every model's export_onnx module."""

import argparse
from collections.abc import Collection, Sequence

from common.cli import options, run
from common.errors import InputError, require_torch


def main(argv: Sequence[str] | None = None, model: str | None = None) -> int:
    """Exports and checks the graphs of a voice or of published weights; `model` limits it to one model."""
    what = model or "a voice's models"
    parser = options.Parser(
        description=f"Exports {what} to ONNX and compares every graph with PyTorch at several sizes.",
        kinds=("acoustic", "vocoder"),
        choose=lambda args: [model] if model else args.selected or [s.model for s in read_sources(args, ())],
    )
    files = "published weights instead; their graphs go to the cache ($MELFORGE_CACHE); may be repeated"
    options.add_options(parser, "voice", "checkpoint", checkpoint=files)
    parser.add_argument(
        "--check", action="store_true", help="compare the graphs that are there; write nothing"
    )
    args = parser.parse_args(argv)

    from common.synthesis.loading import override

    require_torch("exporting")
    from common.export.to_onnx import HEADINGS, cached_source, check_source, export_source, source_stages

    wanted = [model] if model else args.selected
    sources = [source for source in read_sources(args, wanted) if not wanted or source.model in wanted]
    if not sources:
        raise InputError(f"there is no {' or '.join(wanted)} to export")
    checks = []
    for stored in sources:
        made, source = [], override(stored, args.overrides.get(stored.model, {}))
        # A voice's graphs are those of its own config.
        cached = args.checkpoint or source.config != stored.config
        if cached:
            source, made = cached_source(source)
        # A voice may have graphs of some forms only.
        stages = [stage for stage in source_stages(source) if stage.name in source.graphs] or None
        if not (cached or args.check):
            source, made = export_source(source, source.weights.parent, stages)
        checks += made or check_source(source, stages)
        for graph in source.graphs.values():
            print(graph)
    run.print_table(HEADINGS, [check.row() for check in checks])
    return 0 if all(check.ok for check in checks) else 1


def read_sources(args: argparse.Namespace, wanted: Collection[str]) -> list:
    """The models of the published weights, each one `wanted` if any are named, else the voice's."""
    from common.weights.published import read_checkpoints
    from common.weights.voices import load_voice

    return read_checkpoints(args.checkpoint, wanted) or list(load_voice(args.voice).models.values())
