"""What breaks under the running product, and what it makes of it: calls go through, the reason is told, it heals."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from proxy.store.directory_lock import read_record
from proxy.store.server_process import start_time
from tests.calls import RULES, ask, contents, tell
from tests.running import Running, eventually, refused_start, running
from tests.scripted import Lane, ScriptedUpstream, chunk, completion, stream

MORE = r"""
version: 1
triggers:
  - id: plays
    why: What the user plays, added while the product runs.
    when: user_message
    if: {match: 'I play (?P<what>\w+)'}
    extract: {template: The user plays $what}
    write: {memory_type: semantic, kind: preference, scope: user, confidence: 0.9}
    examples: [{user: I play chess, expect: [{content: The user plays chess}]}]
"""
DEADLINES_S = 0.1
"""Of recall and journal together."""
MARGIN_S = 3.0
"""What a busy machine may add. Without a deadline a paused Redis would hold a call up for ever."""
UNHURRIED = {"deadline_ms": 5_000}
REBUILT = {"placement": "system"}
"""The same question is asked again and again, and must be answered anew each time."""
"""For tests of other things than the deadline."""


def folder_with_rules(folder: Path) -> Path:
    """A folder for the product with the few rules above: loading the shipped ones would take most of a start."""
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "10-rules.yaml").write_text(RULES, encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for a product of this test's own."""
    return folder_with_rules(tmp_path / "own")


