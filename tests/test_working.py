"""Contract of `plugs.WorkingMemory`, on the embedded Valkey and on one by URL; also in outages."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from proxy.errors import WorkingMemoryUnavailable
from proxy.plugs import WorkingMemory
from proxy.scope import Scope
from proxy.store.breaker import Breaker
from proxy.store.embedded_redis import EmbeddedRedis
from proxy.store.redis_server import find_binary
from proxy.store.session_keys import cache_key, cache_name, session_key
from proxy.store.working import RedisWorkingMemory
from proxy.types import Slot

ALICE = Scope("default", "alice", session_id="s1")
NOW = datetime(2026, 11, 2, 8, 30, tzinfo=UTC)
KEY = "session:{default/alice/s1/default}"
CHAIN = "chain:{default/alice/s1/default}"
PATIENT_S = 5.0
"""Where the deadline is not the subject, a busy machine must not fail a test."""


class FakeClock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def slot(name: str, value: Any = "v", *, at: datetime = NOW, message_hash: str | None = None) -> Slot:
    return Slot(name, value, at, "task-slots", message_hash)


def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        pause.wait(0.005)


@contextlib.contextmanager
def tcp_server(directory: Path) -> Iterator[tuple[str, int]]:
    """The same binary as a stranger would run it: a port, no file. Yields URL and pid."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(find_binary()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        assert process.poll() is None, "the server did not start"
        return False

    try:
        until(answers, "the server listens")
        yield f"redis://127.0.0.1:{port}/0", process.pid
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    embedded = EmbeddedRedis(tmp_path_factory.mktemp("embedded"))
    embedded.start()
    with tcp_server(tmp_path_factory.mktemp("tcp")) as (url, _):
        yield {"embedded": embedded.url, "tcp": url}
    embedded.stop()


@pytest.fixture(params=["embedded", "tcp"])
def url(request: pytest.FixtureRequest, servers: dict[str, str]) -> str:
    return servers[request.param]


@pytest.fixture
def raw(url: str) -> Iterator[Any]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def make(url: str, raw: Any) -> Iterator[Callable[..., RedisWorkingMemory]]:
    made: list[RedisWorkingMemory] = []

    def one(**options: Any) -> RedisWorkingMemory:
        made.append(RedisWorkingMemory(options.pop("url", url), **{"timeout_s": PATIENT_S} | options))
        return made[-1]

    yield one
    for memory in made:
        memory.close()


@pytest.fixture
def memory(make: Callable[..., RedisWorkingMemory]) -> RedisWorkingMemory:
    return make()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[tuple[str, int]]:
    with tcp_server(tmp_path) as server:
        yield server


# --- slots ---------------------------------------------------------------------------------------------------------


def test_plug_is_implemented(memory: RedisWorkingMemory) -> None:
    plug: WorkingMemory = memory
    assert plug.healthy()


@pytest.mark.parametrize("value", ["北京", 3, 2.5, True, None, [1, {"a": []}], {"port": 2222}, ""])
def test_slot_comes_back_as_written(memory: RedisWorkingMemory, value: Any) -> None:
    written = Slot("目的地", value, NOW + timedelta(microseconds=7), "task-slots", "abc")
    memory.put(ALICE, [written])
    assert memory.slots(ALICE) == {"目的地": written}


def test_stored_form_is_the_documented_one(memory: RedisWorkingMemory, raw: Any) -> None:
    memory.put(ALICE, [slot("city", "北京", message_hash="abc")])
    assert raw.type(KEY) == "hash"
    assert json.loads(raw.hget(KEY, "city")) == {
        "value": "北京",
        "updated_at": "2026-11-02T08:30:00.000000Z",
        "rule": "task-slots",
        "message_hash": "abc",
    }


def test_unknown_session_has_no_slots(memory: RedisWorkingMemory, raw: Any) -> None:
    assert memory.slots(ALICE) == {}
    assert raw.keys() == []


