"""Running what policies put on a schedule: sweeps, and rules that look at recent episodes.

In: the live policies and a clock. Out: sweeps run when their time comes, by the user's clock; a run that was missed
because nothing ran is made up for once at the start. When each rule last ran is kept in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, tzinfo

import structlog

from proxy.errors import SidemirrorError
from proxy.plugs import Store, Transaction
from proxy.policy.rules import PolicySet, Rule
from proxy.sweep import Sweep
from proxy.sweeps.act import LessonShape

log = structlog.get_logger(__name__)
_NOTE = "schedule:"
LOOK_S = 30.0
RETRY_S = 600.0

OnTime = Callable[[PolicySet, Rule, datetime, datetime], None]
"""Runs a schedule rule that is no sweep, for the time from one moment to another."""


@dataclass(frozen=True, slots=True)
class Due:
    """A rule whose time has come.

    Args:
        rule: Which.
        since: When it last ran, or was first seen.
    """

    rule: Rule
    since: datetime


class Schedules:
    """What is due, and what happens then.

    Args:
        policies: Returns the live set.
        sweep: Runs sweeps.
        clock: Returns now, aware UTC.
        zone: The user's, whose clock counts.
        on_time: Runs a rule that is no sweep; None leaves those out.
    """

    def __init__(
        self,
        policies: Callable[[], PolicySet],
        sweep: Sweep,
        clock: Callable[[], datetime],
        zone: tzinfo,
        on_time: OnTime | None = None,
    ) -> None:
        self._policies = policies
        self._sweep = sweep
        self._store: Store = sweep.store
        self._clock = clock
        self._zone = zone
        self._on_time = on_time

    def run_due(self) -> list[str]:
        """Run what is due, in file order; several runs that were missed count as one.

        Returns:
            Ids of the rules that ran.

        Raises:
            StoreError: The store cannot be used; what did not run is still due.
        """
        policies, now = self._policies(), self._clock()
        ran: list[str] = []
        for due in self._due(policies.schedules, now):
            if self._run(policies, due, now):
                self._remember(due.rule.id, now)
                ran.append(due.rule.id)
        return ran

    def _due(self, rules: Iterable[Rule], now: datetime) -> list[Due]:
        due: list[Due] = []
        for rule in rules:
            assert rule.schedule is not None
            last = self._last(rule.id)
            if last is None:
                # A rule that is new waits for its time: nothing was missed.
                self._remember(rule.id, now)
            elif rule.schedule.next_after(min(last, now), self._zone) <= now:
                due.append(Due(rule, last))
        return due

    def _run(self, policies: PolicySet, due: Due, now: datetime) -> bool:
        """Run a rule; False when it was told to stop before its end, and is due again."""
        trigger = due.rule.trigger
        if due.rule.mode != "live":
            log.info("schedule_passed_over", rule_id=due.rule.id)
            return True
        if trigger.sweep is not None:
            report = self._sweep.run(policies, trigger.sweep, now=now, shape=lesson_shape(due.rule))
            changed = sum(step.changed for step in report.steps)
            log.info("schedule_ran", rule_id=due.rule.id, owners=report.owners, count=changed)
            return report.complete
        if self._on_time is not None:
            self._on_time(policies, due.rule, due.since, now)
        return True

    def _last(self, rule_id: str) -> datetime | None:
        found = self._store.note(_NOTE + rule_id)
        return None if found is None else datetime.fromisoformat(found)

    def _remember(self, rule_id: str, moment: datetime) -> None:
        def work(tx: Transaction) -> None:
            tx.keep_note(_NOTE + rule_id, moment.isoformat())

        self._store.transact(work).result()


def lesson_shape(rule: Rule) -> LessonShape:
    """What a rule's `write:` beside `reflect` says about lessons.

    Args:
        rule: A sweep rule.
    """
    write = rule.trigger.write
    if write is None:
        return LessonShape()
    given = write.model_fields_set
    return LessonShape(
        kind=write.kind if "kind" in given else None,
        tags=write.tags,
        confidence=write.confidence if "confidence" in given else 1.0,
    )


async def keep_schedules(
    policies: Callable[[], PolicySet],
    sweep: Sweep,
    clock: Callable[[], datetime],
    zone: tzinfo,
    stop: asyncio.Event,
    threads: Executor | None,
    *,
    on_time: OnTime | None = None,
    look_s: float = LOOK_S,
) -> None:
    """Run due schedules until told to stop; the first look, at the start, makes up for a missed run.

    Args:
        policies: Returns the live set.
        sweep: Runs sweeps; give it a `go_on` that ends a run when the proxy stops.
        clock: Returns now, aware UTC.
        zone: The user's.
        stop: Set to end; a run under way is waited for.
        threads: Where runs work; None is the loop's own.
        on_time: Runs rules that are no sweeps.
        look_s: How long it sleeps at most before it looks at the clock again: it may be set, or the machine sleep.
    """
    schedules = Schedules(policies, sweep, clock, zone, on_time)
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        worked = await _attempt(loop, threads, schedules)
        try:
            await asyncio.wait_for(stop.wait(), look_s if worked else max(look_s, RETRY_S))
        except TimeoutError:
            continue


async def _attempt(loop: asyncio.AbstractEventLoop, threads: Executor | None, schedules: Schedules) -> bool:
    """Top of the loop: whatever fails is told, and tried again in ten minutes."""
    try:
        await loop.run_in_executor(threads, schedules.run_due)
        return True
    except Exception as error:
        expected = isinstance(error, SidemirrorError)
        log.error(
            "schedule_failed",
            error_type=type(error).__name__,
            hint=str(error) if expected else None,
            exc_info=None if expected else error,
        )
        return False
