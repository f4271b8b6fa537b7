"""Lines into a store: records come in with their ids, times, states, versions and history, each line counted.

In: lines and whose they are. Out: records in the store. What comes in passes the guard; it is not judged against what
is there already, since it is to come back as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any
from uuid import UUID

import uuid_utils
from pydantic import ValidationError

from proxy.errors import EmbedderError, Forgotten, StoreError, StoreUnavailable
from proxy.guard import addresses_model, guard
from proxy.language import detect
from proxy.plugs import Carried, Embedder, Sighting, Store, Transaction, Version
from proxy.policy.rules import PolicySet
from proxy.scope import Scope
from proxy.transfer.lines import CarriedLine, RecordLine
from proxy.types import Memory, Source, Vector

MAX_TOLD = 100
_MS_BITS = 80
"""A UUIDv7 keeps its time in the bits above these."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Whose records come in, and how.

    Args:
        scope: The owner they go to.
        one_agent: Whether the request names the agent; else each line's own agent stays.
        move: Whether records of another user or agent are copied, under ids of their own.
        may_share: Whether shared records may be written.
        dry_run: Only check and count.
    """

    scope: Scope
    one_agent: bool = False
    move: bool = False
    may_share: bool = False
    dry_run: bool = False


@dataclass(slots=True)
class Tally:
    """What became of the lines so far.

    Args:
        imported: Written.
        skipped: There already.
        forgotten: Covered by a tombstone, and left out.
        failed: Wrong.
        errors: Line and reason of the first of those.
    """

    imported: int = 0
    skipped: int = 0
    forgotten: int = 0
    failed: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)

    def fail(self, line: int, reason: str) -> None:
        """Count a line that is wrong."""
        self.failed += 1
        if len(self.errors) < MAX_TOLD:
            self.errors.append((line, reason))


class _DryRun(Exception):
    """Takes a dry run's writes back."""


