"""What memory does to a provider's prompt cache: scripted sessions with tool loops, edits and retries, and memory off.

Something is learnt in other sessions meanwhile, and must be there when it is asked for. The provider is `prompt_cache`.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import aiohttp
import orjson

from bench.filling import TENANT, fill, open_embedder, open_store
from bench.overhead import complaints
from bench.processes import Started, product
from bench.prompt_cache import BYTES_PER_TOKEN, CACHED_IN, Provider, Seen
from bench.report import Figure, Section
from bench.run import Run
from bench.texts import SYSTEM_PROMPT, memories, sayings
from proxy.inject import OPEN_MARK
from proxy.scope import Scope

GOAL_LOST_PERCENT = 1.0
LANES = ("off", "session", "system")
_AT_ONCE = 4
_DEADLINE_MS = 2_000
"""Not the shipped one: a machine that is busy with something else must not decide what is measured here."""
_WRITTEN_S = 60.0
_LOOK_AGAIN_S = 0.02
_TOLD = (
    ("Remember that our caterer for the {topic} is {name}.", "Who is our caterer for the {topic}?"),
    ("记住，{topic}的场地订在{name}。", "{topic}的场地订在哪里？"),
)
_TOPICS = (("spring gala", "robotics fair", "chess open", "jazz night"), ("春茗晚宴", "机器人展", "象棋赛", "爵士之夜"))
_TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is said.

    Args:
        sessions: In each lane.
        turns: Of each session.
        memories: That each user has before.
    """

    sessions: int = 50
    turns: int = 12
    memories: int = 40

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return len(LANES) * self.sessions


