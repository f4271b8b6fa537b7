"""The working layer: a contract, held by `tests/test_working.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from proxy.scope import Scope
from proxy.types import Slot


class WorkingMemory(Protocol):
    """The working layer: slots of a session, and a small cache. Lost data here is never the only copy."""

    def slots(self, scope: Scope) -> Mapping[str, Slot]:
        """The session's slots; reading slides the TTL.

        Raises:
            WorkingMemoryUnavailable: Redis does not answer.
        """

    def put(self, scope: Scope, slots: Sequence[Slot], *, ttl_s: float | None = None) -> None:
        """Write slots and slide the TTL; past the limit the oldest slots go."""

    def end(self, scope: Scope) -> bool:
        """Delete the session's hash; False when there was none."""

    def idle_sessions(self, before: datetime, limit: int = 100) -> Sequence[Scope]:
        """Sessions last active before `before`, the longest idle first; they stay listed until ended or claimed."""

    def claim_idle(self, scope: Scope) -> bool:
        """Take a session off that list, and leave its data to the TTL; True for the one caller that took it."""

    def append_step(self, scope: Scope, step: Mapping[str, Any]) -> None:
        """Add one step to the session's task chain."""

    def steps(self, scope: Scope) -> Sequence[Mapping[str, Any]]:
        """The session's task chain, oldest first."""

    def forget(self, scope: Scope, message_hashes: Collection[str], *, shared: bool = False) -> object:
        """Delete the slots of the user's sessions that came from these messages, and the user's cached recalls; with
        `shared` those of all users of the tenant."""

    def clear(self, scope: Scope, *, session_id: str | None, agent_id: str | None) -> object:
        """Delete all slots and task chains of the user's sessions; of one session, or one agent, where it is named."""

    def rewrite(self) -> bool:
        """Rewrite what is on disk, so that deleted text is gone there too; False when that must be tried again."""

    def cache_get(self, key: str) -> bytes | None:
        """A cached value, or None."""

    def cache_put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Cache a value for `ttl_s` seconds."""

    def healthy(self) -> bool:
        """Whether Redis answered the last time it was asked; asks again when it had not."""

    def close(self) -> None:
        """Drop connections."""
