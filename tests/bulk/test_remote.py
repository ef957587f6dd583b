"""Tables, voices and Triton's repositories in object stores: emulators of S3, Google's, Azure's, the Hub."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from melforge.common.cli.speak import main
from melforge.common.cli.triton import main as triton_main
from melforge.common.errors import InputError
from melforge.common.remote import fetch_folder, is_address, words_about
from melforge.common.runner import TextToSpeech
from tests.flood import IN_TIME, seconds_from_now
from tests.hub import running_hub
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
    yield
    server.stop()


def gs_store(monkeypatch):
    from gcp_storage_emulator.server import create_server

    (port,) = free_ports(1)
    server = create_server("localhost", port, in_memory=True)
    server.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://localhost:{port}")
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # which wants credentials at each call
    yield
    server.stop()


def az_store(monkeypatch):
    (port,) = free_ports(1)
    folder = tempfile.mkdtemp(prefix="azurite")
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
        yield
        process.kill()


def hf_store(monkeypatch):
    import fsspec
    import huggingface_hub

    with running_hub() as (url, hub):
        monkeypatch.setenv("FSSPEC_HF_ENDPOINT", url)  # for processes; it is read by an import
        monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": url})
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        hub.repositories["datasets/me/bucket"] = {}
        yield hub


KINDS = {"s3": s3_store, "gs": gs_store, "az": az_store, "hf": hf_store}


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in KINDS])
def store(request, monkeypatch):
    """A bucket of its own, as fsspec sees it, whose names are without "s3://"."""
    import fsspec

    kind = fsspec.get_filesystem_class(scheme := request.param)
    with contextlib.contextmanager(KINDS[scheme])(monkeypatch) as server:
        kind.clear_instance_cache()  # of the last store, at another port
        found = kind(use_listings_cache=False, skip_instance_cache=True)
        found.bucket = "bucket" if scheme != "hf" else "datasets/me/bucket"
        found.address, found.server = f"{scheme}://{found.bucket}", server
        if scheme != "hf":
            found.mkdir(found.bucket)
        yield found
        if scheme != "hf":
            found.rm(found.bucket, recursive=True)
        kind.clear_instance_cache()


def words_of(voice, table: object, folder: object, *more: object) -> list[str]:
    words = ("-i", table, "-o", folder, "--voice", voice, "--device", "cpu", "--shard-size", 4, *more)
    return [str(word) for word in words]


def content_of(store, folder: str) -> dict[str, bytes]:
    """Without the marks of finished shards."""
    store.invalidate_cache()  # the Hub's has one that cannot be left out
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
    store.put_file(str(tmp_path / "in.txt"), f"{store.bucket}/in.txt")
    words = words_of(
        tiny_voice, f"{store.address}/in.txt", f"{store.address}/run/", "--format", "flac", "--workers", 2
    )
    assert main(words) == 0
    assert content_of(store, f"{store.bucket}/run") == whole
    assert f"{store.address}/run: 14 of 14 texts" in capsys.readouterr().out
    store.rm_file(f"{store.bucket}/run/000001/_SUCCESS")  # as where a worker ended while it sent files
    store.rm_file(f"{store.bucket}/run/000001/7.flac")
    assert main(words) == 0
    assert content_of(store, f"{store.bucket}/run") == whole
    assert "3 of 4 shards were there already" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match=f"^{store.address}/none.txt not found"):
        main(words_of(tiny_voice, f"{store.address}/none.txt", f"{store.address}/none", "--format", "flac"))
    with pytest.raises(InputError, match=r"/run holds another run \(controls.seed: 0, not 3\)"):
        main([*words, "--seed", "3"])
    assert not list(Path.cwd().glob("*:"))


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
@pytest.mark.parametrize(
    ("store", "place"),
    [
        pytest.param("s3", "AWS_ENDPOINT_URL", marks=pytest.mark.s3),
        pytest.param("hf", "FSSPEC_HF_ENDPOINT", marks=pytest.mark.hf),
    ],
    indirect=["store"],
)
def test_workers_runs_and_a_store_that_are_killed_again_and_again_leave_the_same_bytes(
    store, place, tiny_voice, whole, tmp_path, monkeypatch
):
    (port,) = free_ports(1)
    behind = os.environ[place].rpartition(":")[2]
    monkeypatch.setenv(place, f"http://127.0.0.1:{port}")
    store.put_file(str(tmp_path / "in.txt"), f"{store.bucket}/in.txt")
    turns = itertools.cycle(("worker", "store for a moment", "run", "store"))
    kills, ends, rounds, is_over = Counter(), Counter(), 0, seconds_from_now()

    def speak_once(folder: str, seen: set[str]) -> int:
        """Runs the command; where more objects have come something is killed. The status."""
        places = f"{store.address}/in.txt", f"{store.address}/{folder}"
        words = words_of(tiny_voice, *places, "--format", "flac", "--workers", 2)
        command = [sys.executable, "-m", "melforge", "speak", *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with contextlib.ExitStack() as stack:
            before = stack.enter_context(front(port, behind))
            process = stack.enter_context(subprocess.Popen(command, cwd=tmp_path, env=environment))
            while process.poll() is None:
                store.invalidate_cache()
                now = set(store.find(f"{store.bucket}/{folder}"))
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
        folder, seen = f"run{rounds}", set()
        while (status := speak_once(folder, seen)) != 0:
            assert status in (2, -signal.SIGKILL)
        assert content_of(store, f"{store.bucket}/{folder}") == whole
    print(f"{rounds} tables, killed: {dict(kills)}, ends: {dict(ends)}")


def test_a_voice_in_a_store_speaks_and_is_fetched_again_when_it_changes(
    store, tiny_voice, tmp_path, monkeypatch
):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path / "cache"))
    for file in (path for path in tiny_voice.rglob("*") if path.is_file()):
        store.put_file(str(file), f"{store.bucket}/voices/{tiny_voice.name}/{file.relative_to(tiny_voice)}")
    address = f"{store.address}/voices/{tiny_voice.name}"

    def spoken(voice) -> bytes:
        return TextToSpeech.load(voice=voice, device="cpu", threads=1).speak("One.").samples.tobytes()

    assert spoken(address) == spoken(tiny_voice)
    copies = tmp_path / "cache" / "remote"
    assert spoken(address) == spoken(tiny_voice) and len(list(copies.iterdir())) == 1
    about = f"{store.bucket}/voices/{tiny_voice.name}/voice.yaml"
    store.pipe_file(about, store.cat_file(about) + b"# changed\n")
    spoken(address)
    assert len(list(copies.iterdir())) == 2


@pytest.mark.parametrize("store", [pytest.param("hf", marks=pytest.mark.hf)], indirect=True)
def test_a_shard_is_one_commit_and_the_hub_is_asked_again_where_it_wants_that(
    store, tiny_voice, whole, tmp_path
):
    repository = store.server.repositories[store.bucket]
    repository[".gitignore"] = b"*.flac"
    store.server.faults += [
        (429, {"RateLimit": '"api";r=0;t=0'}, False),  # for run.json
        (429, {"Retry-After": "0"}, False),
        (412, {}, False),  # another's commit was first
        (503, {}, True),  # it is made, and the answer is lost
    ]
    words = words_of(tiny_voice, tmp_path / "in.txt", f"hf://{store.bucket}/run", "--format", "flac")
    assert main([*words, "--workers", "2"]) == 0
    assert content_of(store, f"{store.bucket}/run") == whole
    assert not store.server.faults
    shards = {frozenset(name for name in repository if f"run/{number:06}/" in name) for number in range(4)}
    assert all(f"{next(iter(shard)).rpartition('/')[0]}/_SUCCESS" in shard for shard in shards)
    rest = [commit for commit in store.server.commits if commit not in shards]
    assert len(rest) == len(store.server.commits) - len(shards) == 2, "settings and lists"


def test_a_repository_of_triton_is_written_into_a_store(store, tiny_voice, tmp_path):
    words = ["--voice", str(tiny_voice), "--device", "cpu"]
    assert triton_main([f"{store.address}/models", *words]) == 0
    assert triton_main([str(tmp_path / "models"), *words]) == 0
    here = {str(p.relative_to(tmp_path / "models")) for p in (tmp_path / "models").rglob("*") if p.is_file()}
    assert here == set(content_of(store, f"{store.bucket}/models"))


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


@pytest.mark.s3
@pytest.mark.parametrize(("name", "value"), [("AWS_CONFIG_FILE", "/none"), ("AWS_PROFILE", "nobody")])
def test_a_store_that_does_not_know_the_caller_says_how_it_can(name, value, monkeypatch):
    for unset in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(unset, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv(name, value)
    with pytest.raises(
        InputError, match=r"^s3://bucket/run: .*: set AWS_ACCESS_KEY_ID and .* FSSPEC_S3_ANON=1$"
    ):
        fetch_folder("s3://bucket/run")


@pytest.mark.parametrize(
    ("address", "said", "way"),
    [
        ("gs://b/run", "Anonymous caller does not have storage.objects.get access", "FSSPEC_GS_TOKEN=anon"),
        ("az://b/run", "Must provide an account_name with credentials!!", "AZURE_STORAGE_CONNECTION_STRING"),
        ("hf://datasets/a/run", "401 Client Error: Unauthorized for url", "HF_TOKEN, or run hf auth login"),
        ("hf://datasets/a/run", "Name or service not known", None),
    ],
)
def test_each_store_has_its_way_in(address, said, way):
    told = words_about(address, OSError(said))
    assert told.startswith(f"{address}: {said}") and (way in told if way else told.endswith(said))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("verify", "-o --plot --json"),
        ("benchmark", "-o --profile"),
        ("check_gpu", "-o"),
        ("speak", "--plot"),
        ("transcribe", "-- --manifest"),
        ("copy_synthesis", "--"),
    ],
)
def test_an_address_is_no_place_of_this_machine(name, options):
    command = import_module(f"melforge.common.cli.{name}")
    for option in options.split():
        with pytest.raises(InputError, match="must be a file or a folder of this machine, not s3://bucket/x"):
            command.main([option, "s3://bucket/x"])


def test_what_is_an_address():
    assert all(map(is_address, ("s3://b/run", "gs://b", "hf://datasets/x", "file:///x")))
    assert not any(map(is_address, ("run", "/s3:/run", "C:\\run", "acoustic=run", "")))
