"""CPU and latency that a non-streaming chat costs: memory off, read, on; against a bare relay.

Sessions of several turns resend their history, as agents do; every user message is new. The CPU clock of "on" is read
once the ledger says that the last call's memories are written: turns are worked off in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import mean, median

from bench.chat import Answered, Caller, ChatClient
from bench.filling import TENANT, fill, open_embedder, open_store
from bench.processes import Started, product, provider_and_bare_relay
from bench.report import Figure, Section
from bench.run import Run, percentile
from bench.texts import SYSTEM_PROMPT, memories, sayings
from proxy.scope import Scope

GOAL_ON_MS = 3.0
GOAL_READ_MS = 2.0
_AT_ONCE = 8
_WARM_UP = 4


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        rounds: Repetitions of each lane, in turn.
        sessions: Per round.
        turns: Per session.
        memories: In scope when a round starts.
    """

    rounds: int = 5
    sessions: int = 40
    turns: int = 6
    memories: int = 1000

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return len(self.users) * self.memories + self.rounds * self.sessions * self.turns * len(LANES)

    @property
    def users(self) -> list[str]:
        """Who has the memories: another one in each round, for one session at a time and for many."""
        return [f"user-{lane}-{number}" for number in range(self.rounds) for lane in ("one", "many")]


FULL = Amounts()
QUICK = Amounts(rounds=1, sessions=2, turns=2, memories=30)


@dataclass(frozen=True, slots=True)
class Lane:
    """One way of calling.

    Args:
        mode: ``X-Memory-Mode``; None for the bare relay.
        at_once: Sessions at a time.
    """

    mode: str | None
    at_once: int = 1


@dataclass(frozen=True, slots=True)
class Relays:
    """What runs: the provider, and a bare relay and the product in front of it."""

    provider: Started
    bare: Started
    ours: Started


BARE, OFF, READ, ON = Lane(None), Lane("off"), Lane("read"), Lane("on")
ON_AT_ONCE = Lane("on", _AT_ONCE)
LANES = (BARE, OFF, READ, ON, ON_AT_ONCE)


@dataclass
class Passed:
    """What one lane's calls of one round cost.

    Args:
        cpu_ms: Of the relay, per call.
        redis_ms: Of the embedded Valkey, per call.
        answers: All of them.
    """

    cpu_ms: float
    redis_ms: float
    answers: list[Answered] = field(default_factory=list)

    def wall_ms(self, share: float) -> float:
        """A percentile of the latency."""
        return 1000 * percentile([one.wall_s for one in self.answers], share)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure what memory costs a chat."""
    with relays(run, amounts.users, amounts.memories) as started:
        return compare(run, amounts, started)


def compare(run: Run, amounts: Amounts, started: Relays) -> Section:
    """`measure`, with relays that run already and have the memories of `amounts.users`."""
    found = asyncio.run(_rounds(run, amounts, started.bare, started.ours))
    return _section(found, amounts, complaints(started.ours))


@contextmanager
def relays(run: Run, users: Sequence[str], memories_each: int) -> Iterator[Relays]:
    """Start a bare relay and the product in front of one provider.

    Args:
        run: The bench's surroundings.
        users: Who has memories.
        memories_each: How many each of them has.
    """
    fill_scopes(run, users, memories_each)
    with (
        provider_and_bare_relay(run.folder) as (provider, bare),
        product(run.folder, provider.address, run.settings) as ours,
    ):
        yield Relays(provider, bare, ours)


def fill_scopes(run: Run, users: Sequence[str], memories_each: int) -> None:
    """Give users memories, before the product starts: `memories` of as many, seeded with the user's place."""
    embedder = open_embedder()
    with open_store(run.folder / "data", embedder) as store:
        for number, user in enumerate(users):
            fill(store, embedder, Scope(TENANT, user), memories(memories_each, seed=number), run.step)


def complaints(ours: Started) -> list[str]:
    """A note on what the product logged meanwhile; none when all was well."""
    found = ", ".join(f"{event} {number}" for event, number in ours.complaints().most_common())
    return [f"the product complained: {found}."] if found else []


