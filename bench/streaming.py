"""CPU that one more streamed chunk costs: the slope between short and long streams, against a bare relay.

Two ways of coming: one chunk a millisecond, as from a fast provider (each chunk is then a read, a write and a wake-up
of its own), and back to back, each flushed by itself, where several share a read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
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
class Lengths:
    """Streams to take a slope from.

    Args:
        streams: Of each length.
        short: Chunks of a short stream.
        long: Chunks of a long one.
    """

    streams: int = 3
    short: int = 200
    long: int = 2200

    @property
    def count(self) -> int:
        """Streams together."""
        return 2 * self.streams


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        rounds: Repetitions, product and bare relay in turn.
        lengths: Of the streams, per round and relay.
        memories: In scope.
    """

    rounds: int = 5
    lengths: Lengths = field(default_factory=Lengths)
    memories: int = 1000

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return self.memories + self.rounds * len(_PACES_MS) * 2 * self.lengths.count


FULL = Amounts()
QUICK = Amounts(rounds=1, lengths=Lengths(streams=1, short=20, long=220), memories=30)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure what memory costs a streamed chunk."""
    with relays(run, [_USER], amounts.memories) as started:
        return asyncio.run(_measure(run, amounts, started.bare, started.ours))


async def _measure(run: Run, amounts: Amounts, bare: Started, ours: Started) -> Section:
    found: dict[tuple[int, str], list[float]] = {(pace, mode): [] for pace in _PACES_MS for mode in ("bare", "on")}
    texts = iter(sayings(amounts.rounds * len(_PACES_MS) * 2 * amounts.lengths.count + 2, seed=7))
    async with ChatClient() as client:
        streams = Streams(client, Caller(_USER, "on"))
        for relay in (bare, ours):
            await streams.spent_s(relay, [next(texts)], "warm", amounts.lengths.short, pace_ms=0)
        for number in range(amounts.rounds):
            for pace_ms in _PACES_MS:
                for mode, relay in (("bare", bare), ("on", ours)):
                    session = f"{mode}-{number}-{pace_ms}"
                    one_us = await streams.chunk_us(relay, texts, session, amounts.lengths, pace_ms=pace_ms)
                    found[pace_ms, mode].append(one_us)
                    run.step(amounts.lengths.count)
    return _section(found, amounts, complaints(ours))


@dataclass(frozen=True, slots=True)
class Streams:
    """Streamed calls and what they cost a relay.

    Args:
        client: Makes the calls.
        caller: Whose they are.
    """

    client: ChatClient
    caller: Caller

    async def chunk_us(
        self, relay: Started, texts: Iterator[str], session: str, lengths: Lengths, *, pace_ms: int
    ) -> float:
        """CPU that a relay spends on one more chunk, in µs: the slope between short and long streams."""
        spent_s = []
        for chunks in (lengths.short, lengths.long):
            said = [next(texts) for _ in range(lengths.streams)]
            spent_s.append(await self.spent_s(relay, said, f"{session}-{chunks}", chunks, pace_ms=pace_ms))
        return 1e6 * (spent_s[1] - spent_s[0]) / (lengths.streams * (lengths.long - lengths.short))

    async def spent_s(self, relay: Started, texts: list[str], session: str, chunks: int, *, pace_ms: int) -> float:
        """CPU that a relay spends on some streams, one after another, write-back included."""
        before_s = relay.cpu_s()
        for number, text in enumerate(texts):
            messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": text}]
            answered = await self.client.stream(
                relay.address, self.caller, f"{session}-{number}", messages, chunks=chunks, pace_ms=pace_ms
            )
        if answered.request_id and self.caller.mode == "on":
            await self.client.written(relay.address, self.caller, answered.request_id)
        return relay.cpu_s() - before_s


def _section(found: dict[tuple[int, str], list[float]], amounts: Amounts, complained: list[str]) -> Section:
    figures = []
    for pace_ms, name in ((0, "chunks back to back"), (1, "one chunk a millisecond")):
        ours, bare = median(found[pace_ms, "on"]), median(found[pace_ms, "bare"])
        goal = None if pace_ms else GOAL_US
        figures.append(Figure(f"CPU per streamed chunk, memory on, {name}", "µs", ours, bare, goal))
        figures.append(Figure(f"of which added to the bare relay's, {name}", "µs", ours - bare, None, GOAL_US))
    how = (
        f"Slope between {amounts.lengths.streams} streams of {amounts.lengths.short} and of {amounts.lengths.long} "
        f"chunks, {amounts.rounds} rounds; baseline: a bare aiohttp relay."
    )
    return Section("Streaming", how, figures, complained)
