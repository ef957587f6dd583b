"""Object stores: files and folders at addresses such as s3://bucket/run, through fsspec."""

from __future__ import annotations

import contextlib
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from melforge.common.errors import InputError, install_command, require_package
from melforge.common.files import cache_folder, written_whole

NO_ADDRESS = "must be a file or a folder of this machine"
HUB = "hf://"
SUCCESS = "_SUCCESS"  # an object beside others that are all there
TOO_MANY_REQUESTS = 429
PASSING = (409, 412, 500, 502, 503, 504)  # another's commit was first, or the Hub is not well
ATTEMPTS = 5
# Its package waits longer than this for a Hub that is away, in all calls but that which makes a commit.
AWAY_SECONDS = 20.0
NO_LIMIT_SECONDS = 60.0  # where 429 does not say how long
TELL_SECONDS = 10.0  # pauses from here on are told
# What tells a store who asks, by the beginning of its addresses.
WAYS_IN = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for a public bucket "
    "FSSPEC_S3_ANON=1",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a key's file; for a public bucket FSSPEC_GS_TOKEN=anon",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or "
    "AZURE_STORAGE_CONNECTION_STRING; for a public container AZURE_STORAGE_ANON=true and the name alone",
    "hf": "set HF_TOKEN, or run hf auth login",
}
UNKNOWN_CALLER = re.compile(
    r"credential|profile|denied|forbidden|unauthori[sz]ed|authenticat|anonymous|access key|\b40[13]\b", re.I
)
Answer = TypeVar("Answer")
ADDRESS = re.compile(r"[A-Za-z][\w+.-]+://")


def is_address(text: object) -> bool:
    return ADDRESS.match(str(text)) is not None


def store_of(address: str) -> tuple[Any, str]:
    """fsspec's file system of an address, and the path there. An InputError where its package is missing."""
    fsspec = require_package("fsspec", address, "remote")
    try:
        store, path = fsspec.core.url_to_fs(address, use_listings_cache=False)  # others write there too
        store.invalidate_cache()  # the Hub's has one all the same
        return store, path
    except (ImportError, ValueError) as error:
        advice = f": {install_command('remote')}" if address.startswith("s3://") else ""
        raise InputError(f"{words_about(address, error)}{advice}") from None


def words_about(address: str, error: Exception) -> str:
    """What a store's package says, and the way in where it does not know who asks."""
    what = str(error) or type(error).__name__
    way = WAYS_IN.get(address.partition("://")[0]) if UNKNOWN_CALLER.search(what) else None
    return f"{address}: {what}: {way}" if way else f"{address}: {what}"


def ask(address: str, call: Callable[..., Answer], *words: Any, **named: Any) -> Answer:
    """What a store's call returns. What its package raises, such as without credentials, is an InputError.

    The Hub is asked again where that helps: after too many requests, where another's commit was first or the
    connection broke. Other stores' packages do so themselves.
    """
    attempt, begun = 0, time.monotonic()
    while True:
        try:
            return call(*words, **named)
        except InputError:
            raise
        except FileNotFoundError:
            raise FileNotFoundError(f"{address} not found") from None
        except Exception as error:
            is_hub, waited = address.startswith(HUB), time.monotonic() - begun
            seconds = _until_again(error, attempt, waited) if is_hub else None
            if seconds is None:
                raise InputError(words_about(address, error)) from None
            if seconds >= TELL_SECONDS:
                told = f"{words_about(address, error)}; goes on in {seconds:.0f} s"
                print(told, file=sys.stderr, flush=True)
        time.sleep(seconds)
        attempt += 1


def _until_again(error: Exception, attempt: int, waited: float) -> float | None:
    """Seconds until the Hub may be asked again after this error; None where there is no use in it.

    `waited` are those that the call and its repetitions took up to now.
    """
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if response is not None and status == TOO_MANY_REQUESTS:
        limit = import_module("huggingface_hub.utils").parse_ratelimit_headers(response.headers)
        if limit is not None and limit.remaining == 0:
            return limit.reset_in_seconds
        after = response.headers.get("retry-after", "")
        return int(after) if after.isdigit() else NO_LIMIT_SECONDS
    is_broken = response is None and hasattr(error, "request")
    asked = getattr(error, "request", None) if response is None else response
    is_commit = "/commit/" in str(getattr(asked, "url", ""))
    if (is_broken or status in PASSING) and attempt < ATTEMPTS and (is_commit or waited < AWAY_SECONDS):
        return random.uniform(0.1, 2**attempt)  # workers that meet should not meet again
    return None


def fetch_file(address: str, folder: Path) -> Path:
    """A copy of a file, under its name in `folder`."""
    store, path = store_of(address)
    target = folder / PurePosixPath(path).name
    with written_whole(target) as file:
        ask(address, store.get_file, path, str(file))
    return target


def fetch_folder(address: str) -> Path:
    """A copy of a folder in the cache, made anew where a file there is another one."""
    import hashlib

    store, path = store_of(address)
    found = ask(address, store.find, path)
    if not found:
        raise FileNotFoundError(f"{address} not found")
    versions = sorted((name, ask(address, store.ukey, name)) for name in found)
    key = hashlib.sha256(repr((address, versions)).encode()).hexdigest()[:20]
    target = cache_folder() / "remote" / key / PurePosixPath(path).name
    for name in found:
        file = target / PurePosixPath(name).relative_to(path)
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(file) as temporary:
                ask(address, store.get_file, name, str(temporary))
    return target


def send_folder(folder: Path, address: str) -> None:
    """Copies all files of a folder to an address: SUCCESS last, or all of them as one commit of the Hub."""
    store, path = store_of(address)
    files = [one for one in folder.rglob("*") if one.is_file()]
    paths = {f"{path}/{file.relative_to(folder).as_posix()}": file for file in files}
    if address.startswith(HUB) and not address.startswith(f"{HUB}buckets/"):
        ask(address, _commit, store, paths, f"Add {PurePosixPath(path).name}")
        return
    for name in sorted(paths, key=lambda name: (name.endswith(f"/{SUCCESS}"), name)):
        ask(address, store.put_file, str(paths[name]), name)


def _commit(store: Any, files: Mapping[str, Path], summary: str) -> None:
    """Files by their paths in the store, of one repository; those that are there already are left out."""
    hub = import_module("huggingface_hub")
    hub.utils.disable_progress_bars()
    places = {name: store.resolve_path(name) for name in files}
    place = next(iter(places.values()))
    into = {"repo_id": place.repo_id, "repo_type": place.repo_type, "revision": place.revision}
    added = [hub.CommitOperationAdd(places[name].path_in_repo, file) for name, file in files.items()]
    api = hub.HfApi(endpoint=store.endpoint, token=store.token)
    # By itself, for a .gitignore in the repository would leave files out without a word.
    api.preupload_lfs_files(additions=added, free_memory=False, gitignore_content="", **into)
    api.create_commit(operations=added, commit_message=summary, **into)


@contextlib.contextmanager
def sent(place: str) -> Iterator[Path]:
    """A folder to write to: the one of this path, or one that is sent to this address in the end."""
    if not is_address(place):
        yield Path(place)
        return
    store_of(place)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / PurePosixPath(place).name
        yield folder
        send_folder(folder, place)
