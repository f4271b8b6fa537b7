"""A session's working notes, as write-back fills them: slots, and the chain of tool calls.

In: slots and turns. Out: what the working layer holds, and outcomes for the ledger. Nothing here is the only copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import structlog

from proxy import observe
from proxy.chain import task_of
from proxy.errors import WorkingMemoryUnavailable
from proxy.plugs import JournalTurn, WorkingMemory
from proxy.scope import Scope
from proxy.types import Event, Memory, Outcome, Slot, SlotWrite, iso

log = structlog.get_logger(__name__)


class Notes:
    """Writes to the working layer. Thread-safe.

    Args:
        working: The working layer.
        safe: Takes out of any value what must not be kept; told whether a tool said it.
    """

    def __init__(self, working: WorkingMemory, safe: Callable[[object, bool], object]) -> None:
        self._working = working
        self._safe = safe

    def fill(self, scope: Scope, slots: Sequence[tuple[SlotWrite, Event]]) -> list[Outcome]:
        """Fill slots, each with the event it came from.

        Returns:
            One outcome each; ``failed`` when the working layer is away.
        """
        if not slots:
            return []
        filled = [
            Slot(one.name, self._safe(one.value, event.role == "tool"), event.at, one.rule_id, event.message_hash)
            for one, event in slots
        ]
        ttl_s = next((one.ttl_s for one, _ in slots if one.ttl_s is not None), None)
        try:
            self._working.put(scope, filled, ttl_s=ttl_s)
        except WorkingMemoryUnavailable as error:
            return [Outcome(one.rule_id, "failed", one.name, str(error)) for one, _ in slots]
        return [Outcome(one.rule_id, "slot", one.name, "filled") for one, _ in slots]

    def steps(self, scope: Scope) -> Sequence[Mapping[str, Any]]:
        """The session's task chain, oldest first; none when the working layer is away."""
        try:
            return self._working.steps(scope)
        except WorkingMemoryUnavailable as error:
            log.warning("task_chain_not_read", error_type=type(error).__name__)
            return ()

    def add_steps(self, turn: JournalTurn, written: Sequence[Memory]) -> None:
        """The task chain: which tools ran, how they ended, and which memories came of it."""
        made = {memory.source.message_hash: memory.id for memory in written}
        calls = {call.id: call for call in (turn.context.tool_calls if turn.context else ())}
        try:
            for message in turn.new:
                if message.role == "tool":
                    call = calls.get(message.tool_call_id or "")
                    step = {
                        "tool": call.name if call else message.name,
                        "tool_call_id": message.tool_call_id,
                        "status": observe.tool_status(message.text, observe.parsed(message.text)),
                        "request_id": turn.id,
                        "memory_id": made.get(message.hash),
                        "message_hash": message.hash,
                        "task": task_of(turn.user_text),
                        "at": iso(turn.at),
                    }
                    self._working.append_step(turn.scope, step)
        except WorkingMemoryUnavailable as error:
            log.warning("task_chain_not_kept", error_type=type(error).__name__)

    def clear(self, scope: Scope, message_hashes: Collection[str], *, for_good: bool, shared: bool = False) -> None:
        """Take out what came from some messages.

        Args:
            scope: Whose; all the user's sessions are looked through.
            message_hashes: Which messages.
            for_good: Whether it must leave the disk as well.
            shared: Whether other users of the tenant may have been told of it.
        """
        self._erase(lambda: self._working.forget(scope, message_hashes, shared=shared), for_good=for_good)

    def clear_all(self, scope: Scope, *, session_id: str | None, agent_id: str | None) -> None:
        """Take out all that the user's sessions hold, for good.

        Args:
            scope: Whose.
            session_id: Of this session only.
            agent_id: Of this agent only.
        """
        self._erase(lambda: self._working.clear(scope, session_id=session_id, agent_id=agent_id), for_good=True)

    def _erase(self, erase: Callable[[], object], *, for_good: bool) -> None:
        try:
            erase()
            if for_good:
                self._working.rewrite()
        except WorkingMemoryUnavailable as error:
            # What is left there is bound to its TTL; the long-term layer, the source of truth, is clean.
            log.warning("working_memory_not_cleared", error_type=type(error).__name__)
