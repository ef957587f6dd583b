"""The HTTP of the Hugging Face Hub that huggingface_hub lists, reads and commits with (seen with 2.4).

Files with a zero byte at their beginning are large ones, which go by Git's LFS; Xet is not here.
"""

import base64
import hashlib
import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

OID = "0" * 40
REPOSITORY = r"(?P<repo>(?:models|datasets)/\w+/\w+)"
ROUTES = [
    ("GET", rf"/api/{REPOSITORY}(?:/revision/main)?", "about"),
    ("GET", rf"/api/{REPOSITORY}/tree/main(?:/(?P<path>.+))?", "tree"),
    ("POST", rf"/api/{REPOSITORY}/preupload/main", "preupload"),
    ("POST", rf"/api/{REPOSITORY}/commit/main", "commit"),
    ("POST", r"/(?P<repo>\S+)\.git/info/lfs/objects/batch", "batch"),
    ("PUT", r"/lfs/(?P<oid>\w+)", "upload"),
    ("GET", r"/(?P<repo>\S+)/resolve/main/(?P<path>.+)", "resolve"),
]


def oid_of(content: bytes) -> str:
    """As the client compares it: of LFS for large files, else Git's."""
    if b"\0" in content[:512]:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """Repositories by names such as datasets/me/run, each with its files by path."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.commits: list[set[str]] = []  # the paths that each has written
        # Of the next commits: the status that is answered, its headers, and whether it is made all the same.
        self.faults: deque[tuple[int, dict[str, str], bool]] = deque()
        self._one = threading.Lock()

    def about(self, request: Any, repo: str) -> tuple[int, Any]:
        if repo not in self.repositories:
            return 404, "RepoNotFound"
        return 200, {"id": repo.partition("/")[2], "sha": OID}

    def tree(self, request: Any, repo: str, path: str | None) -> tuple[int, Any]:
        files, start = self.repositories[repo], f"{path}/" if path else ""
        recursive, found = "recursive=true" in request.path.lower(), {}
        for name, content in files.items():
            if name.startswith(start):
                *folders, _ = name.removeprefix(start).split("/")
                for depth in range(len(folders) if recursive else min(1, len(folders))):
                    folder = start + "/".join(folders[: depth + 1])
                    found[folder] = {"type": "directory", "path": folder, "oid": OID, "size": 0}
                if recursive or not folders:
                    oid = oid_of(content)
                    found[name] = {"type": "file", "path": name, "oid": oid, "size": len(content)}
        return (200, list(found.values())) if found or not path else (404, "EntryNotFound")

    def preupload(self, request: Any, repo: str) -> tuple[int, Any]:
        asked, files = json.loads(request.body), []
        ignored = asked.get("gitIgnore", self.repositories[repo].get(".gitignore", b"").decode()).split()
        for one in asked["files"]:
            there = self.repositories[repo].get(one["path"])
            is_large = b"\0" in base64.b64decode(one["sample"])
            files.append(
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if is_large else "regular",
                    "shouldIgnore": any(one["path"].endswith(end.lstrip("*")) for end in ignored),
                    "oid": None if there is None else oid_of(there),
                }
            )
        return 200, {"files": files}

    def commit(self, request: Any, repo: str) -> tuple[int, Any]:
        with self._one:
            status, headers, is_made = self.faults.popleft() if self.faults else (200, {}, True)
            written = set()
            for line in request.body.splitlines() if is_made else ():
                kind, value = (part := json.loads(line))["key"], part["value"]
                files, path = self.repositories[repo], value.get("path")
                if kind == "file":
                    files[path] = base64.b64decode(value["content"])
                elif kind == "lfsFile":
                    files[path] = self.large[value["oid"]]
                elif kind == "deletedFile":
                    del files[path]
                written |= {path} if kind in ("file", "lfsFile") else set()
            self.commits += [written] if is_made else []
        request.more = headers
        return status, {"commitUrl": f"/{repo}/commit/{OID}", "commitOid": OID}

    def batch(self, request: Any, repo: str) -> tuple[int, Any]:
        objects = []
        for one in json.loads(request.body)["objects"]:
            upload = {"upload": {"href": f"{request.server.url}/lfs/{one['oid']}"}}
            objects.append(one if one["oid"] in self.large else {**one, "actions": upload})
        return 200, {"objects": objects}

    def upload(self, request: Any, oid: str) -> tuple[int, Any]:
        assert hashlib.sha256(request.body).hexdigest() == oid
        self.large[oid] = request.body
        return 200, {}

    def resolve(self, request: Any, repo: str, path: str) -> tuple[int, Any]:
        content = self.repositories[repo if repo.count("/") == 2 else f"models/{repo}"].get(path)
        if content is None:
            return 404, "EntryNotFound"
        if part := re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", "")):
            return 206, content[int(part[1]) : int(part[2]) + 1 if part[2] else None]
        return 200, content


@contextmanager
def running_hub() -> Iterator[tuple[str, Hub]]:
    """Its address, and what it holds."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.body, self.more = self.rfile.read(int(self.headers.get("content-length", 0))), {}
            path = unquote(urlsplit(self.path).path)
            method = self.command.replace("HEAD", "GET")
            routes = ((name, re.fullmatch(route, path)) for how, route, name in ROUTES if how == method)
            name, match = next((route for route in routes if route[1]), ("", None))
            status, found = getattr(hub, name)(self, **match.groupdict()) if match else (501, path)
            content = (
                found
                if isinstance(found, bytes)
                else json.dumps({"error": found} if status == 404 else found).encode()
            )
            self.send_response(status)
            if status == 404:
                self.send_header("X-Error-Code", found)
            headers = {"Content-Length": len(content), "ETag": oid_of(content), "X-Repo-Commit": OID}
            for key, value in (headers | self.more).items():
                self.send_header(key, str(value))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_POST = do_PUT = answer

        def log_message(self, *_: object) -> None:
            pass

    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.url, hub
    server.shutdown()