def test_last_write_of_a_slot_wins(memory: RedisWorkingMemory) -> None:
    memory.put(ALICE, [slot("city", "Rome"), slot("city", "Paris")])
    memory.put(ALICE, [slot("city", "Oslo")])
    assert memory.slots(ALICE)["city"].value == "Oslo"


def test_slots_come_in_the_order_they_were_updated(memory: RedisWorkingMemory) -> None:
    names = [f"slot{number}" for number in range(40)]
    memory.put(ALICE, [slot(name, at=NOW - timedelta(seconds=number)) for number, name in enumerate(names)])
    assert list(memory.slots(ALICE)) == names[::-1]


def test_writing_nothing_leaves_nothing(memory: RedisWorkingMemory, raw: Any) -> None:
    memory.put(ALICE, [])
    assert raw.keys() == []


@pytest.mark.parametrize(
    "other",
    [
        replace(ALICE, tenant="t2"),
        replace(ALICE, user_id="bob"),
        replace(ALICE, agent_id="coder"),
        ALICE.in_session("s2"),
    ],
    ids=["tenant", "user", "agent", "session"],
)
def test_other_scopes_see_nothing(memory: RedisWorkingMemory, other: Scope) -> None:
    memory.put(ALICE, [slot("city")])
    memory.append_step(ALICE, {"tool": "ls"})
    assert memory.slots(other) == {}
    assert memory.steps(other) == []
    assert memory.end(other) is False
    assert "city" in memory.slots(ALICE)


def test_scope_without_session_is_refused(memory: RedisWorkingMemory) -> None:
    nowhere = ALICE.in_session(None)
    for call in (memory.slots, memory.steps, memory.end, lambda scope: memory.put(scope, [slot("a")])):
        with pytest.raises(ValueError, match="session"):
            call(nowhere)


def test_value_that_is_not_json_is_refused_and_nothing_written(memory: RedisWorkingMemory, raw: Any) -> None:
    with pytest.raises(TypeError):
        memory.put(ALICE, [slot("good"), slot("bad", object())])
    assert raw.keys() == []
    assert memory.healthy()


def test_reads_and_writes_slide_the_ttl(memory: RedisWorkingMemory, raw: Any) -> None:
    memory.put(ALICE, [slot("city")])
    memory.append_step(ALICE, {"tool": "ls"})
    touches: list[Callable[[], object]] = [
        lambda: memory.slots(ALICE),
        lambda: memory.steps(ALICE),
        lambda: memory.put(ALICE, [slot("food")]),
        lambda: memory.append_step(ALICE, {"tool": "cat"}),
    ]
    for touch in touches:
        for key in (KEY, CHAIN):
            raw.expire(key, 60)
        touch()
        for key in (KEY, CHAIN):
            assert 3590 < raw.ttl(key) <= 3600


def test_session_expires(make: Callable[..., RedisWorkingMemory], raw: Any) -> None:
    memory = make(ttl_s=0.05)
    memory.put(ALICE, [slot("city")])
    until(lambda: not raw.exists(KEY), "the session has expired")
    assert memory.slots(ALICE) == {}


def test_ttl_of_a_write_is_kept_by_reads_until_a_newer_write(memory: RedisWorkingMemory, raw: Any) -> None:
    memory.put(ALICE, [slot("trip")], ttl_s=86_400)
    memory.slots(ALICE)
    assert raw.ttl(KEY) > 86_000
    memory.put(ALICE, [slot("city", at=NOW + timedelta(seconds=1))])
    memory.slots(ALICE)
    assert raw.ttl(KEY) <= 3600


