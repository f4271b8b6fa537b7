"""The background life: idle sessions end by themselves, schedules run, and what fails is told and tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, timedelta
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.ending import Ending
from proxy.errors import StoreUnavailable
from proxy.life import Life
from proxy.policy.rules import PolicySet
from proxy.schedule import Schedules
from proxy.store.idle import idle_sessions
from proxy.sweep import Sweep
from proxy.types import Memory
from tests.running import eventually
from tests.store_samples import ALICE, ALICES_CODER, BOB, memory, put
from tests.sweep_samples import EMBEDDER
from tests.write_back import Desk, desk, rules

IDLE_S = 1800
SUMMARIES = r"""
triggers:
  - id: sum-up
    when: session_end
    extract: {template: {zh: 小结：$summary, en: 'In short: $summary'}}
    write: {memory_type: episodic, kind: summary, key: session.$session, confidence: 0.7, on_conflict: supersede}
  - id: raw
    when: user_message
    extract: {verbatim: {of: message, max_chars: 400}}
    write: {memory_type: episodic, kind: turn, confidence: 0.4}
"""
DIARY = r"""
triggers:
  - id: diary
    when: {schedule: "daily 03:00"}
    if: {match: {zh: '部署', en: 'deploy'}}
    extract: {template: {zh: 用户部署过, en: The user deployed something}}
    write: {memory_type: reflective, kind: lesson, confidence: 0.6}
  - id: other
    when: {schedule: "daily 05:00"}
    extract: {template: {zh: 一天：$text, en: 'A day: $text'}}
    write: {memory_type: reflective, kind: reflection, confidence: 0.6}
"""


@pytest.fixture
def at_desk(tmp_path: Path) -> Iterator[Desk]:
    """Write-back with a rule for ends of sessions."""
    with desk(tmp_path, SUMMARIES) as one:
        yield one


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Life's one thread."""
    with ThreadPoolExecutor(1) as one:
        yield one


def life(at: Desk, threads: ThreadPoolExecutor, *, idle_s: float = IDLE_S) -> Life:
    """The background life of a desk's memories."""
    asleep = partial(idle_sessions, at.store._readers)
    ending = Ending(at.store, at.working, asleep, at.remember.happened, at.clock, idle_s=IDLE_S)
    sweep = Sweep(at.store, EMBEDDER, at.clock, UTC, locked=at.remember.lock)
    return Life(ending, sweep, at.store, at.remember, lambda: at.policies, at.clock, UTC, threads, idle_s)


@asynccontextmanager
async def living(one: Life) -> AsyncIterator[None]:
    """Its services at work."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(service) for service in one.services(stop)]
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await asyncio.gather(*tasks)


async def until(condition: Callable[[], object]) -> None:
    """Let life go on until something is so."""
    await asyncio.to_thread(eventually, condition)


def summaries(at: Desk) -> list[str]:
    """What is kept of ended sessions."""
    return [one.content for one in at.kept() if one.kind == "summary"]


# ── idle sessions ──────────────────────────────────────────────────────────────────────────────────────────────────
async def test_sessions_that_went_idle_are_ended_and_one_that_goes_idle_later_as_well(
    at_desk: Desk, threads: ThreadPoolExecutor
) -> None:
    at_desk.say("We run Postgres 15 on rack 7.")
    at_desk.clock.forward(seconds=IDLE_S + 1)
    other = ALICE.in_session("s2")
    at_desk.say("我们的网关超时是 30 秒。", scope=other)
    async with living(life(at_desk, threads, idle_s=0.04)):
        await until(lambda: len(summaries(at_desk)) == 1)
        assert "Postgres 15" in summaries(at_desk)[0]
        at_desk.clock.forward(seconds=IDLE_S + 1)
        await until(lambda: len(summaries(at_desk)) == 2)
    assert "30 秒" in summaries(at_desk)[1]


async def test_what_an_idle_session_noted_is_left_to_its_time_to_live(
    at_desk: Desk, threads: ThreadPoolExecutor
) -> None:
    at_desk.say("We run Postgres 15 on rack 7.")
    at_desk.working.filled[ALICE] = {}
    at_desk.clock.forward(seconds=IDLE_S + 1)
    async with living(life(at_desk, threads, idle_s=0.04)):
        await until(lambda: summaries(at_desk))
    assert ALICE in at_desk.working.filled


@pytest.mark.parametrize("error", [StoreUnavailable("its disk is gone"), RuntimeError("a fault of ours")])
async def test_ends_that_fail_are_told_and_tried_again(
    at_desk: Desk, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    at_desk.say("We run Postgres 15 on rack 7.")
    at_desk.clock.forward(seconds=IDLE_S + 1)
    one, failures = life(at_desk, threads, idle_s=0.04), [error, error]
    run = one.ending.run

    def sometimes() -> int:
        if failures:
            raise failures.pop()
        return run()

    monkeypatch.setattr(one.ending, "run", sometimes)
    with capture_logs() as logs:
        async with living(one):
            await until(lambda: summaries(at_desk))
    told = [entry for entry in logs if entry["event"] == "idle_sessions_not_ended"]
    assert [entry["error_type"] for entry in told] == [type(error).__name__] * 2


async def test_it_stops_at_once_also_while_it_waits_long(at_desk: Desk, threads: ThreadPoolExecutor) -> None:
    async with asyncio.timeout(5), living(life(at_desk, threads)):
        pass


# ── schedules ──────────────────────────────────────────────────────────────────────────────────────────────────────
def lived(at: Desk, content: str, **fields: object) -> Memory:
    """An episode of a desk's user, now."""
    given = {"memory_type": "episodic", "language": "en", **fields}
    one = memory(content, **{"owner": ALICE, "at": at.clock(), **given})  # type: ignore[arg-type]
    put(at.store, one)
    return one


