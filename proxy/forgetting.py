"""Forgetting said in a chat: which memories are meant, and putting them away so that they can be brought back.

In: a `ForgetRequest`, whose it is, and where in the conversation it was said. Out: a `Choice`, and what became of it in
a transaction. "Forget it" is often a figure of speech, so nothing is erased, and where nothing is clearly meant nothing
is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import regex
import structlog

from proxy.conflict import normal
from proxy.errors import EmbedderError
from proxy.plugs import Embedder, Filters, Store, Transaction
from proxy.policy.evaluation import ForgetRequest
from proxy.scope import Scope
from proxy.shelf import compiled
from proxy.store.lexical import query_terms
from proxy.subject import covered, meant, subject_of
from proxy.types import Draft, Memory, Outcome, Vector

log = structlog.get_logger(__name__)
FORGOTTEN, RESTORED = "forgotten in chat", "restored in chat"
RESTORABLE = timedelta(days=7)
MOST = 5
"""Memories that one sentence may put away, beside the raw turns they were made from."""
_NEAR = 24
_MOST_ARCHIVED = 200
_TAG = "forgotten-in:"
_DERIVED = ("summary", "lesson", "reflection")
_WRITTEN = ("created", "merged", "superseded", "versioned")
_SAYS_FORGET = compiled(
    r"忘(?!不了|记带)|别(?:再)?记|不要(?:再)?记|删(?:掉|除)|\b(?:forget|forgot|don't remember|erase|delete|remove)\b",
    regex.IGNORECASE,
)
_COVERED = 0.6


@dataclass(frozen=True, slots=True)
class Spoken:
    """Where in the conversation the user asked.

    Args:
        message_hash: Of the message that asks.
        earlier: Of the user's messages before it that the same request brings, oldest first.
        answer_hash: Of the assistant message before those; None at a thread's start.
        previous: Of the user's message that it answered. It cannot be looked up: "Noted." answers many a message.
    """

    message_hash: str | None
    earlier: tuple[str, ...] = ()
    answer_hash: str | None = None
    previous: str | None = None

    @property
    def said_last(self) -> str | None:
        """Hash of the user's message before the one that asks."""
        return self.earlier[-1] if self.earlier else self.previous


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be put away, or brought back.

    Args:
        request: What was asked.
        memories: As they are now; may be empty.
        reason: Why these, or why none, in a few words.
        session_id: Where it was asked; only there it can be taken back.
        messages: Hashes of the messages that are to leave nothing behind: neither slots nor, if they are of this very
            turn, memories.
    """

    request: ForgetRequest
    memories: tuple[Memory, ...]
    reason: str
    session_id: str | None = None
    messages: tuple[str, ...] = ()


class Forgetting:
    """Finds what is meant. Thread-safe.

    Args:
        store: Long-term layer.
        embedder: For the words that name it.
        clock: Returns now, aware UTC.
    """

    def __init__(self, store: Store, embedder: Embedder, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._embedder = embedder
        self._clock = clock

    def plan(self, scope: Scope, request: ForgetRequest, spoken: Spoken) -> Choice:
        """Choose the memories that a request means.

        Args:
            scope: Whose, with the session.
            request: From the policies.
            spoken: Where it was said.

        Returns:
            The choice, for `apply`; one without memories says why.
        """
        subject = subject_of(request.about)
        if request.restore:
            memories, reason = self._put_away(scope, None if subject.last else subject.core)
            return Choice(request, memories, reason, scope.session_id)
        if subject.everything:
            return Choice(
                request, (), "too much to forget by the way: forget it through the memory API", scope.session_id
            )
        if subject.last:
            memories = self._with_derived(scope, self._made_last(scope, spoken))
            reason = "made of what was said before" if memories else "nothing was made of what was said before"
            silent = (spoken.said_last,) if spoken.said_last else ()
            return Choice(request, memories, reason, scope.session_id, silent)
        found = meant(subject, self._candidates(scope, subject.core, subject.keys), MOST)
        memories = self._with_derived(scope, self._with_turns(scope, found))
        return Choice(request, memories, "named" if memories else "nothing clearly matches", scope.session_id)

    # ── what was named ─────────────────────────────────────────────────────────────────────────────────────────
    def _candidates(self, scope: Scope, core: str, keys: Sequence[str]) -> list[tuple[Memory, float | None]]:
        found = self._store.search(scope, self._vector(core), query_terms(core), limit=_NEAR).candidates
        records = self._store.load(scope, [one.row for one in found])
        near = [(records[one.row], one.dense) for one in found if one.row in records]
        # A slot's name needs no word in common with what it holds.
        in_slots: list[tuple[Memory, float | None]] = [
            (memory, None) for key in keys if "*" not in key for memory in self._store.by_key(scope, key)
        ]
        if any("*" in key for key in keys):
            page = self._store.list(scope, Filters(memory_type="semantic"), limit=_MOST_ARCHIVED)
            in_slots += [(memory, None) for memory in page.items]
        by_id = {memory.id: (memory, cosine) for memory, cosine in [*in_slots, *near] if _owned(scope, memory)}
        return [one for one in by_id.values() if one[0].kind not in _DERIVED]

    def _vector(self, text: str) -> Vector | None:
        try:
            return self._embedder.documents([text])[0]
        except EmbedderError as error:
            log.warning("embedding_failed", error_type=type(error).__name__)
            return None

    def _with_turns(self, scope: Scope, memories: Iterable[Memory]) -> tuple[Memory, ...]:
        """Beside each memory the raw turn it was made from, which says the same."""
        found: dict[str, Memory] = {}
        for memory in memories:
            found[memory.id] = memory
            message = memory.source.message_hash
            if message is not None:
                traces = self._store.from_message(scope, message)
                found |= {one.id: one for one in traces if one.kind == "turn" and _owned(scope, one)}
        return tuple(found.values())

    def _with_derived(self, scope: Scope, memories: Sequence[Memory]) -> tuple[Memory, ...]:
        """And what sums up their sessions (summary, key points) and repeats one of them word for word."""
        said = [normal(one.content) for one in memories]
        sessions = sorted({one.session_id for one in memories if one.session_id is not None})
        pages = [self._store.list(scope, Filters(kind="summary", session_id=one), limit=_NEAR) for one in sessions]
        summaries = [one for page in pages for one in page.items if _owned(scope, one)]
        repeating = [one for one in summaries if any(text in normal(one.content) for text in said)]
        return tuple({one.id: one for one in [*memories, *repeating]}.values())

    # ── what was said last ─────────────────────────────────────────────────────────────────────────────────────
    def _made_last(self, scope: Scope, spoken: Spoken) -> tuple[Memory, ...]:
        if spoken.said_last is None:
            return ()
        # What was said in this very request has no answer yet.
        hashes = [spoken.said_last, *([spoken.answer_hash] if spoken.answer_hash and not spoken.earlier else [])]
        made = [one for hash_ in hashes for one in self._store.from_message(scope, hash_)]
        requests = {one.source.request for one in made if one.source.request and one.session_id == scope.session_id}
        for request_id in sorted(requests):
            ledger = self._store.ledger(scope, request_id)
            ids = [one.memory_id for one in ledger.outcomes if one.action in _WRITTEN] if ledger else []
            # What was known before was merged with: it goes back to another message.
            known = (self._store.get(scope, memory_id) for memory_id in ids if memory_id is not None)
            made += [one for one in known if one is not None and one.source.role in ("user", "api", None)]
        return tuple({one.id: one for one in made if _owned(scope, one)}.values())

    # ── what was put away ──────────────────────────────────────────────────────────────────────────────────────
    def _put_away(self, scope: Scope, about: str | None) -> tuple[tuple[Memory, ...], str]:
        """What this session put away last, or what of it is about something."""
        if scope.session_id is None:
            return (), "nothing was forgotten here"
        filters = Filters(state="archived", tags=(_TAG + scope.session_id,))
        page = self._store.list(scope, filters, limit=_MOST_ARCHIVED)
        since = self._clock() - RESTORABLE
        away = [one for one in page.items if _owned(scope, one, "archived") and one.updated_at >= since]
        if about is not None:
            away = [one for one in away if covered(about, one.content) >= _COVERED] or away
        if not away:
            return (), "nothing was forgotten here in the last 7 days"
        newest = max(one.updated_at for one in away)
        together = [one for one in away if one.updated_at == newest]
        free = tuple(one for one in together if not self._replaced(scope, one))
        return free, "forgotten here last" if free else "something newer has taken its place"

    def _replaced(self, scope: Scope, memory: Memory) -> bool:
        if memory.expires_at is not None and memory.expires_at <= self._clock():
            return True
        if memory.key is not None:
            return any(one.scope == memory.scope for one in self._store.by_key(scope, memory.key))
        again = self._store.search(scope, None, query_terms(memory.content), limit=_NEAR).candidates
        records = self._store.load(scope, [one.row for one in again]).values()
        same = (one for one in records if one.kind == memory.kind and one.scope == memory.scope)
        return any(normal(one.content) == normal(memory.content) for one in same)


def apply(tx: Transaction, scope: Scope, choice: Choice, now: datetime) -> tuple[Outcome, ...]:
    """Put the chosen memories away, or bring them back; what changed meanwhile is left as it is.

    Args:
        tx: The transaction that also closes the turn, so that a turn worked on twice forgets once.
        scope: Whose.
        choice: From `Forgetting.plan`.
        now: The same for all, so that they come back together.

    Returns:
        One outcome for each memory, or one that says why there is none.
    """
    outcomes: list[Outcome] = []
    restore = choice.request.restore
    tag = f"{_TAG}{choice.session_id}"
    away: list[str] = []
    for chosen in choice.memories:
        memory = tx.get(scope, chosen.id)
        if memory is None or not _owned(scope, memory, "archived" if restore else "active"):
            continue
        tags = tuple(one for one in memory.tags if not one.startswith(_TAG))
        following = replace(
            memory,
            state="active" if restore else "archived",
            tags=tags if restore else (*tags, tag),
            updated_at=now,
        )
        tx.update(following, None, change=RESTORED if restore else FORGOTTEN)
        outcomes.append(_outcome(choice, "restored" if restore else "archived", memory.id))
        away += [] if restore else _line(tx, scope, memory)
    if away:
        tx.unfreeze(scope, away, slots=True)
    return tuple(outcomes) or (_outcome(choice, "dropped", None),)


def _line(tx: Transaction, scope: Scope, memory: Memory) -> list[str]:
    """Ids of a memory and of what it has replaced: a conversation may have been told any of them."""
    line: list[str] = []
    one: Memory | None = memory
    while one is not None and one.id not in line:
        line.append(one.id)
        one = tx.get(scope, one.supersedes) if one.supersedes else None
    return line


def silences(choice: Choice, draft: Draft, message_hash: str | None, asked_in: str | None) -> bool:
    """Whether a draft must not be written because of what was asked to be forgotten.

    Args:
        choice: From `Forgetting.plan`.
        draft: Of the same turn.
        message_hash: Of the message that the draft was made from.
        asked_in: Of the message that asks.

    Returns:
        True for whatever the forgotten message gave, if it is of this turn; of the message that asks, for its raw turn
        and for what repeats the request. Other things it says are kept: "Forget my old address, I live in Berlin now".
    """
    if message_hash in choice.messages:
        return True
    if message_hash != asked_in:
        return False
    about = choice.request.about
    if choice.request.restore or draft.kind == "turn" or _SAYS_FORGET.search(draft.content):
        return True
    return about is not None and covered(subject_of(about).core, draft.content) >= _COVERED


def _outcome(choice: Choice, action: str, memory_id: str | None) -> Outcome:
    return Outcome(choice.request.rule_id, action, memory_id, choice.reason)


def _owned(scope: Scope, memory: Memory, state: str = "active") -> bool:
    """What the tenant shares is not one user's to forget."""
    return memory.state == state and memory.scope != "shared" and memory.user_id == scope.user_id
