"""Messages seen before, and sessions with the links that lead to them.

In: hashes and scopes, a connection inside a transaction or the readers. Out: rows, and what they tell.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from proxy.errors import StoreError
from proxy.plugs import SessionInfo
from proxy.scope import Scope
from proxy.store import queries, records
from proxy.store.readers import Readers
from proxy.types import Message

_SQL = queries.load("conversations")
_FORGET = queries.load("forget")


def know_owner(connection: sqlite3.Connection, scope: Scope) -> None:
    """Remember which user an agent's owner key belongs to: tombstones are the user's."""
    connection.execute(_FORGET["know_owner"], {"owner": scope.owner, "user_owner": scope.partition("user")})


def mark_seen(
    connection: sqlite3.Connection, seen_scope: str, owner: str, messages: Sequence[Message], now: datetime
) -> None:
    """See `Transaction.mark_seen`."""
    connection.executemany(
        _SQL["mark_seen"], [{"seen_scope": seen_scope, "chain": one.chain, "at": now.timestamp()} for one in messages]
    )
    connection.executemany(_SQL["mark_seen_content"], [{"owner": owner, "hash": one.hash} for one in messages])


def link_session(
    connection: sqlite3.Connection,
    scope: Scope,
    links: Sequence[str],
    now: datetime,
    *,
    head: bool,
    started_at: datetime | None = None,
    turns: int = 0,
) -> None:
    """Link messages to the scope's session, which is made where it is new and reopened where it had ended.

    Args:
        connection: Inside the transaction.
        scope: With its session.
        links: See `observe.session_link`.
        now: When.
        head: Whether all of `links` are the session's newest point, instead of those before.
        started_at: When a new session began; `now` by default.
        turns: How many turns this adds.

    Raises:
        StoreError: The scope has no session.
    """
    if scope.session_id is None:
        raise StoreError("a link needs a scope with its session")
    keys = {"owner": scope.owner, "session_id": scope.session_id, "now": now.timestamp()}
    connection.execute(
        _SQL["touch_session"],
        {**keys, "started_at": (started_at or now).timestamp(), "turns": turns, "points": 1 if head and links else 0},
    )
    connection.executemany(_SQL["link"], [{**keys, "link": link, "head": head} for link in links])


def end_session(connection: sqlite3.Connection, scope: Scope, now: datetime) -> bool:
    """See `Transaction.end_session`."""
    keys = {"owner": scope.owner, "session_id": scope.session_id, "now": now.timestamp()}
    return connection.execute(_SQL["end_session"], keys).rowcount > 0


def session_of(readers: Readers, scope: Scope, link: str) -> str | None:
    """See `Store.session_of`."""
    found = readers.one(_SQL["session_of"], {"owner": scope.owner, "link": link})
    return None if found is None else found[0]


def session(readers: Readers, scope: Scope) -> SessionInfo | None:
    """See `Store.session`."""
    found = readers.one(_SQL["session"], {"owner": scope.owner, "session_id": scope.session_id})
    if found is None:
        return None
    session_id, started_at, last_at, turns, ended_at = found
    ended = None if ended_at is None else records.moment(ended_at)
    return SessionInfo(session_id, records.moment(started_at), records.moment(last_at), turns, ended)


def seen(readers: Readers, seen_scope: str, chains: Sequence[str], since: datetime | None) -> set[str]:
    """See `Store.seen`."""
    rows = readers.all(
        _SQL["seen"], {"seen_scope": seen_scope, "chains": records.dumps(list(chains)), "since": records.seconds(since)}
    )
    return {chain for (chain,) in rows}


def seen_content(readers: Readers, owner: str, hashes: Sequence[str]) -> set[str]:
    """See `Store.seen_content`."""
    rows = readers.all(_SQL["seen_content"], {"owner": owner, "hashes": records.dumps(list(hashes))})
    return {hash_ for (hash_,) in rows}
