"""Speaks and hears by the Wyoming protocol of Home Assistant and Rhasspy, without HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from melforge.common.cli import options
from melforge.common.cli.serve import (
    MODEL_OPTIONS,
    add_settings,
    load_options,
    models_offered,
    require_server,
    settings_from,
)
from melforge.common.errors import require_package
from melforge.common.serve.settings import ServeSettings
from melforge.common.stages.choose import KINDS

EPILOG = """examples:
  %(prog)s --uri tcp://0.0.0.0:10200          # for Home Assistant on another machine
  %(prog)s --uri stdio://                     # for the program that starts it

docs/clients.md says what to set in Home Assistant; melforge serve --wyoming-port 10200 has HTTP too."""
OPTIONS = f"""
the server:
  --uri URI=tcp://127.0.0.1:10200   where it listens: tcp://HOST:PORT, unix://PATH, or stdio://. There are
        no keys: whoever can reach it may speak
{MODEL_OPTIONS}"""
# Of `melforge serve`: those that are not HTTP's.
SETTINGS = (
    *("pairs", "max_characters", "queue", "connections", "seconds", "ahead", "grace", "workers", "max_batch"),
    *("memory_limit", "idle_unload", "ear", "recordings", "recording_bytes", "recording_seconds"),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(description=__doc__, epilog=EPILOG, kinds=KINDS, choose=models_offered)
    options.add_table(parser, OPTIONS)
    add_settings(parser.add_argument_group("the server"), ServeSettings, SETTINGS)
    args = parser.parse_args(argv)
    settings = settings_from(args, ServeSettings)
    require_server()
    require_package("wyoming", "the Wyoming protocol")
    how = load_options(args, settings)
    from melforge.common.serve.server import serve_without_http

    return serve_without_http(settings, how, args.uri)
