"""`/memory/policies` from outside: what is in force and why, what a reload refused, what rules make of a text."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.auth import hashed, new_key
from tests.calls import RULES, Memories, answered, refused
from tests.running import Running, eventually, running

SECRET = "sk-proj-" + "Ab3" * 14
READER, ADMIN = new_key(), new_key()
SHADOW = (
    RULES
    + r"""
  - id: watched
    mode: shadow
    when: user_message
    if: {match: 'I watch (?P<what>\w+)'}
    extract: {template: The user watches $what}
    write: {memory_type: semantic, kind: preference}
    examples: [{user: I watch birds, expect: [{content: The user watches birds}]}]
  - id: new-name
    why: A name that is not known yet, for these tests.
    when: user_message
    if: {match: 'my friend (?P<name>[A-Z]\w+)', known: false}
    extract: {template: The user has a friend $name}
    write: {memory_type: semantic, kind: entity}
    examples: [{user: my friend Ada, expect: [{content: The user has a friend Ada}]}]
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Policy files of these tests."""
    folder = tmp_path_factory.mktemp("policies")
    (folder / "10-rules.yaml").write_text(SHADOW, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def own(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The product with them, open to whoever is on this machine."""
    with running(tmp_path_factory.mktemp("open"), config={"policies": [str(folder)]}) as product:
        yield product


@pytest.fixture
def memories(own: Running, user: str) -> Iterator[Memories]:
    """This test's user."""
    with own.http(user) as http:
        yield Memories(http)


def explained(memories: Memories, **body: Any) -> list[dict[str, Any]]:
    """What the rules make of something."""
    data: list[dict[str, Any]] = answered(memories.http.post("/memory/policies/explain", json=body), 200)["data"]
    return data


def outcomes(entry: dict[str, Any]) -> dict[str, str]:
    """Per rule of one message its outcome."""
    return {rule["rule_id"]: rule["outcome"] for rule in entry["rules"]}


def test_the_rules_in_force_are_told_with_file_mode_and_why(memories: Memories, folder: Path) -> None:
    told = memories.get("policies")
    file = str(folder / "10-rules.yaml")
    assert (told["error"], told["files"]) == (None, [file])
    assert told["hash"] == memories.create("Port 1")["source"]["policy_hash"]
    assert told["rules"][0] == {
        "id": "collects",
        "file": file,
        "mode": "live",
        "when": "user_message",
        "why": "What the user collects, for these tests.",
    }
    assert {rule["id"]: (rule["mode"], rule["why"]) for rule in told["rules"]}["watched"] == ("shadow", None)


def test_a_text_is_explained_rule_by_rule_and_nothing_is_written(memories: Memories) -> None:
    (entry,) = explained(memories, text="I collect stamps.")
    assert (entry["message"], entry["event"], entry["text"]) == (0, "user_message", "I collect stamps.")
    assert outcomes(entry)["collects"] == "matched"
    rule = next(rule for rule in entry["rules"] if rule["rule_id"] == "collects")
    assert [draft["content"] for draft in rule["drafts"]] == ["The user collects stamps"]
    assert rule["conditions"][0]["holds"] is True
    assert memories.listed(state="all") == []


def test_conditions_ask_for_this_users_memories(memories: Memories) -> None:
    said = "I met my friend Zebedee."
    assert outcomes(explained(memories, text=said)[0])["new-name"] == "matched"
    memories.create("Zebedee is a friend of the user")
    assert outcomes(explained(memories, text=said)[0])["new-name"] == "not matched"


def test_messages_are_explained_one_by_one(memories: Memories) -> None:
    said = [
        {"role": "system", "content": "I collect rules"},
        {"role": "user", "content": [{"type": "text", "text": "I collect stamps"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "flights", "arguments": "{}"}}
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"error": "no seats"}'},
        {"role": "user", "content": "I fly to Lisbon", "name": "ada"},
    ]  # fmt: skip
    entries = explained(memories, messages=said)
    events = [(entry["message"], entry["event"]) for entry in entries]
    assert events == [(1, "user_message"), (2, "assistant_message"), (3, "tool_result"), (4, "user_message")]
    assert outcomes(entries[0])["collects"] == "matched"
    assert outcomes(entries[3])["flies"] == "matched"
    slots = next(rule["slots"] for rule in entries[3]["rules"] if rule["rule_id"] == "flies")
    assert [(slot["slot"], slot["value"]) for slot in slots] == [("place", "Lisbon")]


def test_rules_that_wait_for_something_else_are_shown_when_asked_for(memories: Memories) -> None:
    assert outcomes(explained(memories, text="I collect stamps", role="assistant")[0]) == {}
    every = outcomes(explained(memories, text="I collect stamps", role="assistant", all=True)[0])
    assert every["collects"] == "waits for user_message"


def test_rules_never_see_a_secret(memories: Memories) -> None:
    (entry,) = explained(memories, text=f"I collect stamps. My key is {SECRET}")
    assert SECRET not in str(entry)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": ""},
        {"text": "x", "messages": [{"role": "user", "content": "x"}]},
        {"messages": []},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"text": "x", "role": "system"},
        {"text": "x" * 8_001},
        {"text": 7},
    ],
    ids=lambda body: str(body)[:40],
)
def test_a_question_that_makes_no_sense_is_refused(memories: Memories, body: dict[str, Any]) -> None:
    refused(memories.http.post("/memory/policies/explain", json=body), 400)


# ── who sees what ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_refused_reload_is_told_and_where_files_lie_only_to_those_who_may_know(
    folder: Path, tmp_path: Path, user: str
) -> None:
    copy = tmp_path / f"policies-{secrets.token_hex(4)}"
    (copy / "local").mkdir(parents=True)
    (copy / "10-rules.yaml").write_text(SHADOW, encoding="utf-8")
    own = RULES.replace("id: collects", "id: collects-too").replace("id: flies", "id: flies-too")
    (copy / "local" / "own.yaml").write_text(own, encoding="utf-8")
    keys = [
        {"name": "reader", "hash": hashed(READER), "permissions": ["memory:read"]},
        {"name": "admin", "hash": hashed(ADMIN), "permissions": ["admin"]},
    ]
    config = {"policies": [str(copy)], "auth": {"mode": "keys", "keys": keys}}
    with running(tmp_path / "keys", config=config) as product:

        def told(key: str) -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {key}", "X-Memory-User": user}
            return answered(httpx.get(f"{product.address}/memory/policies", headers=headers), 200)

        before = told(READER)
        (copy / "10-rules.yaml").write_text("version: 1\nnonsense: true\n", encoding="utf-8")
        eventually(lambda: told(ADMIN)["error"])
        reader, admin = told(READER), told(ADMIN)
    assert before["error"] is None
    assert before["files"] == ["10-rules.yaml", "local/own.yaml"]
    assert {rule["file"] for rule in reader["rules"]} == {"10-rules.yaml", "local/own.yaml"}
    assert str(copy) not in str(reader)
    assert "refused" in reader["error"]
    assert "nonsense" in admin["error"]
    assert str(copy) in admin["files"][0]
    assert (reader["hash"], reader["rules"]) == (before["hash"], before["rules"])
