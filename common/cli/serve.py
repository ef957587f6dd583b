"""Serves speech over HTTP: OpenAI's audio API, streamed, for several callers at a time."""

from __future__ import annotations

import argparse
import ssl
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from melforge.common.cli import options
from melforge.common.cli.parser import Group
from melforge.common.cluster.connect import LOCAL, require_ray
from melforge.common.cluster.settings import RaySettings
from melforge.common.config.typed import located
from melforge.common.errors import InputError, require_package
from melforge.common.serve.settings import LOOPBACK, ServeSettings, setting_fields
from melforge.common.stages.choose import KINDS
from melforge.common.synthesis.places import WorkerPlace, is_several, places_of

if TYPE_CHECKING:
    from melforge.common.serve.pairs import LoadOptions

S = TypeVar("S")

EPILOG = """examples:
  %(prog)s
  %(prog)s --host 0.0.0.0 --keys keys.txt --pairs tacotron2-waveglow,fastpitch-hifigan
  curl -s http://127.0.0.1:8000/v1/audio/speech -H 'Content-Type: application/json' \\
      -d '{"model": "tts-1", "voice": "alloy", "input": "Hello there."}' -o hello.mp3

docs/serving.md has the routes, keys and limits, and how to keep it running."""


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    settings, on_ray = settings_from(args, ServeSettings), settings_from(args, RaySettings)
    require_server()
    from melforge.common.serve.keys import read_access

    several = is_several(args.device, settings.workers_per_gpu)
    if several:
        others = {"ray": args.ray is not None, "processes": settings.processes != 1}
        places = places_of(args.device, settings.workers_per_gpu, **others)
        args.device, settings = places[0].device, replace(settings, processes=len(places))
    else:
        places = (WorkerPlace(args.device),) * settings.processes
    how = load_options(args, settings)
    if settings.wyoming_port is not None:
        require_wyoming(settings, args.ray is not None or several)
    if settings.riva_port is not None:
        require_package("riva.client", "--riva-port")
    require_certificate(settings)
    if args.ray is not None and (settings.riva_port is not None or settings.certificate):
        raise InputError("--riva-port and --certificate are for one machine: leave --ray out")
    if args.ray is not None:
        require_ray()
        if settings.processes != 1:
            raise InputError("--processes is for one machine: with --ray give --replicas")
        from melforge.common.cluster.server import serve_on_ray

        return serve_on_ray(settings, how, read_access(settings), on_ray, args.ray or LOCAL)
    if on_ray != RaySettings():
        raise InputError("what is set for replicas on Ray needs --ray; on one machine there is --processes")
    from melforge.common.serve.processes import serve_by_processes
    from melforge.common.serve.server import serve

    if settings.processes == 1 and not several:
        return serve(settings, how, read_access(settings))
    return serve_by_processes(settings, how, read_access(settings), places)


def application(argv: Sequence[str]) -> Any:
    """What the words of this command would serve, as an application of Ray Serve."""
    args = parse(argv)
    settings = settings_from(args, ServeSettings)
    require_server()
    from melforge.common.cluster.server import make_application
    from melforge.common.serve.keys import read_access

    on_ray = settings_from(args, RaySettings)
    return make_application(settings, load_options(args, settings), read_access(settings), on_ray)


def require_server() -> None:
    for package in ("fastapi", "uvicorn", "prometheus_client", "websockets", "python_multipart"):
        require_package(package, "serving")


def require_wyoming(settings: ServeSettings, elsewhere: bool) -> None:
    """An InputError where the protocol, which has no keys, would let in those whom keys keep out."""
    require_package("wyoming", "--wyoming-port")
    if elsewhere or settings.processes != 1:
        raise InputError("--wyoming-port is for one process here: leave --ray, --processes and devices out")
    if settings.host not in LOOPBACK and not settings.without_keys:
        raise InputError(
            f"--wyoming-port: Wyoming has no keys, and others can reach {settings.host}: give --without-keys "
            "too where everybody who can may speak, or another --host"
        )


def require_certificate(settings: ServeSettings) -> None:
    """An InputError for a certificate that is none, or has another key."""
    certificate, key = settings.certificate, settings.certificate_key
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise InputError("TLS needs both --certificate and --certificate-key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:
        why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise InputError(f"{certificate} and {key} are no certificate and its key in PEM: {why}") from None


def load_options(args: argparse.Namespace, settings: ServeSettings) -> LoadOptions:
    from melforge.common.serve.pairs import LoadOptions

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
        lexicon=args.lexicon,
    )
    return replace(how.with_threads(), streams=settings.texts_together(how.shares_engines))


RAY_OPTIONS = """
on Ray:
  --ray [ADDRESS]   replicas on the Ray cluster there, auto for the one of this machine; without an address on
        one that is started here
"""
MODEL_OPTIONS = """
models:
  voice checkpoint backend precision decoder device
  --threads         CPU threads of an engine (default: 1, since several texts are spoken at a time)
  --lexicon         how words are said, in a lexicon.yaml; it is read again when it changes
  --warm-up         first run every engine of a pair once, in every bucket: TensorRT compiles for the GPU then
"""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__, epilog=EPILOG, kinds=KINDS, choose=models_offered)
    add_settings(parser.add_argument_group("the server"), ServeSettings)
    options.add_table(parser, RAY_OPTIONS + MODEL_OPTIONS)
    add_settings(parser.add_argument_group("on Ray"), RaySettings)
    return parser.parse_args(argv)


def add_settings(group: Group, of: type[Any], names: Collection[str] = ()) -> None:
    """All settings, or those of these names."""
    for name, (kind, about, default) in setting_fields(of).items():
        if names and name not in names:
            continue
        how: dict[str, Any] = {"type": kind, "default": default, "metavar": about.unit}
        if kind is bool:
            how = {"action": "store_true"}
        group.add_argument(f"--{name.replace('_', '-')}", help=about.help, **how)


def settings_from(args: argparse.Namespace, of: type[S]) -> S:
    try:
        return of(**{name: getattr(args, name) for name in setting_fields(of) if name in args})
    except InputError as error:
        raise located(error, args.places) from None


def models_offered(args: argparse.Namespace) -> list[str]:
    """The models of the pairs, for what files say of them."""
    from melforge.common.serve.pairs import LoadOptions, Pairs

    pairs = Pairs(LoadOptions(voice=args.voice, checkpoints=args.checkpoint), args.pairs)
    return list(dict.fromkeys(model for name in pairs.names for model in name.split("-")))