def test_oldest_slots_go_past_the_limit(make: Callable[..., RedisWorkingMemory]) -> None:
    memory = make(max_items=3)
    minutes = {"c": 2, "a": 0, "e": 4, "b": 1, "d": 3}
    for name, minute in minutes.items():
        memory.put(ALICE, [slot(name, at=NOW + timedelta(minutes=minute))])
    assert set(memory.slots(ALICE)) == {"c", "d", "e"}
    memory.put(ALICE, [slot("c", at=NOW + timedelta(minutes=9)), slot("f", at=NOW + timedelta(minutes=9))])
    assert set(memory.slots(ALICE)) == {"c", "e", "f"}


def test_limit_compares_times_not_their_spelling(make: Callable[..., RedisWorkingMemory]) -> None:
    memory = make(max_items=1)
    memory.put(ALICE, [slot("later", at=NOW + timedelta(milliseconds=500)), slot("earlier", at=NOW)])
    assert set(memory.slots(ALICE)) == {"later"}


def test_limit_holds_under_parallel_writers(make: Callable[..., RedisWorkingMemory]) -> None:
    memory = make(max_items=5)

    def write(number: int) -> None:
        memory.put(ALICE, [slot(f"slot{number:03}", at=NOW + timedelta(seconds=number))])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(120)))
    assert set(memory.slots(ALICE)) == {f"slot{number:03}" for number in range(115, 120)}


# --- strangers' values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        b"\xff\xfe",
        "[]",
        "7",
        "{}",
        '{"value": 1}',
        '{"value": 1, "updated_at": 5}',
        '{"value": 1, "updated_at": "x"}',
    ],
)
def test_foreign_value_is_left_out_and_goes_first(
    make: Callable[..., RedisWorkingMemory], raw: Any, text: str | bytes
) -> None:
    memory = make(max_items=2)
    memory.put(ALICE, [slot("city")])
    raw.hset(KEY, "foreign", text)
    assert set(memory.slots(ALICE)) == {"city"}
    memory.put(ALICE, [slot("food")])
    assert set(raw.hkeys(KEY)) >= {"city", "food"}
    assert set(memory.slots(ALICE)) == {"city", "food"}


def test_foreign_fields_of_a_slot_read_as_unknown(memory: RedisWorkingMemory, raw: Any) -> None:
    raw.hset(
        KEY, "city", '{"value": 1, "updated_at": "2026-11-02T08:30:00", "rule": 5, "message_hash": [], "ttl_ms": -1}'
    )
    raw.hset(KEY, b"\xff", '{"value": 1, "updated_at": "2026-11-02T08:30:00Z"}')
    assert memory.slots(ALICE) == {"city": Slot("city", 1, NOW)}


def test_keys_of_another_type_are_skipped_and_replaced(memory: RedisWorkingMemory, raw: Any) -> None:
    raw.set(KEY, "a string")
    raw.set(CHAIN, "a string")
    assert memory.slots(ALICE) == {}
    assert memory.steps(ALICE) == []
    memory.forget(ALICE, ["abc"])
    memory.put(ALICE, [slot("city")])
    memory.append_step(ALICE, {"tool": "ls"})
    assert set(memory.slots(ALICE)) == {"city"}
    assert memory.steps(ALICE) == [{"tool": "ls"}]


def test_idle_set_and_cache_of_another_type_break_nothing(memory: RedisWorkingMemory, raw: Any) -> None:
    raw.set("idle", "a string")
    raw.lpush(cache_key("a"), "x")
    memory.put(ALICE, [slot("city")])
    assert set(memory.slots(ALICE)) == {"city"}
    assert memory.idle_sessions(NOW) == []
    assert memory.end(ALICE) is True
    assert memory.cache_get("a") is None
    memory.cache_put("a", b"y", 30)
    assert memory.cache_get("a") == b"y"


# --- task chain, end, idle -----------------------------------------------------------------------------------------


def test_steps_come_back_in_order_up_to_the_limit(make: Callable[..., RedisWorkingMemory]) -> None:
    memory = make(max_steps=3)
    for number in range(5):
        memory.append_step(ALICE, {"tool": "ls", "number": number, "result": "北京"})
    assert [step["number"] for step in memory.steps(ALICE)] == [2, 3, 4]


