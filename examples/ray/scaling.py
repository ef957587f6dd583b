"""Measures on one machine how Ray's throughput grows: with workers of shards, with replicas of the server.

    python examples/ray/scaling.py bulk texts.csv 1 2
    python examples/ray/scaling.py server 1 2 --streams 8

Beside times real time, which is of no use where others share the cores, it says what CPU time a second of
audio took: that of the workers or replicas, and that of everything else of Ray (Linux only).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

from melforge.common.bench.load import CLOSED, RIVA_SENTENCES, Load, run_load
from melforge.common.bench.targets import HttpTarget
from melforge.common.bulk.feed import feed
from melforge.common.bulk.shards import BulkSettings, cut_shards
from melforge.common.bulk.texts import Table
from melforge.common.cli.phrases import read_texts
from melforge.common.cli.run import print_table
from melforge.common.cluster.bulk import Actors
from melforge.common.cluster.connect import LOCAL, connected
from melforge.common.serve.client import Address
from melforge.common.serve.server import bind

FIELDS: dict[str, Any] = {"model": "fastpitch-hifigan", "voice": "hazel", "sample_rate": 22050}
HEADINGS = ("", "x real time", "CPU ms a second of audio", "of Ray beside")


def cpu_seconds(root: int) -> Counter[str]:
    """User and system time so far of a process and all below it, by its title's first word."""
    parents, seconds = {}, {}
    ticks = os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*"):
        try:
            rest = (path / "stat").read_text().rpartition(") ")[2].split()
            title = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        parents[int(path.name)] = int(rest[1])
        seconds[int(path.name)] = (title.split(".")[0].split(" ")[0], (int(rest[11]) + int(rest[12])) / ticks)
    found: Counter[str] = Counter()
    for process, (title, spent) in seconds.items():
        above = process
        while above not in (root, 0):
            above = parents.get(above, 0)
        if above == root:
            found[title] += spent
    return found


def row(name: str, audio: float, took: float, spent: Counter[str], ours: str) -> tuple[str, ...]:
    own = sum(seconds for title, seconds in spent.items() if title.startswith(ours))
    beside = sum(spent.values()) - own
    return name, f"{audio / took:.1f}", f"{1e3 * own / audio:.1f}", f"{1e3 * beside / audio:.1f}"


def measure_bulk(table: Path, counts: Sequence[int], shard_size: int) -> list[tuple[str, ...]]:
    """From the moment at which every worker has finished a shard to the last one."""
    rows = []
    speech = BulkSettings({"device": "cpu", "threads": 1})
    with connected(LOCAL) as ray:
        for count in counts:
            with tempfile.TemporaryDirectory() as folder:
                crew = Actors(ray, speech, Path(folder), 1, 0.0)
                audio, begun, before = 0.0, 0.0, Counter()
                spent: Counter[str] = Counter()
                reports = feed(crew, count, cut_shards(Table(table), shard_size))
                for number, report in enumerate(reports, start=1):
                    if number == count:
                        begun, before = time.perf_counter(), cpu_seconds(os.getpid())
                    elif number > count:
                        audio += report.seconds
                        took, spent = time.perf_counter() - begun, cpu_seconds(os.getpid()) - before
                rows.append(row(f"{count} workers", audio, took, spent, "ray::Worker"))
    return rows


def measure_server(counts: Sequence[int], streams: int, iterations: int) -> list[tuple[str, ...]]:
    """The ten texts of `melforge benchmark-server`, each so often from every stream."""
    texts = read_texts(RIVA_SENTENCES)
    rows = []
    for count in counts:
        with begun_server(count) as (server, port):
            address = Address.parse(f"http://127.0.0.1:{port}")
            target = HttpTarget(address, None, FIELDS, FIELDS["sample_rate"], texts, timeout=300.0)
            run_load(target, Load(CLOSED, 2 * count, len(texts)))  # every replica has spoken
            before, begun = cpu_seconds(server), time.perf_counter()
            answers = run_load(target, Load(CLOSED, streams, iterations * len(texts)))
            took, spent = time.perf_counter() - begun, cpu_seconds(server) - before
        assert not any(answer.error for answer in answers), "requests failed"
        audio = sum(answer.audio for answer in answers)
        rows.append(row(f"{count} replicas", audio, took, spent, "ray::ServeReplica:melforge:Speech"))
        for title, seconds in spent.most_common(6):
            print(f"  {title}: {1e3 * seconds / len(answers):.1f} ms CPU a request", file=sys.stderr)
    return rows


@contextmanager
def begun_server(replicas: int) -> Iterator[tuple[int, int]]:
    """A server on a cluster of its own: its process, and its port."""
    with closing(bind("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["serve", "--ray", "--replicas", str(replicas), "--port", str(port), "--device", "cpu"]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen([sys.executable, "-m", "melforge", *words], stderr=log)
        try:
            while server.poll() is None and '"event": "listening"' not in read(log):
                time.sleep(0.5)
            yield server.pid, port
            server.send_signal(signal.SIGTERM)
            server.wait(60)
        finally:
            server.kill()


def read(log: IO[str]) -> str:
    log.seek(0)
    return log.read()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_subparsers(dest="what", required=True)
    bulk = what.add_parser("bulk")
    bulk.add_argument("table", type=Path)
    bulk.add_argument("--shard-size", type=int, default=10)
    serve = what.add_parser("server")
    serve.add_argument("--streams", type=int, default=8)
    serve.add_argument("--iterations", type=int, default=2)
    for one in (bulk, serve):
        one.add_argument("counts", nargs="+", type=int, metavar="N")
    args = parser.parse_args()
    if args.what == "bulk":
        rows = measure_bulk(args.table, args.counts, args.shard_size)
    else:
        rows = measure_server(args.counts, args.streams, args.iterations)
    print_table(HEADINGS, rows)


if __name__ == "__main__":
    main()
