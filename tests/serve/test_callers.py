"""Who asked: in the log, in the metrics, and what a key may ask for in a minute."""

import pytest

from melforge.common.serve.allowance import Allowance
from tests.serve.conftest import SPEECH, running, speech, wait_for
from tests.serve.test_api import require_error

pytestmark = pytest.mark.serve


def test_an_allowance_fills_up_by_the_minute():
    now = [0.0]
    allowance = Allowance(60, lambda: now[0])
    assert allowance.wait(60) == 0.0
    allowance.take(60)
    assert allowance.wait(1) == 1.0 and allowance.wait(30) == 30.0
    assert allowance.wait(1000) == 60.0  # more than it can ever be: all of it
    now[0] = 30.0
    assert allowance.wait(30) == 0.0 and allowance.wait(31) == 1.0
    now[0] = 1e6
    assert allowance.wait(1000) == 0.0
    allowance.take(1000)
    assert allowance.wait(10) == pytest.approx(950.0)  # which the next ones wait for


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
