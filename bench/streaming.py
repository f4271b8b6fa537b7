"""CPU that one more streamed chunk costs: the slope between short and long streams, against a bare relay.

Two ways of coming: one chunk a millisecond, as from a fast provider (each chunk is then a read, a write and a wake-up
of its own), and back to back, each flushed by itself, where several share a read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from statistics import median

from bench.chat import Caller, ChatClient
from bench.overhead import complaints, relays
from bench.processes import Started
from bench.report import Figure, Section
from bench.run import Run
from bench.texts import SYSTEM_PROMPT, sayings

GOAL_US = 15.0
_PACES_MS = (0, 1)
_USER = "streamer"


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        rounds: Repetitions, product and bare relay in turn.
        streams: Of each length, per round and relay.
        short: Chunks of a short stream.
        long: Chunks of a long one.
        memories: In scope.
    """

    rounds: int = 5
    streams: int = 3
    short: int = 200
    long: int = 2200
    memories: int = 1000

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return self.memories + self.rounds * len(_PACES_MS) * 2 * 2 * self.streams


FULL = Amounts()
QUICK = Amounts(rounds=1, streams=1, short=20, long=220, memories=30)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure what memory costs a streamed chunk."""
    with relays(run, [_USER], amounts.memories) as (bare, ours):
        return asyncio.run(_measure(run, amounts, bare, ours))


async def _measure(run: Run, amounts: Amounts, bare: Started, ours: Started) -> Section:
    found: dict[tuple[int, str], list[float]] = {(pace, mode): [] for pace in _PACES_MS for mode in ("bare", "on")}
    texts = iter(sayings(amounts.rounds * len(_PACES_MS) * 4 * amounts.streams + 2, seed=7))
    async with ChatClient() as client:
        streams = _Streams(client, amounts)
        for relay in (bare, ours):
            await streams.spent_s(relay, [next(texts)], "warm", amounts.short, pace_ms=0)
        for number in range(amounts.rounds):
            for pace_ms in _PACES_MS:
                for mode, relay in (("bare", bare), ("on", ours)):
                    spent_s = []
                    for chunks in (amounts.short, amounts.long):
                        said = [next(texts) for _ in range(amounts.streams)]
                        session = f"{mode}-{number}-{pace_ms}-{chunks}"
                        spent_s.append(await streams.spent_s(relay, said, session, chunks, pace_ms=pace_ms))
                        run.step(amounts.streams)
                    more = amounts.streams * (amounts.long - amounts.short)
                    found[pace_ms, mode].append(1e6 * (spent_s[1] - spent_s[0]) / more)
    return _section(found, amounts, complaints(ours))


@dataclass(frozen=True, slots=True)
class _Streams:
    client: ChatClient
    amounts: Amounts

    async def spent_s(self, relay: Started, texts: list[str], session: str, chunks: int, *, pace_ms: int) -> float:
        """CPU that a relay spends on some streams, one after another, write-back included."""
        caller = Caller(_USER, "on")
        before_s = relay.cpu_s()
        for number, text in enumerate(texts):
            messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": text}]
            answered = await self.client.stream(
                relay.address, caller, f"{session}-{number}", messages, chunks=chunks, pace_ms=pace_ms
            )
        if answered.request_id:
            await self.client.written(relay.address, caller, answered.request_id)
        return relay.cpu_s() - before_s


def _section(found: dict[tuple[int, str], list[float]], amounts: Amounts, complained: list[str]) -> Section:
    figures = []
    for pace_ms, name in ((0, "chunks back to back"), (1, "one chunk a millisecond")):
        ours, bare = median(found[pace_ms, "on"]), median(found[pace_ms, "bare"])
        goal = None if pace_ms else GOAL_US
        figures.append(Figure(f"CPU per streamed chunk, memory on, {name}", "µs", ours, bare, goal))
        figures.append(Figure(f"of which added to the bare relay's, {name}", "µs", ours - bare, None, GOAL_US))
    how = (
        f"Slope between {amounts.streams} streams of {amounts.short} and of {amounts.long} chunks, "
        f"{amounts.rounds} rounds; baseline: a bare aiohttp relay."
    )
    return Section("Streaming", how, figures, complained)
