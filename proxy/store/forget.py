"""Forgetting for good: what hangs on a record, the tombstones that stay, and the traces in the file.

In: a scope and ids, inside a transaction. Out: the records to drop; their versions and journal turns are gone. After
the commit `scrub` takes the old postings and the write-ahead log away, so that no text remains in the files.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

import orjson

from proxy.plugs import Cascade
from proxy.scope import Scope
from proxy.store import idempotency, queries, records, survey
from proxy.store.writer import without_waiting
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
        derived: Reached as a summary of another, or as what one stood for; its own source message stays.
        remade: Made by a sweep, which may make the like again from what is left: no tombstone covers its text.
    """

    row: records.Row
    memory: Memory
    derived: bool
    remade: bool = False


def reach(connection: sqlite3.Connection, scope: Scope, memory_ids: Collection[str]) -> list[Reached]:
    """The records that the caller names, and all that hang on them.

    Args:
        connection: Inside the transaction.
        scope: Only records it may read can be named; only its own user's are reached by a common message.
        memory_ids: Ids; unknown ones are ignored.

    Returns:
        Each record once: those named, what they superseded, what was made from the same messages, the duplicates and
        members that any of those named stands for, and the summaries, lessons and facts made from any of these.
    """
    agent, user, shared = scope.readable
    named = {"agent": agent, "user": user, "shared": shared}
    waiting = [
        Reached(row, records.row_to_memory(row), False)
        for id_ in memory_ids
        for row in connection.execute(_MEMORIES["by_id"], {"id": id_, **named}).fetchall()
    ]
    reached: dict[int, Reached] = {}
    while waiting:
        one = waiting.pop()
        known = reached.get(one.row[records.ROW])
        # What was reached as derived only is looked at again when it is reached for itself: more hangs on it then.
        if known is None or (known.derived and not one.derived):
            reached[one.row[records.ROW]] = one
            waiting += _hanging(connection, one, user)
    return list(reached.values())


def _hanging(connection: sqlite3.Connection, one: Reached, user: str) -> Iterator[Reached]:
    owner, execute = one.row[records.OWNER], connection.execute
    of_owner = {"id": one.memory.id, "owner": owner}
    for row in execute(_SQL["derived"], of_owner).fetchall():
        yield Reached(row, records.row_to_memory(row), True)
    for row in survey.made_from(connection, owner, one.memory.id):
        yield Reached(row, records.row_to_memory(row), True, remade=True)
    if one.memory.session_id is not None and not one.derived:
        of_session = {**of_owner, "session_id": one.memory.session_id, "agent_id": one.memory.agent_id}
        for row in execute(_SQL["session_summaries"], of_session).fetchall():
            yield Reached(row, records.row_to_memory(row), True, remade=True)
    if one.memory.supersedes is not None:
        for row in execute(_MEMORIES["owned"], {**of_owner, "id": one.memory.supersedes}).fetchall():
            yield Reached(row, records.row_to_memory(row), one.derived)
    if one.derived:
        return
    for row, how in survey.folded(connection, owner, one.memory.id):
        # A merged duplicate says the same, so its message goes too; a member of a summary may say other things.
        yield Reached(row, records.row_to_memory(row), how == "compressed")
    if owner == user:
        for message in _messages(connection, one):
            for row in execute(_SQL["same_message"], {"message_hash": message, "owner": owner}).fetchall():
                yield Reached(row, records.row_to_memory(row), False)


def _messages(connection: sqlite3.Connection, one: Reached) -> list[str]:
    """The messages that said what a record holds: the one it was made from, and later ones."""
    first = one.memory.source.message_hash
    again = survey.said_again(connection, one.row[records.OWNER], one.memory.id)
    return [*([first] if first is not None else []), *again]


def cascade(connection: sqlite3.Connection, reached: Sequence[Reached]) -> Cascade:
    """What records that are to go touch outside the records: see `Cascade`."""
    own = [one for one in reached if not one.derived]
    sessions = {
        (one.memory.session_id, one.memory.agent_id)
        for one in own
        if one.memory.session_id is not None and one.memory.kind != "summary"
    }
    return Cascade(
        messages=frozenset(message for one in own for message in _messages(connection, one)),
        sessions=frozenset(sessions),
        shared=any(one.memory.scope == "shared" for one in reached),
    )


def left_over(connection: sqlite3.Connection, reached: Sequence[Reached]) -> list[records.Row]:
    """The members of summaries that go which do not go themselves: without their summary they must be active again."""
    going = {one.row[records.ROW] for one in reached}
    members = {
        row[records.ROW]: row
        for one in reached
        for row, how in survey.folded(connection, one.row[records.OWNER], one.memory.id)
        if how == "compressed" and row[records.CHANGE] == how and row[records.ROW] not in going
    }
    return list(members.values())