async def _rounds(run: Run, amounts: Amounts, bare: Started, ours: Started) -> dict[Lane, list[Passed]]:
    found: dict[Lane, list[Passed]] = {lane: [] for lane in LANES}
    calls = amounts.sessions * amounts.turns
    async with ChatClient() as client:
        for number in range(amounts.rounds):
            texts = iter(sayings(len(LANES) * (calls + _WARM_UP), seed=1000 + number))
            for lane in LANES:
                user = f"user-{'one' if lane.at_once == 1 else 'many'}-{number}"
                relay = bare if lane is BARE else ours
                # What happens once per process or scope is no part of a call's cost: imports, connections, vectors.
                warm = [next(texts) for _ in range(_WARM_UP)]
                await converse(client, relay, Caller(user, "read" if lane.mode else "off"), "warm", warm)
                talks = [
                    (f"{lane.mode}-{lane.at_once}-{index}", [next(texts) for _ in range(amounts.turns)])
                    for index in range(amounts.sessions)
                ]
                found[lane].append(await talk(client, relay, Caller(user, lane.mode or "off"), lane.at_once, talks))
                run.step(calls)
    return found


async def talk(
    client: ChatClient, relay: Started, caller: Caller, at_once: int, talks: Sequence[tuple[str, Sequence[str]]]
) -> Passed:
    """Hold some sessions, and count what they cost the relay; with memory on, write-back included.

    Args:
        client: Makes the calls.
        relay: Is called.
        caller: Whose sessions.
        at_once: How many of them at a time.
        talks: Their ids and what is said in them.
    """
    answers: list[Answered] = []
    waiting = iter(talks)

    async def work_off() -> None:
        for session, texts in waiting:
            answers.extend(await converse(client, relay, caller, session, texts))

    cpu_s, redis_s = relay.cpu_s(), relay.redis_cpu_s()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work_off())
    if caller.mode == "on":
        for answered in answers[-at_once:]:
            await client.written(relay.address, caller, answered.request_id)
    spent_s, redis_spent_s = relay.cpu_s() - cpu_s, relay.redis_cpu_s() - redis_s
    return Passed(1000 * spent_s / len(answers), 1000 * redis_spent_s / len(answers), answers)


async def converse(
    client: ChatClient, relay: Started, caller: Caller, session: str, texts: Sequence[str]
) -> list[Answered]:
    """One session: each call carries the whole conversation so far."""
    messages = [{"role": "system", "content": SYSTEM_PROMPT}]
    answers = []
    for text in texts:
        messages.append({"role": "user", "content": text})
        answered = await client.chat(relay.address, caller, session, messages)
        messages.append({"role": "assistant", "content": answered.text})
        answers.append(answered)
    return answers


def _section(found: dict[Lane, list[Passed]], amounts: Amounts, complained: Sequence[str]) -> Section:
    def cpu(lane: Lane) -> float:
        return median(one.cpu_ms for one in found[lane])

    def wall(lane: Lane, share: float) -> float:
        return median(one.wall_ms(share) for one in found[lane])

    figures = [
        Figure("CPU per chat, memory on, write-back included", "ms", cpu(ON), cpu(BARE), GOAL_ON_MS),
        Figure("CPU per chat, mode read (before the answer)", "ms", cpu(READ), cpu(BARE), GOAL_READ_MS),
        Figure("CPU per chat, mode off", "ms", cpu(OFF), cpu(BARE)),
        Figure(f"CPU per chat, memory on, {_AT_ONCE} sessions at once", "ms", cpu(ON_AT_ONCE), cpu(BARE)),
        Figure("CPU per chat of the embedded Valkey, memory on", "ms", median(one.redis_ms for one in found[ON])),
        *(
            Figure(f"latency {name}, {lane.mode}", "ms", wall(lane, share), wall(BARE, share))
            for lane in (OFF, READ, ON)
            for name, share in (("p50", 0.5), ("p95", 0.95))
        ),
    ]
    how = (
        f"{amounts.rounds} rounds of {amounts.sessions} sessions × {amounts.turns} turns per lane, zh and en, "
        f"{amounts.memories} memories in scope at the start of each round; baseline: a bare aiohttp relay."
    )
    return Section("Overhead per chat", how, figures, [*_notes(found), *complained])


def _notes(found: dict[Lane, list[Passed]]) -> list[str]:
    notes = []
    for lane in (READ, ON, ON_AT_ONCE):
        answers = [answered for one in found[lane] for answered in one.answers]
        statuses = ", ".join(
            f"{status} {number}" for status, number in Counter(a.status for a in answers).most_common()
        )
        injected = mean(answered.injected for answered in answers)
        many = f", {lane.at_once} at once" if lane.at_once > 1 else ""
        notes.append(f"{lane.mode}{many}: {injected:.1f} memories injected on average; status {statuses}.")
    return notes
