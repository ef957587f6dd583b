"""Tools for language models, by the Model Context Protocol (MCP): speak, transcribe, list voices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from melforge.common.cli import options
from melforge.common.cli.serve import MODEL_OPTIONS, load_options, models_offered
from melforge.common.errors import InputError, require_package
from melforge.common.serve.settings import ServeSettings
from melforge.common.stages.choose import KINDS

EPILOG = """The program that has the language model starts this and talks to it by stdin and stdout; how, says
docs/clients.md. Without --folder no file is read or written, and there is no transcribe."""
OPTIONS = f"""
the tools:
  --folder DIR     where speak writes sound files, and transcribe reads them: nothing outside it, and no file
        that is there is changed
  ear
  --pairs NAMES    a pair such as tacotron2-hifigan, which speaks (default: the voice's first)
{MODEL_OPTIONS}"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(description=__doc__, epilog=EPILOG, kinds=KINDS, choose=models_offered)
    options.add_table(parser, OPTIONS)
    args = parser.parse_args(argv)
    require_package("mcp", "the Model Context Protocol")
    if args.folder is not None and not Path(args.folder).is_dir():
        raise InputError(f"--folder {args.folder} is no folder: make it, or give another one")
    from melforge.common.serve.pairs import Pairs
    from melforge.common.serve.protocols.mcp import make_server

    server = make_server(Pairs(load_options(args, ServeSettings()), args.pairs), args.ear, args.folder)
    try:
        server.run("stdio")
    except ExceptionGroup as errors:
        if errors.split(BrokenPipeError)[1] is not None:
            raise
        raise BrokenPipeError from None  # the client is gone
    return 0
