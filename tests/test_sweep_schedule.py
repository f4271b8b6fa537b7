"""Schedules: what is due by the user's clock, what was missed, what fails, and what a rule says about lessons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import StoreError
from proxy.policy.model import Trigger
from proxy.policy.rules import PolicySet, Rule
from proxy.schedule import Schedules, keep_schedules, lesson_shape
from proxy.store.sqlite import SqliteStore
from proxy.sweep import Sweep
from proxy.sweeps.act import LessonShape
from proxy.sweeps.report import Report
from tests.store_samples import Clock
from tests.sweep_samples import ZONE, active, opened, remember

# Midnight in Shanghai.
MIDNIGHT = datetime(2026, 11, 29, 16, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock(MIDNIGHT)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with opened(tmp_path) as one:
        yield one


def rule(id_: str = "nightly", schedule: str = "daily 03:00", **fields: Any) -> Rule:
    given = {"id": id_, "when": {"schedule": schedule}, **({"sweep": ["expire"]} if "extract" not in fields else {})}
    return Rule.of(Trigger.model_validate({**given, **fields}), "test.yaml")


def schedules(store: SqliteStore, clock: Clock, *rules: Rule, **more: Any) -> Schedules:
    sweep = Sweep(store, None, clock, ZONE)
    return Schedules(lambda: PolicySet(triggers=rules), sweep, clock, ZONE, **more)


def test_a_new_rule_waits_for_its_time_and_then_runs_once_a_day(store: SqliteStore, clock: Clock) -> None:
    remember(store, "offer", expires_at=MIDNIGHT)
    all_ = schedules(store, clock, rule())
    assert all_.run_due() == []
    clock.forward(hours=2, minutes=59)
    assert all_.run_due() == []
    assert active(store) == {"offer"}
    clock.forward(minutes=1)
    assert all_.run_due() == ["nightly"]
    assert active(store) == set()
    assert all_.run_due() == []
    clock.forward(days=1)
    assert all_.run_due() == ["nightly"]


def test_runs_that_were_missed_are_made_up_for_once_after_a_restart(store: SqliteStore, clock: Clock) -> None:
    schedules(store, clock, rule()).run_due()
    clock.forward(days=5, hours=12)
    again = schedules(store, clock, rule())
    assert again.run_due() == ["nightly"]
    assert again.run_due() == []


def test_each_rule_has_a_time_of_its_own(store: SqliteStore, clock: Clock) -> None:
    rules = [rule("hourly", "hourly"), rule("weekly", "weekly mon 01:30"), rule("off", mode="disabled")]
    all_ = schedules(store, clock, *rules)
    all_.run_due()
    clock.forward(hours=1, minutes=30)
    assert all_.run_due() == ["hourly", "weekly"]
    clock.forward(hours=1)
    assert all_.run_due() == ["hourly"]


def test_a_clock_set_back_does_not_stop_a_schedule(store: SqliteStore, clock: Clock) -> None:
    all_ = schedules(store, clock, rule())
    clock.forward(days=400)
    all_.run_due()
    clock.now = MIDNIGHT
    assert all_.run_due() == []
    clock.forward(days=401)
    assert all_.run_due() == ["nightly"]


def test_a_shadow_rule_is_passed_over_and_no_sweep_goes_to_whom_it_concerns(store: SqliteStore, clock: Clock) -> None:
    remember(store, "offer", expires_at=MIDNIGHT)
    met: list[tuple[str, datetime, datetime]] = []

    def on_time(_policies: PolicySet, due: Rule, since: datetime, until: datetime) -> None:
        met.append((due.id, since, until))

    digest = rule("digest", extract={"verbatim": {"of": "message"}}, write={"memory_type": "episodic"})
    all_ = schedules(store, clock, rule(mode="shadow"), digest, on_time=on_time)
    all_.run_due()
    clock.forward(hours=3)
    assert all_.run_due() == ["nightly", "digest"]
    assert active(store) == {"offer"}
    assert met == [("digest", MIDNIGHT, MIDNIGHT + timedelta(hours=3))]


def test_a_run_that_failed_or_was_stopped_is_due_again(store: SqliteStore, clock: Clock) -> None:
    outcomes: list[Callable[[], Report]] = []

    class Scripted(Sweep):
        def run(self, *_args: Any, **_more: Any) -> Report:
            return outcomes.pop(0)()

    def fails() -> Report:
        raise StoreError("busy")

    sweep = Scripted(store, None, clock, ZONE)
    all_ = Schedules(lambda: PolicySet(triggers=(rule(),)), sweep, clock, ZONE)
    all_.run_due()
    clock.forward(hours=3)
    outcomes += [fails, lambda: Report(MIDNIGHT, 0, (), complete=False), lambda: Report(MIDNIGHT, 0, ())]
    with pytest.raises(StoreError):
        all_.run_due()
    assert [all_.run_due(), all_.run_due(), all_.run_due()] == [[], ["nightly"], []]


async def test_the_service_looks_again_and_again_until_told_to_stop(store: SqliteStore, clock: Clock) -> None:
    remember(store, "offer", expires_at=MIDNIGHT)
    stop = asyncio.Event()
    policies = PolicySet(triggers=(rule(),))
    schedules(store, clock, rule()).run_due()
    clock.forward(hours=3)
    done = asyncio.get_running_loop().create_future()

    def told(_step: object) -> None:
        done.get_loop().call_soon_threadsafe(done.set_result, None)

    sweep = Sweep(store, None, clock, ZONE, told=told)
    work = asyncio.create_task(keep_schedules(lambda: policies, sweep, clock, ZONE, stop, None, look_s=0.01))
    await asyncio.wait_for(done, 20)
    stop.set()
    await asyncio.wait_for(work, 20)
    assert active(store) == set()


async def test_the_service_outlives_what_fails(store: SqliteStore, clock: Clock) -> None:
    stop, asked = asyncio.Event(), 0
    loop = asyncio.get_running_loop()

    def policies() -> PolicySet:
        nonlocal asked
        asked += 1
        loop.call_soon_threadsafe(stop.set)
        raise LookupError

    sweep = Sweep(store, None, clock, ZONE)
    await asyncio.wait_for(keep_schedules(policies, sweep, clock, ZONE, stop, None), 20)
    assert asked == 1


@pytest.mark.parametrize(
    ("write", "shape"),
    [
        (None, LessonShape()),
        ({"memory_type": "reflective"}, LessonShape()),
        (
            {"memory_type": "reflective", "kind": "habit", "confidence": 0.5, "tags": ["x"]},
            LessonShape("habit", ("x",), 0.5),
        ),
    ],
)
def test_a_rules_write_shapes_its_lessons(write: dict[str, Any] | None, shape: LessonShape) -> None:
    assert lesson_shape(rule(sweep=["reflect"], write=write)) == shape