class Importer:
    """Takes records in. Thread-safe; one user's come one batch after another, and between other writes of theirs.

    Args:
        store: Where they go.
        embedder: Makes their vectors anew.
        policies: Returns the live policy set: its guard stands before the store here too.
        count_tokens: Tokens of a text.
        lock: For a scope, what its user's writes follow one another by (`Remember.lock`).
        clock: Returns now, aware UTC.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        policies: Callable[[], PolicySet],
        count_tokens: Callable[[str], int],
        lock: Callable[[Scope], threading.Lock],
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._policies = policies
        self._count = count_tokens
        self._lock = lock
        self._clock = clock

    def take(self, batch: Sequence[tuple[int, bytes]], terms: Terms, tally: Tally) -> None:
        """Take a batch of lines in, in one transaction; a wrong line keeps none of the others out.

        Args:
            batch: Lines with their numbers; blank ones do not count.
            terms: Whose, and how.
            tally: Counted in place.

        Raises:
            StoreUnavailable: Nothing of this batch was written.
        """
        ready: list[tuple[int, Carried]] = []
        for number, line in batch:
            if not line.strip():
                continue
            try:
                ready.append((number, self._carried(CarriedLine.model_validate_json(line), terms)))
            except ValidationError as error:
                tally.fail(number, _told(error))
            except ValueError as error:
                tally.fail(number, str(error))
        vectors = self._vectors([one.memory.content for _, one in ready])
        outcomes: list[tuple[int, str | bool | None]] = []

        def work(tx: Transaction) -> None:
            outcomes.clear()
            outcomes.extend(
                (number, _taken(tx, one, vector)) for (number, one), vector in zip(ready, vectors, strict=True)
            )
            if terms.dry_run:
                raise _DryRun

        with self._lock(terms.scope), suppress(_DryRun):
            self._store.transact(work).result()
        for number, outcome in outcomes:
            _count(tally, number, outcome)

    def _carried(self, line: CarriedLine, terms: Terms) -> Carried:
        """A line as the record that it becomes.

        Raises:
            ValueError: It cannot come in; the message says why.
        """
        if line.scope == "shared" and not terms.may_share:
            raise ValueError("scope: a shared record takes a key with shared:write")
        foreign = _foreign(line, terms)
        if foreign is not None and not terms.move:
            raise ValueError(f"{foreign}; with move=true it is copied to this one")
        owner = terms.scope
        if line.agent_id is not None and not terms.one_agent:
            owner = replace(owner, agent_id=line.agent_id)
        ids = (lambda id_: _moved(id_, owner)) if foreign is not None else str
        now = self._clock()
        memory = self._memory(line, owner, ids, now)
        approved = any(one.state == "pending" for one in line.history)
        if memory.state == "active" and not approved and self._quarantined(memory.content):
            # As for any other text that addresses the model: somebody must have looked at it.
            memory = replace(memory, state="pending")
        return Carried(
            memory,
            line.change,
            tuple(
                Version(replace(self._memory(one, owner, ids, now), id=memory.id), one.change, one.changed_at)
                for one in line.history
            ),
            tuple((ids(one.evidence), one.how) for one in line.links),
            tuple(Sighting(one.session, one.message, one.at) for one in line.said_again),
        )

    def _memory(self, line: RecordLine, owner: Scope, ids: Callable[[str], str], now: datetime) -> Memory:
        safe = guard(line.content, self._policies().guard_options).text
        if not safe:
            raise ValueError("content: nothing is left of it once secrets are taken out")
        created_at = line.created_at or now
        optional: dict[str, Any] = {
            name: None if getattr(line, name) is None else ids(getattr(line, name))
            for name in ("supersedes", "superseded_by", "parent_id")
        }
        known = line.token_estimate if safe == line.content else None
        return Memory(
            id=str(uuid_utils.uuid7()) if line.id is None else ids(line.id),
            tenant=owner.tenant,
            user_id=owner.user_id,
            agent_id=owner.agent_id,
            content=safe,
            created_at=created_at,
            updated_at=line.updated_at or created_at,
            valid_from=line.valid_from or created_at,
            language=line.language or detect(safe),
            source=Source(**line.source.model_dump()),
            token_estimate=self._count(safe) if known is None else known,
            **optional,
            **{name: getattr(line, name) for name in _AS_THEY_ARE},
        )

    def _quarantined(self, text: str) -> bool:
        return self._policies().guard.instructions == "quarantine" and addresses_model(text)

    def _vectors(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        if not texts:
            return []
        try:
            return self._embedder.documents(texts)
        except EmbedderError:
            return [None] * len(texts)  # the lexical leg finds them until they are re-indexed


_AS_THEY_ARE = (
    "session_id", "scope", "memory_type", "kind", "key", "tags", "entities", "confidence", "strength", "access_count",
    "last_accessed_at", "expires_at", "version", "state",
)  # fmt: skip


def _foreign(line: RecordLine, terms: Terms) -> str | None:
    scope = terms.scope
    if line.user_id is not None and line.user_id != scope.user_id:
        return f"user_id: the record is of the user {line.user_id!r}, not of {scope.user_id!r}"
    if terms.one_agent and line.agent_id is not None and line.agent_id != scope.agent_id:
        return f"agent_id: the record is of the agent {line.agent_id!r}, not of {scope.agent_id!r}"
    return None


def _moved(id_: str, owner: Scope) -> str:
    """The id of a record's copy under another owner: the same each time, with the time of the original's.

    >>> _moved("01890000-0000-7000-8000-000000000000", Scope("t", "bob"))[:15]
    '01890000-0000-7'
    """
    time = UUID(id_).int >> _MS_BITS
    rest = blake2b(f"{id_}\0{owner.owner}".encode(), digest_size=10).digest()
    number = (time << _MS_BITS) | int.from_bytes(rest)
    # The marks of version 7 and of the variant.
    return str(UUID(int=(number & ~(0xF << 76) & ~(0x3 << 62)) | (0x7 << 76) | (0x2 << 62)))


def _taken(tx: Transaction, one: Carried, vector: Vector | None) -> bool | str | None:
    """True when written, False when there already, None when forgotten, else why not."""
    try:
        return tx.take_in(one, vector)
    except Forgotten:
        return None
    except StoreUnavailable:
        raise
    except StoreError as error:
        return str(error)


def _count(tally: Tally, number: int, outcome: bool | str | None) -> None:
    if isinstance(outcome, str):
        tally.fail(number, outcome)
    elif outcome is None:
        tally.forgotten += 1
    elif outcome:
        tally.imported += 1
    else:
        tally.skipped += 1


def _told(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(str(step) for step in one['loc']) or 'line'}: {one['msg']}" for one in details[:5])