def test_foreign_steps_are_left_out(memory: RedisWorkingMemory, raw: Any) -> None:
    raw.rpush(CHAIN, "not json", "[]")
    memory.append_step(ALICE, {"tool": "ls"})
    assert memory.steps(ALICE) == [{"tool": "ls"}]


def test_end_deletes_everything_of_the_session(memory: RedisWorkingMemory, raw: Any) -> None:
    memory.put(ALICE, [slot("city")])
    memory.append_step(ALICE, {"tool": "ls"})
    assert memory.end(ALICE) is True
    assert raw.keys() == []
    assert memory.end(ALICE) is False


def test_idle_sessions_are_those_inactive_since(make: Callable[..., RedisWorkingMemory], raw: Any) -> None:
    clock = FakeClock()
    memory = make(clock=clock)
    scopes = [replace(ALICE, agent_id="a/{b}%", session_id=f"s{number}") for number in range(4)]
    for number, scope in enumerate(scopes):
        clock.now = 1000.0 + 10 * number
        memory.put(scope, [slot("city")])
    clock.now = 1100.0
    memory.put(scopes[0], [slot("city")])
    memory.append_step(scopes[1], {"tool": "ls"})
    memory.slots(scopes[2])
    raw.zadd("idle", {"nonsense": 1})
    before = datetime.fromtimestamp(1030, UTC)
    assert memory.idle_sessions(before) == [scopes[2]]
    assert raw.zscore("idle", "nonsense") is None
    assert memory.idle_sessions(before + timedelta(microseconds=1)) == scopes[2:]
    assert memory.idle_sessions(before + timedelta(seconds=900), limit=1) == [scopes[2]]


def test_idle_session_is_claimed_once_and_keeps_its_data(memory: RedisWorkingMemory) -> None:
    memory.put(ALICE, [slot("city")])
    assert [memory.claim_idle(ALICE), memory.claim_idle(ALICE)] == [True, False]
    assert memory.idle_sessions(datetime.now(UTC) + timedelta(hours=1)) == []
    assert "city" in memory.slots(ALICE)


def test_idle_set_forgets_sessions_that_nobody_ends(make: Callable[..., RedisWorkingMemory], raw: Any) -> None:
    clock = FakeClock()
    memory = make(clock=clock)
    memory.put(ALICE, [slot("city")])
    clock.now += 8 * 86_400
    memory.put(ALICE.in_session("s2"), [slot("city")])
    assert raw.zcard("idle") == 1


# --- cache and forgetting ------------------------------------------------------------------------------------------


def test_cache_keeps_bytes_for_its_time(memory: RedisWorkingMemory, raw: Any) -> None:
    name = cache_name(ALICE, "q1")
    assert memory.cache_get(name) is None
    memory.cache_put(name, b"\x00\xff", 30)
    assert memory.cache_get(name) == b"\x00\xff"
    assert raw.keys() == ["recall:{default/alice/s1/default/q1}"]
    assert 29_000 < raw.pttl("recall:{default/alice/s1/default/q1}") <= 30_000
    memory.cache_put(name, b"x", 0.02)
    until(lambda: memory.cache_get(name) is None, "the cached value has expired")


def test_forgetting_deletes_what_came_from_the_message_in_all_of_the_users_sessions(
    memory: RedisWorkingMemory,
) -> None:
    elsewhere = Scope("default", "alice", "coder", "s2")
    bob = replace(ALICE, user_id="bob")
    for scope in (ALICE, elsewhere, bob):
        memory.put(scope, [slot("city", message_hash="h1"), slot("food", message_hash="h2"), slot("own")])
        memory.append_step(scope, {"tool": "ls", "message_hash": "h1"})
        memory.append_step(scope, {"tool": "cat", "message_hash": "h3"})
        memory.cache_put(cache_name(scope, "q"), b"city", 30)
    memory.forget(ALICE.in_session(None), {"h1", "h9"})
    for scope in (ALICE, elsewhere):
        assert set(memory.slots(scope)) == {"food", "own"}
        assert [step["tool"] for step in memory.steps(scope)] == ["cat"]
        assert memory.cache_get(cache_name(scope, "q")) is None
    assert set(memory.slots(bob)) == {"city", "food", "own"}
    assert len(memory.steps(bob)) == 2
    assert memory.cache_get(cache_name(bob, "q")) == b"city"