@pytest.fixture(scope="module")
def product(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A product that the tests of this module break, and that heals each time."""
    folder = folder_with_rules(tmp_path_factory.mktemp("faults") / "product")
    with running(folder, config={"upstream": {"base_url": provider.url}, "inject": REBUILT}) as started:
        yield started


def degraded(product: Running) -> list[str]:
    """What `/readyz` says does not work; it must say that calls are relayed."""
    return list(readiness(product)["degraded"])


def readiness(product: Running) -> dict[str, Any]:
    """What `/readyz` says."""
    with product.http() as http:
        response = http.get("/readyz")
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    assert body["status"] == "ready"
    return body


def redis_of(product: Running) -> psutil.Process:
    """The product's embedded Redis."""
    return eventually(lambda: next(iter(psutil.Process(product.process.pid).children()), None))


def remembers(product: Running, lane: Lane, user: str, text: str) -> bool:
    """Whether a text is injected into a call; on a busy machine recall may miss its deadline."""
    ask(product, lane, "What do I collect, and where do I fly to?", user=user, session="s", mode="read")
    return text in lane.last.system


def flies(product: Running, lane: Lane, user: str) -> str | None:
    """Fill the slot of a place; None when Redis is not asked again yet."""
    place = f"Place{secrets.token_hex(4)}"
    ledger = tell(product, lane, f"I fly to {place}", user=user, session="s")
    return place if [one["action"] for one in ledger["written"]["outcomes"]] == ["slot"] else None


def said(product: Running) -> str:
    """Its log so far."""
    return "".join(product.errors)


def is_well(product: Running) -> Callable[[], bool]:
    return lambda: degraded(product) == []


def took_s(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


# ── the store ──────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def database(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with something in it."""
    folder = folder_with_rules(tmp_path_factory.mktemp("database") / "product")
    lane = provider.lane("sk-database")
    with running(folder, config={"upstream": {"base_url": provider.url}}) as started:
        tell(started, lane, "I collect stamps", user="u")
        assert started.stop() == 0
    path = folder / "data" / "sidemirror.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.read_bytes()


def damaged(database: bytes, how: str) -> bytes:
    """The database after an accident."""
    if how == "zeros":
        return bytes(len(database))
    if how == "random bytes":
        return os.urandom(len(database))
    if how == "truncated":
        return database[: len(database) * 3 // 5]
    middle = len(database) // 2 // 4096 * 4096
    return database[:middle] + b"\xff" * 8192 + database[middle + 8192 :]


@pytest.mark.parametrize("how", ["zeros", "random bytes", "truncated", "a hole"])
def test_with_a_damaged_database_calls_are_relayed_without_memory(
    provider: ScriptedUpstream, lane: Lane, folder: Path, database: bytes, how: str
) -> None:
    (folder / "data").mkdir()
    path = folder / "data" / "sidemirror.db"
    path.write_bytes(damaged(database, how))
    before = path.read_bytes()
    with running(folder, config={"upstream": {"base_url": provider.url}, "recall": UNHURRIED}) as product:
        lane.script(completion("Hello."))
        response = ask(product, lane, "I collect coins", user="u", session="s")
        assert response.headers["X-Memory-Status"] == "degraded:store"
        assert response.json()["choices"][0]["message"]["content"] == "Hello."
        assert lane.last.json["messages"] == [{"role": "user", "content": "I collect coins"}]
        assert degraded(product) == ["store"]
        assert "sidemirror restore" in readiness(product)["details"]["store"]
        assert "sidemirror restore" in said(product)
        with product.http("u") as http:
            for path_ in ("/memory/records", "/memory/stats", "/memory/records/x"):
                error = http.get(path_).json()["error"]
                assert (error["code"], "sidemirror restore" in error["message"]) == ("store_unavailable", True)
            request_id = response.headers["X-Memory-Request-Id"]
            account = eventually(lambda: http.get(f"/memory/requests/{request_id}").json().get("written"))
        assert account["status"] == "failed"
        assert "is damaged" in account["reason"]
        assert product.stop() == 0
    # Whatever can still be read in it is left for those who repair it.
    assert path.read_bytes() == before


def test_strict_refuses_a_damaged_database(folder: Path, database: bytes) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "sidemirror.db").write_bytes(damaged(database, "truncated"))
    status, text = refused_start(folder, args=("--strict",))
    assert status == 2
    last = text.strip().splitlines()[-1]
    assert last.startswith("sidemirror: ")
    assert "is damaged" in last
    assert "sidemirror restore" in last
    assert "Traceback" not in text


@contextmanager
def locked(product: Running) -> Iterator[None]:
    """Another process holds the database's write lock."""
    connection = sqlite3.connect(product.data / "sidemirror.db", isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        connection.close()


def account(product: Running, response: httpx.Response, user: str) -> dict[str, Any]:
    """What the ledger says of a call's memories, whatever it says."""
    with product.http(user) as http:
        found = http.get(f"/memory/requests/{response.headers['X-Memory-Request-Id']}")
    assert found.status_code == 200, found.text
    written: dict[str, Any] = found.json()["written"]
    return written


def test_a_call_during_a_short_lock_is_answered_and_written_once_when_it_is_gone(
    product: Running, lane: Lane, user: str
) -> None:
    with locked(product):
        response = ask(product, lane, "I collect stamps", user=user, session="s")
        written = account(product, response, user)
        assert written["status"] == "failed"
        assert "not on disk within" in written["reason"]
    eventually(lambda: account(product, response, user)["status"] == "done")
    assert contents(product, user) == ["The user collects stamps"]
    assert len(product.records(user, state="all")) == 1


def test_a_call_during_a_long_lock_is_told_as_failed_and_its_retry_is_written_once(
    product: Running, lane: Lane, user: str
) -> None:
    with locked(product):
        response = ask(product, lane, "I collect coins", user=user, session="s")
        eventually(lambda: "locked" in account(product, response, user).get("reason", ""))
        assert account(product, response, user)["status"] == "failed"
        assert degraded(product) == ["store"]
        with product.http(f"not-{user}") as http:
            request_id = response.headers["X-Memory-Request-Id"]
            assert http.get(f"/memory/requests/{request_id}").status_code == 404
    for _ in range(2):
        tell(product, lane, "I collect coins", user=user, session="s")
    assert contents(product, user) == ["The user collects coins"]
    assert degraded(product) == []
    # A foreign connection that closes must not take the write-ahead log away from under those that came back.
    with locked(product):
        pass
    assert contents(product, user) == ["The user collects coins"]


def test_what_was_answered_before_a_lock_is_written_after_it(product: Running, lane: Lane, user: str) -> None:
    hold = threading.Event()
    lane.script(stream(chunk({"content": "Well."}), chunk({}, finish="stop"), hold={0: hold}))
    connection = sqlite3.connect(product.data / "sidemirror.db", isolation_level=None)
    try:
        with product.http(user) as http:
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "I collect shells"}]}
            headers = {"Authorization": f"Bearer {lane.key}"}
            with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
                eventually(lambda: http.get("/memory/requests/" + response.headers["X-Memory-Request-Id"]).json())
                connection.execute("BEGIN EXCLUSIVE")
                hold.set()
                response.read()
        assert b"[DONE]" in response.content
        assert account(product, response, user)["status"] in ("failed", "queued")
    finally:
        hold.set()
        connection.close()
    eventually(lambda: account(product, response, user)["status"] == "done")
    assert contents(product, user) == ["The user collects shells"]


