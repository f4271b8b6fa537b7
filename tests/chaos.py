"""Tools for faults: a Redis behind a wire that can be slowed, a small disk, a steady load, a product in this process.

What a fault does is real wherever it can be: signals, locks, a full file system, bytes that arrive late.
"""

from __future__ import annotations

import asyncio
import re
import resource
import secrets
import signal
import socket
import sqlite3
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import redis
from structlog.testing import capture_logs

from proxy.app import serving
from proxy.settings import Config
from proxy.store.redis_server import find_binary
from tests.running import Running, eventually
from tests.scripted import Lane, Received, Reply, chunk, completion, stream

RULES = r"""
version: 1
triggers:
  - id: collects
    why: What the user collects, for these tests.
    when: user_message
    if: {match: 'I collect (?P<what>\w+)'}
    extract: {template: The user collects $what}
    write: {memory_type: semantic, kind: preference, scope: user, confidence: 0.9}
    examples: [{user: I collect stamps, expect: [{content: The user collects stamps}]}]
  - id: flies
    why: Where the user flies to, for these tests.
    when: user_message
    if: {match: 'I fly to (?P<place>\w+)'}
    extract: {slots: {place: $place}}
    write: {memory_type: working, ttl: 1h}
    examples: [{user: I fly to Lisbon, expect: [{slot: place, value: Lisbon}]}]
  - id: home
    why: Where the user lives, for these tests.
    when: user_message
    if: {match: 'I live in (?P<place>\w+)'}
    extract: {template: The user lives in $place}
    write: {memory_type: semantic, kind: fact, scope: user, confidence: 0.9, key: home, on_conflict: supersede}
    examples: [{user: I live in Lisbon, expect: [{content: The user lives in Lisbon}]}]
"""
WHOLE = completion("Noted.")
STREAMED = stream(chunk({"content": "Not"}), chunk({"content": "ed."}), chunk({}, finish="stop"))
SESSION = "steady"
_START_S = 10.0
_SETTLE_S = 20.0
_CLIENTS = 2
_PAIRS = 9
_PAUSE_S = 0.03
_FILLING = bytes(1 << 16)


def answering(received: Received) -> Reply:
    """What the scripted provider says to every call of these tests."""
    return STREAMED if received.json.get("stream") else WHOLE


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


# ── calls ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Said:
    """One call of the load: what it said, and what came of it."""

    marker: str
    request_id: str
    status: str


@dataclass
class Heard:
    """What the load's clients have met so far.

    Args:
        said: Calls, in order.
        kept: Markers of API writes answered 201.
        refused: Markers of those answered with an error.
        wrong: What no fault excuses.
        slowest_s: The slowest call.
    """

    said: list[Said] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def since(self, number: int) -> set[str]:
        """The statuses that calls got after the first `number`."""
        return {one.status for one in self.said[number:]}


class Client(threading.Thread):
    """One client of the load: talks, listens to streams and now and then writes through the API, until told to stop."""

    def __init__(
        self, product: Running, lane: Lane, user: str, heard: Heard, stop: threading.Event, *, writes: bool
    ) -> None:
        super().__init__(daemon=True)
        self._product = product
        self._writes = writes
        self._headers = {"Authorization": f"Bearer {lane.key}", "X-Memory-User": user, "X-Memory-Session": SESSION}
        self._heard = heard
        self._told = stop

    def run(self) -> None:
        """Work until stopped."""
        with self._product.http() as http:
            http.headers.update(self._headers)
            number = 0
            while not self._told.wait(_PAUSE_S):
                number += 1
                try:
                    self._write(http) if self._writes and number % 5 == 0 else self._talk(
                        http, streamed=number % 2 == 0
                    )
                except httpx.HTTPError as error:
                    self._heard.wrong.append(repr(error))

    def _talk(self, http: httpx.Client, *, streamed: bool) -> None:
        marker = f"m{secrets.token_hex(5)}"
        body = spoken(f"I collect {marker} and I fly to {marker}", stream=streamed)
        started = time.monotonic()
        response = http.post("/v1/chat/completions", json=body)
        self._heard.slowest_s = max(self._heard.slowest_s, time.monotonic() - started)
        wanted = b"".join((STREAMED if streamed else WHOLE).body)
        if (response.status_code, response.content) != (200, wanted):
            self._heard.wrong.append(f"{response.status_code} {response.text}")
            return
        self._heard.said.append(
            Said(marker, response.headers["X-Memory-Request-Id"], response.headers["X-Memory-Status"])
        )

    def _write(self, http: httpx.Client) -> None:
        marker = f"w{secrets.token_hex(5)}"
        response = http.post("/memory/records", json={"content": f"The cellar holds {marker}", "kind": "fact"})
        (self._heard.kept if response.status_code == 201 else self._heard.refused).append(marker)


