"""Conversations that were held elsewhere, told again: each turn goes through the policies as if it came just now.

In: one conversation as its owner's turns. Out: memories, dated as the conversation is, and an `Account` of it. Every
turn is journalled first and known by its chain hash, so that telling one twice, or once more after a kill, writes once.
It waits, so it runs in a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

import structlog
import uuid_utils

from proxy.ending import Ending
from proxy.errors import WorkingMemoryUnavailable
from proxy.observe import answer_hash, session_link
from proxy.plugs import JournalTurn, Ledger, Store, WorkingMemory
from proxy.policy.match import evaluate, request_event
from proxy.policy.rules import PolicySet
from proxy.record import guarded, guarded_answer
from proxy.remember import Remember
from proxy.replay.play import Proposal, Replay
from proxy.replay.transcript import Turn
from proxy.scope import Scope
from proxy.types import Answer, Message

log = structlog.get_logger(__name__)
_STATUS = "imported"
_MODEL = "import"


@dataclass(slots=True)
class Account:
    """What became of conversations.

    Args:
        turns: Told to the policies.
        known: Told before, and left alone.
        dropped: Kept out of memory by a rule for requests.
        outcomes: How many memories (and slots) met which end, e.g. ``created``.
        proposals: Of a dry run: what would be written.
    """

    turns: int = 0
    known: int = 0
    dropped: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    proposals: list[Proposal] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Retelling:
    """Tells conversations to the policies. Thread-safe.

    Args:
        store: Journal and ledger.
        working: Working layer, which a conversation of the past leaves empty.
        remember: Writes.
        ending: Tells what the end of a conversation comes to.
        policies: Returns the live policy set.
        clock: Returns now, aware UTC.
        zone: `identity.timezone`.
    """

    store: Store
    working: WorkingMemory
    remember: Remember
    ending: Ending
    policies: Callable[[], PolicySet]
    clock: Callable[[], datetime]
    zone: tzinfo

    def tell(self, scope: Scope, turns: Sequence[Turn], account: Account) -> None:
        """Write what the policies make of a conversation.

        Args:
            scope: Whose, with the conversation's session.
            turns: Of one conversation, in order.
            account: Counted in place.

        Raises:
            StoreError: The rest of it was not written; telling it again goes on where it stopped.
        """
        fresh = self._fresh(scope, turns, account)
        asked = _asked_before(turns)
        told_at: datetime | None = None
        for turn in fresh:
            if self._is_kept_out(scope, turn):
                account.dropped += 1
                continue
            written = self.remember.turn(self._journalled(scope, turn, asked[turn.number]))
            account.outcomes.update(outcome.action for outcome in written)
            account.turns += 1
            told_at = turn.at
        if told_at is not None:
            self._end(scope, told_at, account)

    def rehearse(self, scope: Scope, turns: Sequence[Turn], account: Account) -> None:
        """Say what the policies would make of a conversation, and write nothing. Arguments as for `tell`.

        Nothing is compared with what is stored, so that duplicates show here which would be merged.
        """
        fresh = self._fresh(scope, turns, account)
        replay = Replay(self.policies(), self.zone)
        steps = []
        for turn in fresh:
            made = replay.turn(turn)
            dropped = any(step.event == "request" for step in made)
            account.dropped += dropped
            account.turns += not dropped
            steps += made
        if fresh:
            steps += replay.end(fresh[-1])
        account.proposals += [proposal for step in steps for proposal in step.proposals]

    def _fresh(self, scope: Scope, turns: Sequence[Turn], account: Account) -> list[Turn]:
        """The turns that were not told yet. Where an assistant goes on unasked there is no turn."""
        asked = [turn for turn in turns if turn.new]
        known = self.store.seen(_seen_scope(scope), [_chain(turn) for turn in asked])
        fresh = [turn for turn in asked if _chain(turn) not in known]
        account.known += len(asked) - len(fresh)
        return fresh

    def _is_kept_out(self, scope: Scope, turn: Turn) -> bool:
        policies = self.policies()
        asked = guarded(turn.new[-1], policies).text if turn.new[-1].role == "user" else turn.user_text
        event = request_event(asked, turn.system, turn.at, agent_id=scope.agent_id, user_id=scope.user_id)
        return evaluate(policies, event).dropped_by is not None

    def _journalled(self, scope: Scope, turn: Turn, previous: Message | None) -> JournalTurn:
        """A turn, safe on disk with its answer."""
        policies = self.policies()
        new = tuple(guarded(message, policies) for message in turn.new)
        said = [message for message in [*([previous] if previous else []), *turn.new] if message.role == "user"]
        opened = JournalTurn(
            id=str(uuid_utils.uuid7()),
            scope=scope,
            seen_scope=_seen_scope(scope),
            chain=_chain(turn),
            at=turn.at,
            new=new,
            context=None if turn.context is None else guarded(turn.context, policies),
            model=_MODEL,
            user_text=guarded(said[-1], policies).text if said else "",
            previous=None if previous is None else guarded(previous, policies),
        )
        ledger = Ledger(opened.id, scope, self.clock(), _STATUS)
        kept = self.store.journal_open(opened, ledger).result()
        # Where a transcript breaks off there was no answer, as when a client goes away.
        answer, links = Answer(status="aborted"), []
        if turn.answer is not None:
            answer = guarded_answer(turn.answer, policies)
            # Whoever goes on with the conversation through the proxy finds its session by this.
            links = [(scope, session_link(said[-1].hash if said else "", answer_hash(turn.answer)))]
        self.store.journal_answer(kept.id, opened.id, answer, links).result()
        return replace(kept, answer=answer, status="answered")

    def _end(self, scope: Scope, at: datetime, account: Account) -> None:
        """The end of the conversation, when it was held: an idle one would be summed up as if it were today's."""
        event = self.ending.event(scope, self.store.session(scope), explicit=True)
        if event is not None:
            written = self.remember.happened(scope, replace(event, at=at))
            account.outcomes.update(outcome.action for outcome in written)
        now = self.clock()
        self.store.transact(lambda tx: tx.end_session(scope, now)).result()
        try:
            self.working.end(scope)
        except WorkingMemoryUnavailable as error:
            log.warning("working_memory_not_cleared", error_type=type(error).__name__)


def _seen_scope(scope: Scope) -> str:
    return f"{scope.owner}/{scope.session_id}"


def _chain(turn: Turn) -> str:
    """What names a turn in its conversation: the hash of all that was said up to its request."""
    return turn.new[-1].chain


def _asked_before(turns: Sequence[Turn]) -> dict[int, Message | None]:
    """By the number of each turn, the user's message of the one before."""
    asked: dict[int, Message | None] = {}
    before: Message | None = None
    for turn in turns:
        asked[turn.number] = before
        before = next((message for message in reversed(turn.new) if message.role == "user"), before)
    return asked
