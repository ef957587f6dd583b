"""API keys: who may ask, for how much, until when."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from melforge.common.config.typed import build_section
from melforge.common.config.watched import WatchedFile
from melforge.common.config.yaml_file import read_yaml
from melforge.common.errors import InputError, counted
from melforge.common.files import read_text
from melforge.common.serve.errors import ApiError
from melforge.common.serve.settings import LOOPBACK, ServeSettings

KEYS_VARIABLE, SECRET_VARIABLE = "MELFORGE_API_KEYS", "MELFORGE_TOKEN_SECRET"
SHORTEST_KEY = 16  # characters: a server may be asked as often as somebody guesses
SHORTEST_SECRET = 32  # a token must not tell a secret to who guesses
TABLES = (".yaml", ".yml", ".json")  # what ends so has the owners' names as keys; other files have lines
SHA256 = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")


@dataclass(frozen=True)
class ApiKey:
    """A key by its owner's name, and its limits where they are not the server's; all of a minute."""

    name: str
    digest: bytes  # SHA-256
    admin: bool = False
    expires: datetime | None = None
    requests: int | None = None
    characters: int | None = None
    audio_seconds: float | None = None

    @property
    def has_expired(self) -> bool:
        return self.expires is not None and self.expires <= datetime.now(UTC)


@dataclass(frozen=True)
class Access:
    """Who may ask, and what the short-lived tokens are signed with: the same in all processes of a server."""

    keys: Sequence[ApiKey] = ()
    token_secret: bytes = field(default_factory=partial(os.urandom, 32), repr=False)


@dataclass(frozen=True)
class KeyEntry:
    """What stands behind an owner's name."""

    key: Any = None  # not `str`: an error about it would show it
    sha256: str | None = None
    admin: bool = False
    expires: Any = None
    requests: int | None = None
    characters: int | None = None
    audio_seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.key is None) == (self.sha256 is None):
            raise InputError("give one of key and sha256")
        if self.key is not None and not (isinstance(self.key, str) and self.key.strip()):
            raise InputError("key must be text: quotes make it so")
        if self.key is not None:
            require_length(self.key)
        if self.sha256 is not None and not SHA256.fullmatch(self.sha256):
            raise InputError("sha256 must be 64 hexadecimal digits, as sha256sum writes them")
        for name in ("requests", "characters", "audio_seconds"):
            if (most := getattr(self, name)) is not None and most <= 0:
                raise InputError(f"{name} must be more than 0, not {most}")
        if self.expires is not None:
            moment(self.expires)

    def of(self, name: str) -> ApiKey:
        digest = (
            digest_of(self.key.encode()) if self.key else bytes.fromhex(SHA256.findall(self.sha256 or "")[0])
        )
        expires = None if self.expires is None else moment(self.expires)
        return ApiKey(name, digest, self.admin, expires, self.requests, self.characters, self.audio_seconds)


class Keys:
    """The keys, read again when their file changes."""

    def __init__(self, given: Sequence[ApiKey], file: WatchedFile[list[ApiKey]] | None = None):
        self._file = file
        self._taken: Sequence[ApiKey] = ()
        # Keys are found by a digest that nobody else can compute, so that the time of that tells nothing.
        self._secret = os.urandom(32)
        self._by_digest: dict[bytes, ApiKey] = {}
        self._by_name: dict[str, ApiKey] = {}
        self._take(given)

    def _take(self, keys: Sequence[ApiKey]) -> None:
        self._taken = keys
        self._by_digest = {self._blinded(key.digest): key for key in keys}
        self._by_name = {key.name: key for key in keys}

    def _look(self) -> None:
        if self._file is not None and (keys := self._file.current) is not self._taken:
            self._take(keys)

    def _blinded(self, digest: bytes) -> bytes:
        return hmac.digest(self._secret, digest, "sha256")

    def __bool__(self) -> bool:
        """Whether a key is needed."""
        return bool(self._by_name)

    @property
    def count(self) -> int:
        self._look()
        return len(self._by_digest)

    def named(self, name: str) -> ApiKey | None:
        """The key of an owner; None where there is none any more."""
        self._look()
        return self._by_name.get(name)

    def find(self, key: bytes) -> ApiKey | None:
        self._look()
        return self._by_digest.get(self._blinded(digest_of(key)))

    def caller(self, authorization: bytes) -> str:
        """The owner's name of the key in a header `Authorization: Bearer KEY`; "" where none is needed.

        An ApiError (401) where it is no key, or one that has expired.
        """
        if not self:
            return ""
        scheme, _, given = authorization.partition(b" ")
        found = self.find(given.strip())
        if scheme.lower() != b"bearer" or found is None:
            raise refused("a valid API key is needed: Authorization: Bearer KEY")
        if found.has_expired:
            raise refused(f"the API key {found.name!r} has expired")
        return found.name