def spoken(text: str, **more: Any) -> dict[str, Any]:
    """A request with one user message."""
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **more}


@contextmanager
def load(product: Running, lane: Lane, user: str, *, writes: bool = True) -> Iterator[Heard]:
    """A steady light load while the context lasts; at its end everything that was said is accounted for.

    Args:
        product: Where.
        lane: The provider's side of it.
        user: Who talks.
        writes: Whether the memory API is written to as well.
    """
    lane.default = answering
    heard, stop = Heard(), threading.Event()
    threads = [Client(product, lane, user, heard, stop, writes=writes) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield heard
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert heard.wrong == []
    settled(product, user, heard)


def settled(product: Running, user: str, heard: Heard) -> None:
    """Every call has its account, and what the account says is so: each memory is there once.

    Raises:
        AssertionError: Something acknowledged is missing, is there twice, or stays queued.
    """
    with product.http(user) as http:
        accounts = {one.marker: _account(http, one) for one in heard.said}
    stored = Counter(re.findall(r"\b[mw][0-9a-f]{10}\b", " ".join(_contents(product, user))))
    done = [marker for marker, status in accounts.items() if status == "done"]
    assert [marker for marker in [*done, *heard.kept] if stored[marker] != 1] == []
    assert [marker for marker, count in stored.items() if count > 1] == []
    assert [marker for marker in heard.refused if stored[marker]] == []


def _account(http: httpx.Client, one: Said) -> str:
    """What the ledger says of a call once it is not queued any more."""

    def settled() -> str | None:
        response = http.get(f"/memory/requests/{one.request_id}")
        assert response.status_code == 200, response.text
        status: str = response.json()["written"]["status"]
        return None if status == "queued" else status

    return cast(str, eventually(settled, within_s=_SETTLE_S))


def _contents(product: Running, user: str) -> list[str]:
    found: list[str] = []
    with product.http(user) as http:
        cursor: str | None = None
        while True:
            query = {"limit": "500", "state": "all", **({"cursor": cursor} if cursor else {})}
            page = http.get("/memory/records", params=query).json()
            found += [record["content"] for record in page["data"] if record["kind"] != "turn"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found


def extra_s(product: Running, lane: Lane, user: str) -> float:
    """How much longer a call takes with memory than without: the difference of two medians, seconds."""
    lane.default = answering
    took: dict[str, list[float]] = {"off": [], "on": []}
    with product.http(user, session=SESSION) as http:
        http.headers["Authorization"] = f"Bearer {lane.key}"
        for _ in range(_PAIRS):
            for mode, times in took.items():
                body = spoken(f"I collect m{secrets.token_hex(5)}")
                started = time.monotonic()
                response = http.post("/v1/chat/completions", json=body, headers={"X-Memory-Mode": mode})
                times.append(time.monotonic() - started)
                assert response.content == b"".join(WHOLE.body)
    return statistics.median(took["on"]) - statistics.median(took["off"])


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
            **more,
        }
    )


def degraded(product: Running) -> list[str]:
    """What `/readyz` says does not work; it must say that calls are relayed."""
    with product.http() as http:
        response = http.get("/readyz", timeout=10)
    assert response.status_code == 200
    return list(response.json()["degraded"])
