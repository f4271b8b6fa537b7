"""What a second text does to a first one through the real write path: merge, supersede, stand beside, or be new.

Two sets: our own (`conflict/pairs.tsv`; rows in turn for tuning and held out) and, where it is at hand, the shared one.
Each pair is written as the API writes it: no key, nothing said but the content. Then the cost of one decision.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bench.report import ROOT, Figure, Section
from bench.run import Run
from bench.texts import memories
from proxy.config import Config
from proxy.conflict import Near, decide
from proxy.embed import open_embedder
from proxy.language import detect
from proxy.metrics import Metrics
from proxy.observe import answer_hash
from proxy.policy.rules import PolicySet
from proxy.remember import Remember
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.store.working import RedisWorkingMemory
from proxy.tokens import estimate
from proxy.types import Draft, Memory, Source

OWN = Path(__file__).parent / "conflict" / "pairs.tsv"
_SHARED = Path(os.environ.get("SIDEMIRROR_SHARED", ROOT.parent / "shared")) / "data" / "pairs.jsonl"
_GOALS: dict[str, float] = {"conflict": 85, "duplicate": 90, "compatible": 95}
_NOWHERE = "redis://127.0.0.1:9"
"""Writing on purpose does not touch working memory; nothing listens there."""
RIGHT: dict[str, tuple[str, ...]] = {
    "duplicate": ("merged",),
    "rephrase": ("merged",),
    "conflict": ("superseded", "versioned"),
    "compatible": ("created",),
}


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        crowd: Memories of other things that lie in the scope where each pair is written a second time.
        decisions: Repetitions for the cost of one.
        every: Only each so-manieth pair.
    """

    crowd: int = 1000
    decisions: int = 400
    every: int = 1

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return 2 * len(pairs(self.every)) + self.crowd


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts and how the second stands to the first.

    Args:
        part: ``dev``, ``held-out`` or ``shared``.
        kind: Of both.
        old: Written first.
        new: Written second.
        relation: ``duplicate``, ``rephrase``, ``conflict`` or ``compatible``.
    """

    part: str
    kind: str
    old: str
    new: str
    relation: str


FULL = Amounts()
QUICK = Amounts(crowd=20, decisions=10, every=12)


def pairs(every: int = 1) -> list[Pair]:
    """The pairs of both sets; the shared set is left out where it is not at hand."""
    with OWN.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = [
        Pair(("dev", "held-out")[number % 2], row["kind"], row["old"], row["new"], row["relation"])
        for number, row in enumerate(rows)
    ]
    if _SHARED.exists():
        for line in _SHARED.read_text(encoding="utf-8").splitlines():
            pair = json.loads(line)
            found.append(Pair("shared", "fact", pair["old"], pair["new"], pair["relation"]))
    return found[::every]


class Desk:
    """Writes pairs through `Remember.put`, each in a scope of its own or in one crowded scope.

    Args:
        store: Where.
        remember: Writes.
    """

    def __init__(self, store: SqliteStore, remember: Remember) -> None:
        self._store = store
        self._remember = remember

    def put(self, scope: Scope, content: str, kind: str) -> tuple[Memory, str]:
        """Write one memory as the API does: the record that now holds it, and what became of it."""
        draft = Draft("api", "none", content, "semantic", kind, "user", 0.8, detect(content), on_conflict="supersede")
        written = self._remember.put(scope, draft, Source(role="api"))
        if written.memory is None:
            raise RuntimeError(f"a memory was not written: {written.outcome.reason}")
        return written.memory, written.outcome.action

    def fate(self, scope: Scope, pair: Pair, *, tidy: bool = False) -> str:
        """Write both texts; what became of the second, with regard to the first alone."""
        old, _ = self.put(scope, pair.old, pair.kind)
        new, action = self.put(scope, pair.new, pair.kind)
        first = self._store.get(scope, old.id)
        if action == "superseded" and (first is None or first.state == "active"):
            action = "created"  # it took the place of something else
        if action == "merged" and new.id != old.id:
            action = "created"
        if tidy:
            gone = list({old.id, new.id})
            self._store.transact(lambda tx: tx.forget(scope, gone)).result()
        return action


@contextmanager
def desk(folder: Path) -> Iterator[Desk]:
    """A store of its own with the shipped embedder."""
    embedder = open_embedder(Config())

    def clock() -> datetime:
        return datetime.now(UTC)

    with (
        closing(
            SqliteStore(
                folder / "pairs.db",
                fingerprint=embedder.fingerprint,
                dimension=embedder.dimension,
                answer_hash=answer_hash,
                clock=clock,
            )
        ) as store,
        closing(RedisWorkingMemory(_NOWHERE)) as working,
    ):
        yield Desk(store, Remember(store, working, embedder, PolicySet, estimate, clock, Metrics()))


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure what becomes of every pair, alone and in a crowd, and what a decision costs."""
    chosen = pairs(amounts.every)
    alone: dict[Pair, str] = {}
    crowded: dict[Pair, str] = {}
    with desk(run.folder) as writer:
        for number, pair in enumerate(chosen):
            alone[pair] = writer.fate(Scope("single", f"user-{number}"), pair)
            run.step(1)
        crowd = Scope("single", "crowd")
        for one in memories(amounts.crowd, seed=1):
            writer.put(crowd, one.content, "fact")
            run.step(1)
        for pair in chosen:
            crowded[pair] = writer.fate(crowd, pair, tidy=True)
            run.step(1)
    figures = [figure for part in ("shared", "dev", "held-out") for figure in _figures(part, alone)]
    figures.append(Figure("conflicts superseded or versioned in a crowd", "%", _share(crowded, "conflict", None)))
    figures.append(
        Figure("CPU per decision, 12 memories near", "ms", _decision_ms(chosen, amounts.decisions), goal=0.25)
    )
    how = (
        f"{len(chosen)} pairs written one after the other through the real write path without a key, each in a scope "
        f"of its own, then each among {amounts.crowd} other memories; dev rows were tuned on, held-out ones were not."
    )
    return Section("Conflicts", how, figures, [*_wrong(alone), *_wrong(crowded, alone)])


