"""Who owns a data directory's Redis: two advisory locks and a record of the server.

In: `data/redis/`. Out: locks that the kernel releases with their holder. `owner.lock` is ours; `server.lock` is
inherited by the server process, so that it is held for exactly as long as a server (or its rewriting child) can write
there, whatever became of its owner.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What the owner wrote down about itself and its server.

    Args:
        owner_pid: The Sidemirror that holds the lock.
        server_pid: Its Redis; None before it has started.
        server_started: `server_process.start_time` of that process.
        socket: Path of its socket.
        dies_with_owner: Whether the server gets SIGTERM when its owner dies.
    """

    owner_pid: int
    server_pid: int | None = None
    server_started: str | None = None
    socket: str = ""
    dies_with_owner: bool = False


class FileLock:
    """An exclusive flock on a file, which is never deleted: a deleted file's lock would guard nothing.

    Args:
        path: Created when missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether we hold it."""
        return self._fd is not None

    @property
    def fd(self) -> int:
        """Descriptor of the held lock."""
        assert self._fd is not None, "the lock is not held"
        return self._fd

    def acquire(self) -> bool:
        """Take the lock without waiting; True when it is ours, also when it was before.

        Raises:
            OSError: The file cannot be opened, or its file system knows no locks.
        """
        if self._fd is not None:
            return True
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        return True

    def release(self) -> None:
        """Close our descriptor; a process that inherited it keeps the lock."""
        # LOCK_UN would take the lock from that process too.
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def write_record(path: Path, record: ServerRecord) -> None:
    """Put the record into a lock file that we hold."""
    path.write_text(json.dumps(asdict(record)) + "\n", encoding="utf-8")


def read_record(path: Path) -> ServerRecord | None:
    """The record in a lock file; None when there is none, or what stands there is not one."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        record = ServerRecord(**fields)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    pids = (record.owner_pid, record.server_pid or 1)
    return record if all(isinstance(pid, int) and pid > 0 for pid in pids) else None
