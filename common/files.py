"""Files and folders that every room needs: atomic writes, the cache, locks, hashes."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib
import json
import os
import re
import sys
import tempfile
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from melforge.common.errors import InputError

CANNOT = "cannot write"


def require_writable_folder(folder: Path) -> None:
    """Asked before the work: an OSError where a folder, or where it will be made, cannot be written to."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
    if not os.access(there, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))


def require_writable_file(path: Path) -> None:
    """The same of one file. Its folder must exist: a misspelt path must not create one."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a file name")
    if path.exists() and not path.is_file():  # a device such as /dev/null, written without its folder
        return
    if not (folder := path.parent).is_dir():
        why = f"{folder} is a file" if folder.exists() else f"the folder {folder} does not exist"
        raise FileNotFoundError(f"cannot write {path}: {why}")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"cannot write {path}: {os.strerror(errno.EACCES)}")


def require_png(path: Path) -> None:
    """An InputError where a plot's name says that it is something else, and is no device's or folder's."""
    if path.suffix.lower() != ".png" and (path.is_file() or not path.exists()):
        raise InputError(f"{path}: plots are PNG files: give a name that ends in .png")


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path to write to. The file there takes the place of `path` once it is whole; else it is removed."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced by a file
            yield path
            return
        temporary.touch()
        mode = temporary.stat().st_mode  # by the umask; safetensors lets nobody else read its files
        yield temporary
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        # Not the system's, such as of a store; or of another file, written beside this one.
        if error.strerror is None or error.strerror.startswith(CANNOT):
            raise
        raise type(error)(error.errno, f"{CANNOT} {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def draft_in(folder: Path) -> Iterator[Path]:
    """A folder in `folder` for what is moved to its place when it is whole; what is left is removed, with
    the folders that were made for it.
    """
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=folder) as name:
            yield Path(name)
    except BaseException as error:
        with contextlib.suppress(OSError):  # one that is not empty
            for one in made:
                one.rmdir()
        if not isinstance(error, OSError) or error.errno != errno.ENOSPC:
            raise
        if not (error.strerror or "").startswith(CANNOT):
            raise OSError(error.errno, f"{CANNOT} {folder}: {error.strerror}") from None
        raise


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a whole file or, if anything fails, none."""
    with written_whole(path) as file:
        file.write_bytes(content)


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write several whole files or, if anything fails, none. Links stay: what they lead to is written."""
    with contextlib.ExitStack() as written:
        for path, content in contents.items():
            real = path if path.exists() and not path.is_file() else Path(os.path.realpath(path))
            written.enter_context(written_whole(real)).write_bytes(content)


def is_file(text: str) -> bool:
    """Whether a text names a file, whatever it is."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def folded(name: str | Path) -> str:
    """A name as all file systems tell it from others: composed, and in one case."""
    return unicodedata.normalize("NFC", str(name)).casefold()


def decode_text(raw: bytes, where: str) -> str:
    """A file's text, in UTF-8 with or without a byte order mark. An InputError names the line that is not."""
    if re.match(rb"%PDF-|\{\\rtf|PK\x03\x04", raw):  # the first two may be UTF-8
        raise InputError(f"{where} is a document, no plain text: save it as text in UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        bad = f"line {line} is not UTF-8 (byte 0x{raw[error.start]:02x})"
        raise InputError(f"{where} {bad}: save it as plain text in UTF-8") from None


def text_lines(content: str) -> list[tuple[int, str]]:
    """The lines of a file of texts with their numbers, without blank ones and those that begin with `# `."""
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(content.split("\n"), start=1)]
    return [(number, line) for number, line in lines if is_text(line)]


def is_text(line: str) -> bool:
    """Of a file of texts: neither blank nor a comment."""
    return line.strip() not in ("", "#") and not line.startswith("# ")


def read_text(path: Path) -> str:
    """The text of a file that a user wrote, as `decode_text` reads it; its lines end in "\\n"."""
    text = decode_text(path.read_bytes(), str(path))
    return text.replace("\r\n", "\n").replace("\r", "\n")


# Kinds of files: what they begin with, and what they are, with the way out.
KINDS = {
    "safetensors": (rb".{6}\0\0\{", "a safetensors file: its name must end in .safetensors"),
    "sound": (rb"RIFF.{4}WAVE|fLaC|OggS|ID3", "a sound file"),
    "pointer": (rb"version https://git-lfs", "a Git LFS pointer: fetch the file itself (git lfs pull)"),
    "page": (rb"(?i)\s*<(!doctype|html|head|\?xml)", "a web page: download the file, not the page about it"),
    "archive": (
        rb"\x1f\x8b|.{257}ustar",
        "an archive, as NeMo's .nemo is one: unpack it and give what is in it",
    ),
    "graph": (rb"\x08[\x03-\x14][\x12\x3a\x42]", "an ONNX graph: give the checkpoint that it was made of"),
    "mp4": (rb".{4}ftyp", "an MP4 (.m4a, .mp4): convert its sound, as by ffmpeg -i IT it.wav"),
    "empty": (rb"\Z", "an empty file"),
    "hdf5": (rb"\x89HDF", "an HDF5 file, as TensorFlow and Keras write them"),
}


def what_it_is(file: Path | BinaryIO, wanted: str = "") -> str:
    """What a file is by its first bytes, as a sentence ends; "" where it may be of the `wanted` kind."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return what_it_is(opened, wanted)
    file.seek(0)
    head = file.read(512)
    found = (kind for kind, (begin, _) in KINDS.items() if re.match(begin, head, re.DOTALL))
    kind = next(found, wanted)
    return "" if kind == wanted else KINDS[kind][1]


def version() -> str:
    """Melforge's."""
    return importlib.import_module("melforge").__version__


def cache_folder() -> Path:
    """$MELFORGE_CACHE, or the platform's folder for caches."""
    given = os.environ.get("MELFORGE_CACHE")
    return Path(given) if given else _users_folder("XDG_CACHE_HOME", ".cache", "Caches")


def data_folder() -> Path:
    """The platform's folder for what a user makes and keeps."""
    return _users_folder("XDG_DATA_HOME", ".local/share", "Application Support")


def _users_folder(variable: str, usual: str, on_macs: str) -> Path:
    """By the XDG Base Directory Specification, or as macOS and Windows have it."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "melforge"
    if sys.platform == "darwin":
        return Path.home() / "Library" / on_macs / "melforge"
    return Path(os.environ.get(variable) or Path.home() / usual) / "melforge"


def exports_folder() -> Path:
    """A folder for each set of weights and config: graphs, and the weights as the graphs name them."""
    return cache_folder() / "onnx"


def engines_folder() -> Path:
    """Where TensorRT's engines lie that were given no place of their own."""
    return cache_folder() / "trt"


def sha256_of(path: Path) -> str:
    import hashlib  # speaking needs none, and loading OpenSSL takes milliseconds

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_key(weights: Path) -> str:
    """What stands for a file of weights in the names of the folders in `exports_folder()`."""
    if weights.parent.parent == exports_folder():  # from the cache already
        return weights.parent.name.split("-")[1]
    return sha256_of(weights)[:20]


def config_hash(config: Any, without: Collection[str] = ()) -> str:
    """A dataclass's values, but for those of these fields, in twelve letters."""
    import hashlib

    values = {name: value for name, value in dataclasses.asdict(config).items() if name not in without}
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits until no other process here builds the same file. The lock is released if its process dies."""
    try:
        import fcntl
    except ImportError:  # no locks on Windows: files are still written whole, and the last one wins
        yield
        return
    import hashlib

    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"melforge-{os.getuid()}-{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that builds {path}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
