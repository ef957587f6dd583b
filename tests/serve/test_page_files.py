"""The page's files and what the server tells it, without a browser."""

import re
from pathlib import Path

import pytest

from tests.serve.conftest import ROOT, SPEECH, running, speech

pytestmark = pytest.mark.serve
FOLDER = ROOT / "common" / "serve" / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def test_the_page_is_served_with_its_types_and_a_strict_policy(server):
    with server.client() as client:
        page, docs = client.get("/"), client.get("/docs")
        files = {path.name: client.get(f"/page/{path.name}") for path in FOLDER.iterdir()}
    assert page.content == (FOLDER / "index.html").read_bytes()
    assert docs.content == (FOLDER / "docs.html").read_bytes()
    for name, answer in files.items():
        assert answer.status_code == 200 and answer.content == (FOLDER / name).read_bytes()
        assert answer.headers["content-type"].startswith(TYPES[Path(name).suffix])
    for answer in (page, docs, *files.values()):
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_other_files_are_not_served(server):
    with server.client() as client:
        for path in ("/page/nothing.js", "/page/..%2fweb.py", "/page/%2e%2e/web.py", "/page/", "/web.py"):
            answer = client.get(path)
            assert answer.status_code == 404 and answer.json()["error"]["message"], path


def test_the_page_asks_nobody_else_and_has_no_inline_code():
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        others = set(re.findall(r"\w+://[^\s\"')]+", text))
        assert others <= {"http://www.w3.org/2000/svg"}, path
        assert all(len(line) <= 110 for line in text.splitlines()), path
    pages = [(FOLDER / name).read_text(encoding="utf-8") for name in ("index.html", "docs.html")]
    assert not any(re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page) for page in pages)
    named = {name for page in pages for name in re.findall(r"(?:src|href)=\"page/([^\"]+)\"", page)}
    scripts = [path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js")]
    named |= {name for text in scripts for name in re.findall(r"from \"\./([^\"]+)\"", text)}
    assert named | {"index.html", "docs.html"} == {path.name for path in FOLDER.iterdir()}


def test_the_options_are_those_that_the_server_takes(server):
    from melforge.common.speech import control_fields

    with server.client() as client:
        options = client.get("/v1/audio/options").json()
        names = [row["id"] for row in client.get("/v1/models").json()["data"]]
    assert [pair["name"] for pair in options["pairs"]] == [name for name in names if "-" in name][:6]
    assert options["max_characters"] == 4096 and options["ear"] == "rowan"
    assert {"mp3", "opus", "flac", "wav", "pcm"} <= {*options["formats"]}
    rows = {row["name"]: row for row in options["controls"]}
    assert [*rows] == ["speed" if name == "pace" else name for name in control_fields()]
    assert rows["speed"] == {
        "name": "speed", "kind": "number", "help": rows["speed"]["help"], "unit": "",
        "default": 1.0, "low": 0.25, "high": 4.0,
    }  # fmt: skip
    assert rows["dropout"]["kind"] == "switch" and rows["dropout"]["negated"] == "no_dropout"
    assert rows["step_limit"]["high"] is None and rows["sigma"]["default"] is None
    for pair in options["pairs"]:
        assert pair["voices"]["hazel"]["mel"]["sampling_rate"] == 22050
        for name, row in rows.items():
            other = {"switch": row["default"] is False, "integer": 3}.get(row["kind"], 0.5)
            fields = speech("Hi.", model=pair["name"], **{name: other})
            status = server.speak("Hi.", model=pair["name"], **{name: other}).status_code
            assert (status == 200) == (name in pair["controls"]), fields


def test_the_options_need_a_key_where_speech_does_and_the_page_does_not():
    with running(keys=(b"secret",)) as server:
        with server.client() as client:
            assert client.get("/").status_code == client.get("/page/main.js").status_code == 200
            assert client.get("/v1/audio/options").status_code == 401
            assert client.post(SPEECH, json=speech()).status_code == 401
        with server.client("secret") as client:
            assert client.get("/v1/audio/options").json()["pairs"]
