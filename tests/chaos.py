"""Tools for faults: a Redis behind a slow wire, a small disk, a locked database, a product in this process.

What a fault does is real wherever it can be: signals, locks, a full file system, bytes that arrive late.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import redis
from structlog.testing import capture_logs

from proxy.app import serving
from proxy.settings import Config
from proxy.store.redis_server import find_binary
from tests import calls
from tests.running import Running, eventually

RULES = (
    calls.RULES
    + r"""  - id: home
    why: Where the user lives, for these tests.
    when: user_message
    if: {match: 'I live in (?P<place>\w+)'}
    extract: {template: The user lives in $place}
    write: {memory_type: semantic, kind: fact, scope: user, confidence: 0.9, key: home, on_conflict: supersede}
    examples: [{user: I live in Lisbon, expect: [{content: The user lives in Lisbon}]}]
"""
)
_START_S = 10.0
_FILLING = bytes(1 << 16)


def folder_with_rules(folder: Path) -> Path:
    """A folder for a product with the few rules above: loading the shipped ones would take most of a start."""
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "10-rules.yaml").write_text(RULES, encoding="utf-8")
    return folder


# ── Redis ──────────────────────────────────────────────────────────────────────────────────────────────────────────
class RedisServer:
    """A Redis as somebody else runs it: on a port, nothing on disk.

    Args:
        folder: Its working directory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen([str(find_binary()), *options], stdout=subprocess.DEVNULL)
        eventually(self._answers)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(_START_S)
            self._process = None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def ask(self, *command: str) -> Any:
        """Send it one command."""
        with redis.Redis(port=self.port, socket_timeout=_START_S) as client:
            return client.execute_command(*command)

    def _answers(self) -> bool:
        with suppress(redis.ConnectionError):
            return bool(self.ask("PING"))
        return False


class Wire:
    """A port that leads to another one; what comes back over it can be delayed.

    Args:
        to: The other port.
    """

    def __init__(self, to: int) -> None:
        self.port = 0
        self.delay_s = 0.0
        self._to = to
        self._carried: set[asyncio.Task[None]] = set()

    @contextmanager
    def laid(self) -> Iterator[Wire]:
        """Carry while the context lasts."""
        ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
        thread = threading.Thread(target=loop.run_until_complete, args=(self._serve(ready, stop),), daemon=True)
        thread.start()
        assert ready.wait(_START_S)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(_START_S)
            loop.close()

    async def _serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        for task in self._carried:
            task.cancel()
        await asyncio.gather(*self._carried, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def _carry(self, asks: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            replies, to_server = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            to_client.close()
            return
        there = asyncio.ensure_future(self._pump(asks, to_server, late=False))
        back = asyncio.ensure_future(self._pump(replies, to_client, late=True))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump, writer in ((there, to_server), (back, to_client)):
                pump.cancel()
                writer.close()
            await asyncio.gather(there, back, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, drain: asyncio.StreamWriter, *, late: bool) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                if late and self.delay_s:
                    await asyncio.sleep(self.delay_s)
                drain.write(data)
                await drain.drain()


# ── the disk and the database ──────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def small_disk(folder: Path, size_mb: int) -> Iterator[bool]:
    """Put a file system of its own at `folder`; False where one may not be mounted."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=700", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full_disk(product: Running, *, mounted: bool) -> Iterator[None]:
    """No more bytes for the product's files: its file system is full, or else its files may not grow."""
    database = product.data / "sidemirror.db"
    # What the write-ahead log has grown to could be written over for a while.
    eventually(lambda: emptied_log(database))
    if not mounted:
        before = resource.prlimit(product.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(product.process.pid, resource.RLIMIT_FSIZE, (1, before[1]))
        try:
            yield
        finally:
            resource.prlimit(product.process.pid, resource.RLIMIT_FSIZE, before)
        return
    filler = product.data / "filler"
    try:
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(_FILLING):
                pass
        yield
    finally:
        filler.unlink()


def emptied_log(database: Path) -> bool:
    """Move what stands in the write-ahead log into the database; False while somebody reads it."""
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.close()
    return not busy


@contextmanager
def locked_database(product: Running) -> Iterator[None]:
    """Another process holds the database's write lock."""
    connection = sqlite3.connect(product.data / "sidemirror.db", isolation_level=None, timeout=_START_S)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        connection.close()


# ── in this process ────────────────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def housed(config: Config) -> Iterator[Running]:
    """The product on a thread of this process, so that a test can break a part of it by hand."""
    ready, loop, stop, failed = threading.Event(), asyncio.new_event_loop(), asyncio.Event(), list[BaseException]()
    # There is no process of its own; whoever asks for one has chosen the wrong tool.
    product = Running("", cast("subprocess.Popen[str]", None), config.data_dir)

    async def serve() -> None:
        try:
            async with serving(config) as address:
                product.address = address
                ready.set()
                await stop.wait()
        except BaseException as error:
            failed.append(error)
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        assert not failed, failed
        # What it logs would come out between the lines of pytest.
        with capture_logs():
            yield product
    finally:
        if not failed:
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


def config_for(folder: Path, upstream: str, redis_port: int, **more: Any) -> Config:
    """Settings of a product in this process."""
    return Config.model_validate(
        {
            "server": {"port": 0},
            "data_dir": folder / "data",
            "policies": [folder / "policies"],
            "upstream": {"base_url": upstream},
            "redis": {"url": f"redis://127.0.0.1:{redis_port}/0"},
            "inject": {"placement": "system"},  # the same question is asked again, and must be answered anew
            **more,
        }
    )


def degraded(product: Running) -> list[str]:
    """What `/readyz` says does not work; it must say that calls are relayed."""
    with product.http() as http:
        response = http.get("/readyz", timeout=10)
    assert response.status_code == 200
    return list(response.json()["degraded"])
