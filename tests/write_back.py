"""Write-back without a proxy around it: a store with the shipped embedder, a working layer in memory, rules of the
test's own, and turns that are journalled as the pipeline does it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from uuid_utils import uuid7

from proxy.errors import WorkingMemoryUnavailable
from proxy.metrics import Metrics
from proxy.observe import answer_hash, chained, content_hash
from proxy.plugs import JournalTurn
from proxy.policy.load import load
from proxy.policy.rules import PolicySet
from proxy.remember import Helpers, Remember
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.types import Answer, Memory, Message, Outcome, Slot, ToolCall
from tests.store_samples import ALICE, Clock, account
from tests.sweep_samples import EMBEDDER


class Working:
    """A working layer in memory; `gone` makes it fail."""

    def __init__(self) -> None:
        self.filled: dict[Scope, dict[str, Slot]] = {}
        self.chains: dict[Scope, list[Mapping[str, Any]]] = {}
        self.ttl_s: float | None = None
        self.forgotten: list[frozenset[str]] = []
        self.rewritten = 0
        self.gone = False

    def _answer(self) -> None:
        if self.gone:
            raise WorkingMemoryUnavailable

    def slots(self, scope: Scope) -> Mapping[str, Slot]:
        self._answer()
        return self.filled.get(scope, {})

    def put(self, scope: Scope, slots: Sequence[Slot], *, ttl_s: float | None = None) -> None:
        self._answer()
        self.ttl_s = ttl_s
        self.filled.setdefault(scope, {}).update({slot.name: slot for slot in slots})

    def end(self, scope: Scope) -> bool:
        self._answer()
        return self.filled.pop(scope, None) is not None

    def idle_sessions(self, before: datetime, limit: int = 100) -> Sequence[Scope]:
        self._answer()
        return []

    def claim_idle(self, scope: Scope) -> bool:
        self._answer()
        return True

    def append_step(self, scope: Scope, step: Mapping[str, Any]) -> None:
        self._answer()
        self.chains.setdefault(scope, []).append(step)

    def steps(self, scope: Scope) -> Sequence[Mapping[str, Any]]:
        self._answer()
        return self.chains.get(scope, [])

    def clear(self, scope: Scope, *, session_id: str | None, agent_id: str | None) -> object:
        self._answer()
        self.filled.clear()
        return None

    def forget(self, scope: Scope, message_hashes: Collection[str], *, shared: bool = False) -> object:
        self._answer()
        self.forgotten.append(frozenset(message_hashes))
        for slots in self.filled.values():
            for name in [name for name, slot in slots.items() if slot.message_hash in message_hashes]:
                del slots[name]
        return None

    def rewrite(self) -> bool:
        self._answer()
        self.rewritten += 1
        return True

    def cache_get(self, key: str) -> bytes | None:
        return None

    def cache_put(self, key: str, value: bytes, ttl_s: float) -> None: ...
    def healthy(self) -> bool:
        return not self.gone

    def close(self) -> None: ...


def rules(folder: Path, text: str) -> PolicySet:
    """The policy set of one file."""
    path = folder / f"{uuid7()}.yaml"
    path.write_text(f"version: 1\n{text}", encoding="utf-8")
    return load([path], models=["extractor"])


def message(role: str, text: str, *, calls: Sequence[ToolCall] = (), answers: str | None = None) -> Message:
    """A message as the wire reads it; `answers` is the call that a tool's message answers."""
    hashed = content_hash(role, text, calls, answers)
    return Message(role, text, hashed, "", tool_calls=tuple(calls), tool_call_id=answers)


class Desk:
    """Write-back at work for one user.

    Args:
        store: Long-term layer.
        policies: The set in force; may be replaced.
        helpers: As for `Remember`.
    """

    def __init__(self, store: SqliteStore, clock: Clock, policies: PolicySet, helpers: Helpers = Helpers()) -> None:  # noqa: B008 - a frozen value
        self.store, self.clock, self.policies = store, clock, policies
        self.working = Working()
        self.metrics = Metrics()
        self.remember = Remember(
            store, self.working, EMBEDDER, lambda: self.policies, len, clock, self.metrics, helpers=helpers
        )

    def opened(
        self, *messages: Message, scope: Scope = ALICE, answer: Answer | None = None, **more: Any
    ) -> JournalTurn:
        """A journalled turn: what comes after the last assistant message is new."""
        whole = chained(messages)
        last = max((at for at, one in enumerate(whole) if one.role == "assistant"), default=-1)
        users = [one for one in whole if one.role == "user"]
        earlier = [one for one in whole[: max(last, 0)] if one.role == "user"]
        turn = JournalTurn(
            id=str(uuid7()),
            scope=scope,
            seen_scope=f"{scope.owner}/{scope.session_id}",
            chain=whole[-1].chain,
            at=self.clock(),
            new=whole[last + 1 :],
            context=whole[last] if last >= 0 else None,
            previous=earlier[-1] if earlier else None,
            user_text=users[-1].text if users else "",
            **more,
        )
        opened = self.store.journal_open(turn, account(turn, written_status="queued")).result()
        given = answer or Answer("OK", finish_reason="stop")
        self.store.journal_answer(opened.id, opened.id, given, [(scope, "")]).result()
        return replace(opened, answer=given)

    def say(self, *said: Message | str, **more: Any) -> tuple[Outcome, ...]:
        """Have a turn written; a plain text is a user's message."""
        messages = [message("user", one) if isinstance(one, str) else one for one in said]
        return self.remember.turn(self.opened(*messages, **more))

    def kept(self, scope: Scope = ALICE, state: str | None = "active") -> list[Memory]:
        """The records in a state, in the order in which they were written."""
        return [one.memory for one in self.store.survey(scope).records if state is None or one.memory.state == state]

    def contents(self, **more: Any) -> list[str]:
        """What they say."""
        return [one.content for one in self.kept(**more)]


@contextmanager
def desk(folder: Path, text: str, helpers: Helpers = Helpers()) -> Iterator[Desk]:  # noqa: B008 - a frozen value
    """A desk with rules of its own."""
    clock = Clock()
    store = SqliteStore(
        folder / "m.db",
        fingerprint=EMBEDDER.fingerprint,
        dimension=EMBEDDER.dimension,
        answer_hash=answer_hash,
        clock=clock,
    )
    try:
        yield Desk(store, clock, rules(folder, text), helpers)
    finally:
        store.close()