# ── Redis ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_embedded_redis_that_is_killed_comes_back_by_itself(product: Running, lane: Lane, user: str) -> None:
    tell(product, lane, "I collect stamps", user=user)
    killed = redis_of(product)
    killed.kill()
    for _ in range(3):
        status = ask(product, lane, "What do I collect?", user=user, session="s").headers["X-Memory-Status"]
        assert set(status.removeprefix("degraded:").split(",")) <= {"ok", "working-memory", "deadline"}
    eventually(lambda: remembers(product, lane, user, "The user collects stamps"))
    eventually(lambda: redis_of(product).pid != killed.pid)
    eventually(is_well(product))
    place = eventually(lambda: flies(product, lane, user))
    eventually(lambda: remembers(product, lane, user, f"place: {place}"))


def test_a_paused_redis_holds_no_call_up_and_heals(product: Running, lane: Lane, user: str) -> None:
    tell(product, lane, "I collect stamps", user=user)
    paused = redis_of(product)
    paused.suspend()
    try:
        statuses = []
        for _ in range(5):
            call = lambda: statuses.append(  # noqa: E731 - timed as a whole
                ask(product, lane, "What do I collect?", user=user, session="s").headers["X-Memory-Status"]
            )
            assert took_s(call) < DEADLINES_S + MARGIN_S
        assert any("working-memory" in status for status in statuses)
        eventually(lambda: remembers(product, lane, user, "The user collects stamps"))
        assert degraded(product) == ["working-memory"]
        ledger = tell(product, lane, "I fly to Lisbon", user=user, session="s")
        (slot,) = [one for one in ledger["written"]["outcomes"] if one["rule_id"] == "flies"]
        assert slot["action"] == "failed"
        assert "Redis" in slot["reason"]
        with product.http(user) as http:
            assert "Redis" in http.get("/memory/sessions/s").json()["degraded"]
            assert http.delete("/memory/sessions/s").status_code == 503
    finally:
        paused.resume()
    eventually(is_well(product))
    assert redis_of(product).pid == paused.pid
    place = eventually(lambda: flies(product, lane, user))
    eventually(lambda: remembers(product, lane, user, f"place: {place}"))


def test_a_redis_that_cannot_be_reached_leaves_working_memory_out(
    provider: ScriptedUpstream, lane: Lane, folder: Path, user: str
) -> None:
    redis = {"url": "redis://:hush@127.0.0.1:1/0"}
    config = {"upstream": {"base_url": provider.url}, "recall": UNHURRIED, "redis": redis}
    with running(folder, config=config) as product:
        response = ask(product, lane, "I collect stamps", user=user, session="s")
        assert response.headers["X-Memory-Status"] == "degraded:working-memory"
        product.ledger(response.headers["X-Memory-Request-Id"], user)
        response = ask(product, lane, "What do I collect?", user=user, session="t")
        assert response.headers["X-Memory-Status"] == "degraded:working-memory"
        assert "The user collects stamps" in lane.last.system
        assert degraded(product) == ["working-memory"]
        with product.http(user) as http:
            record = product.records(user)[0]["id"]
            assert http.delete(f"/memory/records/{record}").status_code == 200
        assert contents(product, user, state="all") == []
        assert "hush" not in said(product)
        assert product.stop() == 0


