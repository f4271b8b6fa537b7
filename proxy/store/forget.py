"""Forgetting for good: what hangs on a record, the tombstones that stay, and the traces in the file.

In: a scope and ids, inside a transaction. Out: the records to drop; their versions and journal turns are gone. After
the commit `scrub` takes the old postings and the write-ahead log away, so that no text remains in the files.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

import orjson

from proxy.scope import Scope
from proxy.store import queries, records
from proxy.types import Memory

_SQL = queries.load("forget")
_MEMORIES = queries.load("memories")
_PENDING = "erase_pending"
_LEAST_MATCHED_CHARS = 8


@dataclass(frozen=True, slots=True)
class Reached:
    """One record that is to go.

    Args:
        row: Of the `records` view.
        memory: The same as a record.
        derived: Reached as a summary of another; its own source message stays.
    """

    row: records.Row
    memory: Memory
    derived: bool


def reach(connection: sqlite3.Connection, scope: Scope, memory_ids: Collection[str]) -> list[Reached]:
    """The records that the caller names, and all that hang on them.

    Args:
        connection: Inside the transaction.
        scope: Only records it may read can be named; only its own user's are reached by a common message.
        memory_ids: Ids; unknown ones are ignored.

    Returns:
        Each record once: those named, what they superseded, what was made from the same messages, and the summaries of
        any of these.
    """
    agent, user, shared = scope.readable
    named = {"agent": agent, "user": user, "shared": shared}
    execute = connection.execute
    waiting = [
        (row, False) for id_ in memory_ids for row in execute(_MEMORIES["by_id"], {"id": id_, **named}).fetchall()
    ]
    reached: dict[int, Reached] = {}
    while waiting:
        row, derived = waiting.pop()
        if row[records.ROW] in reached:
            continue
        memory, owner = records.row_to_memory(row), row[records.OWNER]
        reached[row[records.ROW]] = Reached(row, memory, derived)
        of_owner = {"id": memory.id, "owner": owner}
        waiting += [(found, True) for found in execute(_SQL["derived"], of_owner)]
        if memory.supersedes is not None:
            waiting += [
                (found, derived) for found in execute(_MEMORIES["owned"], {**of_owner, "id": memory.supersedes})
            ]
        if not derived and memory.source.message_hash is not None and owner == user:
            keys = {"message_hash": memory.source.message_hash, "owner": owner}
            waiting += [(found, False) for found in execute(_SQL["same_message"], keys)]
    return list(reached.values())


def bury(connection: sqlite3.Connection, scope: Scope, reached: Sequence[Reached], now: datetime) -> None:
    """Leave tombstones, and drop versions, links and journal turns of records about to be dropped.

    Args:
        connection: Inside the transaction.
        scope: Who forgets: its user gets the tombstones too, beside the records' owners.
        reached: From `reach`.
        now: For the tombstones.
    """
    execute = connection.execute
    user = scope.partition("user")
    messages: set[str] = set()
    texts: set[str] = set()
    for one in reached:
        states = execute(_SQL["former_states"], {"id": one.memory.id}).fetchall()
        said = {one.memory.content, *(str(orjson.loads(state)["content"]) for (state,) in states)}
        texts |= said
        hashes = {_content_key(text) for text in said}
        if one.memory.source.message_hash is not None and not one.derived:
            messages.add(one.memory.source.message_hash)
            hashes.add(message_key(one.memory.source.message_hash))
        for owner in {one.row[records.OWNER], user}:
            for key in hashes:
                execute(_SQL["add_tombstone"], {"owner": owner, "hash": key, "at": now.timestamp()})
        execute(_SQL["drop_versions"], {"id": one.memory.id})
        if one.memory.superseded_by is not None:
            execute(_SQL["unlink_successor"], {"id": one.memory.id, "superseded_by": one.memory.superseded_by})
    _drop_turns(connection, user, messages, [text for text in texts if len(text) >= _LEAST_MATCHED_CHARS])
    execute(_SQL["set_meta"], {"name": _PENDING, "value": "1"})


def _drop_turns(connection: sqlite3.Connection, owner: str, messages: set[str], texts: Iterable[str]) -> None:
    """Drop the owner's unfinished turns that hold one of the messages, or one of the texts word for word."""
    for seq, body, answer, answer_hash in connection.execute(_SQL["turns_with_text"], {"owner": owner}).fetchall():
        turn = orjson.loads(body)
        said = [*turn["new"], *turn["backfill"], *([turn["context"]] if turn["context"] else [])]
        whole = [turn["user_text"], *(message["text"] for message in said)]
        if answer is not None:
            whole.append(orjson.loads(answer)["text"])
        hashes = {answer_hash, *(message["hash"] for message in said)}
        if hashes & messages or any(text in one for text in texts for one in whole):
            connection.execute(_SQL["drop_turn"], {"seq": seq})


def tombstone_keys(memory: Memory) -> dict[str, str | None]:
    """The two tombstones that may cover a record: its content's and its source message's."""
    message = memory.source.message_hash
    return {"content": _content_key(memory.content), "message": None if message is None else message_key(message)}


def message_key(message_hash: str) -> str:
    """The tombstone that covers what was made from a message."""
    return f"m:{message_hash}"


def _content_key(text: str) -> str:
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".!?。！？ ")
    return "c:" + blake2b(plain.encode("utf-8", "replace"), digest_size=16).hexdigest()


def pending(connection: sqlite3.Connection) -> bool:
    """Whether records were erased whose traces may still be in the file."""
    found = connection.execute(_SQL["get_meta"], {"name": _PENDING}).fetchone()
    return found is not None and found[0] == "1"


def scrub(connection: sqlite3.Connection) -> None:
    """Take erased text out of the files: merge the postings into one segment, then empty the write-ahead log.

    `secure_delete` has zeroed rows and pages already. Outside a transaction, on the writer thread.

    Raises:
        sqlite3.Error: It must be done again; the store does so after the next erasure and at the next start.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_MEMORIES["optimize_terms"])
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if not busy:
        connection.execute(_SQL["set_meta"], {"name": _PENDING, "value": "0"})
