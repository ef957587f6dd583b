"""Object stores: files and folders at addresses such as s3://bucket/run, through fsspec."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from melforge.common.errors import InputError, install_command, require_package
from melforge.common.files import cache_folder, written_whole

NO_ADDRESS = "must be a file or a folder of this machine"
HUB = "hf://"
ADDRESS = re.compile(r"[A-Za-z][\w+.-]+://")


def is_address(text: object) -> bool:
    return ADDRESS.match(str(text)) is not None


def require_writable(place: str) -> None:
    """An InputError for the Hugging Face Hub, where each file that is sent would be a commit of its own."""
    if place.startswith(HUB):
        raise InputError(f"{place}: {HUB} is for reading; give a folder, and send it with `hf upload`")


def store_of(address: str) -> tuple[Any, str]:
    """fsspec's file system of an address, and the path there. An InputError where its package is missing."""
    fsspec = require_package("fsspec", address, "remote")
    try:
        store, path = fsspec.core.url_to_fs(address, use_listings_cache=False)  # others write there too
        store.invalidate_cache()  # the Hub's has one all the same
        return store, path
    except (ImportError, ValueError) as error:
        advice = f": {install_command('remote')}" if address.startswith("s3://") else ""
        raise InputError(f"{address}: {error}{advice}") from None


@contextlib.contextmanager
def answering(address: str) -> Iterator[None]:
    """What a store's own package raises, such as without credentials, is an InputError with the address."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(f"{address} not found") from None
    except Exception as error:
        raise InputError(f"{address}: {error or type(error).__name__}") from None


def fetch_file(address: str, folder: Path) -> Path:
    """A copy of a file, under its name in `folder`."""
    store, path = store_of(address)
    target = folder / PurePosixPath(path).name
    with answering(address), written_whole(target) as file:
        store.get_file(path, str(file))
    return target


def fetch_folder(address: str) -> Path:
    """A copy of a folder in the cache, made anew where a file there is another one."""
    import hashlib

    store, path = store_of(address)
    with answering(address):
        found = store.find(path, detail=True)
        if not found:
            raise FileNotFoundError(address)
        versions = sorted((name, store.ukey(name)) for name in found)
        key = hashlib.sha256(repr((address, versions)).encode()).hexdigest()[:20]
        target = cache_folder() / "remote" / key / PurePosixPath(path).name
        for name in found:
            file = target / PurePosixPath(name).relative_to(path)
            if not file.is_file():
                file.parent.mkdir(parents=True, exist_ok=True)
                with written_whole(file) as temporary:
                    store.get_file(name, str(temporary))
    return target


def send_folder(folder: Path, address: str) -> None:
    """Copies all files of a folder to an address."""
    store, path = store_of(address)
    with answering(address):
        for file in sorted(one for one in folder.rglob("*") if one.is_file()):
            store.put_file(str(file), f"{path}/{file.relative_to(folder).as_posix()}")


@contextlib.contextmanager
def sent(place: str) -> Iterator[Path]:
    """A folder to write to: the one of this path, or one that is sent to this address in the end."""
    if not is_address(place):
        yield Path(place)
        return
    require_writable(place)
    store_of(place)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / PurePosixPath(place).name
        yield folder
        send_folder(folder, place)