# ── policies ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_broken_policies_are_refused_at_start_with_every_mistake(folder: Path) -> None:
    (folder / "policies" / "20-more.yaml").write_text(MORE.replace("user_message", "user_massage"), encoding="utf-8")
    wrong = MORE.replace("id: plays", "id: plays-too").replace("The user plays chess", "The user plays go")
    (folder / "policies" / "30-wrong.yaml").write_text(wrong, encoding="utf-8")
    (folder / "policies" / "40-torn.yaml").write_text("version: 1\ntriggers: [\n", encoding="utf-8")
    status, text = refused_start(folder)
    assert status == 2
    for file in ("20-more.yaml:6:", "30-wrong.yaml:", "40-torn.yaml:"):
        assert file in text
    assert "Traceback" not in text


def test_a_rule_that_is_added_fires_without_a_restart(product: Running, lane: Lane, user: str) -> None:
    tell(product, lane, "I play chess", user=user)
    assert contents(product, user) == []
    path = product.data.parent / "policies" / "20-more.yaml"
    path.write_text(MORE, encoding="utf-8")
    eventually(lambda: "policies_reloaded" in said(product))
    tell(product, lane, "I play go", user=user)
    assert contents(product, user) == ["The user plays go"]


def test_a_broken_reload_keeps_the_old_rules_until_it_is_mended(product: Running, lane: Lane, user: str) -> None:
    path = product.data.parent / "policies" / "30-local.yaml"
    path.write_text(MORE.replace("id: plays", "id: local").replace("expect: [", "expects: ["), encoding="utf-8")
    try:
        eventually(lambda: degraded(product) == ["policies"])
        assert "30-local.yaml:10:" in readiness(product)["details"]["policies"]
        assert "policy_reload_refused" in said(product)
        tell(product, lane, "I collect stamps", user=user)
        assert contents(product, user) == ["The user collects stamps"]
    finally:
        path.unlink()
    eventually(is_well(product))


# ── deadlines ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_recall_that_takes_too_long_is_cut_off_and_the_call_goes_through(
    provider: ScriptedUpstream, lane: Lane, folder: Path, user: str
) -> None:
    config = {"upstream": {"base_url": provider.url}, "recall": {"deadline_ms": 1}}
    with running(folder, config=config) as product:
        statuses, written = [], []
        for number in range(10):
            response = ask(product, lane, f"I collect number{number}", user=user, session="s")
            statuses.append(response.headers["X-Memory-Status"])
            written.append(product.ledger(response.headers["X-Memory-Request-Id"], user)["written"])
        reasons = {one for status in statuses for one in status.removeprefix("degraded:").split(",")}
        assert "deadline" in reasons
        assert reasons <= {"ok", "deadline", "working-memory"}
        assert len(lane.received) == 10
        # What was cut off before the call is done after it: nothing that was said is lost.
        assert [[one["action"] for one in account["outcomes"]] for account in written] == [["created"]] * 10, written
        assert len(contents(product, user)) == 10


