"""The example without a framework, with a language model that says always the same."""

import json
import subprocess
import sys
import threading
import wave
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.serve.conftest import PATIENCE, ROOT, direct, running  # noqa: F401  (a fixture)

TEXT = "A comet is a ball of ice. It has a tail."


class Writing(BaseHTTPRequestHandler):
    """OpenAI's chat API, as far as the example asks."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["messages"][0]["content"] == "What is a comet?" and asked["stream"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        about = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": asked["model"]}
        for start in range(0, len(TEXT), 4):
            choice = {"index": 0, "delta": {"content": TEXT[start : start + 4]}, "finish_reason": None}
            self.wfile.write(f"data: {json.dumps({**about, 'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *words):
        pass


@pytest.mark.serve
@pytest.mark.openai
def test_what_a_model_writes_is_spoken(direct, tmp_path):  # noqa: F811
    model = ThreadingHTTPServer(("127.0.0.1", 0), Writing)
    threading.Thread(target=model.serve_forever, args=(0.05,), daemon=True).start()
    command = [sys.executable, ROOT / "examples" / "assistant.py", "What is a comet?", "--model", "one"]
    command += ["--llm", f"http://127.0.0.1:{model.server_address[1]}/v1", "-o", tmp_path / "comet.wav"]
    with running() as server:
        command += ["--server", server.url.replace("http", "ws"), "--voice", "hazel"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    model.shutdown()
    model.server_close()
    assert done.stdout.strip() == TEXT, done.stderr
    with wave.open(str(tmp_path / "comet.wav")) as file:
        assert file.getnframes() == sum(len(direct.speak(f"{one}.").samples) for one in TEXT.split(".")[:2])
