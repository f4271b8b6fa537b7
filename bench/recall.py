"""How long one recall takes, in process and uncached, beside plain FTS5 bm25 and a numpy scan of the same rows.

A recall is all of it: session slots and cache look-up in Valkey, embedding, both legs, ranking, selection.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np
import orjson

from bench.filling import TENANT, fill, open_embedder, open_store
from bench.report import Figure, Section
from bench.run import Run, percentile
from bench.texts import memories, sayings
from proxy.config import load
from proxy.metrics import Metrics
from proxy.plugs import Embedder
from proxy.policy.rules import PolicySet
from proxy.policy.watch import PolicyHolder
from proxy.recall import CANDIDATES_PER_LEG, Question, Recall, Recalled
from proxy.scope import Scope
from proxy.store.embedded_redis import EmbeddedRedis
from proxy.store.lexical import query_terms, terms
from proxy.store.working import RedisWorkingMemory
from proxy.types import Memory, Slot, Vector

GOAL_P95_MS = 5.0
_PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
_SLOTS = 5


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        sizes: Memories in one scope.
        queries: Different ones per round.
        rounds: Repetitions, with other queries; within each, product and baseline answer in turn.
    """

    sizes: tuple[int, ...] = (1_000, 10_000)
    queries: int = 300
    rounds: int = 3

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return sum(self.sizes) + len(self.sizes) * self.queries * self.rounds


FULL = Amounts()
QUICK = Amounts(sizes=(100,), queries=20, rounds=1)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure recall."""
    figures: list[Figure] = []
    failed: Counter[str] = Counter()
    for size in amounts.sizes:
        with _scope_of(run, size) as (recall, plain, scope, policies):
            walls = [
                _round(run, recall, plain, scope, policies, sayings(amounts.queries, seed=number), failed)
                for number in range(amounts.rounds)
            ]
        for name, share in _PERCENTILES:
            ours, baseline = (median(percentile(wall[side], share) for wall in walls) for side in (0, 1))
            goal = GOAL_P95_MS if name == "p95" and size == max(amounts.sizes) else None
            figures.append(Figure(f"recall {name}, {size:,} memories in scope", "ms", ours, baseline, goal))
    how = (
        f"{amounts.rounds} rounds of {amounts.queries} different questions, zh and en, none cached, one thread; "
        "baseline: embedding, FTS5 bm25 over the same terms and a numpy scan of the same vectors, no records read."
    )
    notes = [f"failures of a layer: {', '.join(f'{name} {n}' for name, n in failed.items())}."] if failed else []
    return Section("Recall", how, figures, notes)


@contextmanager
def _scope_of(run: Run, size: int) -> Iterator[tuple[Recall, _Plain, Scope, PolicySet]]:
    """A recall over one scope with so many memories, with the product's defaults and the shipped policies."""
    config = load(_config(run), {})
    embedder = open_embedder()
    scope = Scope(TENANT, "one", session_id="session")
    with ExitStack() as stack:
        data = run.folder / f"data-{size}"
        store = stack.enter_context(open_store(data, embedder))
        filled = fill(store, embedder, scope, memories(size, seed=size), run.step)
        redis = EmbeddedRedis(data)
        stack.callback(redis.stop)
        redis.start()
        working = RedisWorkingMemory(redis.url)
        stack.callback(working.close)
        now = datetime.now(UTC)
        working.put(scope, [Slot(f"slot-{number}", f"value {number}", now) for number in range(_SLOTS)])
        plain = stack.enter_context(closing(_Plain(embedder, filled)))
        recall = Recall(store, working, embedder, config.recall, Metrics())
        yield recall, plain, scope, PolicyHolder(config.policies).current


def _config(run: Run) -> Path:
    path = run.folder / "config.yaml"
    path.write_bytes(orjson.dumps(dict(run.settings)))  # JSON is YAML
    return path


def _round(
    run: Run,
    recall: Recall,
    plain: _Plain,
    scope: Scope,
    policies: PolicySet,
    questions: Sequence[str],
    failed: Counter[str],
) -> tuple[list[float], list[float]]:
    """Wall time of each question, in ms: ours, and the baseline's."""
    ours, baseline = [], []
    for text in questions:
        started = time.perf_counter()
        plain.answer(text)
        between = time.perf_counter()
        found = Recalled()
        recall.fill(found, scope, Question(text, datetime.now(UTC)), policies)
        ours.append(1000 * (time.perf_counter() - between))
        baseline.append(1000 * (between - started))
        failed.update(found.failures)
        if not found.hits:
            raise RuntimeError(f"a recall found nothing; failures: {found.failures}")
        run.step(1)
    return ours, baseline


class _Plain:
    """What one would write in an afternoon: an FTS5 table with bm25, and a matrix of vectors."""

    def __init__(self, embedder: Embedder, filled: Sequence[tuple[Memory, Vector | None]]) -> None:
        self._embedder = embedder
        zero = np.zeros(embedder.dimension, np.float32)
        self._matrix = np.stack([zero if vector is None else vector for _, vector in filled])
        self._words = sqlite3.connect(":memory:")
        self._words.execute("CREATE VIRTUAL TABLE words USING fts5(terms, content='')")
        self._words.executemany(
            "INSERT INTO words (rowid, terms) VALUES (?, ?)",
            [(row, " ".join(map(_hex, terms(memory.content)))) for row, (memory, _) in enumerate(filled)],
        )

    def answer(self, text: str) -> tuple[list[int], list[int]]:
        """The best rows by words and by meaning."""
        match = " OR ".join(map(_hex, query_terms(text)))
        by_words = self._words.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (match, CANDIDATES_PER_LEG)
        ).fetchall()
        vector = self._embedder.query(text)
        assert vector is not None
        cosines = self._matrix @ vector
        best = np.argpartition(cosines, -CANDIDATES_PER_LEG)[-CANDIDATES_PER_LEG:]
        return [row for (row,) in by_words], best[np.argsort(-cosines[best])].tolist()

    def close(self) -> None:
        """Drop the table."""
        self._words.close()


def _hex(term: str) -> str:
    return f"t{term.encode().hex()}"
