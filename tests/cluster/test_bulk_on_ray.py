"""A table on Ray and its parquet: the bytes of a run without Ray, however often it is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from melforge.common.cli.speak import main
from melforge.common.cluster.bulk import Share
from melforge.common.errors import InputError
from tests.cluster.conftest import PATIENCE, kill, melforge, ray_processes

# Long enough for a run to be killed in its midst, however late a busy machine lets a test see how far it is.
TEXTS = [f"Sentence number {number}{' and so on' * 4 * (number % 4)}." for number in range(59)]


def write_table(path):
    rows = [json.dumps({"id": f"s{number}", "text": text}) for number, text in enumerate([*TEXTS, ""])]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_on_ray_that_is_killed_twice_has_the_bytes_of_one_without_ray(
    environment, tiny_voice, tmp_path
):
    table = write_table(tmp_path / "in.jsonl")

    def command(folder, *more):
        words = ("-i", table, "-o", folder, "--voice", tiny_voice, "--device", "cpu", "--shard-size", 2)
        return melforge("speak", *words, *more)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert subprocess.run(command(whole, "--workers", 1), env=environment).returncode == 2
    for shards in (1, 8):
        process = subprocess.Popen(command(killed, "--ray", "--workers", 2), env=environment)
        end = time.monotonic() + PATIENCE
        while len(list(killed.glob("0*"))) < shards:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.002)
        kill(process)
    assert len(list(killed.glob("0*"))) < 30
    process = subprocess.Popen(command(killed, "--ray", "--workers", 2), env=environment)
    workers: list[int] = []
    while not workers:
        assert process.poll() is None
        workers = ray_processes(environment, "ray::Worker")
    os.kill(workers[0], signal.SIGKILL)  # a worker that is lost is replaced
    assert process.wait(PATIENCE) == 2
    assert content_of(killed) == content_of(whole)
    assert (killed / "not-spoken.csv").read_text() == "id,reason\ns59,no audio made: the text is empty\n"


PARQUET = """
import sys, pyarrow as pa, pyarrow.parquet as pq
folder = sys.argv[1]
if sys.argv[2] == "write":
    rows = {"key": [7, 8, 9], "sentence": ["Hello there.", None, "One more."]}
    pq.write_table(pa.table(rows), folder + "/in.parquet")
else:
    print(pq.read_table(folder + "/out/manifest.parquet").to_pylist())
    for row in pq.read_table(folder + "/out/000000/audio.parquet").to_pylist():
        open(folder + "/" + row["audio"]["path"], "wb").write(row["audio"]["bytes"])
        print(row["id"], row["text"], row["sampling_rate"], row["seconds"])
"""


@pytest.mark.ray
@pytest.mark.slow
def test_parquet_in_and_out(environment, tiny_voice, tmp_path):
    import soundfile

    def script(what):
        command = [os.environ["MELFORGE_RAY_PYTHON"], "-c", PARQUET, str(tmp_path), what]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    script("write")
    words = ("-i", tmp_path / "in.parquet", "-o", tmp_path / "out", "--format", "parquet", "--workers", 1)
    columns = ("--id-column", "key", "--text-column", "sentence", "--voice", tiny_voice, "--device", "cpu")
    assert subprocess.run(melforge("speak", *words, *columns), env=environment).returncode == 2
    manifest, *rows = script("read").splitlines()
    assert "'id': '7', 'file': '000000/audio.parquet'" in manifest
    assert [row.split()[:-2] for row in rows] == [["7", "Hello", "there."], ["9", "One", "more."]]
    for row in rows:
        samples, rate = soundfile.read(tmp_path / f"{row.split()[0]}.flac")
        assert row.endswith(f" {rate} {len(samples) / rate:.6f}".rstrip("0"))
    assert "8,no audio made" in (tmp_path / "out" / "not-spoken.csv").read_text()


def test_without_ray_a_sentence_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ("-i", write_table(tmp_path / "in.jsonl"), "-o", tmp_path / "out", "--ray")
    with pytest.raises(InputError, match=r"--ray needs ray: pip install -e '.\[ray\]'"):
        main([str(word) for word in words])
    with pytest.raises(InputError, match="--gpus-per-worker is of a Ray cluster: give --ray too"):
        main([*map(str, words[:-1]), "--gpus-per-worker", "0.5"])


@pytest.mark.parametrize(
    ("share", "resources", "wanted"),
    [
        (Share(), {"CPU": 8}, (8, 0.0)),
        (Share(cpus=2), {"CPU": 9}, (4, 0.0)),
        (Share(), {"CPU": 8, "GPU": 2}, (2, 1.0)),
        (Share(gpus=0.25), {"CPU": 64, "GPU": 2}, (8, 0.25)),
        (Share(gpus=0.0), {"CPU": 4, "GPU": 2}, (4, 0.0)),
        (Share(workers=3), {"CPU": 1}, (3, 0.0)),
    ],
)
def test_workers_are_as_many_as_there_is_room_for(share, resources, wanted):
    assert share.of(resources) == wanted


def test_a_cluster_without_room_for_a_worker_is_a_sentence():
    with pytest.raises(InputError, match=r"has 4 CPUs and 0 GPUs, and a worker takes 1 and 0.5"):
        Share(gpus=0.5).of({"CPU": 4})