def past(connection: sqlite3.Connection, scope: Scope, memory_ids: Collection[str]) -> list[records.Row]:
    """The archived records among some of a user's, each with what it superseded."""
    owner = scope.partition("user")
    found: dict[int, records.Row] = {}
    for memory_id in memory_ids:
        wanted: str | None = memory_id
        while wanted is not None:
            row = connection.execute(_MEMORIES["owned"], {"id": wanted, "owner": owner}).fetchone()
            memory = None if row is None else records.row_to_memory(row)
            of_use = memory is None or memory.state != ("archived" if wanted == memory_id else "superseded")
            if memory is None or of_use or row[records.ROW] in found:
                break
            found[row[records.ROW]] = row
            wanted = memory.supersedes
    return list(found.values())


def clear(connection: sqlite3.Connection, rows: Sequence[records.Row]) -> None:
    """Drop what records leave behind when they go without a trace: versions, links, sightings."""
    for row in rows:
        memory = records.row_to_memory(row)
        connection.execute(_SQL["drop_versions"], {"id": memory.id})
        idempotency.forgo(connection, memory.id)
        survey.drop(connection, row[records.OWNER], memory.id)
        if memory.superseded_by is not None:
            connection.execute(_SQL["unlink_successor"], {"id": memory.id, "superseded_by": memory.superseded_by})
    connection.execute(_SQL["set_meta"], {"name": _PENDING, "value": "1"})


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
        hashes = {record_key(one.memory.id)}
        if not one.remade:
            states = execute(_SQL["former_states"], {"id": one.memory.id}).fetchall()
            said = {one.memory.content, *(str(orjson.loads(state)["content"]) for (state,) in states)}
            texts |= said
            hashes |= {_content_key(text) for text in said}
        if not one.derived:
            its = _messages(connection, one)
            messages |= set(its)
            hashes |= {message_key(message) for message in its}
        for owner in {one.row[records.OWNER], user}:
            for key in hashes:
                execute(_SQL["add_tombstone"], {"owner": owner, "hash": key, "at": now.timestamp()})
    clear(connection, [one.row for one in reached])
    _drop_turns(connection, user, messages, [text for text in texts if len(text) >= _LEAST_MATCHED_CHARS])


def _drop_turns(connection: sqlite3.Connection, owner: str, messages: set[str], texts: Iterable[str]) -> None:
    """Drop the owner's unfinished turns that hold one of the messages, or one of the texts word for word; one that only
    came after such a message stays, without it."""
    for seq, body, answer, answer_hash in connection.execute(_SQL["turns_with_text"], {"owner": owner}).fetchall():
        turn = orjson.loads(body)
        said = [*turn["new"], *turn["backfill"], *([turn["context"]] if turn["context"] else [])]
        whole = [turn["user_text"], *(message["text"] for message in said)]
        if answer is not None:
            whole.append(orjson.loads(answer)["text"])
        hashes = {answer_hash, *(message["hash"] for message in said)}
        before = turn["previous"]
        if hashes & messages or any(text in one for text in texts for one in whole):
            connection.execute(_SQL["drop_turn"], {"seq": seq})
        elif before and (before["hash"] in messages or any(text in before["text"] for text in texts)):
            connection.execute(_SQL["reword_turn"], {"seq": seq, "body": records.dumps({**turn, "previous": None})})


def tombstone_keys(memory: Memory) -> dict[str, str | None]:
    """The two tombstones that may cover a record: its content's and its source message's."""
    message = memory.source.message_hash
    return {"content": _content_key(memory.content), "message": None if message is None else message_key(message)}


def message_key(message_hash: str) -> str:
    """The tombstone that covers what was made from a message."""
    return f"m:{message_hash}"


def record_key(memory_id: str) -> str:
    """The tombstone that covers a record itself, whatever it says: an export may still hold it."""
    return f"r:{memory_id}"


def _content_key(text: str) -> str:
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".!?。！？ ")
    return "c:" + blake2b(plain.encode("utf-8", "replace"), digest_size=16).hexdigest()


def pending(connection: sqlite3.Connection) -> bool:
    """Whether records were erased whose traces may still be in the file."""
    found = connection.execute(_SQL["get_meta"], {"name": _PENDING}).fetchone()
    return found is not None and found[0] == "1"


def scrub(connection: sqlite3.Connection, again: bool = False) -> bool:
    """Take erased text out of the files: merge the postings into one segment, then empty the write-ahead log.

    `secure_delete` has zeroed rows and pages already. Outside a transaction, on the writer thread.

    Args:
        connection: The writer's.
        again: Whether only the log is left to be emptied; readers are then not waited for.

    Returns:
        Whether nothing is left; else somebody still reads what was, and it must be done again.

    Raises:
        sqlite3.Error: The first try failed; the store tries again after the next erasure and at the next start.
    """
    if again:
        with without_waiting(connection), suppress(sqlite3.OperationalError):
            return _empty_log(connection)
        return False
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_MEMORIES["optimize_terms"])
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return _empty_log(connection)


def _empty_log(connection: sqlite3.Connection) -> bool:
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if not busy:
        connection.execute(_SQL["set_meta"], {"name": _PENDING, "value": "0"})
    return not busy
