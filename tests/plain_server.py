"""A speech server of the standard library, whose answers a test chooses: what clients are tested with."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Respond = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    """`server.respond` answers; what was asked is kept in `server.asked`, connections in `server.opened`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.opened += 1

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        head = int(
            self.headers.get("Inference-Header-Content-Length", len(data))
        )  # KServe's, of binary tensors
        body = json.loads(data[:head])
        with self.server.lock:
            tensors = {"binary": data[head:]} if data[head:] else {}
            about = {"path": self.path, "headers": dict(self.headers)}
            self.server.asked.append({**about, **body, **tensors})
        self.server.respond(self, body)

    def do_GET(self) -> None:
        self.server.respond(self, {})

    def chunked(self, chunks, pause: float = 0.0) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, chunk in enumerate(chunks):
            time.sleep(pause if number else 0.0)
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def whole(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def answering(respond: Respond) -> Iterator[Any]:
    """A server on a free port, with `url`."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.respond, server.asked, server.opened, server.lock = respond, [], 0, threading.Lock()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
