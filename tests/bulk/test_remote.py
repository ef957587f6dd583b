"""Tables, voices and Triton's repositories in object stores: moto's (S3), Google's and Azure's emulators."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from melforge.common.cli.speak import main
from melforge.common.cli.triton import main as triton_main
from melforge.common.errors import InputError
from melforge.common.remote import is_address
from melforge.common.runner import TextToSpeech
from tests.flood import IN_TIME, seconds_from_now
from tests.serve.conftest import wait_for
from tests.serve.test_processes import children_of
from tests.triton.conftest import free_ports

ROOT = Path(__file__).parents[2]
TEXTS = [f"Sentence number {number}." for number in range(14)]


def s3_store(monkeypatch):
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    known = {"ENDPOINT_URL": f"http://{host}:{port}", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
    for name, value in known.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    yield "s3"
    server.stop()


def gs_store(monkeypatch):
    from gcp_storage_emulator.server import create_server

    (port,) = free_ports(1)
    server = create_server("localhost", port, in_memory=True)
    server.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://localhost:{port}")
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # which wants credentials at each call
    yield "gs"
    server.stop()


def az_store(monkeypatch, tmp_path_factory):
    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("azurite")
    words = f"--blobPort {port} --location {folder} --skipApiVersionCheck --disableTelemetry".split()
    with subprocess.Popen(
        [os.environ.get("MELFORGE_AZURITE", "azurite-blob"), *words], stdout=subprocess.PIPE, text=True
    ) as process:
        while "successfully listens" not in process.stdout.readline():
            assert process.poll() is None
        # Azurite's own key, which it prints in its documentation.
        key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
        place = f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1"
        known = f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={key};{place};"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", known)
        yield "az"
        process.kill()


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("s3", "gs", "az")])
def store(request, monkeypatch, tmp_path_factory):
    """A bucket of its own, as fsspec sees it, whose names are without "s3://"."""
    import fsspec

    kinds = {"s3": s3_store, "gs": gs_store}
    one = (
        kinds[request.param](monkeypatch)
        if request.param in kinds
        else az_store(monkeypatch, tmp_path_factory)
    )
    with contextlib.contextmanager(lambda: one)() as scheme:
        kind = fsspec.get_filesystem_class(scheme)
        kind.clear_instance_cache()  # of the last store, at another port
        found = kind(use_listings_cache=False, skip_instance_cache=True)
        found.mkdir("bucket")
        found.scheme = scheme
        yield found
        found.rm("bucket", recursive=True)
        kind.clear_instance_cache()


def words_of(voice, table: object, folder: object, *more: object) -> list[str]:
    words = ("-i", table, "-o", folder, "--voice", voice, "--device", "cpu", "--shard-size", 4, *more)
    return [str(word) for word in words]


def content_of(store, folder: str) -> dict[str, bytes]:
    """Without the marks of finished shards."""
    found = {name: store.cat_file(name) for name in store.find(folder)}
    return {n.removeprefix(f"{folder}/"): data for n, data in found.items() if not n.endswith("/_SUCCESS")}


@pytest.fixture
def whole(tiny_voice, tmp_path) -> dict[str, bytes]:
    """The same table, spoken into a folder here."""
    table, folder = tmp_path / "in.txt", tmp_path / "whole"
    table.write_text("\n".join(TEXTS) + "\n")
    assert main(words_of(tiny_voice, table, folder, "--format", "flac", "--workers", 1)) == 0
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_table_is_read_from_a_store_and_spoken_into_it(store, tiny_voice, whole, tmp_path, capsys):
    store.put_file(str(tmp_path / "in.txt"), "bucket/in.txt")
    words = words_of(
        tiny_voice,
        f"{store.scheme}://bucket/in.txt",
        f"{store.scheme}://bucket/run/",
        "--format",
        "flac",
        "--workers",
        2,
    )
    assert main(words) == 0
    assert content_of(store, "bucket/run") == whole
    assert f"{store.scheme}://bucket/run: 14 of 14 texts" in capsys.readouterr().out
    store.rm_file("bucket/run/000001/_SUCCESS")  # as where a worker ended while it sent files
    store.rm_file("bucket/run/000001/7.flac")
    assert main(words) == 0
    assert content_of(store, "bucket/run") == whole
    assert "3 of 4 shards were there already" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"://bucket/run holds another run \(controls.seed: 0, not 3\)"):
        main([*words, "--seed", "3"])
    assert not list(Path.cwd().glob(f"{store.scheme}:*"))


@contextlib.contextmanager
def front(port: int, to: str) -> Iterator[subprocess.Popen]:
    """What may be killed in front of a store, once it listens."""
    command = [sys.executable, "-m", "tests.front", str(port), to]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "listens\n"
        yield process
        process.kill()


@pytest.mark.slow
@IN_TIME
@pytest.mark.parametrize("store", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True)
def test_workers_runs_and_a_store_that_are_killed_again_and_again_leave_the_same_bytes(
    store, tiny_voice, whole, tmp_path, monkeypatch
):
    (port,) = free_ports(1)
    behind = os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    store.put_file(str(tmp_path / "in.txt"), "bucket/in.txt")
    turns = itertools.cycle(("worker", "store for a moment", "run", "store"))
    kills, ends, rounds, is_over = Counter(), Counter(), 0, seconds_from_now()

    def speak_once(folder: str, seen: set[str]) -> int:
        """Runs the command; where more objects have come something is killed. The status."""
        words = words_of(
            tiny_voice, "s3://bucket/in.txt", f"s3://{folder}", "--format", "flac", "--workers", 2
        )
        command = [sys.executable, "-m", "melforge", "speak", *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with contextlib.ExitStack() as stack:
            before = stack.enter_context(front(port, behind))
            process = stack.enter_context(subprocess.Popen(command, cwd=tmp_path, env=environment))
            while process.poll() is None:
                now = set(store.find(folder))
                workers = children_of(process.pid) if now - seen else []
                if workers:
                    seen |= now
                    kills[turn := next(turns)] += 1
                    kill = {"worker": workers[0], "run": process.pid}.get(turn, before.pid)
                    os.kill(kill, signal.SIGKILL)
                    if turn == "store for a moment":
                        before.wait()
                        before = stack.enter_context(front(port, behind))
                    elif turn != "worker":
                        process.wait()
                time.sleep(0.1)
            ends[process.returncode] += 1
            return process.returncode

    while not is_over() or len(kills) < 4:
        rounds += 1
        folder, seen = f"bucket/run{rounds}", set()
        while (status := speak_once(folder, seen)) != 0:
            assert status in (2, -signal.SIGKILL)
        assert content_of(store, folder) == whole
        store.rm(folder, recursive=True)
    print(f"{rounds} tables, killed: {dict(kills)}, ends: {dict(ends)}")


def test_a_voice_in_a_store_speaks_and_is_fetched_again_when_it_changes(
    store, tiny_voice, tmp_path, monkeypatch
):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path / "cache"))
    for file in (path for path in tiny_voice.rglob("*") if path.is_file()):
        store.put_file(str(file), f"bucket/voices/{tiny_voice.name}/{file.relative_to(tiny_voice)}")
    address = f"{store.scheme}://bucket/voices/{tiny_voice.name}"

    def spoken(voice) -> bytes:
        return TextToSpeech.load(voice=voice, device="cpu", threads=1).speak("One.").samples.tobytes()

    assert spoken(address) == spoken(tiny_voice)
    copies = tmp_path / "cache" / "remote"
    assert spoken(address) == spoken(tiny_voice) and len(list(copies.iterdir())) == 1
    about = f"bucket/voices/{tiny_voice.name}/voice.yaml"
    store.pipe_file(about, store.cat_file(about) + b"# changed\n")
    spoken(address)
    assert len(list(copies.iterdir())) == 2


SPEAKS_TWICE = """
import sys
from melforge.common.cli.speak import main
from melforge.common.runner import TextToSpeech
print(main(sys.argv[1:]), flush=True)
input()
TextToSpeech.load(voice="hf://me/voice@main", device="cpu")
"""


@pytest.mark.hf
@pytest.mark.slow
def test_a_table_and_a_voice_are_read_from_a_hub(tiny_voice, whole, tmp_path):
    """olah, a mirror of the Hub by others, answers for repositories of git."""
    (port,) = free_ports(1)
    config = f'[basic]\nport = {port}\nmirrors-path = ["{tmp_path}/hub"]\n[accessibility]\noffline = true\n'
    (tmp_path / "olah.toml").write_text(config)
    shutil.copytree(tiny_voice, voice := tmp_path / "hub/models/me/voice")
    (texts := tmp_path / "hub/datasets/me/texts").mkdir(parents=True)
    shutil.copy(tmp_path / "in.txt", texts)

    def commit(repository: Path) -> None:
        for words in ("init -q -b main", "add .", "-c user.name=a -c user.email=a@b commit -q -m a"):
            subprocess.run(["git", "-C", repository, *words.split()], check=True)

    commit(voice)
    commit(texts)
    table, log, run = "hf://datasets/me/texts@main/in.txt", tmp_path / "log", tmp_path / "run"
    words = words_of("hf://me/voice@main", table, run, "--format", "flac", "--workers", 1)
    places = {"HF_ENDPOINT": f"http://localhost:{port}", "MELFORGE_CACHE": str(tmp_path / "cache")}
    environment = os.environ | places | {"PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    olah = [sys.executable, "-m", "olah.server", "-c", "olah.toml"]
    with log.open("wb") as out, subprocess.Popen(olah, cwd=tmp_path, stdout=out, stderr=out) as hub:
        wait_for(lambda: hub.poll() is not None or b"Uvicorn running" in log.read_bytes(), "the hub")
        with subprocess.Popen([sys.executable, "-c", SPEAKS_TWICE, *words], **pipes) as process:
            assert "14 of 14 texts" in process.stdout.readline()
            (voice / "voice.yaml").write_text((voice / "voice.yaml").read_text() + "# changed\n")
            commit(voice)
            process.communicate("\n")
        hub.kill()
    assert process.returncode == 0
    del whole["run.json"]  # which names the voice
    assert {name: (run / name).read_bytes() for name in whole} == whole
    assert len(list((tmp_path / "cache" / "remote").iterdir())) == 2


def test_a_hub_is_not_written_to(tiny_voice, tmp_path):
    (tmp_path / "in.csv").write_text("id,text\na,One.\n")
    with pytest.raises(InputError, match="hf://me/models: hf:// is for reading; give a folder"):
        triton_main(["hf://me/models", "--voice", str(tiny_voice), "--device", "cpu"])
    with pytest.raises(InputError, match="hf://datasets/me/run: hf:// is for reading"):
        main(words_of(tiny_voice, tmp_path / "in.csv", "hf://datasets/me/run"))


def test_a_repository_of_triton_is_written_into_a_store(store, tiny_voice, tmp_path):
    words = ["--voice", str(tiny_voice), "--device", "cpu"]
    assert triton_main([f"{store.scheme}://bucket/models", *words]) == 0
    assert triton_main([str(tmp_path / "models"), *words]) == 0
    here = {str(p.relative_to(tmp_path / "models")) for p in (tmp_path / "models").rglob("*") if p.is_file()}
    assert here == set(content_of(store, "bucket/models"))


@pytest.mark.parametrize("store", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True)
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("s3://nowhere/run", "s3://nowhere/run"),
        ("gs://bucket/run", "gs://bucket/run: "),
        ("nosuch://bucket/run", "nosuch://bucket/run: "),
    ],
)
def test_a_store_that_is_not_there_is_a_sentence(place, message, store, tiny_voice, tmp_path):
    table = tmp_path / "in.csv"
    table.write_text("id,text\na,One.\n")
    with pytest.raises((InputError, FileNotFoundError), match=message):
        main(words_of(tiny_voice, table, place, "--workers", 1))


@pytest.mark.parametrize(
    ("name", "options"),
    [("verify", "-o --plot --json"), ("benchmark", "-o --profile"), ("check_gpu", "-o"), ("speak", "--plot")],
)
def test_an_address_is_no_place_of_this_machine(name, options):
    command = import_module(f"melforge.common.cli.{name}")
    for option in options.split():
        with pytest.raises(InputError, match="must be a file or a folder of this machine, not s3://bucket/x"):
            command.main([option, "s3://bucket/x"])


def test_what_is_an_address():
    assert all(map(is_address, ("s3://b/run", "gs://b", "hf://datasets/x", "file:///x")))
    assert not any(map(is_address, ("run", "/s3:/run", "C:\\run", "acoustic=run", "")))
