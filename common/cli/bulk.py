"""`melforge speak` with a table of texts: spoken in shards, on this machine's cores or a Ray cluster's."""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from melforge.common.bulk.shards import OUTPUTS, BulkSettings
from melforge.common.bulk.texts import ID_COLUMNS, TEXT_COLUMN, Table
from melforge.common.cli import options
from melforge.common.cli.parser import USER_ERROR
from melforge.common.cluster.connect import LOCAL, require_ray
from melforge.common.errors import InputError
from melforge.common.files import require_writable_file
from melforge.common.remote import fetch_file, is_address
from melforge.common.synthesis.places import WorkerPlace, describe, is_several, places_of

if TYPE_CHECKING:
    from melforge.common.bulk.run import SpeakShards
    from melforge.common.serve.pairs import LoadOptions

TABLES = (".csv", ".jsonl", ".parquet")  # never phrases
SHARD_SIZE = 500
FOR_TABLES = ("text_column", "id_column", "shard_size", "skip_bad", "shards", "workers", "price", "progress")
FOR_PHRASES = ("show_text", "phonemes", "save_mel", "plot", "subtitles", "listen", "listen_limit", "timing")
OPTIONS = f"""
tables of texts (-i FILE.csv, .jsonl or .parquet, others with --format):
  --format NAME      {", ".join(OUTPUTS)}: speak in shards, which stay if the run is killed; the same command
        goes on with the rest (default: wav)
  --text-column NAME={TEXT_COLUMN}   column of the texts
  --id-column NAME   column that names the sound files (default: {", ".join(ID_COLUMNS)}, or the line's
        number)
  --shard-size N={SHARD_SIZE}   texts in a shard, which is spoken and kept as a whole
  --skip-bad         rows without an id or text that could be spoken are listed, and not spoken
  --shards I/N       speak the I-th of N parts only: N machines that see the folder make the table together
  --workers N        processes that speak, each with its own models (default: one a core, or one for a GPU)
  --workers-per-gpu N   that share a GPU, with --device cuda:all (every GPU), cuda:0,cuda:2 or one (default,
        of several or all: as many as have 4 GB of it and two cores each, 16 at most)
  --ray [ADDRESS]    workers on the Ray cluster there, auto for the one of this machine; without an address on
        one that is started here
  --gpus-per-worker X   GPUs of a worker on a Ray cluster; a fraction shares one (default: 1 where it has any)
  --price X          price of an hour of all workers: the progress then says what the run costs
  --progress FILE    write the progress there too, after each shard: JSON, or FILE.prom for the node exporter
        of Prometheus
"""


def is_table(args: argparse.Namespace) -> bool:
    """Whether the options ask for shards: by the input's suffix, or explicitly."""
    suffix = Path(args.input or "").suffix.lower()
    return suffix in TABLES or args.format is not None or args.ray is not None


def speak_table(args: argparse.Namespace) -> int:
    require_fitting(args)
    with tempfile.TemporaryDirectory() as copies:
        path = fetch_file(args.input, Path(copies)) if is_address(args.input) else Path(args.input)
        return speak_rows(Table(path, args.text_column, args.id_column, args.skip_bad), args)