def test_forgetting_no_message_clears_the_cache_only(memory: RedisWorkingMemory) -> None:
    memory.put(ALICE, [slot("city", message_hash="h1")])
    memory.cache_put(cache_name(ALICE, "q"), b"x", 30)
    memory.forget(ALICE, [])
    assert memory.cache_get(cache_name(ALICE, "q")) is None
    assert "city" in memory.slots(ALICE)


def test_forgetting_reaches_every_session_of_many(make: Callable[..., RedisWorkingMemory], raw: Any) -> None:
    memory = make()
    scopes = [ALICE.in_session(f"s{number}") for number in range(1500)]
    with raw.pipeline(transaction=False) as pipeline:
        for scope in scopes:
            pipeline.hset(session_key(scope), "city", '{"value": 1, "message_hash": "h1"}')
        pipeline.execute()
    memory.forget(ALICE, ["h1"])
    assert raw.keys("session:*") == []


def test_forgotten_text_leaves_the_disk_with_a_rewrite(tmp_path: Path) -> None:
    embedded = EmbeddedRedis(tmp_path)
    embedded.start()
    memory = RedisWorkingMemory(embedded.url, timeout_s=PATIENT_S)
    files = embedded.directory / "appendonlydir"

    def on_disk() -> bool:
        texts = []
        for path in files.iterdir():
            with contextlib.suppress(FileNotFoundError):
                texts.append(path.read_bytes())
        return any(b"swordfish" in text for text in texts)

    try:
        memory.put(ALICE, [slot("password", "swordfish", message_hash="h1"), slot("city")])
        until(on_disk, "the slot is in the append-only file")
        memory.forget(ALICE, ["h1"])
        assert memory.rewrite()
        until(lambda: not on_disk(), "the text has left the disk")
        assert set(memory.slots(ALICE)) == {"city"}
    finally:
        memory.close()
        embedded.stop()


# --- outages -------------------------------------------------------------------------------------------------------


def test_paused_redis_costs_one_timeout_a_second_and_heals(own_server: tuple[str, int]) -> None:
    url, pid = own_server
    clock = FakeClock()
    memory = RedisWorkingMemory(url, timeout_s=PATIENT_S, breaker_clock=clock)
    memory.put(ALICE, [slot("city")])
    memory.close()
    memory = RedisWorkingMemory(url, timeout_s=0.1, breaker_clock=clock)
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(WorkingMemoryUnavailable, match="Timeout"):
            memory.slots(ALICE)
        for _ in range(100):
            with pytest.raises(WorkingMemoryUnavailable, match="asked again in a second"):
                memory.slots(ALICE)
        assert not memory.healthy()
        clock.now += 1.0
    assert time.monotonic() - began < 5  # 200 timeouts would take 20 s
    os.kill(pid, signal.SIGCONT)
    until(lambda: memory.healthy() or _advance(clock), "Redis has caught up")
    assert set(memory.slots(ALICE)) == {"city"}
    memory.close()


def _advance(clock: FakeClock) -> bool:
    clock.now += 1.0
    return False


def test_late_answers_are_not_taken_for_the_next_question(own_server: tuple[str, int]) -> None:
    url, pid = own_server
    clock = FakeClock()
    memory = RedisWorkingMemory(url, timeout_s=0.1, breaker_clock=clock)
    until(lambda: memory.healthy() or _advance(clock), "Redis answers")
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(WorkingMemoryUnavailable):
        memory.cache_get("a")
    os.kill(pid, signal.SIGCONT)
    clock.now += 1.0
    until(lambda: memory.healthy() or _advance(clock), "Redis answers again")
    memory.cache_put("b", b"right", 30)
    assert memory.cache_get("b") == b"right"
    memory.close()


