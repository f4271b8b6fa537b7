"""`Idempotency-Key` from outside: a repeated request is answered as the first time, and done once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.calls import RULES, Memories, answered, refused
from tests.running import Running, running

KEY = "the-key-of-this-request"


@pytest.fixture
def memories(product: Running, user: str) -> Iterator[Memories]:
    """This test's user."""
    with product.http(user) as http:
        yield Memories(http)


@pytest.fixture
def stranger(product: Running, user: str) -> Iterator[Memories]:
    """Another user."""
    with product.http(f"not-{user}") as http:
        yield Memories(http)


def create(memories: Memories, body: Any, key: str = KEY, **params: str) -> httpx.Response:
    return memories.http.post("/memory/records", json=body, headers={"Idempotency-Key": key}, params=params)


def take(memories: Memories, data: bytes, key: str = KEY, **params: str) -> httpx.Response:
    return memories.http.post("/memory/import", content=data, headers={"Idempotency-Key": key}, params=params)


def test_a_record_is_written_once_and_answered_twice(memories: Memories) -> None:
    first = create(memories, {"content": "Port 1", "on_conflict": "keep_both"})
    memories.change(answered(first, 201)["id"], content="Port 2")
    again = create(memories, {"content": "Port 1", "on_conflict": "keep_both"})
    assert (again.status_code, again.content, again.headers["ETag"]) == (201, first.content, first.headers["ETag"])
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert memories.listed(state="all") == ["Port 2"]


def test_another_request_with_the_key_is_refused(memories: Memories) -> None:
    create(memories, {"content": "Port 1"})
    others = [
        create(memories, {"content": "The dog is Bruno"}),
        create(memories, {"content": "Port 1", "agent_id": "other"}),
        create(memories, {"content": "Port 1"}, agent_id="other"),
        take(memories, b'{"content": "Port 1"}'),
    ]
    for response in others:
        error = refused(response, 422)
        assert (error["code"], error["param"]) == ("idempotency_key_reused", "Idempotency-Key")
    assert memories.listed(state="all", agent_id="*") == ["Port 1"]


def test_keys_are_each_users_own(memories: Memories, stranger: Memories) -> None:
    mine, theirs = create(memories, {"content": "Port 1"}), create(stranger, {"content": "Port 1"})
    assert (mine.status_code, theirs.status_code) == (201, 201)
    assert mine.json()["id"] != theirs.json()["id"]
    assert "Idempotency-Replayed" not in theirs.headers


def test_without_a_key_nothing_is_kept(memories: Memories) -> None:
    first, second = (memories.http.post("/memory/records", json={"content": "Port 1"}) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)


def test_what_was_refused_may_be_sent_right_with_the_same_key(memories: Memories) -> None:
    refused(create(memories, {"contnet": "Port 1"}), 400)
    assert create(memories, {"content": "Port 1"}).status_code == 201


def test_an_import_is_done_once_and_answered_twice(memories: Memories) -> None:
    data = b'{"content": "Port 1"}\n{"content": "The dog is Bruno"}\n'
    first, again = take(memories, data), take(memories, data)
    assert answered(first, 200)["imported"] == 2
    assert (again.content, again.headers["Idempotency-Replayed"]) == (first.content, "true")
    assert len(memories.listed(state="all")) == 2
    refused(take(memories, data[:-1]), 422)
    refused(take(memories, data, move="true"), 422)


def test_an_import_with_wrong_lines_is_answered_the_same_again(memories: Memories) -> None:
    data = b'{"content": "Port 1"}\n{}\n'
    first, again = take(memories, data), take(memories, data)
    assert (first.status_code, again.status_code, again.content) == (422, 422, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"


def test_a_forgotten_record_is_not_shown_nor_written_again(product: Running, memories: Memories) -> None:
    text = "My secret hobby is falconry"
    record = answered(create(memories, {"content": text}), 201)
    memories.http.delete(f"/memory/records/{record['id']}")
    error = refused(create(memories, {"content": text}), 410)
    assert (error["code"], error["param"]) == ("forgotten", "Idempotency-Key")
    assert memories.listed(state="all") == []
    on_disk = b"".join(path.read_bytes() for path in product.data.glob("sidemirror.db*"))
    assert b"falconry" not in on_disk
    assert create(memories, {"content": text}, key="another key").status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
@pytest.mark.parametrize("send", [create, take])
def test_a_key_that_cannot_be_one_is_refused(memories: Memories, send: Any, key: str) -> None:
    response = send(memories, {"content": "Port 1"} if send is create else b'{"content": "Port 1"}', key)
    assert refused(response, 400)["param"] == "Idempotency-Key"
    assert memories.listed(state="all") == []


def test_two_keys_in_one_request_are_refused(memories: Memories) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    response = memories.http.post("/memory/records", json={"content": "Port 1"}, headers=headers)
    assert refused(response, 400)["code"] == "invalid_idempotency_key"


def test_of_many_at_once_one_is_done_and_the_others_are_told(product: Running, memories: Memories, user: str) -> None:
    def one(_: int) -> int:
        with product.http(user) as http:
            return create(Memories(http), {"content": "Port 1", "on_conflict": "keep_both"}).status_code

    with ThreadPoolExecutor(8) as threads:
        statuses = set(threads.map(one, range(16)))
    assert statuses <= {201, 409}
    assert 201 in statuses
    assert memories.listed(state="all") == ["Port 1"]


def test_an_answer_is_kept_over_a_restart(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES, encoding="utf-8")
    contents, bodies = [], []
    for _ in range(2):
        with running(tmp_path, config={"policies": ["rules.yaml"]}) as product, product.http("ada") as http:
            memories = Memories(http)
            bodies.append(create(memories, {"content": "Port 1"}).content)
            contents.append(memories.listed(state="all"))
    assert bodies[0] == bodies[1]
    assert contents == [["Port 1"], ["Port 1"]]