def schedules(at: Desk, one: Life, policies: PolicySet) -> Schedules:
    """The schedules, by the desk's clock."""
    at.policies = policies
    return Schedules(one.policies, one.sweep, at.clock, UTC, one.on_time)


def test_a_rule_on_a_schedule_looks_at_what_was_lived_through_since_it_last_ran(
    at_desk: Desk, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    at, one = at_desk, life(at_desk, threads)
    lived(at, "The user deployed before the rule was there")
    at.clock.forward(seconds=1)
    all_ = schedules(at, one, rules(tmp_path, DIARY))
    assert all_.run_due() == []
    at.clock.forward(hours=2)
    lived(at, "The user deployed the shop")
    lived(at, "The user deployed the blog", owner=ALICES_CODER)
    lived(at, "Bob ate an apple", owner=BOB)
    at.clock.forward(hours=17)
    assert all_.run_due() == ["diary"]
    made = {(memory.user_id, memory.agent_id): memory for memory in of_rule(at, "diary")}
    assert set(made) == {("alice", "default"), ("alice", "coder")}
    assert {memory.content for memory in made.values()} == {"The user deployed something"}
    # The other rule is not yet due, and no other rule is put to the event.
    assert of_rule(at, "other") == []
    assert all_.run_due() == []
    at.clock.forward(hours=2)
    assert all_.run_due() == ["other"]
    texts = {memory.content for memory in of_rule(at, "other")}
    assert texts == {
        f"A day: {content}"
        for content in ("The user deployed the shop", "The user deployed the blog", "Bob ate an apple")
    }


def test_a_day_on_which_nothing_happened_makes_nothing(
    at_desk: Desk, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    at, one = at_desk, life(at_desk, threads)
    all_ = schedules(at, one, rules(tmp_path, DIARY))
    all_.run_due()
    at.clock.forward(hours=1)
    lived(at, "The user deployed the shop")
    at.clock.forward(days=1)
    assert all_.run_due() == ["diary", "other"]
    before = len(of_rule(at, "diary"))
    at.clock.forward(days=1)
    assert all_.run_due() == ["diary", "other"]
    assert len(of_rule(at, "diary")) == before == 1


def of_rule(at: Desk, rule: str) -> list[Memory]:
    """All users' memories that a rule made."""
    everyone = {ALICE, BOB}
    found = [one for scope in everyone for one in at.kept(scope)]
    return [one for one in found if one.source.rule == rule]


async def test_sweeps_run_as_one_of_the_services(at_desk: Desk, threads: ThreadPoolExecutor, tmp_path: Path) -> None:
    at = at_desk
    at.policies = rules(tmp_path, "triggers: [{id: clean, when: {schedule: hourly}, sweep: [expire]}]")
    offer = lived(at, "The offer ends soon", expires_at=at.clock() + timedelta(minutes=5))
    note = (at.clock() - timedelta(hours=3)).isoformat()
    at.store.transact(lambda tx: tx.keep_note("schedule:clean", note)).result()
    at.clock.forward(minutes=10)
    async with living(life(at, threads)):
        await until(lambda: [one.id for one in at.kept(state="archived")] == [offer.id])
