"""The data directory as a whole: whose it is now, what lies in it, and how its embedded Redis is reached.

In: its path. Out: the lock that one Sidemirror at a time holds, and the socket of the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from proxy.errors import SidemirrorError
from proxy.store.directory_lock import FileLock, read_record
from proxy.store.redis_server import serves
from proxy.store.server_process import AdoptedServer

DATABASE = "sidemirror.db"
SECRET = "secret"  # noqa: S105 - a file's name
LOCK = "lock"
REDIS = "redis"
INDEX = "index"
_ADDRESS = "address"
_ANSWER_S = 2.0


@contextmanager
def claimed(data_dir: Path) -> Iterator[bool]:
    """Take the data directory, if nobody lives on it; a Sidemirror that starts meanwhile is refused.

    Yields:
        Whether it is ours. A directory that is not there counts as such: nobody lives on it.

    Raises:
        SidemirrorError: Its lock cannot be used.
    """
    if not data_dir.is_dir():
        yield True
        return
    lock = FileLock(data_dir / LOCK)
    try:
        taken = lock.acquire()
    except OSError as error:
        raise SidemirrorError(
            f"the data folder {data_dir} cannot be used: {error.strerror or error}; check its permissions"
        ) from error
    try:
        yield taken
    finally:
        lock.release()


@contextmanager
def address_known(data_dir: Path, address: str) -> Iterator[None]:
    """Leave our address in the data directory while we serve there, for commands that look for us."""
    path = data_dir / _ADDRESS
    with suppress(OSError):
        path.write_text(address, encoding="ascii")
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def living_address(data_dir: Path) -> str | None:
    """Where the Sidemirror on this directory serves; None when it does not say. Only of use while one lives there."""
    try:
        return (data_dir / _ADDRESS).read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def living_redis(data_dir: Path) -> str | None:
    """The URL of the embedded Redis that serves this directory now; None when there is none."""
    directory = data_dir.resolve() / REDIS
    record = read_record(directory / "owner.lock")
    if record is None or record.server_pid is None or record.server_started is None or not record.socket:
        return None
    # Not recomputed: its owner may have another runtime directory than we.
    socket = Path(record.socket)
    server = AdoptedServer(record.server_pid, record.server_started)
    return f"unix://{quote(str(socket))}" if serves(server, socket, directory, _ANSWER_S) else None


def installation(data_dir: Path) -> str:
    """Names this installation without telling its secret: its backups carry it, on whatever machine they were made.

    Raises:
        OSError: The secret cannot be read.
    """
    secret = (data_dir / SECRET).read_bytes()
    return blake2b(secret, digest_size=6, person=b"backup").hexdigest()
