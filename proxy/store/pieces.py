"""What was put into a session's requests, kept as it was: the frozen block, and the piece behind each user message.

In: a scope with its session, pieces. Out: the same pieces for every later request, also after a restart. A piece is
written once and never changed; what was forgotten takes the pieces along in whose text it stands.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import partial
from types import MappingProxyType

import orjson

from proxy.plugs import FROZEN, SHORT_MARK, Piece
from proxy.scope import Scope
from proxy.store import queries, records
from proxy.store.readers import Readers
from proxy.store.writer import Unit

_SQL = queries.load("pieces")
_SESSIONS = 2_000

_Key = tuple[str, str]


class Pieces:
    """The pieces of sessions in use, in memory. Safe to use from any thread.

    Args:
        readers: Of the database.
    """

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._held: OrderedDict[_Key, dict[str, Piece]] = OrderedDict()
        self._drops = 0
        self._lock = threading.Lock()

    def of(self, scope: Scope) -> Mapping[str, Piece]:
        """The session's pieces by the chain hash of their message; `FROZEN` names the block in the system prompt.

        Raises:
            StoreUnavailable: They are not in memory and cannot be read.
        """
        key = _key(scope)
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                return MappingProxyType(held)
            mark = self._drops
        read = {
            chain: Piece(text, tokens, tuple(orjson.loads(items)), tuple(orjson.loads(mentions)))
            for chain, text, tokens, items, mentions in self._readers.all(_SQL["of_session"], _named(key))
        }
        with self._lock:
            if self._drops != mark:
                return read
            held = self._held.setdefault(key, read)
            while len(self._held) > _SESSIONS:
                self._held.popitem(last=False)
            return MappingProxyType(held)

    def keep(self, scope: Scope, chain: str, piece: Piece) -> tuple[Piece, bool]:
        """Keep a piece, if none is kept for this message.

        Args:
            scope: With its session, whose pieces were asked for before.
            chain: Chain hash of the user message, or `FROZEN`.
            piece: What to keep.

        Returns:
            The piece that stands from now on, and whether it is this one.
        """
        with self._lock:
            held = self._held.get(_key(scope))
            if held is None:  # let go meanwhile: the table has the say
                return piece, True
            standing = held.setdefault(chain, piece)
            return standing, standing is piece

    def write(self, unit: Unit, scope: Scope, chain: str, piece: Piece) -> None:
        """Write a piece that was kept; where a memory in it was forgotten meanwhile, it is let go after the commit."""
        if not write(unit.connection, scope, chain, piece):
            dropped = [(scope.owner, scope.session_id or "", chain)]
            unit.after_commit.append(partial(self.drop, dropped))

    def drop(self, keys: Collection[tuple[str, str, str]]) -> None:
        """A commit took pieces away: owner, session and chain each."""
        with self._lock:
            self._drops += 1
            for owner, session_id, chain in keys:
                # Calls under way hold the same mapping; what they keep from now on is for the table to say.
                if chain == FROZEN:
                    self._held.pop((owner, session_id), {}).clear()
                else:
                    self._held.get((owner, session_id), {}).pop(chain, None)


def write(connection: sqlite3.Connection, scope: Scope, chain: str, piece: Piece) -> bool:
    """Write a piece that was kept, unless something that stands in it was forgotten meanwhile.

    Returns:
        Whether all of it may still be said.
    """
    ids = {one for one in (*piece.items, *piece.mentions) if not one.startswith(("slot:", "version:", SHORT_MARK))}
    if ids:
        (there,) = connection.execute(_SQL["there"], {"ids": records.dumps(list(ids))}).fetchone()
        if there < len(ids):
            return False
    row = {
        **_named(_key(scope)),
        "user_owner": scope.partition("user"),
        "chain": chain,
        "text": records.whole_characters(piece.text),
        "tokens": piece.tokens,
        "items": records.dumps(piece.items),
        "mentions": records.dumps(piece.mentions),
    }
    connection.execute(_SQL["keep"], row)
    return True


def drop_holding(
    connection: sqlite3.Connection, scope: Scope, memory_ids: Collection[str], *, slots: bool
) -> list[tuple[str, str, str]]:
    """Delete the pieces of the user's sessions that hold one of these memories, and of anybody's where it was shared. A
    frozen block takes all pieces of its session along: the session is then frozen anew.

    Args:
        connection: Inside the transaction.
        scope: Whose.
        memory_ids: Which.
        slots: Whether pieces that hold a slot go as well: nobody knows which message filled it.

    Returns:
        Owner, session and chain of each, for `Pieces.drop` after the commit.
    """
    keys = {"user_owner": scope.partition("user"), "ids": records.dumps(list(memory_ids)), "slots": slots}
    found: list[tuple[str, str, str]] = connection.execute(_SQL["holding"], keys).fetchall()
    named_shared = {"ids": keys["ids"], "shared": scope.partition("shared")}
    shared = [one for (one,) in connection.execute(_SQL["shared"], named_shared).fetchall()]
    if shared:
        found += connection.execute(_SQL["holding_anywhere"], {"ids": records.dumps(shared)}).fetchall()
    for owner, session_id, chain in found:
        named = {"owner": owner, "session_id": session_id}
        if chain == FROZEN:
            connection.execute(_SQL["drop_session"], named)
        else:
            connection.execute(_SQL["drop_piece"], {**named, "chain": chain})
    return found


def drop_session(connection: sqlite3.Connection, scope: Scope) -> list[tuple[str, str, str]]:
    """Delete all pieces of a session; as `drop_holding` returns them."""
    named = _named(_key(scope))
    connection.execute(_SQL["drop_session"], named)
    return [(named["owner"], named["session_id"], FROZEN)]


def _key(scope: Scope) -> _Key:
    if scope.session_id is None:
        raise ValueError("pieces belong to a session, and this scope names none")
    return scope.owner, scope.session_id


def _named(key: _Key) -> dict[str, str]:
    return {"owner": key[0], "session_id": key[1]}
