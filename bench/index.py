"""The index on disk at 200,000 memories in one scope: what it finds, how fast, what it costs to build and to hold.

A search is the store's, both legs, without ranking; its baseline is plain FTS5 bm25 over the same terms and a numpy
scan of the same vectors. The nearest ten are those of the scan.
"""

from __future__ import annotations

import gc
import json
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import cast

import numpy as np
import numpy.typing as npt

from bench.filling import TENANT, fill, open_embedder, open_store
from bench.report import ROOT, Figure, Section
from bench.run import Run, percentile
from bench.texts import memories, sayings
from proxy.config import load
from proxy.plugs import Embedder
from proxy.policy.watch import PolicyHolder
from proxy.recall import CANDIDATES_PER_LEG
from proxy.retrieve import Query, retrieve
from proxy.scope import Scope
from proxy.store.lexical import query_terms, terms
from proxy.store.sqlite import SqliteStore
from proxy.types import Memory, Vector

SCOPE = Scope(TENANT, "one", session_id="session")
_NEAREST = 10
_SETTLED_S = 1_800.0
Asked = tuple[Vector, list[str]]


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        size: Memories in one scope.
        queries: Different ones per round.
        rounds: Repetitions of the same questions; the first one, in which long lists of rows are read, is not counted.
    """

    size: int = 200_000
    queries: int = 300
    rounds: int = 3

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return self.size + 2 * (self.rounds + 1) * self.queries


FULL = Amounts()
QUICK = Amounts(size=3_000, queries=20, rounds=1)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure the index."""
    embedder = open_embedder()
    kept = [replace(one, scope="agent") for one in memories(amounts.size, seed=amounts.size)]
    with open_store(run.folder, embedder) as store:
        filled = fill(store, embedder, SCOPE, kept, run.step)
        # A collection among some million objects of the bench's own is not the product's pause.
        gc.collect()
        gc.freeze()
        asked = _asked(embedder, sayings(amounts.queries, seed=7))
        build_s = _build(store, asked[0])
        with closing(_Plain(filled)) as plain:
            missed = _missed(store, plain, asked)
            walls = [_round(run, store, plain, asked) for _ in range(amounts.rounds + 1)][1:]
        recalls = [_recalls(run, store, embedder, amounts) for _ in range(amounts.rounds + 1)][1:]
        gc.unfreeze()
    held = _held(run.folder)
    per = 100_000 / amounts.size
    size = sum(one.stat().st_size for one in (run.folder / "index").iterdir())
    name = f"{amounts.size:,} memories in scope"
    ours, baseline = (median(percentile(wall[side], 0.95) for wall in walls) for side in (0, 1))
    cpu = median(percentile(wall[2], 0.95) for wall in walls)
    figures = [
        Figure(f"nearest {_NEAREST} that the index misses, {name}", "%", 100 * missed, 0.0, 2.0),
        Figure(f"search p95, both legs, warm, {name}", "ms", ours, baseline, 20.0),
        Figure("the same in CPU time, p95", "ms", cpu),
        Figure(
            f"recall p95, ranked, warm, {name}", "ms", median(percentile(one, 0.95) for one in recalls), baseline, 20.0
        ),
        Figure("building the index, one core in the background", "s", build_s),
        Figure("first search after a restart", "s", held["first_search_s"]),
        Figure("memory per 100,000 memories", "MB", held["anonymous_mb"] * per, 4e-6 * embedder.dimension * 100_000),
        Figure("index file per 100,000 memories, in the page cache as far as used", "MB", 1e-6 * size * per),
    ]
    how = (
        f"{amounts.rounds} rounds of {amounts.queries} questions, zh and en, one thread, {CANDIDATES_PER_LEG} "
        "candidates a leg; baseline: FTS5 bm25 over the same terms and a numpy scan of the same vectors, no records "
        "read, and the bytes of its matrix."
    )
    return Section("Index", how, figures)


def _asked(embedder: Embedder, questions: Sequence[str]) -> list[Asked]:
    vectors = [(embedder.query(text), query_terms(text)) for text in questions]
    return [(vector, words) for vector, words in vectors if vector is not None]


def _build(store: SqliteStore, asked: Asked) -> float:
    """Have the scope read, and wait until it has its index."""
    started = time.perf_counter()
    store.search(SCOPE, *asked, limit=1)
    if not store.settle(_SETTLED_S):
        raise RuntimeError("the index was not built in time")
    built_s = time.perf_counter() - started
    if store.search(SCOPE, *asked, limit=1).source != "index":
        raise RuntimeError(f"the index does not answer: {store.index_health()}")
    return built_s


