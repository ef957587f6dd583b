"""Who asked: their keys, in the log and the metrics, and what a key may ask for in a minute."""

import hashlib
import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from melforge.common.config import watched
from melforge.common.errors import InputError
from melforge.common.serve.allowance import Allowance, Allowances
from melforge.common.serve.keys import Keys, key_file
from tests.serve.conftest import SPEECH, running, speech, wait_for
from tests.serve.test_api import require_error

pytestmark = pytest.mark.serve


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture
def table(tmp_path):
    """Writes a file of keys, each time as if later."""
    path = tmp_path / "keys.json"

    def write(**entries):
        path.write_text(json.dumps(entries))
        when = time.time_ns() + 10**9 * next(times)
        os.utime(path, ns=(when, when))
        return path

    times = iter(range(1, 100))
    return write


def test_an_allowance_fills_up_by_the_minute():
    allowance = Allowance(60)
    assert allowance.wait(60) == 0.0
    allowance.left -= 60
    assert allowance.wait(1) == 1.0 and allowance.wait(30) == 30.0
    assert allowance.wait(1000) == 60.0  # more than it can ever be: all of it
    assert allowance.headers == ("60", "0", "1m0s")
    allowance.fill(30.0)
    assert allowance.wait(30) == 0.0 and allowance.wait(31) == 1.0
    assert allowance.headers == ("60", "30", "30s")
    allowance.fill(1e6)
    assert allowance.wait(1000) == 0.0
    allowance.left -= 1000
    assert allowance.wait(10) == pytest.approx(950.0)  # which the next ones wait for


def test_allowances_are_shared_by_all_that_have_the_folder(tmp_path):
    most = {"requests": 1000}
    several = [Allowances(lambda: 5.0, tmp_path) for _ in range(4)]

    def take_many(allowances):
        return sum(not allowances.take("Ann", most, {"requests": 1})[1] for _ in range(400))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(take_many, several)) == 1000
    what, wait = several[0].take("Ann", most, {"requests": 1})
    assert what == "requests" and math.isclose(wait, 0.06)
    assert several[0].take("Ben", most, {"requests": 1}) == ("", 0.0)
    nowhere = Allowances(lambda: 5.0, tmp_path / "full")  # each process counts for itself then
    assert [nowhere.take("Ann", {"requests": 1}, {"requests": 1})[0] for _ in range(2)] == ["", "requests"]


SECOND = "second of sixteen"


def test_a_table_of_keys_has_names_hashes_limits_and_an_end(table):
    path = table(
        Ann={"sha256": sha256("first"), "requests": 3, "audio_seconds": 1.5},
        Ben={"key": SECOND, "admin": True, "expires": "2999-01-01"},
        Cyd={"sha256": sha256("third").upper(), "expires": "2020-01-01T00:00:00+02:00"},
    )
    keys = Keys(key_file(path))
    assert [keys.caller(f"Bearer {key}".encode()) for key in ("first", SECOND)] == ["Ann", "Ben"]
    assert (keys.named("Ann").requests, keys.named("Ann").admin, keys.named("Ben").admin) == (3, False, True)
    for given, message in (("third", "the API key 'Cyd' has expired"), (sha256("first"), "a valid API key")):
        with pytest.raises(Exception, match=message) as caught:
            keys.caller(f"Bearer {given}".encode())
        assert caught.value.status == 401


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"key": "s3cret of sixteen", "sha256": "0" * 64}, "give one of key and sha256"),
        ({}, "give one of key and sha256"),
        ({"key": 5318008}, "key must be text"),
        (
            {"key": "s3cret"},
            "a key of 6 characters can be guessed: 16 are the least, and openssl rand -hex 24",
        ),
        ({"sha256": "s3cret"}, "sha256 must be 64 hexadecimal digits"),
        ({"key": "s3cret of sixteen", "requests": 0}, "requests must be more than 0, not 0"),
        ({"key": "s3cret of sixteen", "requets": 1}, "unknown key 'requets'; did you mean 'requests'"),
        (
            {"key": "s3cret of sixteen", "expires": "soon"},
            "expires must be a date such as 2027-01-31, or a time, not",
        ),
    ],
)
def test_what_is_wrong_in_a_table_is_named_without_the_key(table, entry, message):
    path = table(Ann=entry)
    with pytest.raises(InputError, match=message) as caught:
        key_file(path)
    assert "keys.json, line 1: " in str(caught.value)
    assert "s3cret" not in str(caught.value) and "5318008" not in str(caught.value)