def test_restarted_redis_is_found_again(tmp_path: Path) -> None:
    embedded, clock = EmbeddedRedis(tmp_path), FakeClock()
    embedded.start()
    memory = RedisWorkingMemory(embedded.url, timeout_s=PATIENT_S, breaker_clock=clock)
    try:
        memory.put(ALICE, [slot("city")])
        pid = embedded.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: not embedded.alive(), "the server is gone")
        with pytest.raises(WorkingMemoryUnavailable) as caught:
            memory.slots(ALICE)
        assert isinstance(caught.value.__cause__, redis.ConnectionError)
        assert embedded.ensure()
        assert not memory.healthy()
        clock.now += 1.0
        assert memory.healthy()
        assert set(memory.slots(ALICE)) == {"city"}
        # A restart between two calls: the pooled connection is dead, and nobody notices.
        embedded.stop()
        embedded.start()
        assert set(memory.slots(ALICE)) == {"city"}
    finally:
        memory.close()
        embedded.stop()


def test_full_redis_still_answers_reads_and_heals(own_server: tuple[str, int]) -> None:
    url, _ = own_server
    clock = FakeClock()
    memory = RedisWorkingMemory(url, timeout_s=PATIENT_S, breaker_clock=clock)
    with redis.Redis.from_url(url) as client:
        memory.put(ALICE, [slot("city")])
        client.config_set("maxmemory", "1")
        for _ in range(2):
            with pytest.raises(WorkingMemoryUnavailable, match="OutOfMemory"):
                memory.put(ALICE, [slot("food")])
            assert set(memory.slots(ALICE)) == {"city"}
            assert not memory.healthy()
            clock.now += 1.0
        client.config_set("maxmemory", "0")
        clock.now += 1.0
        assert memory.healthy()
        memory.put(ALICE, [slot("food")])
        assert set(memory.slots(ALICE)) == {"city", "food"}
    memory.close()


def test_read_only_and_locked_redis_are_unavailable(own_server: tuple[str, int]) -> None:
    url, _ = own_server
    clock = FakeClock()
    memory = RedisWorkingMemory(url, timeout_s=PATIENT_S, breaker_clock=clock)
    with redis.Redis.from_url(url) as client:
        client.replicaof("127.0.0.1", "1")
        with pytest.raises(WorkingMemoryUnavailable, match="ReadOnly"):
            memory.put(ALICE, [slot("city")])
        client.replicaof("NO", "ONE")
        clock.now += 1.0
        memory.put(ALICE, [slot("city")])
        client.config_set("requirepass", "secret")
    memory.close()
    with pytest.raises(WorkingMemoryUnavailable, match="Authentication"):
        memory.slots(ALICE)
    parts = urlsplit(url)
    allowed = RedisWorkingMemory(f"redis://:secret@127.0.0.1:{parts.port}/0", timeout_s=PATIENT_S)
    assert set(allowed.slots(ALICE)) == {"city"}
    allowed.close()
    memory.close()


