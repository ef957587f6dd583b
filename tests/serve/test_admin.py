"""What administrators do to a running server: no request is lost by it, and all processes follow."""

import contextlib
import json
import os
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.serve.conftest import PATIENCE, ROOT, SPEECH, own_pcm, running, samples_of, serving, wait_for
from tests.serve.test_api import require_error
from tests.serve.test_callers import sha256, table  # noqa: F401  (a fixture)
from tests.serve.test_processes import children_of

pytestmark = pytest.mark.serve
TEXT = "Hello there, all of you."
OTHER = "Goodbye there, all of you."


@pytest.fixture
def voices(tmp_path, monkeypatch):
    """A folder with the voice hazel, to which `add_voice` adds others."""
    folder = tmp_path / "voices"
    monkeypatch.setenv("MELFORGE_VOICES", str(folder))
    add_voice(folder, "hazel")
    return folder


def add_voice(folder, name):
    """Hazel by another name."""
    unused = shutil.ignore_patterns("tacotron2", "waveglow", "fastspeech")
    shutil.copytree(ROOT / "voices" / "hazel", folder / name, ignore=unused)
    file = folder / name / "voice.yaml"
    file.write_text(file.read_text().replace("name: hazel", f"name: {name}"))


@pytest.fixture
def keys(table):  # noqa: F811
    return str(table(Ann={"sha256": sha256("one")}, Boss={"sha256": sha256("two"), "admin": True}))


