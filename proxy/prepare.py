"""Before the upstream call: the session, what is new to it, what is recalled, and the block. Runs in the recall thread.

In: a `Call` with its conversation. Out: a `Prepared`, filled as it goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import orjson
import structlog
import uuid_utils

from proxy import inject
from proxy.call import Call, Prepared
from proxy.errors import WorkingMemoryUnavailable
from proxy.inject import Block, Item
from proxy.language import detect
from proxy.observe import Conversation, question
from proxy.plugs import Store, WorkingMemory
from proxy.policy.rules import PolicySet
from proxy.recall import Question, Recall, Recalled
from proxy.scope import Scope
from proxy.settings import Config
from proxy.store.session_keys import cache_name
from proxy.tokens import TokenCounter, count_for, window

log = structlog.get_logger(__name__)
_BLOCK_TTL_S = 3_600.0
_MAX_BACKFILL = 200
_UNANSWERED_KEPT = 10_000


class Preparation:
    """Finds out what a call needs of memory. Thread-safe.

    Args:
        config: Recall and injection settings.
        store: Long-term layer.
        working: Working layer.
        recall: Looks memories up.
        policies: Returns the live policy set.
        tokens: Counts tokens.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        working: WorkingMemory,
        recall: Recall,
        policies: Callable[[], PolicySet],
        tokens: TokenCounter,
    ) -> None:
        self._config = config
        self._store = store
        self._working = working
        self._recall = recall
        self._policies = policies
        self._tokens = tokens
        # Sessions of calls that have no whole answer yet: a retry belongs to them, a new thread with the same words
        # does not.
        self._unanswered: OrderedDict[tuple[str, str], str] = OrderedDict()

    def fill(self, call: Call, found: Prepared) -> Prepared:
        """Look everything up.

        Args:
            call: The call; its conversation is known.
            found: Filled in place.

        Returns:
            `found`.
        """
        assert call.talk is not None
        try:
            self._find_session(call, call.talk, found)
        except Exception as error:  # noqa: BLE001 - as below
            log.error("session_not_found", error_type=type(error).__name__, request_id=call.id)
            found.failures.append("store")
        if call.caller.reads:
            try:
                self._find_memories(call, call.talk, found)
            except Exception as error:
                log.error("recall_failed", error_type=type(error).__name__, request_id=call.id, exc_info=error)
                found.failures.append("recall")
        if call.caller.writes:
            found.failures += self._closed_layers()
        return found

    def _closed_layers(self) -> list[str]:
        """Layers that may still be read, but took no write the last time: what this call says will not get there."""
        open_now = {"store": self._store.health() is None, "working-memory": self._working.healthy()}
        return [name for name, is_open in open_now.items() if not is_open]

    def answered(self, scope: Scope, talk: Conversation) -> None:
        """The call has its whole answer: the same words again are a new thread."""
        self._unanswered.pop((scope.owner, talk.chain), None)

    def keep(self, call: Call, found: Prepared) -> None:
        """Keep the block that went out with a call for the tool loop that it may begin."""
        # Not `found.block`: that may have been finished after the deadline, and the model never saw it.
        if not call.has_tools or found.reused or not call.block.text or call.talk is None:
            return
        value = orjson.dumps([call.block.text, call.block.tokens, list(call.block.items)])
        try:
            self._working.cache_put(_block_name(found.scope, call.talk), value, _BLOCK_TTL_S)
        except WorkingMemoryUnavailable:
            log.warning("block_not_kept", request_id=call.id)

    def build(self, call: Call, recalled: Recalled) -> Block:
        """The block of what was recalled, within the call's budget."""
        limit = self._config.recall.quotas.limit("working")
        slots = sorted(recalled.slots.values(), key=lambda slot: slot.updated_at, reverse=True)[:limit]
        items = [Item(f"slot:{slot.name}", "working", f"{slot.name}: {_shown(slot.value)}") for slot in slots]
        items += [
            Item(
                hit.memory.id,
                hit.memory.kind,
                hit.memory.content,
                hit.memory.valid_from,
                recalled.replaced.get(hit.memory.id),
            )
            for hit in recalled.hits
            if hit.left_out is None
        ]
        newest = call.talk.newest_user if call.talk else None
        return inject.build(
            items,
            budget_tokens=self._budget(call),
            count=lambda text: count_for(call.known_as, self._tokens.count(text)),
            language=detect(newest.text if newest else ""),
            max_item_chars=self._config.inject.max_item_chars,
        )

    def _find_session(self, call: Call, talk: Conversation, found: Prepared) -> None:
        """The session that the request names, or the one in which its last assistant message was relayed."""
        scope, link = found.scope, talk.link
        linked = self._store.session_of(scope, link) if link is not None else None
        retry = (scope.owner, talk.chain)
        if scope.session_id is None:
            known = linked or self._unanswered.get(retry)
            found.scope = scope.in_session(known or str(uuid_utils.uuid7()))
        self._unanswered[retry] = found.scope.session_id or ""
        trim(self._unanswered, _UNANSWERED_KEPT)
        found.session_known = True
        if talk.earlier and linked is None and call.caller.writes:
            earlier = talk.earlier[-_MAX_BACKFILL:]
            seen = self._store.seen_content(scope.owner, [message.hash for message in earlier])
            found.backfill = tuple(message for message in earlier if message.hash not in seen)

    def _find_memories(self, call: Call, talk: Conversation, found: Prepared) -> None:
        text = question(talk)
        if text is None:
            self._same_block(talk, found)
            return
        in_request = frozenset(message.hash for message in talk.messages)
        self._recall.fill(found.recalled, found.scope, Question(text, call.at, in_request), self._policies())
        found.block = self.build(call, found.recalled)

    def _same_block(self, talk: Conversation, found: Prepared) -> None:
        """In a tool loop nothing new is said to the model: it gets the loop's first block, byte for byte."""
        try:
            kept = self._working.cache_get(_block_name(found.scope, talk))
        except WorkingMemoryUnavailable:
            found.failures.append("working-memory")
            return
        if kept is not None:
            text, tokens, items = orjson.loads(kept)
            found.block, found.reused = Block(text, tokens, tuple(items)), True

    def _budget(self, call: Call) -> int:
        budget = self._config.inject.budget_tokens
        if call.caller.budget_tokens is not None:
            budget = min(budget, call.caller.budget_tokens)
        limit = window(call.known_as)
        if limit is not None:
            # Two bytes are hardly ever more than a token: what is left of the window is at least about this.
            room = limit - len(call.body) // 2
            budget = min(budget, int(limit * self._config.inject.share_of_context), max(room, 0))
        return budget


def trim(entries: OrderedDict[Any, Any], keep: int) -> None:
    """Drop the oldest entries past `keep`."""
    while len(entries) > keep:
        entries.popitem(last=False)


def _block_name(scope: Scope, talk: Conversation) -> str:
    newest = talk.newest_user
    return cache_name(scope, f"block:{scope.session_id}:{newest.chain if newest else ''}")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
