"""Whether memory stays flat over ten thousand chats: RSS every few hundred calls, and the slope of its last two thirds.

In the first third all that is said is new: memories are stored, and what is kept of them in memory grows with them.
After it the same users say the same again in new sessions: what is stored stays the same, and so must RSS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import linear_regression

from bench.chat import Caller, ChatClient
from bench.overhead import Relays, complaints, converse, relays
from bench.processes import Started
from bench.report import Figure, Section
from bench.run import Run
from bench.texts import sayings

GOAL_MB_PER_1000 = 1.0
"""Called flat up to here: a kilobyte a call, less than its request and answer. One leaked object of them shows."""
USERS = tuple(f"user-{number}" for number in range(10))
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        calls: Altogether; a multiple of `leg`.
        leg: Calls between two readings; a multiple of `turns`, and of users where the same ones are to say the same.
        turns: Per session.
        memories: In each user's scope at the start.
    """

    calls: int = 10_000
    leg: int = 500
    turns: int = 5
    memories: int = 100

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return self.memories * len(USERS) + self.calls

    @property
    def new_legs(self) -> int:
        """Legs in which all that is said is new."""
        return self.calls // self.leg // 3


FULL = Amounts()
QUICK = Amounts(calls=120, leg=20, turns=2, memories=10)


@dataclass
class _Read:
    """Resident memory in MB, at the start and after each leg."""

    ours: list[float] = field(default_factory=list)
    redis: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure how resident memory moves under load."""
    with relays(run, USERS, amounts.memories) as started:
        return compare(run, amounts, started)


def compare(run: Run, amounts: Amounts, started: Relays) -> Section:
    """`measure`, with relays that run already and have the memories of `USERS`."""
    read = asyncio.run(_legs(run, amounts, started.bare, started.ours))
    return _section(read, amounts, complaints(started.ours))


async def _legs(run: Run, amounts: Amounts, bare: Started, ours: Started) -> _Read:
    read, texts = _Read(), cycle(sayings(amounts.new_legs * amounts.leg, seed=11))
    async with ChatClient() as client:
        for number in range(amounts.calls // amounts.leg + 1):
            if number:
                talks = [
                    (f"soak-{number}-{index}", [next(texts) for _ in range(amounts.turns)])
                    for index in range(amounts.leg // amounts.turns)
                ]
                await _leg(client, ours, "on", talks)
                await _leg(client, bare, "off", talks)
                run.step(amounts.leg)
            read.ours.append(ours.rss_mb())
            read.redis.append(ours.redis_rss_mb())
            read.bare.append(bare.rss_mb())
    return read


async def _leg(client: ChatClient, relay: Started, mode: str, talks: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Hold sessions, a few at once, each with the next user; return when their memories are written."""
    waiting = iter(enumerate(talks))

    async def work_off(waiting: Iterator[tuple[int, tuple[str, Sequence[str]]]]) -> None:
        for number, (session, texts) in waiting:
            caller = Caller(USERS[number % len(USERS)], mode)
            answered = await converse(client, relay, caller, session, texts)
            if mode == "on":
                await client.written(relay.address, caller, answered[-1].request_id)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work_off(waiting))


def slope_per_1000(read_mb: Sequence[float], leg: int) -> float:
    """How fast memory grows, by least squares, in MB per 1,000 calls.

    Args:
        read_mb: Two readings or more, one after each leg.
        leg: Calls between two readings.

    >>> slope_per_1000([151, 152, 153, 154], 500)
    2.0
    """
    return 1000 * linear_regression([leg * number for number in range(len(read_mb))], read_mb).slope


def _section(read: _Read, amounts: Amounts, complained: Sequence[str]) -> Section:
    def last(read_mb: Sequence[float]) -> float:
        return slope_per_1000(read_mb[amounts.new_legs + 1 :], amounts.leg)

    first = slope_per_1000(read.ours[1 : amounts.new_legs + 1], amounts.leg)
    figures = [
        Figure("RSS growth per 1,000 calls, last two thirds", "MB", last(read.ours), None, GOAL_MB_PER_1000),
        Figure("RSS growth per 1,000 calls, first third, all new", "MB", first),
        Figure("RSS growth of the embedded Valkey per 1,000 calls, last two thirds", "MB", last(read.redis)),
        Figure("RSS growth of the bare relay per 1,000 calls, last two thirds", "MB", last(read.bare)),
        Figure("RSS at the start", "MB", read.ours[0], read.bare[0]),
        Figure(f"RSS after {amounts.calls:,} calls", "MB", read.ours[-1], read.bare[-1]),
        Figure(f"RSS of the embedded Valkey after {amounts.calls:,} calls", "MB", read.redis[-1]),
    ]
    how = (
        f"{amounts.calls:,} calls with memory on in sessions of {amounts.turns} turns, {_AT_ONCE} at once, of "
        f"{len(USERS)} users with {amounts.memories} memories each at the start; after a third of them the same is "
        f"said again in new sessions; read every {amounts.leg} calls, when all is written; one run; baseline: a bare "
        "aiohttp relay under the same calls."
    )
    readings = " ".join(f"{mb:.0f}" for mb in read.ours)
    return Section("Soak", how, figures, [f"RSS in MB, reading by reading: {readings}.", *complained])