def speak_rows(table: Table, args: argparse.Namespace) -> int:
    from melforge.common.bulk.folder import run_folder
    from melforge.common.bulk.run import Part, duration, speak_table
    from melforge.common.serve.pairs import LoadOptions

    controls = options.controls_from(args)
    places = places_from(args)
    device = places[0].device if places else args.device
    how = LoadOptions(backend=args.backend, device=device, threads=args.threads).with_threads()
    speech = BulkSettings(
        models={**options.load_options(args), "threads": how.threads},
        controls=controls,
        output=args.format or "wav",
        batch_size=args.batch_size,
        retries=args.retry,
        strict=args.strict,
        warm_up=args.warm_up,
    )
    folder = run_folder(args.output)
    speak = workers_from(args, how, places)
    progress = Path(args.progress) if args.progress else None
    if progress is not None:
        require_writable_file(progress)
    part = Part(*part_of(args.shards or "1/1"))
    summary = speak_table(table, folder, speech, args.shard_size, speak, args.price, part, progress)
    if args.json:
        print(json.dumps(vars(summary), indent=1))
    else:
        hours = f"{summary.seconds / 3600:.2f} h of audio"
        took = f"{duration(summary.took)}, {summary.rtf:.1f} x real time"
        if args.price is not None and summary.made:
            took += f", {args.price * summary.took / summary.made:.4g} an hour of speech"
        if summary.left:
            others = f"{summary.left} shards of other parts are not"
            print(f"{folder}: part {args.shards} is there, {hours} ({took}); {others}")
        else:
            print(
                f"{folder}: {summary.texts - summary.not_spoken} of {summary.texts} texts, {hours} ({took})"
            )
    if summary.not_spoken:
        failed = f"{summary.not_spoken} of {summary.texts} texts were not spoken"
        print(f"error: {failed}: {folder}/not-spoken.csv", file=sys.stderr)
        return USER_ERROR
    return 0


def part_of(text: str) -> tuple[int, int]:
    """The two numbers of "2/8"."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise InputError(f"--shards must be as in 2/8, the second of eight parts, not {text!r}")
    return int(number), int(count)


def places_from(args: argparse.Namespace) -> tuple[WorkerPlace, ...]:
    """Where workers speak by --device and --workers-per-gpu; nowhere if these do not say it."""
    if not is_several(args.device, args.workers_per_gpu):
        return ()
    others = {"workers": args.workers is not None, "ray": args.ray is not None}
    places = places_of(args.device, args.workers_per_gpu, **others)
    print(describe(places), file=sys.stderr)
    return places


def workers_from(args: argparse.Namespace, how: LoadOptions, places: Sequence[WorkerPlace]) -> SpeakShards:
    """What speaks the shards: Ray's workers, or processes here."""
    if args.ray is None:
        from melforge.common.bulk.local import speak_here

        places = places or [WorkerPlace(args.device)] * (args.workers or how.workers())
        return functools.partial(speak_here, places=places)
    from melforge.common.cluster.bulk import Share, speak_on_ray

    require_ray()
    gpus = 0.0 if args.device == "cpu" else args.gpus_per_worker
    share = Share(how.threads or 1, gpus, args.workers)
    return functools.partial(speak_on_ray, address=args.ray or LOCAL, share=share)


def require_no_table(args: argparse.Namespace) -> None:
    """An InputError for options on a command line that phrases would not follow."""
    for name in FOR_TABLES:
        if name in args.places and args.places[name].place.startswith("--"):
            raise InputError(f"{args.places[name].place} is for tables of texts: give --format too")


def require_fitting(args: argparse.Namespace) -> None:
    """An InputError for what a table cannot have."""
    if args.input is None or args.input == "-":
        raise InputError("a table of texts needs a file: give -i FILE; for one sound file give -o FILE.mp3")
    if Path(args.input).is_dir():
        raise InputError(f"{args.input} is a folder: give a table of texts")
    if not is_address(args.input) and not Path(args.input).is_file():
        raise FileNotFoundError(f"{args.input} not found")
    if args.output is None or args.output == "-":
        raise InputError(f"{args.input} is a table of texts: give a folder with -o DIR")
    for name in FOR_PHRASES:
        if getattr(args, name) not in (None, False, []):  # --listen without a name is ""
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is for phrases, and {args.input} is spoken in shards: leave it out")
    if args.gpus_per_worker is not None and not args.gpus_per_worker >= 0:
        raise InputError(f"--gpus-per-worker must not be negative, not {args.gpus_per_worker:g}")
    if args.gpus_per_worker is not None and args.ray is None:
        raise InputError("--gpus-per-worker is of a Ray cluster: give --ray too")
    if args.price is not None and not args.price >= 0:
        raise InputError(f"--price must not be negative, not {args.price:g}")
