"""128 clients at a server with a short queue: whom it takes gets the whole text, the others hear at once."""

import json
import os
import random
import signal
import threading

import httpx
import numpy as np
import pytest

from tests.flood import IN_TIME, SECONDS, flood, post, private_mb, seconds_from_now
from tests.serve.conftest import PATIENCE, SPEECH, own_pcm, samples_of, serving, wait_for
from tests.serve.test_processes import children_of, events, two_processes

pytestmark = [pytest.mark.serve, pytest.mark.slow, IN_TIME]
QUEUE = 16


@pytest.fixture(scope="module")
def is_whole(direct):
    """Whether pcm is a text's, in a server of this machine."""
    known = {}

    def is_whole(text, pcm):
        if text not in known:
            known[text] = direct.speak(text).samples
        got = samples_of(pcm) / 32768
        return got.shape == known[text].shape and bool(np.allclose(got, known[text], atol=1e-3))

    return is_whole


async def ask(connection, text):
    status, headers, content = await post(connection, SPEECH, json.dumps(own_pcm(text)).encode())
    assert (status == 503) == ("retry-after" in headers)
    return status, content


def test_a_flood_is_refused_and_the_server_is_well_behind_it(is_whole):
    # Its other limits are those of one address.
    words = ("--queue", str(QUEUE), "--max-batch", "1", "--key-requests", "1000")
    with serving(*words) as server:
        pids = [server.process.pid]
        flood(server.url, ask, is_whole, seconds_from_now(min(SECONDS, 4)))
        before = private_mb(pids)
        found = flood(server.url, ask, is_whole, seconds_from_now())
        print(f"{found}\nmemory {before:.0f} MB before, {private_mb(pids):.0f} MB after")
        assert not found.failed and not found.wrong, found
        assert len(found.answered) >= QUEUE and len(found.refused) > 128 - QUEUE
        assert httpx.get(f"{server.url}/ready", timeout=PATIENCE).status_code == 200
        assert "requests_running 0.0" in httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text
        assert server.process.poll() is None


def test_processes_that_are_killed_again_and_again_leave_whole_answers_or_errors(is_whole):
    draw, kills, is_over = random.Random(0), [], seconds_from_now()
    with two_processes() as (server, lines, _):

        def kill():
            while not is_over() or len(kills) < 2:
                kills.append(draw.choice(children_of(server.process.pid)))
                os.kill(kills[-1], signal.SIGKILL)
                wait_for(lambda: events(lines).count("listening") > len(kills), "its replacement")

        killer = threading.Thread(target=kill)
        killer.start()
        found = flood(server.url, ask, is_whole, lambda: not killer.is_alive(), clients=6)
        killer.join()
        print(f"{len(kills)} processes killed\n{found}")
        assert not found.wrong and len(found.answered) > len(kills), found
        assert all(one.startswith("0 ") for one in found.failed), found.failed
        assert httpx.get(f"{server.url}/ready", timeout=PATIENCE).status_code == 200
