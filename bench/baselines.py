"""The same chats and streams through us, a bare relay, `litellm.acompletion` and, when asked for, the litellm proxy.

All stand before one provider and take turns, so that each ratio compares what the same minute of this machine cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from statistics import median

from bench.chat import Caller, ChatClient
from bench.litellm_proxy import CannotInstall, install, litellm_proxy
from bench.overhead import Relays, complaints, converse, relays, talk
from bench.processes import Started, server
from bench.report import Figure, Section
from bench.run import Run
from bench.streaming import Lengths, Streams
from bench.texts import sayings

_ON, _OFF = "memory on, write-back included", "mode off"
_BARE, _ACOMPLETION, _PROXY = "a bare aiohttp relay", "litellm.acompletion", "the litellm proxy"
_ALWAYS = (_ON, _OFF, _BARE, _ACOMPLETION)
_WARM_UP = 4


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        rounds: Repetitions of each lane, in turn.
        sessions: Per round and lane.
        turns: Per session.
        lengths: Of the streams, per round and lane.
        memories: In scope when a round starts.
    """

    rounds: int = 5
    sessions: int = 20
    turns: int = 6
    lengths: Lengths = field(default_factory=lambda: Lengths(streams=2, long=1200))
    memories: int = 1000

    @property
    def calls(self) -> int:
        """Per round and lane."""
        return self.sessions * self.turns + self.lengths.count

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar; those of the litellm proxy are not counted."""
        return len(self.users) * self.memories + self.rounds * self.calls * len(_ALWAYS)

    @property
    def users(self) -> list[str]:
        """Who has the memories: another one in each round."""
        return [f"user-{number}" for number in range(self.rounds)]


FULL = Amounts()
QUICK = Amounts(rounds=1, sessions=2, turns=2, lengths=Lengths(streams=1, short=20, long=220), memories=30)


@dataclass(frozen=True, slots=True)
class Lane:
    """One way of calling.

    Args:
        relay: What is called.
        mode: ``X-Memory-Mode``; "off" also for relays that know no memory.
    """

    relay: Started
    mode: str = "off"


@dataclass
class _Found:
    """What a lane cost: one figure per round."""

    chat_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    chunk_us: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure what we cost beside what else there is."""
    with relays(run, amounts.users, amounts.memories) as started:
        return compare(run, amounts, started)


def compare(run: Run, amounts: Amounts, started: Relays) -> Section:
    """`measure`, with relays that run already and have the memories of `amounts.users`."""
    upstream = started.provider.address
    with ExitStack() as stack:
        lanes = {
            _ON: Lane(started.ours, "on"),
            _OFF: Lane(started.ours),
            _BARE: Lane(started.bare),
            _ACOMPLETION: Lane(stack.enter_context(server(run.folder, "acompletion_relay", upstream))),
        }
        notes = []
        if run.litellm_proxy is not None:
            try:
                command = install(run.folder / "litellm_proxy", run.litellm_proxy)
            except CannotInstall as error:
                notes.append(f"{_PROXY} {run.litellm_proxy} cannot be installed here and was left out: {error}.")
            else:
                notes.append(f"{_PROXY} is version {run.litellm_proxy}, as shipped, in an environment of its own.")
                lanes[_PROXY] = Lane(stack.enter_context(litellm_proxy(command, run.folder, upstream)))
        found = asyncio.run(_rounds(run, amounts, lanes))
        return _section(found, amounts, [*notes, *complaints(started.ours)])


async def _rounds(run: Run, amounts: Amounts, lanes: Mapping[str, Lane]) -> dict[str, _Found]:
    found = {name: _Found() for name in lanes}
    async with ChatClient() as client:
        for number, user in enumerate(amounts.users):
            texts = iter(sayings(len(lanes) * (amounts.calls + _WARM_UP + 1), seed=2000 + number))
            for name, lane in lanes.items():
                await _round(client, lane, user, amounts, texts, found[name])
                run.step(amounts.calls if name in _ALWAYS else 0)
    return found


async def _round(
    client: ChatClient, lane: Lane, user: str, amounts: Amounts, texts: Iterator[str], found: _Found
) -> None:
    caller = Caller(user, lane.mode)
    streams = Streams(client, caller)
    # What happens once per process or scope is no part of a call's cost: imports, connections, vectors.
    warm = [next(texts) for _ in range(_WARM_UP)]
    await converse(client, lane.relay, Caller(user, "read" if lane.mode == "on" else "off"), "warm", warm)
    await streams.spent_s(lane.relay, [next(texts)], f"warm-{lane.mode}", amounts.lengths.short, pace_ms=0)
    talks = [(f"{lane.mode}-{index}", [next(texts) for _ in range(amounts.turns)]) for index in range(amounts.sessions)]
    passed = await talk(client, lane.relay, caller, 1, talks)
    found.chat_ms.append(passed.cpu_ms)
    found.wall_ms.append(passed.wall_ms(0.5))
    session = f"{lane.mode}-stream"
    found.chunk_us.append(await streams.chunk_us(lane.relay, texts, session, amounts.lengths, pace_ms=0))
    found.rss_mb.append(lane.relay.rss_mb())


def _section(found: Mapping[str, _Found], amounts: Amounts, notes: Sequence[str]) -> Section:
    others = [name for name in (_BARE, _ACOMPLETION, _PROXY) if name in found]
    figures = [
        Figure(f"CPU per chat, {ours}; {other}", "ms", median(found[ours].chat_ms), median(found[other].chat_ms))
        for ours in (_ON, _OFF)
        for other in others
    ]
    figures += [
        Figure(f"latency p50, {ours}; {other}", "ms", median(found[ours].wall_ms), median(found[other].wall_ms))
        for ours in (_ON, _OFF)
        for other in others
    ]
    figures += [
        Figure(f"CPU per streamed chunk, {_ON}; {other}", "µs", median(found[_ON].chunk_us), median(there.chunk_us))
        for other, there in found.items()
        if other in others
    ]
    figures += [
        Figure(f"RSS afterwards; {other}", "MB", found[_ON].rss_mb[-1], found[other].rss_mb[-1]) for other in others
    ]
    how = (
        f"{amounts.rounds} rounds of {amounts.sessions} sessions × {amounts.turns} turns, then a slope between "
        f"{amounts.lengths.streams} streams of {amounts.lengths.short} and of {amounts.lengths.long} chunks back to "
        f"back, per lane and in turn; {amounts.memories} memories in scope at the start of each round; the baseline of "
        f"each line is named after the semicolon. litellm {version('litellm')} is as shipped, behind a small aiohttp "
        "server."
    )
    return Section("Against litellm", how, figures, notes)
