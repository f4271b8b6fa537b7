"""The sweeps: owner by owner and step by step over the store, in small transactions, beside running writes.

In: policies and the steps to run. Out: a `Report` with counts and ids, never text. Every step is idempotent, and a
change is made only while the records it rests on are still as they were looked at: no write is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, tzinfo
from typing import Final

import structlog

from proxy.errors import EmbedderError, Forgotten, SidemirrorError, StoreUnavailable
from proxy.plugs import Embedder, Store, Transaction
from proxy.policy.rules import PolicySet
from proxy.scope import Scope
from proxy.sweeps.act import Act, Basis, Holding, Judge, LessonShape, Summarise, Verdict, Worth
from proxy.sweeps.compress import compress
from proxy.sweeps.duplicates import merge
from proxy.sweeps.lessons import reflect
from proxy.sweeps.lifetime import erase, expire, fade, limit
from proxy.sweeps.promote import promote
from proxy.sweeps.report import EXAMPLES, Report, StepReport, Tally
from proxy.types import Memory, Vector

log = structlog.get_logger(__name__)

STEPS: Final[Mapping[str, Callable[[Holding, Basis], Iterable[Act]]]] = {
    "expire": expire,
    "archive": fade,
    "erase": erase,
    "merge": merge,
    "limits": limit,
    "compress": compress,
    "promote": promote,
    "reflect": reflect,
}
"""In the order in which they run."""
_MOST_RECORDS = 50
"""Of one transaction: other users' writes wait for it, some 30 ms."""
_MOST_JUDGED = 50


