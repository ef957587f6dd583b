"""docs/clients.md: each client has its test, and what the page says runs."""

import os
import re
import subprocess
import sys

import pytest

from tests.serve.conftest import PATIENCE, ROOT

PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| [")]
HEARD = "open at nine"  # of "We open at nine."


def test_every_client_has_its_test():
    assert len(ROWS) > 10
    for row in ROWS:
        file, _, function = re.search(r"`(tests/[^`]*)` \|$", row)[1].partition("::")
        assert re.search(rf"^def {function}\(", (ROOT / file).read_text(), re.M), row


def block(heading, language):
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.search(rf"```{language}\n(.*?)```", section, re.S)[1]


@pytest.mark.slow
@pytest.mark.serve
@pytest.mark.parametrize(
    ("heading", "language", "program"),
    [
        pytest.param("OpenAI's clients", "bash", ["bash", "-euo", "pipefail"], marks=pytest.mark.curl),
        pytest.param("OpenAI's clients", "python", [sys.executable], marks=pytest.mark.openai),
        pytest.param("OpenAI's clients", "js", ["node"], marks=pytest.mark.openai_js),
    ],
)
def test_what_the_page_says_runs(server, tmp_path, heading, language, program):
    file = tmp_path / f"example.{'mjs' if language == 'js' else language}"
    file.write_text(block(heading, language).replace("http://127.0.0.1:8000", server.url))
    if language == "js":
        (tmp_path / "node_modules").symlink_to(os.environ["MELFORGE_NODE_MODULES"])
    ended = subprocess.run(
        [*program, file], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert HEARD in ended.stdout and (tmp_path / "hello.mp3").stat().st_size > 4000
