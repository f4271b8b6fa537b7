"""Recall where many users have memories: 1,000,000 of them over 10,000 scopes, asked by one user after another.

A recall is embedding, both legs, ranking and selection. The first question of a user reads that user's memories from
disk; the second finds them in memory. Baseline: one FTS5 table with the scope as a term, and a numpy scan of the
scope's vectors, read from a table; no records read.
"""

from __future__ import annotations

import random
import resource
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

from bench.filling import TENANT, fill_many, open_embedder, open_store
from bench.report import Figure, Section
from bench.run import Run, percentile
from bench.texts import Kept, memories, sayings
from proxy.config import load
from proxy.metrics import Metrics
from proxy.plugs import Embedder
from proxy.policy.rules import PolicySet
from proxy.policy.watch import PolicyHolder
from proxy.recall import CANDIDATES_PER_LEG, Question, Recall, Recalled
from proxy.scope import Scope
from proxy.store.lexical import query_terms, terms
from proxy.store.working import RedisWorkingMemory
from proxy.types import Vector

GOAL_P95_MS = 10.0
_POOL = 20_000
_NOBODY = "redis://127.0.0.1:1"
"""Working memory belongs to sessions; these scopes have none, so it is never asked."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        scopes: Users.
        each: Memories of each.
        asked: Users who ask, per round; nobody twice in one.
        rounds: Repetitions, with other users.
    """

    scopes: int = 10_000
    each: int = 100
    asked: int = 300
    rounds: int = 3

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return 2 * self.scopes + self.rounds * self.asked


FULL = Amounts()
QUICK = Amounts(scopes=20, each=20, asked=5, rounds=1)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure recall in a large house."""
    embedder = open_embedder()
    pool = memories(min(_POOL, amounts.scopes * amounts.each), seed=5)
    vectors = embedder.documents([one.content for one in pool])
    with (
        open_store(run.folder, embedder) as store,
        closing(_Plain(run.folder / "plain.db", embedder)) as plain,
        closing(RedisWorkingMemory(_NOBODY)) as working,
    ):
        for number in range(amounts.scopes):
            chosen = random.Random(number).sample(range(len(pool)), amounts.each)
            told = [(pool[one], vectors[one]) for one in chosen]
            fill_many(store, _scope(number), told)
            run.step(1)
            plain.add(number, told)
            run.step(1)
        plain.commit()
        config = load(None, {})
        recall = Recall(store, working, embedder, config.recall, Metrics())
        policies = PolicyHolder(config.policies).current
        walls = [_round(run, recall, plain, policies, amounts, seed) for seed in range(amounts.rounds)]
    ours = {name: median(percentile([one[name] for one in wall], 0.95) for wall in walls) for name in walls[0][0]}
    size = f"{amounts.scopes * amounts.each:,} memories over {amounts.scopes:,} scopes"
    figures = [
        Figure(f"recall p95, warm, {size}", "ms", ours["warm"], ours["plain"], GOAL_P95_MS),
        Figure("recall p95, a user's first question", "ms", ours["first"], ours["plain"]),
        Figure("peak memory of the whole bench", "MB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        Figure("database", "MB", 1e-6 * sum(one.stat().st_size for one in run.folder.glob("sidemirror.db*"))),
    ]
    how = (
        f"{amounts.rounds} rounds of {amounts.asked} users who ask two different questions each, zh and en, one "
        f"thread, {CANDIDATES_PER_LEG} candidates a leg; baseline: FTS5 bm25 with the scope as a term and a numpy "
        "scan of the scope's vectors, no records read."
    )
    return Section("Recall at scale", how, figures)


def _scope(number: int) -> Scope:
    return Scope(TENANT, f"user-{number}")


def _round(
    run: Run, recall: Recall, plain: _Plain, policies: PolicySet, amounts: Amounts, seed: int
) -> list[dict[str, float]]:
    """Wall time of each user's questions, in ms."""
    users = random.Random(seed).sample(range(amounts.scopes), amounts.asked)
    questions = iter(sayings(2 * amounts.asked, seed=100 + seed))
    walls = []
    for user in users:
        first, second = next(questions), next(questions)
        walls.append(
            {
                "first": _recall_ms(recall, policies, user, first),
                "warm": _recall_ms(recall, policies, user, second),
                "plain": plain.answer_ms(user, second),
            }
        )
        run.step(1)
    return walls


def _recall_ms(recall: Recall, policies: PolicySet, user: int, text: str) -> float:
    found, started = Recalled(), time.perf_counter()
    recall.fill(found, _scope(user), Question(text, datetime.now(UTC)), policies)
    took_ms = 1000 * (time.perf_counter() - started)
    if found.failures or not found.hits:
        raise RuntimeError(f"a recall found nothing; failures: {found.failures}")
    return took_ms


class _Plain:
    """The same memories in plain tables.

    Args:
        path: Of the database.
        embedder: For questions.
    """

    def __init__(self, path: Path, embedder: Embedder) -> None:
        self._embedder = embedder
        self._connection = sqlite3.connect(path)
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("CREATE VIRTUAL TABLE words USING fts5(text, content='')")
        self._connection.execute("CREATE TABLE vectors (row INTEGER PRIMARY KEY, scope INTEGER, vector BLOB)")
        self._connection.execute("CREATE INDEX by_scope ON vectors (scope)")
        self._row = 0

    def add(self, scope: int, told: Sequence[tuple[Kept, Vector | None]]) -> None:
        """Store a scope's memories."""
        for kept, vector in told:
            self._row += 1
            words = " ".join([f"s{scope}x", *(_hex(term) for term in terms(kept.content))])
            self._connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (self._row, words))
            packed = None if vector is None else vector.astype("<f2").tobytes()
            self._connection.execute("INSERT INTO vectors VALUES (?, ?, ?)", (self._row, scope, packed))

    def commit(self) -> None:
        """Make it durable, as far as the baseline is."""
        self._connection.commit()

    def answer_ms(self, scope: int, text: str) -> float:
        """Time of one question, in ms."""
        started = time.perf_counter()
        vector = self._embedder.query(text)
        either = " OR ".join(_hex(term) for term in query_terms(text)) or "nothing"
        self._connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words) LIMIT ?",
            (f"s{scope}x AND ({either})", CANDIDATES_PER_LEG),
        ).fetchall()
        packed = list(self._packed(scope))
        if vector is not None and packed:
            matrix = np.frombuffer(b"".join(packed), "<f2").reshape(len(packed), -1).astype(np.float32)
            np.argsort(-(matrix @ vector))[:CANDIDATES_PER_LEG].tolist()
        return 1000 * (time.perf_counter() - started)

    def _packed(self, scope: int) -> Iterator[bytes]:
        query = "SELECT vector FROM vectors WHERE scope = ? AND vector IS NOT NULL"
        return (packed for (packed,) in self._connection.execute(query, (scope,)))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _hex(term: str) -> str:
    return f"t{term.encode('utf-8', 'replace').hex()}"