def test_one_key_has_one_name_and_each_has_one(table):
    for entries, message in (
        ({"Ann": {"sha256": sha256("one")}, "Ben": {"sha256": sha256("one")}}, "two names have one key"),
        ({" ": {"sha256": sha256("one")}}, "a name is missing"),
        ({}, "holds no API key"),
    ):
        with pytest.raises(InputError, match=message):
            key_file(table(**entries))


def test_keys_are_read_again_when_they_change_and_a_broken_file_changes_nothing(table, monkeypatch, caplog):
    monkeypatch.setattr(watched, "LOOK_EVERY", -1.0)
    path = table(Ann={"sha256": sha256("one")}, Ben={"sha256": sha256("two")})
    with running(str(path)) as server:

        def status(key):
            with server.client(key) as client:
                return client.get("/v1/models").status_code

        assert [status(key) for key in ("one", "two", "three")] == [200, 200, 401]
        table(Ann={"sha256": sha256("one")}, Cyd={"sha256": sha256("three")})
        assert [status(key) for key in ("one", "two", "three")] == [200, 401, 200]
        table(Ann={"key": 1})
        assert [status(key) for key in ("one", "two", "three")] == [200, 401, 200]
        assert "not read again" in caplog.text and "key must be text" in caplog.text
        path.unlink()
        assert status("one") == 200
        table(Ben={"sha256": sha256("two")})
        assert [status(key) for key in ("one", "two", "three")] == [401, 200, 401]


def test_a_token_ends_with_its_key(table, monkeypatch):
    monkeypatch.setattr(watched, "LOOK_EVERY", -1.0)
    with running(str(table(Ann={"sha256": sha256("one")}))) as server:
        with server.client("one") as client:
            token = client.post("/v1/realtime/client_secrets", json={}).json()["value"]
        with server.client(token) as client:
            assert client.post(SPEECH, json=speech("Hi.")).status_code == 200
            require_error(client.get("/v1/usage"), 401)
            table(Ann={"sha256": sha256("one"), "expires": "2020-01-01"})
            require_error(client.post(SPEECH, json=speech("Hi.")), 401)


def test_a_key_has_so_many_requests_and_characters_a_minute(caplog):
    caplog.set_level("INFO", "melforge.serve")
    with running((b"one", b"two"), key_requests_minute=2, key_characters_minute=50) as server:
        clock = server.service.scheduler.clock
        server.service.scheduler.clock = lambda: clock_stands
        clock_stands = clock()
        with server.client("one") as client, server.client("two") as other:
            assert client.post(SPEECH, json=speech("Hello.")).status_code == 200
            long = client.post(SPEECH, json=speech("Hello there, and hello to all of the others. " * 2))
            assert require_error(long, 429)["code"] == "rate_limit_exceeded"
            assert long.headers["Retry-After"] == "8" and "50 characters" in long.json()["error"]["message"]
            items = {"items": [{"input": "One."}, {"input": "Two."}], "defaults": speech()}
            several = client.post(f"{SPEECH}/batch", json=items)
            assert require_error(several, 429)["message"] == "this key has had its 2 requests of the minute"
            assert several.headers["Retry-After"] == "30"
            assert other.post(f"{SPEECH}/batch", json=items).json()["succeeded"] == 2
            clock_stands += 30.0
            assert client.post(SPEECH, json=speech("Hello.")).status_code == 200
            for line in (
                'key_requests_total{key="owner 1",status="200"} 2.0',
                'key_requests_total{key="owner 1",status="429"} 2.0',
                'key_characters_total{key="owner 1"} 12.0',
                'key_characters_total{key="owner 2"} 8.0',
            ):  # an answer may be counted after it was read
                wait_for(lambda line=line: f"melforge_{line}\n" in other.get("/metrics").text, line)
            assert 'melforge_key_audio_seconds_total{key="owner 2"}' in other.get("/metrics").text
    requests = [record.fields for record in caplog.records if record.message == "request"]
    assert [one["key"] for one in requests] == ["owner 1"] * 3 + ["owner 2", "owner 1"]
    assert {one["client"] for one in requests} == {"127.0.0.1"}


def test_without_keys_there_is_no_limit_and_nothing_is_counted_by_key(caplog):
    caplog.set_level("INFO", "melforge.serve")
    with running(key_requests_minute=1) as server, server.client() as client:
        assert [client.post(SPEECH, json=speech()).status_code for _ in range(2)] == [200, 200]
        assert 'key="' not in client.get("/metrics").text
    assert all("key" not in record.fields for record in caplog.records if record.message == "request")
