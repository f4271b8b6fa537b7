"""How fast memories are written through the API, and what a write costs: with one client and with eight.

Every answer means that the record is on disk, embedded, checked for duplicates and conflicts, and read back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import aiohttp
import orjson

from bench.overhead import complaints, fill_scopes
from bench.processes import Started, product, server
from bench.report import Figure, Section
from bench.run import Run, percentile
from bench.texts import Kept, memories

_CLIENTS = (1, 8)
_WARM_UP = 4
_NOWHERE = "http://127.0.0.1:9"
"""No call is made; nothing listens there."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        rounds: Repetitions, product and baseline in turn.
        writes: Per round, number of clients, and writer.
        memories: In scope when a round starts.
    """

    rounds: int = 5
    writes: int = 400
    memories: int = 1000

    @property
    def each(self) -> int:
        """Writes of one round and writer, those to warm it up included."""
        return _WARM_UP + len(_CLIENTS) * self.writes

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return len(self.users) * self.memories + 2 * self.rounds * self.each

    @property
    def users(self) -> list[str]:
        """Who has the memories: another one in each round."""
        return [f"user-{number}" for number in range(self.rounds)]


FULL = Amounts()
QUICK = Amounts(rounds=1, writes=16, memories=30)


@dataclass
class _Found:
    """What one writer did with so many clients: one figure per round, and all outcomes."""

    per_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    redis_ms: list[float] = field(default_factory=list)
    p95_ms: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure writes through the memory API."""
    fill_scopes(run, amounts.users, amounts.memories)
    with product(run.folder, _NOWHERE, run.settings) as ours:
        return compare(run, amounts, ours)


def compare(run: Run, amounts: Amounts, ours: Started) -> Section:
    """`measure`, with a product that runs already and has the memories of `amounts.users`."""
    with server(run.folder, "plain_writer", str(run.folder / "plain.db")) as plain:
        found = asyncio.run(_rounds(run, amounts, {"ours": ours, "plain": plain}))
    return _section(found, amounts, complaints(ours))


async def _rounds(run: Run, amounts: Amounts, writers: dict[str, Started]) -> dict[tuple[str, int], _Found]:
    found = {(name, clients): _Found() for name in writers for clients in _CLIENTS}
    async with aiohttp.ClientSession() as http:
        for number, user in enumerate(amounts.users):
            # Those that the scope was filled with come first.
            new = memories(amounts.memories + amounts.each, seed=number)[amounts.memories :]
            for name, writer in writers.items():
                waiting = iter(new)
                client = _Client(http, writer, user)
                for _ in range(_WARM_UP):
                    await client.write(next(waiting))
                for clients in _CLIENTS:
                    some = [next(waiting) for _ in range(amounts.writes)]
                    await client.write_all(some, clients, found[name, clients])
                run.step(amounts.each)
    return found


@dataclass(frozen=True, slots=True)
class _Client:
    http: aiohttp.ClientSession
    writer: Started
    user: str

    async def write(self, one: Kept) -> str:
        """Write one memory; its outcome."""
        body = {"content": one.content, "memory_type": one.memory_type, "kind": one.kind, "scope": one.scope}
        headers = {"X-Memory-User": self.user, "Content-Type": "application/json"}
        url = f"{self.writer.address}/memory/records"
        async with self.http.post(url, data=orjson.dumps(body), headers=headers) as response:
            answer = await response.read()
            if response.status not in (200, 201):
                raise RuntimeError(f"a write was answered {response.status}: {answer[:200]!r}")
        return str(orjson.loads(answer)["outcome"])

    async def write_all(self, some: Sequence[Kept], clients: int, found: _Found) -> None:
        """Write memories with so many clients, each of which waits for its answers."""
        walls_ms: list[float] = []

        async def work_off(waiting: Iterator[Kept]) -> None:
            for one in waiting:
                began = time.perf_counter()
                found.outcomes[await self.write(one)] += 1
                walls_ms.append(1000 * (time.perf_counter() - began))

        waiting, cpu_s, redis_s = iter(some), self.writer.cpu_s(), self.writer.redis_cpu_s()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(work_off(waiting))
        found.per_s.append(len(some) / (time.perf_counter() - began))
        found.cpu_ms.append(1000 * (self.writer.cpu_s() - cpu_s) / len(some))
        found.redis_ms.append(1000 * (self.writer.redis_cpu_s() - redis_s) / len(some))
        found.p95_ms.append(percentile(walls_ms, 0.95))


def _section(found: dict[tuple[str, int], _Found], amounts: Amounts, complained: Sequence[str]) -> Section:
    figures = []
    for clients in _CLIENTS:
        ours, plain = found["ours", clients], found["plain", clients]
        by = f"{clients} client{'s' if clients > 1 else ''}"
        figures += [
            Figure(f"writes per second, {by}", "/s", median(ours.per_s), median(plain.per_s)),
            Figure(f"CPU per write, {by}", "ms", median(ours.cpu_ms), median(plain.cpu_ms)),
            Figure(f"CPU per write of the embedded Valkey, {by}", "ms", median(ours.redis_ms)),
            Figure(f"latency p95, {by}", "ms", median(ours.p95_ms), median(plain.p95_ms)),
        ]
    outcomes = sum((found["ours", clients].outcomes for clients in _CLIENTS), Counter[str]())
    how = (
        f"{amounts.rounds} rounds of {amounts.writes} POST /memory/records per number of clients, zh and en, all "
        f"different, {amounts.memories} memories in scope at the start of each round; baseline: an aiohttp server that "
        "embeds, inserts a row and its words into SQLite and commits (synchronous=FULL), and looks for nothing."
    )
    told = ", ".join(f"{outcome} {number}" for outcome, number in outcomes.most_common())
    return Section("Ingest", how, figures, [f"outcomes: {told}.", *complained])