# ── the process ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_was_acknowledged_before_a_kill_is_there_once_after_it(
    provider: ScriptedUpstream, lane: Lane, folder: Path, user: str
) -> None:
    config = {"upstream": {"base_url": provider.url}}
    hold = threading.Event()
    things = [f"thing{number}" for number in range(8)]
    with running(folder, config=config) as product:
        tell(product, lane, "I collect the first", user=user, session="s")
        for thing in things:
            ask(product, lane, f"I collect {thing}", user=user, session=thing)
        lane.script(stream(chunk({"content": "Well"}), hold={1: hold}))
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "I collect halves"}]}
        headers = {"Authorization": f"Bearer {lane.key}"}
        with (
            product.http(user) as http,
            http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response,
            suppress(httpx.HTTPError),
        ):
            pieces = response.iter_bytes()
            next(pieces)
            redis = redis_of(product)
            assert product.stop(signal.SIGKILL) == -signal.SIGKILL
            next(pieces)
        hold.set()
    eventually(lambda: start_time(redis.pid) is None)
    with running(folder, config=config) as product:
        expected = {f"The user collects {thing}" for thing in ("the", *things)}
        eventually(lambda: expected <= set(contents(product, user)))
        for thing in things:
            tell(product, lane, f"I collect {thing}", user=user, session=thing)
        kept = [text for text in contents(product, user, state="all") if text != "The user collects halves"]
        assert sorted(kept) == sorted(expected)
        assert product.stop() == 0


def test_a_termination_lets_answers_in_flight_end_and_leaves_nothing_behind(
    provider: ScriptedUpstream, lane: Lane, folder: Path, user: str
) -> None:
    hold = threading.Event()
    lane.script(stream(chunk({"content": "First, "}), chunk({"content": "second."}, finish="stop"), hold={1: hold}))
    with running(folder, config={"upstream": {"base_url": provider.url}}) as product:
        redis = redis_of(product)
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "I collect stamps"}]}
        headers = {"Authorization": f"Bearer {lane.key}"}
        with (
            product.http(user) as http,
            http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response,
        ):
            pieces = response.iter_bytes()
            first = next(pieces)
            product.process.send_signal(signal.SIGTERM)
            eventually(lambda: is_closed(product))
            hold.set()
            rest = b"".join(pieces)
        assert b"First, " in first
        assert b"second." in rest
        assert rest.endswith(b"data: [DONE]\n\n")
        assert product.process.wait(20) == 0
        assert start_time(redis.pid) is None
        with sqlite3.connect(product.data / "sidemirror.db") as connection:
            assert connection.execute("SELECT content FROM memories").fetchall() == [("The user collects stamps",)]
        connection.close()


def is_closed(product: Running) -> bool:
    """Whether nobody listens any more."""
    parts = urlsplit(product.address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_second_instance_on_one_data_folder_is_refused(product: Running, lane: Lane, user: str) -> None:
    status, text = refused_start(product.data.parent)
    assert status == 2
    assert f"another Sidemirror works on {product.data}" in text
    assert "--data" in text
    assert "Traceback" not in text
    assert ask(product, lane, "hello", user=user).headers["X-Memory-Status"].startswith(("ok", "degraded:deadline"))


def test_a_port_in_use_is_told_and_nothing_is_left_running(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, text = refused_start(folder, args=("--port", str(port)))
    assert status == 2
    last = text.strip().splitlines()[-1]
    assert f"cannot listen on 127.0.0.1:{port}: " in last
    assert "in use" in last
    assert "--port" in last
    assert "Traceback" not in text
    record = read_record(folder / "data" / "redis" / "owner.lock")
    assert record is not None
    assert record.server_pid is not None
    assert start_time(record.server_pid) is None


def test_a_wrong_setting_is_told_with_file_and_line(folder: Path) -> None:
    path = folder / "own.yaml"
    path.write_text("server:\n  port: 8080\n  hots: 127.0.0.1\nrecall: {deadline_ms: soon}\n", encoding="utf-8")
    status, text = refused_start(folder, args=("--config", str(path)), env={"SIDEMIRROR__SERVER__PROT": "1"})
    assert status == 2
    assert f"{path}:3:3: server.hots" in text
    assert f"{path}:4:" in text
    assert "SIDEMIRROR__SERVER__PROT" in text
    assert "Traceback" not in text


def test_a_data_folder_that_cannot_be_used_is_told(folder: Path) -> None:
    (folder / "data").write_text("a file", encoding="utf-8")
    status, text = refused_start(folder)
    assert status == 2
    assert f"the data folder {folder / 'data'} cannot be used" in text
    assert "Traceback" not in text