def _missed(store: SqliteStore, plain: _Plain, asked: Sequence[Asked]) -> float:
    """The share of the nearest that the vectors' leg does not give."""
    missed = 0
    for vector, _ in asked:
        found = store.search(SCOPE, vector, [], limit=_NEAREST).candidates
        least = plain.least_of_nearest(vector)
        missed += _NEAREST - sum(one.dense is not None and one.dense >= least - 1e-6 for one in found[:_NEAREST])
    return missed / (_NEAREST * len(asked))


def _round(
    run: Run, store: SqliteStore, plain: _Plain, asked: Sequence[Asked]
) -> tuple[list[float], list[float], list[float]]:
    """Times of each question, in ms: our wall time, the baseline's, and our CPU time."""
    ours: list[float] = []
    baseline: list[float] = []
    cpu: list[float] = []
    for vector, words in asked:
        began, began_cpu = time.perf_counter(), time.thread_time()
        store.search(SCOPE, vector, words, limit=CANDIDATES_PER_LEG)
        between, cpu_s = time.perf_counter(), time.thread_time() - began_cpu
        plain.answer(vector, words)
        ours.append(1000 * (between - began))
        baseline.append(1000 * (time.perf_counter() - between))
        cpu.append(1000 * cpu_s)
        run.step(1)
    return ours, baseline, cpu


def _recalls(run: Run, store: SqliteStore, embedder: Embedder, amounts: Amounts) -> list[float]:
    """Wall time of whole recalls, in ms: embedding, both legs and those of the question's parts, ranking."""
    policies, now = PolicyHolder(load(None, {}).policies).current, datetime.now(UTC)
    walls = []
    for text in sayings(amounts.queries, seed=7):
        started = time.perf_counter()
        retrieve(store, SCOPE, Query.of(text, embedder.query), now=now, policies=policies)
        walls.append(1000 * (time.perf_counter() - started))
        run.step(1)
    return walls


def _held(folder: Path) -> dict[str, float]:
    """Open the store in a process of its own; what that took, in time and memory."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.index", str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return cast(dict[str, float], json.loads(done.stdout.splitlines()[-1]))


def _anonymous_mb() -> float:
    """This process's own memory, without what it maps of files; where that is not told, its peak."""
    rollup = Path("/proc/self/smaps_rollup")
    if not rollup.exists():
        return 1e-6 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS
    fields = dict(line.split(":", 1) for line in rollup.read_text().splitlines()[1:])
    return int(fields["Anonymous"].split()[0]) * 1024 / 1e6


def _open_and_tell(folder: Path) -> None:
    embedder = open_embedder()
    vector, words = _asked(embedder, sayings(20, seed=9))[0]
    with open_store(folder, embedder) as store:
        before_mb, started = _anonymous_mb(), time.perf_counter()
        source = store.search(SCOPE, vector, words, limit=CANDIDATES_PER_LEG).source
        first_search_s = time.perf_counter() - started
        for question, its_words in _asked(embedder, sayings(100, seed=11)):
            store.search(SCOPE, question, its_words, limit=CANDIDATES_PER_LEG)
        told = {"first_search_s": first_search_s, "anonymous_mb": _anonymous_mb() - before_mb}
    assert source == "index"
    print(json.dumps(told))


class _Plain:
    """What one would write in an afternoon: an FTS5 table with bm25, and a matrix of vectors."""

    def __init__(self, filled: Sequence[tuple[Memory, Vector | None]]) -> None:
        vectors = [vector for _, vector in filled if vector is not None]
        # As the store keeps them, so that the same vectors are compared.
        self._matrix: npt.NDArray[np.float32] = np.stack(vectors).astype(np.float16).astype(np.float32)
        self._words = sqlite3.connect(":memory:")
        self._words.execute("CREATE VIRTUAL TABLE words USING fts5(terms, content='')")
        self._words.executemany(
            "INSERT INTO words (rowid, terms) VALUES (?, ?)",
            ((row, " ".join(map(_hex, terms(memory.content)))) for row, (memory, _) in enumerate(filled)),
        )

    def answer(self, vector: Vector, words: Sequence[str]) -> tuple[list[int], list[int]]:
        """The best rows by words and by meaning."""
        match = " OR ".join(map(_hex, words))
        sql = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?"
        by_words = self._words.execute(sql, (match, CANDIDATES_PER_LEG)).fetchall() if words else []
        cosines = self._matrix @ vector
        best = np.argpartition(cosines, -CANDIDATES_PER_LEG)[-CANDIDATES_PER_LEG:]
        return [row for (row,) in by_words], best[np.argsort(-cosines[best])].tolist()

    def least_of_nearest(self, vector: Vector) -> float:
        """The cosine of the last of the nearest."""
        return float(np.partition(self._matrix @ vector, -_NEAREST)[-_NEAREST])

    def close(self) -> None:
        """Drop the table."""
        self._words.close()


def _hex(term: str) -> str:
    return f"t{term.encode().hex()}"


if __name__ == "__main__":
    _open_and_tell(Path(sys.argv[1]))
