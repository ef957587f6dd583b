"""Serves speech over HTTP: OpenAI's audio API, streamed, for several callers at a time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from common.cli import options
from common.config.typed import located
from common.errors import InputError, require_package
from common.serve.settings import ServeSettings, read_keys, setting_fields

EPILOG = """examples:
  %(prog)s
  %(prog)s --host 0.0.0.0 --keys keys.txt --pairs tacotron2-waveglow,fastpitch-hifigan
  curl -s http://127.0.0.1:8000/v1/audio/speech -H 'Content-Type: application/json' \\
      -d '{"model": "tts-1", "voice": "alloy", "input": "Hello there."}' -o hello.mp3

docs/serving.md has the endpoints and settings."""


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    settings = settings_from(args)
    for package in ("fastapi", "uvicorn", "prometheus_client", "websockets", "soxr"):
        require_package(package, "serving")
    from common.serve.pairs import LoadOptions
    from common.serve.server import serve

    keys = read_keys(settings)
    how = LoadOptions(
        voice=args.voice,
        checkpoints=args.checkpoint,
        backend=args.backend,
        device=args.device,
        threads=args.threads,
        decoder=args.decoder,
        deployments=args.deployments,
        overrides=args.overrides,
        warm_up=args.warm_up,
    )
    streams = settings.texts_together(how.shares_engines())
    return serve(settings, replace(how.with_threads(), streams=streams), keys)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(
        description=__doc__, epilog=EPILOG, kinds=("acoustic", "vocoder"), choose=models_offered
    )
    group = parser.add_argument_group("the server")
    for name, (kind, about, default) in setting_fields().items():
        how: dict[str, Any] = {"type": kind, "default": default, "metavar": about.unit}
        if kind is bool:
            how = {"action": "store_true"}
        group.add_argument(f"--{name.replace('_', '-')}", help=about.help, **how)
    models = parser.add_argument_group("models")
    threads = "CPU threads of an engine (default: 1, since several texts are spoken at a time)"
    names = ("voice", "checkpoint", "backend", "precision", "decoder", "device", "threads")
    warm_up = "first run every engine of a pair once, in every bucket: TensorRT compiles for the GPU then"
    options.add_options(models, *names, "warm-up", threads=threads, warm_up=warm_up)
    return parser.parse_args(argv)


def settings_from(args: argparse.Namespace) -> ServeSettings:
    values = {name: getattr(args, name) for name in setting_fields()}
    try:
        return ServeSettings(**values)
    except InputError as error:
        raise located(error, args.places) from None


def models_offered(args: argparse.Namespace) -> list[str]:
    """The models of the pairs, for what files say of them."""
    from common.serve.pairs import LoadOptions, Pairs

    pairs = Pairs(LoadOptions(voice=args.voice, checkpoints=args.checkpoint), args.pairs)
    return list(dict.fromkeys(model for name in pairs.names for model in name.split("-")))
