"""Cases played against the real recall: a throw-away store, the configured embedder, the live policies' ranking.

In: a `Config`, the policies, cases. Out: one `Ranked` per question. Memories are stored as they are, in the file's
order; or, where asked for, through the conflict step in the order in which they were made, so that what was superseded
does not come up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import uuid_utils

from proxy import inject, writing
from proxy.config import Config
from proxy.embed import opened
from proxy.errors import SidemirrorError
from proxy.evaluation.cases import Case, CaseMemory, CaseQuery
from proxy.evaluation.score import Ranked
from proxy.inject import Item
from proxy.language import detect
from proxy.observe import answer_hash
from proxy.plan import Planner
from proxy.plugs import Embedder, Store, Transaction
from proxy.policy.rules import PolicySet
from proxy.retrieve import Query, retrieve
from proxy.scope import Scope
from proxy.settings import Inject
from proxy.store.data_dir import DATABASE
from proxy.store.showing import Showing
from proxy.store.sqlite import SqliteStore
from proxy.tokens import TokenCounter
from proxy.types import Draft, Memory, Source, Vector

Progress = Callable[[str, int, int], None]
DEPTH = 100
"""Candidates of each leg: the ranked lists are at least this long where the scope has as many memories."""
_TENANT, _RULE, _KIND = "default", "eval", "fact"
_CONFIDENCE = 0.8
"""What the memory API gives a record that names none."""
_PLENTY = 1_000_000


@dataclass(slots=True)
class Clock:
    """The present of the case that is played."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now


@dataclass(frozen=True, slots=True)
class Told:
    """A case whose memories are stored.

    Args:
        scope: Whose they are.
        now: The present of the case.
        names: Ids of the case's memories, by the id of the record that holds them.
    """

    scope: Scope
    now: datetime
    names: Mapping[str, Sequence[str]]