def refused(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def require_length(key: str) -> None:
    if len(key) < SHORTEST_KEY:
        raise InputError(
            f"a key of {counted(len(key), 'character')} can be guessed: {SHORTEST_KEY} are the least, and "
            "openssl rand -hex 24 makes one"
        )


def digest_of(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def moment(given: Any) -> datetime:
    """A date's beginning, or a time, in UTC where it does not say; an InputError for anything else."""
    if isinstance(given, str):
        with suppress(ValueError):
            given = datetime.fromisoformat(given)
    if isinstance(given, date) and not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day)
    if not isinstance(given, datetime):
        raise InputError(f"expires must be a date such as 2027-01-31, or a time, not {given!r}")
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def open_keys(settings: ServeSettings, keys: Sequence[ApiKey]) -> Keys:
    """These keys, which are read again where they came from a file of this machine."""
    path = Path(settings.keys) if settings.keys else None
    return Keys(keys, WatchedFile(path, key_file) if path and path.exists() else None)


def read_access(settings: ServeSettings, environment: Mapping[str, str] = os.environ) -> Access:
    """The API keys, and the secret that several servers share; else one that nobody else has."""
    keys, secret = read_keys(settings, environment), environment.get(SECRET_VARIABLE)
    if secret is None:
        return Access(keys)
    if len(secret) < SHORTEST_SECRET:
        few = f"{len(secret)} characters, of {SHORTEST_SECRET} at least"
        raise InputError(f"${SECRET_VARIABLE} has {few}: openssl rand -hex 32 makes one, or leave it out")
    return Access(keys, secret.encode())


def read_keys(settings: ServeSettings, environment: Mapping[str, str] = os.environ) -> list[ApiKey]:
    """The API keys of the file or the environment.

    Without any, an InputError for an address that others can reach.
    """
    if settings.keys is not None:
        return key_file(Path(settings.keys))
    keys = key_lines(f"${KEYS_VARIABLE}", enumerate(environment.get(KEYS_VARIABLE, "").split(","), start=1))
    if KEYS_VARIABLE in environment and not keys:
        raise InputError(f"${KEYS_VARIABLE} holds no API key: write one, or leave it out")
    if not keys and settings.host not in LOOPBACK and not settings.without_keys:
        raise InputError(
            f"host {settings.host} can be reached by others, and there are no API keys: give --keys FILE, "
            "or --without-keys if everybody may speak"
        )
    return keys


def key_file(path: Path) -> list[ApiKey]:
    """The keys of a file, at least one. An InputError says what is wrong, without any key."""
    if path.suffix.lower() in TABLES:
        keys = [
            build_section(KeyEntry, entry.value, f"{entry.place}: {name}").of(name)
            for name, entry in read_yaml(path).items()
        ]
        if not all(key.name.strip() for key in keys):
            raise InputError(f"{path}: a name is missing")
        if len({key.digest for key in keys}) < len(keys):
            raise InputError(f"{path}: two names have one key")
    else:
        lines = enumerate(read_text(path).splitlines(), start=1)
        keys = key_lines(
            f"{path} line", ((n, line) for n, line in lines if not line.lstrip().startswith("#"))
        )
    if not keys:
        raise InputError(f"{path} holds no API key: write one, or leave the file out")
    return keys


def key_lines(where: str, lines: Iterable[tuple[int, str]]) -> list[ApiKey]:
    """A key a line, behind which its owner's name may stand; else its number among them is its name."""
    keys: list[ApiKey] = []
    for place, line in lines:
        if words := line.split(maxsplit=1):
            key, *name = words
            try:
                require_length(key)
            except InputError as error:
                raise InputError(f"{where} {place}: {error}") from None
            keys.append(ApiKey(" ".join(name) or str(len(keys) + 1), digest_of(key.encode())))
    return keys