def order(boss, voice, action):
    answer = boss.post(f"/v1/admin/voices/{voice}/{action}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def spoken(client, text=TEXT, **fields):
    answer = client.post(SPEECH, json=own_pcm(text, **fields))
    assert answer.status_code == 200, answer.text
    return samples_of(answer.content).tolist()


def test_admin_routes_are_for_admins_and_say_who_did_what(keys, caplog):
    caplog.set_level("INFO", "melforge.serve")
    with running(keys) as server, server.client("one") as client, server.client("two") as boss:
        for ask in (client.get, client.post):
            path = "state" if ask == client.get else "voices/hazel/reload"
            assert require_error(ask(f"/v1/admin/{path}"), 403)["code"] == "not_admin"
        assert require_error(server.client("s3cret").get("/v1/admin/state"), 401)
        state = boss.get("/v1/admin/state").json()
        assert state["keys"] == 2 and {"melforge", "python", "onnxruntime"} == set(state["versions"])
        (process,) = state["processes"]
        assert process["pid"] == os.getpid() and process["loaded"] == ["hazel/fastpitch", "hazel/hifigan"]
        assert process["memory_mb"]["weights"] > 1 and process["streams"] == 0
        for voice, action, message in (
            ("hazel", "unload", "voice 'hazel' is the only one: load another one first"),
            ("elm", "reload", "voice 'elm' is not loaded: hazel can be read again"),
            ("elm", "load", "unknown voice 'elm'"),
            ("..", "load", "unknown voice"),
        ):
            answer = boss.post(f"/v1/admin/voices/{voice.replace('.', '%2e')}/{action}")
            assert answer.status_code in (400, 404) and (answer.status_code == 404 or message in answer.text)
        assert boss.post("/v1/admin/voices/hazel/destroy").status_code == 400
    audit = [record.fields for record in caplog.records if record.message == "audit"]
    assert [one["refused"] for one in audit if "refused" in one] == [
        "no admin",
        "no admin",
        "a valid API key is needed: Authorization: Bearer KEY",
    ]
    done = [(one["key"], one["voice"], one["action"]) for one in audit if "action" in one]
    assert done[:3] == [("Boss", "hazel", "unload"), ("Boss", "elm", "reload"), ("Boss", "elm", "load")]
    assert "s3cret" not in json.dumps([getattr(record, "fields", {}) for record in caplog.records])


def test_without_keys_nobody_is_admin(server):
    assert require_error(httpx.get(f"{server.url}/v1/admin/state"), 403)["code"] == "not_admin"


def test_a_voice_is_read_again_while_it_speaks_and_what_speaks_ends_on_the_old_one(voices, keys, direct):
    book = " ".join([TEXT] * 30)
    with running(keys, voice=None, ahead=1.0) as server, server.client("two") as boss:
        before = spoken(boss)
        assert before == spoken(boss, TEXT)
        whole = spoken(boss, book)
        with boss.stream("POST", SPEECH, json=own_pcm(book)) as answer:
            parts = answer.iter_raw()
            heard = next(parts)
            (voices / "hazel" / "lexicon.yaml").write_text("hello: goodbye\n")
            tts = server.service.pairs.get(server.service.pairs.first)
            order(boss, "hazel", "reload")
            assert server.service.pairs.get(server.service.pairs.first) is not tts
            with server.client("one") as client:
                assert spoken(client) == spoken(client, OTHER) != before
            assert samples_of(heard + b"".join(parts)).tolist() == whole
        (voices / "hazel" / "lexicon.yaml").write_text("hello: [")
        answer = boss.post("/v1/admin/voices/hazel/reload")
        assert "lexicon.yaml" in require_error(answer, 400)["message"]
        assert spoken(boss) != before


def test_voices_come_and_go(voices, keys):
    with running(keys, voice=None) as server, server.client("two") as boss:
        before = spoken(boss)
        require_error(boss.post(SPEECH, json=own_pcm(TEXT, voice="elm")), 400)
        add_voice(voices, "elm")
        assert order(boss, "elm", "load")["voices"] == ["hazel", "elm"]
        assert spoken(boss, voice="elm") == before
        assert [one["id"] for one in boss.get("/v1/audio/voices").json()["voices"]][:2] == ["hazel", "elm"]
        with boss.stream("POST", SPEECH, json=own_pcm(TEXT * 30)) as answer:
            parts = answer.iter_raw()
            next(parts)
            assert order(boss, "hazel", "unload") == {
                "voice": "hazel",
                "voices": ["elm"],
                "loaded": ["elm/fastpitch", "elm/hifigan"],
            }
            assert sum(map(len, parts)) > 2 * 10 * len(before)
        error = require_error(boss.post(SPEECH, json=own_pcm(TEXT)), 400)
        assert error["param"] == "voice" and "unknown voice 'hazel'" in error["message"]
        assert spoken(boss, voice="alloy") == before and boss.get("/ready").status_code == 200
        assert order(boss, "hazel", "load")["voices"] == ["elm", "hazel"]
        assert spoken(boss) == before


def test_no_request_is_lost_while_voices_are_read_again(voices, keys):
    add_voice(voices, "elm")
    ended = threading.Event()
    with running(keys, voice=None) as server, server.client("two") as boss:
        before = spoken(boss)

        def ask(voice):
            count = 0
            with server.client("one") as client:
                while not ended.is_set():
                    assert spoken(client, voice=voice) == before
                    count += 1
            return count

        with ThreadPoolExecutor(4) as callers:
            counts = [callers.submit(ask, voice) for voice in ("hazel", "elm") * 2]
            try:
                for _ in range(5):
                    order(boss, "hazel", "reload")
                    order(boss, "elm", "reload")
            finally:
                ended.set()
            assert all(count.result() for count in counts)


@pytest.mark.slow
def test_all_processes_follow_and_have_one_limit_and_so_has_one_that_takes_another_s_place(voices, table):  # noqa: F811
    keys = table(Ann={"sha256": sha256("one"), "requests": 1}, Boss={"sha256": sha256("two"), "admin": True})
    with (
        serving("--processes", "2", "--workers", "1", "--keys", str(keys)) as server,
        contextlib.ExitStack() as stack,
    ):
        threading.Thread(target=server.process.stderr.read, daemon=True).start()
        boss = {"Authorization": "Bearer two"}

        def of_each():
            """A client of each process, and what that process says of itself."""
            found = {}
            while len(found) < 2:
                client = stack.enter_context(httpx.Client(base_url=server.url, timeout=PATIENCE))
                with contextlib.suppress(httpx.TransportError):
                    state = client.get("/v1/admin/state", headers=boss).json()
                    found[state["processes"][0]["pid"]] = client, state["processes"][0]
            return found

        def offered():
            return [state["voices"] for _, state in of_each().values()]

        (client, _), (other, _) = of_each().values()
        states = lambda: client.get("/v1/admin/state", headers=boss).json()["processes"]  # noqa: E731
        wait_for(lambda: len(states()) == 2, "both")
        ann = {"Authorization": "Bearer one"}
        answers = [one.post(SPEECH, json=own_pcm("Hi."), headers=ann) for one in (client, other, client)]
        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert answers[0].headers["x-ratelimit-remaining-requests"] == "0"
        client.headers.update(boss)
        add_voice(voices, "elm")
        order(client, "elm", "load")
        assert offered() == [["hazel", "elm"]] * 2
        order(client, "hazel", "unload")
        assert offered() == [["elm"]] * 2 and {one["orders"] for one in states()} == {2}
        killed = children_of(server.process.pid)[0]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len({*children_of(server.process.pid)} - {killed}) == 2, "another process")
        assert offered() == [["elm"]] * 2 and killed not in of_each()