class Player:
    """Plays cases, each as a user of its own.

    Args:
        store: Throw-away.
        clock: What it goes by; it stands at the present, for cases whose memories have no times.
        embedder: The configured one.
        policies: The set that weighs.
        settings: What a memory costs depends on them.
        tokens: Counts, exactly.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        embedder: Embedder,
        policies: PolicySet,
        settings: Inject,
        tokens: TokenCounter,
    ) -> None:
        self.store, self._clock, self.embedder, self._policies = store, clock, embedder, policies
        self._started, self._settings, self._count = clock.now, settings, tokens.count
        self._planner = Planner(store, embedder, lambda: policies, tokens.count, clock)

    def remember(self, number: int, case: Case, *, conflicts: bool = False) -> Told:
        """Store what a case remembers, as a user of its own; the clock then stands at its newest memory.

        Args:
            number: Tells the users apart.
            case: What is remembered.
            conflicts: Pass it through the conflict step, in the order in which it was made.
        """
        scope = Scope(_TENANT, f"case-{number}")
        now = case.now or self._started
        if conflicts:
            names = self._written(scope, sorted(case.memories, key=lambda one: one.created_at or now), now)
        else:
            names = self._stored(scope, case.memories, now)
        self._clock.now = now
        return Told(scope, now, names)

    def ask(self, told: Told, query: CaseQuery) -> Ranked:
        """What recall finds for a question."""
        looked_for = Query.of(query.query, self.embedder.query)
        hits, _ = retrieve(
            self.store, told.scope, looked_for, now=told.now, policies=self._policies, limit=DEPTH, keep=DEPTH
        )
        return Ranked(
            query.id,
            tuple(tuple(told.names.get(hit.memory.id, ())) for hit in hits),
            tuple(round(hit.score, 6) for hit in hits),
            tuple(self._costs([Item.of(hit.memory) for hit in hits])),
        )

    def _stored(self, scope: Scope, memories: Sequence[CaseMemory], now: datetime) -> dict[str, list[str]]:
        vectors = self.embedder.documents([one.content for one in memories])
        records = [self._record(scope, one, one.created_at or now) for one in memories]
        pairs = list(zip(records, vectors, strict=True))
        self.store.transact(lambda tx: _insert(tx, pairs)).result()
        return {record.id: [one.id] for record, one in zip(records, memories, strict=True)}

    def _written(self, scope: Scope, memories: Sequence[CaseMemory], now: datetime) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for one in memories:
            self._clock.now = at = one.created_at or now
            draft = Draft(
                _RULE, self._policies.hash, one.content, one.memory_type, _KIND, "agent", _CONFIDENCE,
                detect(one.content), on_conflict="supersede",
            )  # fmt: skip
            session = scope if one.session_id is None else scope.in_session(one.session_id)
            source = Source(role=one.role, session=one.session_id, rule=_RULE)
            plan = self._planner.plan(session, draft, source, at, said=one.content, earlier=[])
            kept = self.store.transact(lambda tx, plan=plan, at=at: writing.apply(tx, [plan], at)).result()  # type: ignore[misc]
            for done in kept:
                merged = done.decision.action == "merge" and done.decision.target is not None
                record = done.decision.target.id if merged and done.decision.target else done.memory.id
                names.setdefault(record, []).append(one.id)
        return names

    def _record(self, scope: Scope, one: CaseMemory, at: datetime) -> Memory:
        return Memory(
            id=str(uuid_utils.uuid7()),
            tenant=scope.tenant,
            user_id=scope.user_id,
            agent_id=scope.agent_id,
            session_id=one.session_id,
            scope="agent",
            memory_type=one.memory_type,
            kind=_KIND,
            content=one.content,
            entities=(one.speaker,) if one.speaker else (),
            language=detect(one.content),
            confidence=_CONFIDENCE,
            created_at=at,
            updated_at=at,
            valid_from=at,
            source=Source(role=one.role, session=one.session_id, rule=_RULE),
            token_estimate=self._count(one.content),
        )

    def _costs(self, items: Sequence[Item]) -> Iterator[int]:
        """What the line of each costs: as it is said in a block of them all, else in full."""
        fill = partial(inject.fitted, count=self._count, language="en", max_item_chars=self._settings.max_item_chars)
        said = fill(items, room_tokens=self._settings.budget_tokens)
        for line, in_full in zip(said, fill(items, room_tokens=_PLENTY), strict=True):
            one = line or in_full
            assert one is not None
            yield one.tokens


def play(
    config: Config, policies: PolicySet, cases: Sequence[Case], started: datetime, told: Progress, *, conflicts: bool
) -> list[Ranked]:
    """Play cases.

    Args:
        config: Embedder, index and injection settings.
        policies: The set that weighs.
        cases: What is remembered and asked.
        started: The present time, for cases whose memories have none.
        told: Told of progress, in questions.
        conflicts: Pass memories through the conflict step.

    Returns:
        One per question, in their order.

    Raises:
        SidemirrorError: The embedder cannot be used.
    """
    total = sum(len(case.queries) for case in cases)
    found: list[Ranked] = []
    with player(config, policies, started) as playing:
        for number, case in enumerate(cases):
            stored = playing.remember(number, case, conflicts=conflicts)
            for query in case.queries:
                found.append(playing.ask(stored, query))
                told("asking", len(found), total)
    return found


@contextmanager
def player(config: Config, policies: PolicySet, started: datetime) -> Iterator[Player]:
    """A player with a store of its own, for as long as it is needed.

    Args:
        config: Embedder, index and injection settings.
        policies: The set that weighs.
        started: The present time, for cases whose memories have none.

    Raises:
        SidemirrorError: The embedder cannot be used.
    """
    clock, tokens = Clock(started), TokenCounter()
    tokens.warm()
    with opened(config) as embedder, TemporaryDirectory(prefix="sidemirror-eval-") as folder:
        store = SqliteStore(
            Path(folder) / DATABASE,
            fingerprint=embedder.fingerprint,
            dimension=embedder.dimension,
            answer_hash=answer_hash,
            exact_below=config.index.exact_below,
            clock=clock,
            shown=Showing(tokens.count, config.inject.max_item_chars),
        )
        with closing(store):
            yield Player(store, clock, embedder, policies, config.inject, tokens)


def write(path: Path, run: Sequence[Ranked]) -> None:
    """A run as JSON lines (design §10).

    Raises:
        SidemirrorError: It cannot be written.
    """
    lines = [
        orjson.dumps(
            {
                "id": one.id,
                "ranked": [ids[0] if len(ids) == 1 else list(ids) for ids in one.ranked],
                "scores": list(one.scores),
                "tokens": list(one.tokens),
            }
        )
        for one in run
    ]
    try:
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    except OSError as error:
        raise SidemirrorError(f"{path} cannot be written: {error.strerror or error}") from error


def read(path: Path) -> list[Ranked]:
    """A run from JSON lines.

    Raises:
        SidemirrorError: It cannot be read, or is no run.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SidemirrorError(f"{path} cannot be read: {error}") from error
    run = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                run.append(_ranked(orjson.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                raise SidemirrorError(f"{path}:{number}: not a line of a run (id, ranked, scores, tokens)") from error
    return run


def _ranked(data: dict[str, object]) -> Ranked:
    ranked, scores, tokens = (data.get(name) or [] for name in ("ranked", "scores", "tokens"))
    if not isinstance(ranked, list) or not isinstance(scores, list) or not isinstance(tokens, list):
        raise TypeError("lists are expected")
    return Ranked(
        str(data["id"]),
        tuple(tuple(one) if isinstance(one, list) else (str(one),) for one in ranked),
        tuple(map(float, scores)),
        tuple(map(int, tokens)),
    )


def _insert(tx: Transaction, pairs: Sequence[tuple[Memory, Vector | None]]) -> None:
    for memory, vector in pairs:
        tx.insert(memory, vector)
