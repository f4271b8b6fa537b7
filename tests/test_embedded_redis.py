"""The embedded Redis against real server processes: starts, stops, killed owners, leftovers, damage, second owners."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import redis

import proxy
from proxy.errors import WorkingMemoryUnavailable
from proxy.store import embedded_redis, redis_server
from proxy.store.directory_lock import FileLock, ServerRecord, read_record, write_record
from proxy.store.embedded_redis import DataDirectoryInUse, EmbeddedRedis
from proxy.store.redis_server import find_binary, socket_for
from proxy.store.server_process import start_time
from proxy.store.working import RedisWorkingMemory

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
KEYS = 300
OWNER = f"""
import pathlib, sys
import redis
from proxy.store.embedded_redis import EmbeddedRedis
server = EmbeddedRedis(pathlib.Path(sys.argv[1]), dies_with_owner=sys.argv[2] == "dies")
server.start()
with redis.Redis.from_url(server.url) as client:
    for number in range({KEYS}):
        client.set(f"key{{number}}", number)
print("READY", server.pid, flush=True)
sys.stdin.read()
"""


@dataclass
class Owner:
    """Another Sidemirror, in a process of its own."""

    process: subprocess.Popen[str]
    server_pid: int

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        pause.wait(0.005)


def gone(pid: int) -> Callable[[], bool]:
    return lambda: start_time(pid) is None


def connect(server: EmbeddedRedis) -> Any:
    return redis.Redis.from_url(server.url, decode_responses=True)


def aof(data: Path, part: str) -> Path:
    return next((data / "redis" / "appendonlydir").glob(f"*.{part}"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def embedded() -> Iterator[Callable[..., EmbeddedRedis]]:
    made: list[EmbeddedRedis] = []

    def make(data: Path, **options: Any) -> EmbeddedRedis:
        made.append(EmbeddedRedis(data, **options))
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture
def owner(data: Path) -> Iterator[Callable[[str], Owner]]:
    owners: list[Owner] = []

    def begin(mode: str) -> Owner:
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(data), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(proxy.__file__).parents[1])},
        )
        assert process.stdout is not None
        ready = next(line for line in process.stdout if line.startswith("READY"))
        owners.append(Owner(process, int(ready.split()[1])))
        return owners[-1]

    yield begin
    for one in owners:
        one.kill()
        if start_time(one.server_pid) is not None:
            os.kill(one.server_pid, signal.SIGKILL)
    shutil.rmtree(socket_for(data / "redis").parent, ignore_errors=True)


def test_data_survives_a_stop_and_a_start(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    first = embedded(data)
    first.start()
    pid = first.pid
    assert pid is not None
    with connect(first) as client:
        client.set("city", "北京")
    first.stop()
    assert start_time(pid) is None
    assert not first.socket.parent.exists()
    second = embedded(data)
    second.start()
    assert not second.adopted
    with connect(second) as client:
        assert client.get("city") == "北京"


def test_start_twice_and_stop_twice_do_nothing_more(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    server = embedded(data)
    server.start()
    pid = server.pid
    server.start()
    assert server.pid == pid
    assert server.ensure() is False
    server.stop()
    server.stop()
    assert server.ensure() is False
    assert server.pid is None


def test_server_is_private_durable_and_bounded(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    server = embedded(data)
    server.start()
    with connect(server) as client:
        found = client.config_get("*")
    wanted = {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory": str(256 * 1024 * 1024),
        "maxmemory-policy": "volatile-ttl",
        "dir": str(data / "redis"),
    }
    assert {name: found[name] for name in wanted} == wanted
    for directory in (data / "redis", server.socket.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "name", ["with space", 'quo"te\\', "数据", "d" * 200], ids=["space", "quote", "chinese", "long"]
)
def test_any_data_directory_name_works(tmp_path: Path, name: str, embedded: Callable[..., EmbeddedRedis]) -> None:
    server = embedded(tmp_path / name)
    server.start()
    with connect(server) as client:
        assert client.ping()
    assert len(os.fsencode(server.socket)) <= 103


def test_socket_avoids_a_runtime_directory_with_a_long_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert deep not in socket_for(tmp_path).parents
    short = Path("/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    assert socket_for(tmp_path).parent.parent == short
    assert socket_for(tmp_path) != socket_for(tmp_path / "other")


def test_runtime_directory_that_is_not_ours_is_refused(
    data: Path, tmp_path: Path, embedded: Callable[..., EmbeddedRedis]
) -> None:
    server = embedded(data)
    server.socket.parent.symlink_to(tmp_path)
    try:
        with pytest.raises(WorkingMemoryUnavailable, match="not a directory of ours"):
            server.start()
    finally:
        server.socket.parent.unlink()


@linux_only
def test_server_dies_with_a_killed_owner_and_nothing_is_lost(
    data: Path, owner: Callable[[str], Owner], embedded: Callable[..., EmbeddedRedis]
) -> None:
    former = owner("dies")
    former.kill()
    # At once: the next start waits by itself for the dying server.
    server = embedded(data)
    server.start()
    assert start_time(former.server_pid) is None
    assert not server.adopted
    with connect(server) as client:
        assert client.mget(f"key{number}" for number in range(KEYS)) == [str(number) for number in range(KEYS)]


@linux_only
def test_server_outlives_the_thread_that_started_it(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    server = embedded(data)
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
    with connect(server) as client:
        # A death signal sent when the thread ended acts at the server's next tick, 100 ms apart: let a few pass.
        began = client.info("server")["server_time_usec"]
        until(lambda: client.info("server")["server_time_usec"] > began + 500_000, "ticks have passed")


def test_living_server_of_a_killed_owner_is_adopted(
    data: Path, owner: Callable[[str], Owner], embedded: Callable[..., EmbeddedRedis]
) -> None:
    former = owner("stays")
    former.kill()
    server = embedded(data)
    server.start()
    assert (server.adopted, server.pid) == (True, former.server_pid)
    with connect(server) as client:
        assert client.get("key7") == "7"
    with pytest.raises(DataDirectoryInUse, match=f"pid {os.getpid()}"):
        embedded(data).start()
    server.stop()
    assert start_time(former.server_pid) is None


def test_adopted_server_that_is_killed_is_started_again(
    data: Path, owner: Callable[[str], Owner], embedded: Callable[..., EmbeddedRedis]
) -> None:
    former = owner("stays")
    former.kill()
    server = embedded(data)
    server.start()
    os.kill(former.server_pid, signal.SIGKILL)
    until(gone(former.server_pid), "the server is gone")
    assert server.ensure()
    assert not server.adopted
    with connect(server) as client:
        assert client.get("key7") == "7"


@pytest.mark.parametrize("mode", ["stays", pytest.param("dies", marks=linux_only)])
def test_leftover_that_does_not_answer_is_ended_and_replaced(
    data: Path,
    mode: str,
    owner: Callable[[str], Owner],
    embedded: Callable[..., EmbeddedRedis],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded_redis, "_LEFTOVER_GRACE_S", 0.05)
    monkeypatch.setattr(redis_server, "_ANSWER_S", 0.2)
    former = owner(mode)
    os.kill(former.server_pid, signal.SIGSTOP)
    former.kill()
    server = embedded(data)
    server.start()
    assert start_time(former.server_pid) is None
    assert server.pid != former.server_pid
    with connect(server) as client:
        assert client.get("key7") == "7"


def test_leftover_with_another_directory_is_not_adopted(
    data: Path, owner: Callable[[str], Owner], embedded: Callable[..., EmbeddedRedis], tmp_path: Path
) -> None:
    former = owner("stays")
    former.kill()
    server = embedded(data)
    # Same record and socket, but the server's directory went elsewhere: what it writes would not come back.
    data.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", data)
    server.start()
    assert start_time(former.server_pid) is None
    assert not server.adopted
    with connect(server) as client:
        assert client.config_get("dir") == {"dir": str(data / "redis")}
        assert client.get("key7") == "7"


def test_second_sidemirror_is_refused_and_the_first_is_named(
    data: Path, owner: Callable[[str], Owner], embedded: Callable[..., EmbeddedRedis]
) -> None:
    first = owner("dies")
    second = embedded(data)
    with pytest.raises(DataDirectoryInUse, match=rf"pid {first.process.pid}\b.*--data"):
        second.start()
    assert start_time(first.server_pid) is not None
    first.kill()
    second.start()
    assert second.pid != first.server_pid


def test_unknown_holder_of_the_server_lock_is_refused(
    data: Path, embedded: Callable[..., EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_redis, "_LOCK_WAIT_S", 0.05)
    (data / "redis").mkdir(parents=True)
    lock = FileLock(data / "redis" / "server.lock")
    assert lock.acquire()
    server = embedded(data)
    with pytest.raises(DataDirectoryInUse, match=r"server\.lock.*lsof"):
        server.start()
    lock.release()
    server.start()


def test_server_holds_its_lock_for_as_long_as_it_lives(
    data: Path, owner: Callable[[str], Owner], embedded: Callable[..., EmbeddedRedis]
) -> None:
    former = owner("stays")
    former.kill()
    lock = FileLock(data / "redis" / "server.lock")
    assert not lock.acquire()
    os.kill(former.server_pid, signal.SIGKILL)
    until(lock.acquire, "the lock is free")
    lock.release()


def test_recycled_pid_is_left_alone(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    server = embedded(data)
    (data / "redis").mkdir(parents=True)
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        record = ServerRecord(1, bystander.pid, "another boot:1", str(server.socket))
        write_record(data / "redis" / "owner.lock", record)
        server.start()
        assert bystander.poll() is None
        assert server.pid != bystander.pid
    finally:
        bystander.kill()
        bystander.wait()


def test_server_of_the_original_of_a_copied_directory_is_left_alone(
    data: Path, tmp_path: Path, embedded: Callable[..., EmbeddedRedis]
) -> None:
    original, copy = embedded(data), tmp_path / "copy"
    original.start()
    with connect(original) as client:
        client.set("city", "Paris")
    shutil.copytree(data, copy)
    twin = embedded(copy)
    twin.start()
    assert original.alive()
    assert twin.pid != original.pid
    with connect(twin) as client:
        assert client.get("city") == "Paris"


def test_stale_socket_and_unreadable_record_are_replaced(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    server = embedded(data)
    (data / "redis").mkdir(parents=True)
    server.socket.parent.mkdir(mode=0o755)
    server.socket.write_text("stale")
    (data / "redis" / "owner.lock").write_text('{"owner_pid": ')
    server.start()
    with connect(server) as client:
        assert client.ping()
    record = read_record(data / "redis" / "owner.lock")
    assert record is not None
    assert (record.owner_pid, record.server_pid) == (os.getpid(), server.pid)
    assert record.server_started == start_time(record.server_pid or 0)


def test_truncated_tail_costs_only_the_last_write(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    first = embedded(data)
    first.start()
    with connect(first) as client:
        client.set("city", "Paris")
    first.stop()
    with aof(data, "incr.aof").open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$4\r\nci")
    second = embedded(data)
    second.start()
    with connect(second) as client:
        assert client.get("city") == "Paris"
    assert not list((data / "redis").glob("damaged-*"))


@pytest.mark.parametrize("part", ["incr.aof", "base.rdb", "manifest"])
def test_damaged_file_is_moved_aside_and_the_server_starts_empty(
    data: Path, part: str, embedded: Callable[..., EmbeddedRedis]
) -> None:
    first = embedded(data)
    first.start()
    with connect(first) as client:
        client.set("city", "Paris")
        client.bgrewriteaof()
        until(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0, "the rewrite is done")
        client.set("food", "bread")
    first.stop()
    path = aof(data, part)
    path.write_bytes(b"garbage\r\n" + path.read_bytes()[4:])
    second = embedded(data)
    second.start()
    with connect(second) as client:
        assert client.dbsize() == 0
        client.set("city", "Rome")
    (aside,) = (data / "redis").glob("damaged-*")
    assert (aside / "appendonlydir" / path.name).read_bytes().startswith(b"garbage")
    with closing(RedisWorkingMemory(second.url, timeout_s=5, discard=second.discard_damaged)) as memory:
        assert memory.rewrite()
    assert not aside.exists()


def test_lost_part_of_the_file_counts_as_damage(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    first = embedded(data)
    first.start()
    first.stop()
    aof(data, "incr.aof").unlink()
    second = embedded(data)
    second.start()
    assert list((data / "redis").glob("damaged-*"))


def test_failure_that_is_no_damage_leaves_the_file_alone(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    first = embedded(data)
    first.start()
    first.stop()
    broken = data / "broken"
    broken.write_text("#!/bin/sh\necho cannot run here\nexit 1\n")
    broken.chmod(0o700)
    with pytest.raises(WorkingMemoryUnavailable, match="did not come up; its last words: cannot run here"):
        embedded(data, binary=broken).start()
    assert not list((data / "redis").glob("damaged-*"))
    embedded(data).start()


def test_unwritable_place_is_a_clear_error(tmp_path: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkingMemoryUnavailable, match=r"redis\.url"):
        embedded(tmp_path / "file").start()


def test_binary_that_cannot_run_is_a_clear_error(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    with pytest.raises(WorkingMemoryUnavailable, match=r"cannot be started.*redis\.url"):
        embedded(data, binary=Path("/nonexistent/valkey-server"), dies_with_owner=False).start()


def test_installed_server_is_used_where_the_package_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = find_binary()
    assert bundled.name == "valkey-server"
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkingMemoryUnavailable, match=r"riscv64.*redis\.url"):
        find_binary()
    (tmp_path / "redis-server").symlink_to(bundled)
    assert find_binary() == bundled


@pytest.mark.parametrize("harm", ["crash", "socket"])
async def test_supervisor_brings_a_lost_server_back(
    data: Path, harm: str, embedded: Callable[..., EmbeddedRedis]
) -> None:
    server, stop = embedded(data), asyncio.Event()
    server.start()
    pid = server.pid
    assert pid is not None
    with connect(server) as client:
        client.set("city", "Paris")
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(server.supervise(stop))
        if harm == "crash":
            os.kill(pid, signal.SIGKILL)
        else:
            server.socket.unlink()
        await asyncio.to_thread(until, lambda: server.alive() and server.pid != pid, "another server lives")
        stop.set()
    assert start_time(pid) is None
    with connect(server) as client:
        assert client.get("city") == "Paris"


async def test_supervisor_slows_down_when_restarts_do_not_help(
    data: Path, embedded: Callable[..., EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, stop, pauses = embedded(data), asyncio.Event(), []
    monkeypatch.setattr(server, "ensure", lambda: True)

    async def pause(waiter: Any, timeout: float) -> None:  # noqa: ASYNC109 - stands in for asyncio.wait_for
        waiter.close()
        pauses.append(timeout)
        if len(pauses) == 8:
            stop.set()
        raise TimeoutError

    monkeypatch.setattr(asyncio, "wait_for", pause)
    await server.supervise(stop)
    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 10, 10]


async def test_supervisor_survives_failing_restarts(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    broken = data.parent / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o700)
    server, stop = embedded(data, binary=broken), asyncio.Event()
    with pytest.raises(WorkingMemoryUnavailable):
        server.start()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(server.supervise(stop))
        broken.unlink()
        broken.symlink_to(find_binary())
        await asyncio.to_thread(until, server.alive, "the server lives")
        stop.set()


def test_paused_server_can_be_stopped(data: Path, embedded: Callable[..., EmbeddedRedis]) -> None:
    server = embedded(data)
    server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    server.stop()
    assert start_time(pid) is None


def test_records_survive_a_round_trip_and_refuse_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    assert read_record(path) is None
    record = ServerRecord(12, 34, "boot:56", "/run/x.sock", dies_with_owner=True)
    write_record(path, record)
    assert read_record(path) == record
    write_record(path, replace(record, server_pid=-1))
    assert read_record(path) is None
    path.write_text('{"owner_pid": 1, "unknown": 2}')
    assert read_record(path) is None
