"""Answers kept for requests that are sent again with the same ``Idempotency-Key``.

In: an owner, a key, an answer. Out: the same within a day. A forgotten record's text goes from here too.
"""

from __future__ import annotations

import sqlite3
from datetime import datetime

from proxy.plugs import KeptAnswer
from proxy.scope import Scope
from proxy.store import queries, records
from proxy.store.readers import Readers

_SQL = queries.load("idempotency")


def kept(readers: Readers, scope: Scope, key: str, since: datetime) -> KeptAnswer | None:
    """See `Store.kept_answer`."""
    keys = {"owner": scope.partition("user"), "key": key, "since": since.timestamp()}
    found = readers.one(_SQL["kept"], keys)
    return None if found is None else KeptAnswer(*found)


# ── inside a transaction ───────────────────────────────────────────────────────────────────────────────────────────
def keep(
    connection: sqlite3.Connection, scope: Scope, key: str, answer: KeptAnswer, now: datetime, since: datetime
) -> None:
    """See `Transaction.keep_answer`."""
    connection.execute(_SQL["drop_old"], {"since": since.timestamp()})
    connection.execute(
        _SQL["keep"],
        {
            "owner": scope.partition("user"),
            "key": key,
            "fingerprint": answer.fingerprint,
            "status": answer.status,
            "body": None if answer.body is None else records.whole_characters(answer.body),
            "memory_id": answer.memory_id,
            "etag": answer.etag,
            "at": now.timestamp(),
        },
    )


def forgo(connection: sqlite3.Connection, memory_id: str) -> None:
    """Take a forgotten record's text out of the answers that are kept."""
    connection.execute(_SQL["forgo"], {"memory_id": memory_id})