FULL = Amounts()
QUICK = Amounts(sessions=2, turns=6, memories=20)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a script.

    Args:
        text: What the user says.
        told: Said in another session before it; None for nothing.
        name: What the answer to the question for it must know.
        tool: Whether the model calls a tool.
        again: Whether the client sends the same request twice.
        edits: Whether the user takes the turn before back, and says this in its place.
    """

    text: str
    told: str | None = None
    name: str = ""
    tool: bool = False
    again: bool = False
    edits: bool = False


def script(number: int, turns: int) -> list[Turn]:
    """A session's turns; the same in each lane."""
    choose = random.Random(number)
    texts = sayings(turns, seed=1_000 + number)
    found = []
    for at, text in enumerate(texts):
        if at % 4 == 3:  # something is learnt elsewhere in every fourth turn, and asked for
            language = (number + at // 4) % 2
            tells, asks = _TOLD[language]
            topic, name = f"{_TOPICS[language][at // 4 % 4]} {number}", f"{choose.choice(_NAMES)}{number}{at}"
            found.append(Turn(asks.format(topic=topic), tells.format(topic=topic, name=name), name))
        else:
            found.append(Turn(text, tool=at % 5 == 1, again=at % 6 == 4, edits=at % 6 == 2))
    return found


_NAMES = ("Kestrel", "Marlowe", "Juniper", "Corvus", "Halcyon")


class Talker:
    """Holds the sessions of one lane.

    Args:
        http: For the calls.
        address: Of the product.
        lane: Which.
        provider: Where they arrive.
    """

    def __init__(self, http: aiohttp.ClientSession, address: str, lane: str, provider: Provider) -> None:
        self._http, self._address, self._lane, self._provider = http, address, lane, provider

    async def hold(self, number: int, turns: Sequence[Turn]) -> None:
        """One session from its first turn to its last."""
        key, seed = f"Bearer sk-{self._lane}-{number}", 100 * number
        # Every other client names its session; the sessions of the others are found by what was said.
        session = f"s{number}" if number % 2 else None
        seen, messages = self._provider.seen[key], [{"role": "system", "content": SYSTEM_PROMPT}]
        starts: list[int] = []
        for turn in turns:
            if turn.told is not None:
                await self._tell(number, turn.told, f"e{number}-{len(starts)}")
            if turn.edits:
                del messages[starts.pop() :]
            starts.append(len(messages))
            messages.append({"role": "user", "content": turn.text})
            for forced in ([True] if turn.tool else []) + [False]:
                seed += 1
                for _ in range(1 + turn.again):
                    reply = await self._call(number, key, session, messages, seed, forced=forced)
                messages.append(reply)
                messages += [_result(call) for call in reply.get("tool_calls", ())]
            if turn.told is not None:
                seen.asked += 1
                seen.arrived += turn.name.encode() in _behind(seen.prompts[-1], turn.text)

    async def _tell(self, number: int, text: str, session: str) -> None:
        """Say something in another session, and wait until it is remembered."""
        key = f"Bearer sk-{self._lane}-{session}"
        await self._call(number, key, session, [{"role": "user", "content": text}], 1, forced=False, wait=True)

    async def _call(
        self, number: int, key: str, session: str | None, messages: Sequence[Mapping[str, Any]], seed: int, *,
        forced: bool, wait: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        headers = {"Authorization": key, "X-Memory-User": _user(self._lane, number)}
        headers |= {"X-Memory-Mode": "off" if self._lane == "off" else "on", "Content-Type": "application/json"}
        headers |= {"X-Memory-Session": session} if session is not None else {}
        choice = {"tool_choice": "required"} if forced else {}
        body = {"model": "scripted", "seed": seed, "tools": _TOOLS, **choice, "messages": messages}
        url = f"{self._address}/v1/chat/completions"
        async with self._http.post(url, data=orjson.dumps(body), headers=headers) as response:
            response.raise_for_status()
            said = response.headers
            reply: dict[str, Any] = orjson.loads(await response.read())["choices"][0]["message"]
        if (status := said["X-Memory-Status"]) not in ("ok", "off"):
            self._provider.seen[key].statuses.append(status)
        if wait and self._lane != "off":
            await self._written(said["X-Memory-Request-Id"], headers["X-Memory-User"])
        return reply

    async def _written(self, request_id: str, user: str) -> None:
        async with asyncio.timeout(_WRITTEN_S):
            while True:
                url = f"{self._address}/memory/requests/{request_id}"
                async with self._http.get(url, headers={"X-Memory-User": user}) as response:
                    if response.status == 200 and (await response.json())["written"]["status"] == "done":
                        return
                await asyncio.sleep(_LOOK_AGAIN_S)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure how much of each prompt repeats the one before it."""
    return asyncio.run(_measure(run, amounts))


async def _measure(run: Run, amounts: Amounts) -> Section:
    provider, metrics, complained = Provider(), dict[str, Mapping[str, float]](), list[str]()
    async with provider.serving():
        for placement, lanes in (("session", ("off", "session")), ("system", ("system",))):
            with _running(run, amounts, placement, lanes, provider.address) as started:
                for lane in lanes:
                    await _lane(run, amounts, started, lane, provider)
                metrics[placement] = await _usage(started.address)
                complained += complaints(started)
    return _section(provider, amounts, metrics, complained)


@contextmanager
def _running(
    run: Run, amounts: Amounts, placement: str, lanes: Sequence[str], upstream: str
) -> Iterator[Started]:  # fmt: skip
    folder = Path(run.folder, placement)
    embedder = open_embedder()
    with open_store(folder / "data", embedder) as store:
        for lane in lanes:
            for number in range(amounts.sessions):
                scope = Scope(TENANT, _user(lane, number))
                fill(store, embedder, scope, memories(amounts.memories, seed=number), lambda _: None)
    settings = {"inject": {"placement": placement}, "recall": {"deadline_ms": _DEADLINE_MS}, **run.settings}
    with product(folder, upstream, settings) as started:
        yield started


async def _lane(run: Run, amounts: Amounts, started: Started, lane: str, provider: Provider) -> None:
    waiting = iter(range(amounts.sessions))

    async def work_off(http: aiohttp.ClientSession) -> None:
        talker = Talker(http, started.address, lane, provider)
        for number in waiting:
            await talker.hold(number, script(number, amounts.turns))
            run.step(1)

    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work_off(http))


async def _usage(address: str) -> dict[str, float]:
    """Tokens that the product counted, by kind and whether memory was on."""
    async with aiohttp.ClientSession() as http, http.get(f"{address}/metrics") as response:
        text = await response.text()
    lines = re.findall(r'^sidemirror_usage_tokens_total\{kind="(\w+)",memory="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {f"{kind} {memory}": float(value) for kind, memory, value in lines}


def _section(
    provider: Provider, amounts: Amounts, metrics: Mapping[str, Mapping[str, float]], complained: Sequence[str]
) -> Section:
    by_lane = {
        lane: [provider.seen[f"Bearer sk-{lane}-{number}"] for number in range(amounts.sessions)] for lane in LANES
    }
    repeated = {lane: 100 * mean(share for one in seen for share in one.repeated()) for lane, seen in by_lane.items()}
    extended = {lane: 100 * mean(share for one in seen for share in one.extended()) for lane, seen in by_lane.items()}
    cached = {lane: 100 * _cached_share(seen) for lane, seen in by_lane.items()}
    figures = []
    for lane in LANES[1:]:
        goal = GOAL_LOST_PERCENT if lane == "session" else None
        lost = 100 * (1 - repeated[lane] / repeated["off"])
        figures += [
            Figure(f"{lane}: share of a prompt that repeats the one before, lost against off", "%", lost, None, goal),
            Figure(f"{lane}: share of a prompt that repeats the one before", "%", repeated[lane], repeated["off"]),
            Figure(f"{lane}: share of a prompt that the next one begins with", "%", extended[lane], extended["off"]),
            Figure(f"{lane}: prompt tokens that the provider had cached", "%", cached[lane], cached["off"]),
        ]
    asked = sum(one.asked for one in by_lane["session"])
    arrived = {lane: sum(one.arrived for one in seen) for lane, seen in by_lane.items()}
    figures.append(Figure("learnt elsewhere, not there when asked for", "", asked - arrived["session"], None, 0))
    how = (
        f"{amounts.sessions} sessions of {amounts.turns} turns in each lane, the same words in all, with tool loops, "
        f"edits and retries; each user has {amounts.memories} memories before, and in every fourth turn says something "
        f"in another session that is then asked for. Baseline: memory off. Cached tokens: what a prompt has in common "
        f"with an earlier one of its session, in steps of {CACHED_IN} tokens of {BYTES_PER_TOKEN} bytes."
    )
    notes = [
        f"There when asked for: {arrived['session']} of {asked} as pieces behind the question (session); system has "
        f"them in the system prompt, and {arrived['system']} behind it.",
        *(f"/metrics, {name}: {_listed(found)}." for name, found in metrics.items()),
        *complained,
    ]
    odd = [status for seen in by_lane.values() for one in seen for status in one.statuses]
    return Section("Prompt caches", how, figures, notes + ([f"{len(odd)} calls: {sorted(set(odd))}."] if odd else []))


def _listed(counted: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {value:.0f}" for kind, value in sorted(counted.items()))


def _cached_share(seen: Sequence[Seen]) -> float:
    return sum(sum(one.cached) for one in seen) / sum(
        len(prompt) // BYTES_PER_TOKEN for one in seen for prompt in one.prompts
    )


def _behind(prompt: bytes, text: str) -> bytes:
    """What stands behind a user's words in a prompt; empty where nothing does."""
    contents = [orjson.loads(line)["content"] for line in prompt.split(b"\n")]
    held = next((one for one in reversed(contents) if isinstance(one, str) and one.startswith(text)), "")
    return held.partition(OPEN_MARK)[2].encode()


def _user(lane: str, number: int) -> str:
    return f"{lane}-{number}"


def _result(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "content": '{"state": "green", "build": 7}'}