def _figures(part: str, fates: dict[Pair, str]) -> Iterator[Figure]:
    for relation in RIGHT:
        mine = [fate for pair, fate in fates.items() if (pair.part, pair.relation) == (part, relation)]
        if not mine:
            continue
        wrong = 100 - _share(fates, relation, part)
        goal = 100 - _GOALS[relation] if relation in _GOALS else None
        yield Figure(
            f"{part}: {relation} pairs ({len(mine)}) not {' or '.join(RIGHT[relation])}", "%", wrong, goal=goal
        )
        forbidden = {"conflict": "merged", "compatible": "superseded"}.get(relation)
        if forbidden:
            yield Figure(f"{part}: {relation} pairs {forbidden}", "", float(mine.count(forbidden)), goal=0)


def _share(fates: dict[Pair, str], relation: str, part: str | None) -> float:
    mine = [fate for pair, fate in fates.items() if pair.relation == relation and part in (None, pair.part)]
    return 100 * sum(fate in RIGHT[relation] for fate in mine) / max(len(mine), 1)


def _wrong(fates: dict[Pair, str], but_for: dict[Pair, str] | None = None) -> Iterator[str]:
    """One line a part: what became of the pairs; in a crowd, those whose fate is another there."""
    if but_for is not None:
        changed = [f"{pair.old} / {pair.new}: {fate}" for pair, fate in fates.items() if fate != but_for[pair]]
        yield f"otherwise in a crowd ({len(changed)}): {'; '.join(changed[:12])}."
        return
    for part in dict.fromkeys(pair.part for pair in fates):
        told = Counter(f"{pair.relation} {fate}" for pair, fate in fates.items() if pair.part == part)
        yield f"{part}: {', '.join(f'{name} {number}' for name, number in sorted(told.items()))}."


def _decision_ms(chosen: Sequence[Pair], repetitions: int) -> float:
    """CPU of `decide`, each time with a text that was not seen before and twelve memories that were."""
    at = datetime(2026, 11, 2, tzinfo=UTC)

    def memory(number: int, content: str) -> Memory:
        return Memory(
            str(number), "single", "ada", "default", "user", "semantic", "fact", content, at, at, at,
            language=detect(content),
        )  # fmt: skip

    near = [Near(memory(number, pair.old), 0.8) for number, pair in enumerate(chosen[:12])]
    texts = [chosen[number % len(chosen)].new for number in range(repetitions)]
    new = [
        replace(memory(99, ""), content=f"{text} {number}", language=detect(text)) for number, text in enumerate(texts)
    ]
    decide(replace(new[0], content="warm"), near, on_conflict="supersede", said="")
    began = time.process_time()
    for one in new:
        decide(one, near, on_conflict="supersede", said=one.content)
    return 1000 * (time.process_time() - began) / repetitions