@contextlib.contextmanager
def canned_server(reply: bytes | None) -> Iterator[str]:
    """Answers whatever it is sent with the same bytes; hangs up on None."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                while reply is not None and connection.recv(65_536):
                    connection.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(
    "reply",
    [
        b"-LOADING the dataset is being loaded\r\n" * 3,
        b"-NOPERM this user has no permissions\r\n" * 3,
        b"-BUSY a script is running\r\n" * 3,
        b"-MASTERDOWN link is down\r\n" * 3,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"*1000000\r\n",
        b"",
        None,
    ],
    ids=["loading", "noperm", "busy", "masterdown", "http", "endless", "silent", "hangs-up"],
)
def test_every_kind_of_failure_is_unavailable_with_its_cause(reply: bytes | None) -> None:
    with canned_server(reply) as url:
        memory = RedisWorkingMemory(url, timeout_s=0.05)
        with pytest.raises(WorkingMemoryUnavailable, match=r"redis\.url") as caught:
            memory.slots(ALICE)
        assert isinstance(caught.value.__cause__, redis.RedisError | OSError)
        assert not memory.healthy()
        memory.close()


def test_password_stays_out_of_the_error_of_an_outage() -> None:
    with canned_server(None) as url:
        memory = RedisWorkingMemory(url.replace("127", "bob:s3cret@127"), timeout_s=0.05)
        with pytest.raises(WorkingMemoryUnavailable) as unavailable:
            memory.slots(ALICE)
        assert "s3cret" not in str(unavailable.value)
        memory.close()


def test_server_without_rewriting_says_no(own_server: tuple[str, int]) -> None:
    with canned_server(b"-ERR unknown command\r\n") as url:
        memory = RedisWorkingMemory(url, timeout_s=PATIENT_S)
        assert memory.rewrite() is False
        memory.close()


def test_breaker_lets_one_probe_through_at_a_time() -> None:
    clock = FakeClock()
    breaker = Breaker(open_s=1.0, clock=clock)
    assert breaker.admits()
    breaker.failed("it broke")
    assert (breaker.is_open, breaker.reason, breaker.admits()) == (True, "it broke", False)
    clock.now += 1.0
    assert [breaker.admits() for _ in range(3)] == [True, False, False]
    clock.now += 1.0
    assert breaker.admits()
    breaker.succeeded()
    assert [breaker.admits() for _ in range(3)] == [True, True, True]
    assert (breaker.is_open, breaker.reason) == (False, "")


@pytest.mark.parametrize("option", ["ttl_s", "max_items", "max_steps", "timeout_s"])
def test_limits_must_be_positive(option: str) -> None:
    with pytest.raises(ValueError, match="positive"):
        RedisWorkingMemory("redis://localhost", **{option: 0})  # type: ignore[arg-type]


def test_what_was_shared_and_is_forgotten_leaves_the_caches_of_all_users_of_the_tenant(
    memory: RedisWorkingMemory,
) -> None:
    bob, stranger = replace(ALICE, user_id="bob"), replace(ALICE, tenant="default2")
    for scope in (ALICE, bob, stranger):
        memory.put(scope, [slot("city", message_hash="h1")])
        memory.cache_put(cache_name(scope, "q"), b"city", 30)
    memory.forget(ALICE, {"h1"}, shared=True)
    assert [memory.cache_get(cache_name(scope, "q")) for scope in (ALICE, bob, stranger)] == [None, None, b"city"]
    assert [set(memory.slots(scope)) for scope in (ALICE, bob, stranger)] == [set(), {"city"}, {"city"}]


@pytest.mark.parametrize(
    ("session_id", "agent_id", "left"),
    [(None, None, []), ("s1", None, ["s2"]), (None, "coder", ["s1"]), ("s1", "coder", ["s1", "s2"])],
)
def test_clearing_takes_all_that_is_meant_and_nobody_elses(
    memory: RedisWorkingMemory, session_id: str | None, agent_id: str | None, left: list[str]
) -> None:
    scopes = [ALICE, Scope("default", "alice", "coder", "s2"), replace(ALICE, user_id="bob")]
    for scope in scopes:
        memory.put(scope, [slot("city")])
        memory.append_step(scope, {"tool": "ls"})
    memory.clear(ALICE.in_session(None), session_id=session_id, agent_id=agent_id)
    assert [scope.session_id for scope in scopes[:2] if memory.slots(scope)] == left
    assert [scope.session_id for scope in scopes[:2] if memory.steps(scope)] == left
    assert memory.slots(scopes[2])