class Sweep:
    """Runs sweep steps. One run at a time.

    Args:
        store: Long-term layer.
        embedder: For the text of summaries and lessons; None leaves their vectors out.
        clock: Returns now, aware UTC; used when a run is given no time.
        zone: The user's, for weekdays and dates.
        summarise: Makes summaries of lines; None takes the lines themselves.
        judge: Asked about close pairs that rules leave open, each once and few a run; None leaves them alone.
        worth: How likely a text says something worth keeping, 0–1; None takes every text for that.
        count_tokens: Tokens of a text.
        locked: Holds one user's lock for one small transaction (`Remember`'s), so that no write is decided meanwhile.
        told: Called with each step's report, for metrics.
        go_on: Asked between transactions; False ends the run early.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None,
        clock: Callable[[], datetime],
        zone: tzinfo,
        summarise: Summarise | None = None,
        judge: Judge | None = None,
        *,
        worth: Worth | None = None,
        count_tokens: Callable[[str], int] = len,
        locked: Callable[[Scope], AbstractContextManager[object]] = lambda _scope: nullcontext(),
        told: Callable[[StepReport], None] = lambda _report: None,
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._clock = clock
        self._zone = zone
        self._summarise = summarise
        self._judge = _Sparing(judge) if judge is not None else None
        self._worth = worth or _everything
        self._count = count_tokens
        self._locked = locked
        self._told = told
        self._go_on = go_on

    @property
    def store(self) -> Store:
        """The store that is swept."""
        return self._store

    def run(
        self,
        policies: PolicySet,
        steps: Collection[str],
        *,
        now: datetime | None = None,
        shape: LessonShape | None = None,
    ) -> Report:
        """Run steps over every owner's records.

        Args:
            policies: Whose retention rules hold.
            steps: Names from `STEPS`; they run in its order.
            now: The time to go by; the clock's by default.
            shape: What lessons look like.

        Raises:
            ValueError: A step is not known.
            StoreUnavailable: The store cannot be used; what was done before stays done.
        """
        if unknown := sorted(set(steps) - set(STEPS)):
            raise ValueError(f"no sweep step is named {', '.join(unknown)}; there are {', '.join(STEPS)}")
        basis = self._basis(policies, now or self._clock(), shape or LessonShape())
        tallies = {name: Tally() for name in STEPS if name in steps}
        if self._judge is not None:
            self._judge.asked = 0
        owners = 0
        for scope in self._store.owners():
            if not self._go_on():
                break
            owners += 1
            self._sweep(scope, tallies, basis)
        report = Report(basis.now, owners, tuple(tally.report(name) for name, tally in tallies.items()), self._go_on())
        for step in report.steps:
            _log(step, owners)
            self._told(step)
        return report

    def _basis(self, policies: PolicySet, now: datetime, shape: LessonShape) -> Basis:
        return Basis(
            now=now,
            zone=self._zone,
            retention=policies.retention,
            policy_hash=policies.hash,
            embed=self._vector,
            count_tokens=self._count,
            summarise=self._summarise,
            judge=self._judge,
            worth=self._worth,
            shape=shape,
        )

    def _sweep(self, scope: Scope, tallies: Mapping[str, Tally], basis: Basis) -> None:
        holding: Holding | None = None
        for name, tally in tallies.items():
            begun = time.perf_counter()
            try:
                if holding is None:
                    holding = Holding(self._store.survey(scope))
                tally.looked_at += len(holding.records)
                if self._carry_out(scope, STEPS[name](holding, basis), tally):
                    holding = None  # looked at anew by the next step
            except StoreUnavailable:
                raise
            except SidemirrorError as error:
                # One user's trouble is not the others'.
                tally.failed += 1
                log.warning("sweep_step_failed", step=name, error_type=type(error).__name__)
            tally.duration_s += time.perf_counter() - begun
            if not self._go_on():
                return

    def _carry_out(self, scope: Scope, acts: Iterable[Act], tally: Tally) -> int:
        """Make the changes.

        Returns:
            How many were made.
        """
        changed = 0
        for batch in _batches(acts):
            if not self._go_on():
                break
            changed += self._transact(scope, batch, tally)
        return changed

    def _transact(self, scope: Scope, batch: list[Act], tally: Tally) -> int:
        try:
            with self._locked(scope):
                done = self._store.transact(lambda tx: [act for act in batch if _carried_out(act, tx)]).result()
        except StoreUnavailable:
            raise
        except SidemirrorError as error:
            if len(batch) > 1:
                # One of them is at fault; the others are made by themselves.
                return sum(self._transact(scope, [act], tally) for act in batch)
            tally.failed += 1
            log.warning("sweep_change_failed", error_type=type(error).__name__)
            return 0
        tally.changed += len(done)
        tally.skipped += len(batch) - len(done)
        if len(tally.examples) < EXAMPLES:
            tally.examples += [id_ for act in done for id_ in act.ids]
        return len(done)

    def _vector(self, text: str) -> Vector | None:
        if self._embedder is None:
            return None
        try:
            return self._embedder.documents([text])[0]
        except EmbedderError as error:
            # Found by its words until it is embedded.
            log.warning("embedding_failed", error_type=type(error).__name__)
            return None


def _batches(acts: Iterable[Act]) -> Iterator[list[Act]]:
    batch: list[Act] = []
    records = 0
    for act in acts:
        if batch and records + len(act.rests_on) > _MOST_RECORDS:
            yield batch
            batch, records = [], 0
        batch.append(act)
        records += len(act.rests_on)
    if batch:
        yield batch


def _carried_out(act: Act, tx: Transaction) -> bool:
    if any(tx.get(_owner(memory), memory.id) != memory for memory in act.rests_on):
        return False
    try:
        act.do(tx)
    except Forgotten:
        return False
    return True


def _owner(memory: Memory) -> Scope:
    return Scope(memory.tenant, memory.user_id, memory.agent_id)


def _everything(_text: str, _vector: Vector | None) -> float:
    return 1.0


def _log(step: StepReport, owners: int) -> None:
    log.info(
        "sweep_step_done",
        step=step.step,
        owners=owners,
        looked_at=step.looked_at,
        count=step.changed,
        skipped=step.skipped,
        failed=step.failed,
        duration_ms=step.duration_ms,
    )


class _Sparing:
    """A judge that is asked about each pair once, and about few pairs a run."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._known: dict[tuple[int, int], Verdict] = {}
        self.asked = 0

    def __call__(self, old: str, new: str) -> Verdict:
        pair = (hash(old), hash(new))
        if pair not in self._known:
            if self.asked >= _MOST_JUDGED:
                return "unsure"
            self.asked += 1
            self._known[pair] = self._judge(old, new)
        return self._known[pair]
