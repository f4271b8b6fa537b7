"""Sessions that nobody has spoken in for a while, and that were not ended since.

In: the readers and an instant. Out: scopes. It finds what the working layer has lost track of.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import orjson

from proxy.scope import Scope
from proxy.store import queries
from proxy.store.readers import Readers

LOOKED_BACK = timedelta(days=7)
"""Sessions idle for longer are let rest; the working layer keeps its list as long."""

_SQL = queries.load("idle")


def idle_sessions(readers: Readers, before: datetime, limit: int) -> Sequence[Scope]:
    """Sessions last active before `before`, with something said since they last ended, the longest idle first.

    Args:
        readers: The store's.
        before: Sessions active since then go on.
        limit: How many at most.

    Raises:
        StoreUnavailable: The store cannot be read now.
    """
    keys = {"before": before.timestamp(), "since": (before - LOOKED_BACK).timestamp(), "limit": limit}
    found: list[Scope] = []
    for session_id, owner, own, users in readers.all(_SQL["idle"], keys):
        whose = [*orjson.loads(own or "[]"), *orjson.loads(users or "[]")]
        scopes = (Scope(tenant, user_id, agent_id, session_id) for tenant, user_id, agent_id in whose)
        found += [scope for scope in scopes if scope.owner == owner][:1]
    return found
