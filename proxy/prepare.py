"""Before the upstream call: the session, what is new to it, what is recalled, and the block. Runs in the recall thread.

In: a `Call` with its conversation. Out: a `Prepared`, filled as it goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import structlog
import uuid_utils

from proxy import frozen, inject
from proxy.call import Call, Prepared
from proxy.errors import StoreError, WorkingMemoryUnavailable
from proxy.frozen import Placed
from proxy.inject import Block, Item
from proxy.language import detect
from proxy.observe import Conversation, question
from proxy.plugs import FROZEN, SHORT_MARK, Piece, Store, WorkingMemory
from proxy.policy.rules import PolicySet
from proxy.recall import Hit, Question, Recall, Recalled
from proxy.scope import Scope
from proxy.settings import Config
from proxy.store.session_keys import cache_name
from proxy.tokens import TokenCounter, count_for, window
from proxy.types import Memory

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
        self._freezes = config.inject.placement == "session"
        # Sessions of calls that have no whole answer yet: a retry belongs to them, a new thread with the same words
        # does not.
        self._unanswered: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._linked: OrderedDict[tuple[str, str], str] = OrderedDict()

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

    def link(self, scope: Scope, link: str) -> None:
        """By this the next request finds its session, which may come before the store knows of the answer."""
        if scope.session_id is not None:
            self._linked[(scope.owner, link)] = scope.session_id
            trim(self._linked, _UNANSWERED_KEPT)

    def answered(self, scope: Scope, talk: Conversation) -> None:
        """The call has its whole answer: the same words again are a new thread."""
        self._unanswered.pop((scope.owner, talk.chain), None)

    def keep(self, call: Call, found: Prepared) -> None:
        """Keep the block that went out with a call for the tool loop that it may begin."""
        # Not `found.block`: that may have been finished after the deadline, and the model never saw it.
        if self._freezes:
            self._keep_nothing(call, found)
            return
        if not call.has_tools or found.reused or not call.block.text or call.talk is None:
            return
        value = orjson.dumps([call.block.text, call.block.tokens, list(call.block.items)])
        try:
            self._working.cache_put(_block_name(found.scope, call.talk), value, _BLOCK_TTL_S)
        except WorkingMemoryUnavailable:
            log.warning("block_not_kept", request_id=call.id)

    def _keep_nothing(self, call: Call, found: Prepared) -> None:
        """A call that went out before its session's pieces were known added nothing to them, and that stays so."""
        if call.settled or found.pieces is None or call.talk is None:
            return
        for chain in frozen.missing(found.pieces, call.talk):
            self._store.keep_piece(found.scope, chain, Piece())

    def build(self, call: Call, recalled: Recalled) -> Block:
        """The block of what was recalled, within the call's budget."""
        items = [*self._slot_items(recalled), *_hit_items(recalled, recalled.hits)]
        return self._block(call, items, self._budget(call))

    def settle(self, call: Call, found: Prepared) -> Placed:
        """With `inject.placement: session`: keep this request's piece, unless one is kept already, and place them all.

        Args:
            call: About to be forwarded.
            found: As far as it was filled in time.
        """
        if found.pieces is None or call.talk is None:
            return Placed()
        pieces = dict(found.pieces)
        wanted = frozen.missing(pieces, call.talk)
        call.settled = True
        # Another request of the session, or forgetting, may have changed meanwhile what is wanted.
        if wanted and (found.fresh is None or found.fresh[0] != wanted[0]):
            self._add_piece(call, call.talk, found, ())
        fresh = found.fresh[1] if found.fresh is not None else Piece()
        for chain, piece in zip(wanted, (fresh, Piece()), strict=False):
            pieces[chain] = self._store.keep_piece(found.scope, chain, piece)
        there = frozen.placed(pieces, call.talk, self._budget(call), found.left_out)
        marks = {mark for piece in pieces.values() for mark in piece.mentions if mark.startswith(SHORT_MARK)}
        short = tuple(one for one in there.block.items if f"{SHORT_MARK}{one}" in marks)
        return replace(there, block=replace(there.block, short=short))

    def _slot_items(self, recalled: Recalled) -> list[Item]:
        limit = self._config.recall.quotas.limit("working")
        slots = sorted(recalled.slots.values(), key=lambda slot: slot.updated_at, reverse=True)[:limit]
        return [Item(f"slot:{slot.name}", "working", f"{slot.name}: {_shown(slot.value)}") for slot in slots]

    def _block(self, call: Call, items: Sequence[Item], budget_tokens: int, *, later: bool = False) -> Block:
        newest = call.talk.newest_user if call.talk else None
        return inject.build(
            items,
            budget_tokens=budget_tokens,
            count=self._tokens.count,
            scale=partial(count_for, call.known_as),
            language=detect(newest.text if newest else ""),
            max_item_chars=self._config.inject.max_item_chars,
            later=later,
        )

    def _find_session(self, call: Call, talk: Conversation, found: Prepared) -> None:
        """The session that the request names, or the one in which its last assistant message was relayed."""
        scope, link = found.scope, talk.link
        linked = None
        if link is not None:
            linked = self._store.session_of(scope, link) or self._linked.get((scope.owner, link))
        retry = (scope.owner, talk.chain)
        if scope.session_id is None:
            # In one step: of two such requests at once, the second must find the first's.
            known = linked or self._unanswered.setdefault(retry, str(uuid_utils.uuid7()))
            found.scope = scope.in_session(known)
        self._unanswered[retry] = found.scope.session_id or ""
        trim(self._unanswered, _UNANSWERED_KEPT)
        found.session_known = True
        if talk.earlier and linked is None and call.caller.writes:
            earlier = talk.earlier[-_MAX_BACKFILL:]
            seen = self._store.seen_content(scope.owner, [message.hash for message in earlier])
            found.backfill = tuple(message for message in earlier if message.hash not in seen)

    def _find_memories(self, call: Call, talk: Conversation, found: Prepared) -> None:
        if self._freezes:
            self._find_pieces(call, talk, found)
            return
        text = question(talk)
        if text is None:
            self._same_block(talk, found)
            return
        in_request = _hashes(talk)
        self._recall.fill(found.recalled, found.scope, Question(text, call.at, in_request), self._policies())
        found.block = self.build(call, found.recalled)

    def _find_pieces(self, call: Call, talk: Conversation, found: Prepared) -> None:
        """What stands in the session's requests, and what this one adds."""
        try:
            pieces = self._store.pieces(found.scope)
            text = question(talk) if frozen.missing(pieces, talk) else None
            session = self._store.session(found.scope) if text is not None else None
        except StoreError:
            found.failures.append("store")
            return
        if text is None:
            found.pieces = pieces
            return
        found.begun = session.started_at if session is not None else call.at
        held = frozen.standing(pieces, talk)
        asked = Question(text, call.at, _hashes(talk), frozen.present(held))
        found.pieces = pieces
        self._recall.fill(found.recalled, found.scope, asked, self._policies())
        self._add_piece(call, talk, found, frozen.corrections(self._store, found.scope, held))

    def _add_piece(
        self, call: Call, talk: Conversation, found: Prepared, changed: Sequence[tuple[Memory, Memory]]
    ) -> None:
        """Make the piece that this request adds, of what was recalled and what has changed."""
        assert found.pieces is not None
        held = frozen.standing(found.pieces, talk)
        known, hashes, first = frozen.present(held), _hashes(talk), FROZEN not in found.pieces
        slots = dict(frozen.slot_items(found.recalled.slots, held, hashes, self._slot_items(found.recalled)))
        told = [Item.of(new, old.content) for old, new in changed]
        hits = frozen.additions(found.recalled, known | {new.id for _, new in changed}, hashes, first=first)
        items = [*slots, *told, *_hit_items(found.recalled, hits)]
        room = (budget := self._budget(call)) - sum(piece.tokens for piece in held)
        if first:
            block = self._block(call, items, min(room, int(budget * frozen.SNAPSHOT_SHARE)))
        else:
            news = {one.id for one in items[: len(slots) + len(told)]} | frozen.learnt_since(hits, found.begun)
            block = self._later_block(call, items, news, room, int(budget * frozen.NEWS_SHARE))
        former = {new.id: old.id for old, new in changed}
        replaced = found.recalled.replaced
        former |= {
            one.memory.id: one.memory.supersedes for one in hits if one.memory.supersedes and one.memory.id in replaced
        }
        inside = set(block.items)
        marks = [mark for item, mark in slots.items() if item.id in inside]
        shown = [*(new for _, new in changed), *(hit.memory for hit in hits)]
        marks += [frozen.version_mark(one) for one in shown if one.id in inside]
        marks += [f"{SHORT_MARK}{one}" for one in block.short]
        mentions = (*marks, *(former[one] for one in block.items if one in former))
        found.left_out = block.left_out
        chain = FROZEN if first else talk.newest_user.chain if talk.newest_user else FROZEN
        found.fresh = chain, Piece(block.text, block.tokens, block.items, mentions)

    def _later_block(self, call: Call, items: Sequence[Item], news: Set[str], room: int, spared: int) -> Block:
        """What is no news may not use what is spared for news; where that leaves some out, news goes alone."""
        block = self._block(call, items, room - spared, later=True)
        if news.isdisjoint(block.left_out):
            return block
        return self._block(call, [item for item in items if item.id in news], room, later=True)

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
            if room < budget:
                room = limit - inject.most_tokens(call.body)
            budget = min(budget, int(limit * self._config.inject.share_of_context), max(room, 0))
        return budget


def trim(entries: OrderedDict[Any, Any], keep: int) -> None:
    """Drop the oldest entries past `keep`."""
    while len(entries) > keep:
        entries.popitem(last=False)


def _hit_items(recalled: Recalled, hits: Iterable[Hit]) -> list[Item]:
    return [Item.of(hit.memory, recalled.replaced.get(hit.memory.id)) for hit in hits if hit.left_out is None]


def _hashes(talk: Conversation) -> frozenset[str]:
    return frozenset(message.hash for message in talk.messages)


def _block_name(scope: Scope, talk: Conversation) -> str:
    newest = talk.newest_user
    return cache_name(scope, f"block:{scope.session_id}:{newest.chain if newest else ''}")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
