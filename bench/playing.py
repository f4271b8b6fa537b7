"""Plays scripted dialogues against the real product: the whole history each turn, tool loops, retries, days between.

The provider, the product and the players share one event loop; the product's clock is the play's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson
from aiohttp import web

from bench.backstage import Backstage
from bench.play_wire import KEY, Message, completion, request, tool_messages
from bench.playscript import ZONE
from bench.screenplay import Play, Reply, Scene, Turn
from proxy import app
from proxy.audit import Injected, suspects
from proxy.cli.client import MemoryClient, Target
from proxy.config import Override, load
from proxy.identity import USER
from proxy.types import Memory

_BETWEEN_CALLS = timedelta(seconds=40)
_WRITTEN_S = 30.0
_LOOK_AGAIN_S = 0.005
_RAISED = datetime(2026, 11, 1, tzinfo=UTC)
"""When the curtain rises: before every play."""


class PlayClock:
    """The time of the play: it goes on with every call, and jumps to the next sitting.

    Args:
        now: When it begins, aware.
    """

    def __init__(self, now: datetime) -> None:
        self._now = now.astimezone(UTC)

    def __call__(self) -> datetime:
        """Now, aware UTC."""
        return self._now

    def pass_time(self) -> None:
        """What lies between two calls."""
        self._now += _BETWEEN_CALLS

    def reach(self, moment: datetime) -> None:
        """Go on to a moment, unless it is past."""
        self._now = max(self._now, moment.astimezone(UTC))


@dataclass
class Provider:
    """A model provider that answers each key with what the player put there."""

    replies: dict[str, bytes] = field(default_factory=dict)

    async def chat(self, request: web.Request) -> web.Response:
        """Answer one chat call."""
        await request.read()
        key = request.headers["Authorization"].removeprefix("Bearer ")
        return web.Response(body=self.replies[key], content_type="application/json")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on a free port; yields the address."""
        routes = web.Application(client_max_size=2**26)
        routes.add_routes([web.post("/v1/chat/completions", self.chat)])
        runner = web.AppRunner(routes, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


@dataclass(frozen=True, slots=True)
class Kept:
    """One user's records after a play.

    Args:
        records: In every state.
        injected: What was injected into the calls that suspects came from.
    """

    records: tuple[Memory, ...]
    injected: Injected

    @property
    def active(self) -> list[Memory]:
        """Those in use."""
        return [memory for memory in self.records if memory.state in ("active", "pending")]


class Stage:
    """The product with a scripted provider behind it. Used with ``async with``.

    Args:
        folder: For its data.
        settings: More of config.yaml.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.clock = PlayClock(_RAISED)
        self.backstage = Backstage(self.clock)
        self._folder = folder
        self._settings = settings
        self._provider = Provider()
        self._stack = AsyncExitStack()
        self._address = ""
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(self._provider.serving())
            self._folder.mkdir(parents=True, exist_ok=True)
            given: dict[str, Any] = {
                "data_dir": str(self._folder / "data"),
                "upstream": {"base_url": f"{upstream}/v1"},
                "identity": {"timezone": ZONE.key},
                "server": {"port": 0},
                # A busy machine must not change what is recalled.
                "recall": {"deadline_ms": 5_000},
                **self._settings,
            }
            config = load(None, {}, [Override("replay", (name,), value) for name, value in given.items()])
            stack.enter_context(self.backstage.taken_over())
            self._address = await stack.enter_async_context(app.serving(config))
            self._http = await stack.enter_async_context(aiohttp.ClientSession())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def perform(self, play: Play, step: Callable[[int], object] = lambda _: None) -> None:
        """Play all scenes by time; those that begin together are played at the same time.

        Args:
            play: What to play.
            step: Told of each scene how many turns it had.
        """
        histories: dict[str, list[Message]] = {}

        async def enact(scene: Scene) -> None:
            history = histories.setdefault(scene.conversation, [])
            await _Player(self, scene, history).enact()
            step(len(scene.turns))

        for at, together in groupby(play.scenes, key=lambda scene: scene.at):
            await self.reach(at)
            await asyncio.gather(*map(enact, together))

    async def reach(self, moment: datetime) -> None:
        """Let time pass up to a moment: sessions that go idle meanwhile end, and sweeps run."""
        self.clock.reach(moment)
        await self.backstage.catch_up()

    async def kept(self, user: str) -> Kept:
        """What is remembered of a user, over the memory API."""
        async with MemoryClient(Target(self._address, user=user, agent="*")) as client:
            records = tuple([one async for one in client.records(state="all")])
            if any(not _RAISED < one.created_at <= self.clock() for one in records):
                raise RuntimeError("the product does not go by the play's clock: a part of it has one of its own")
            known = {one.id: one for one in records}
            used = [one for one in records if one.state in ("active", "pending")]
            injected = {
                request: [known[one] for one in await client.injected(request) if one in known]
                for request in sorted(suspects(used))
            }
        return Kept(records, injected)

    async def call(self, scene: Scene, messages: Sequence[Message], reply: Reply) -> None:
        """One request, until its memories are written."""
        self._provider.replies[KEY.format(scene.conversation)] = completion(reply)
        assert self._http is not None
        body, headers = request(scene, messages)
        async with self._http.post(
            f"{self._address}/v1/chat/completions", data=orjson.dumps(body), headers=headers
        ) as response:
            data = await response.read()
            if response.status != 200:
                raise RuntimeError(f"{scene.conversation} at {messages[-1]['content']!r}: {data[:300]!r}")
            status, request_id = response.headers["X-Memory-Status"], response.headers["X-Memory-Request-Id"]
        if status.startswith("degraded"):
            raise RuntimeError(f"memory was {status} in {scene.conversation}")
        await self._written(scene, request_id)

    async def _written(self, scene: Scene, request_id: str) -> None:
        assert self._http is not None
        url, headers = f"{self._address}/memory/requests/{request_id}", {USER: scene.user}
        status = ""
        async with asyncio.timeout(_WRITTEN_S):
            # An answer that misses the answer's end counts as failed only until it is on disk.
            while status != "done":
                async with self._http.get(url, headers=headers) as response:
                    if response.status == 404:  # a call that memory stays out of
                        return
                    status = (await response.json())["written"]["status"]
                if status != "done":
                    await asyncio.sleep(_LOOK_AGAIN_S)


class _Player:
    """Plays one scene.

    Args:
        stage: Where.
        scene: What.
        history: Of the conversation so far; grows.
    """

    def __init__(self, stage: Stage, scene: Scene, history: list[Message]) -> None:
        self._stage = stage
        self._scene = scene
        self._history = history

    async def enact(self) -> None:
        """Play its turns, one after another."""
        for turn in self._scene.turns:
            self._history.append({"role": "user", "content": turn.said})
            for reply in turn.replies[:-1]:
                await self._call(reply)
                self._history += tool_messages(reply)
            await self._last(turn)
            if turn.background is not None:
                await self._in_background(*turn.background)

    async def _last(self, turn: Turn) -> None:
        reply = turn.replies[-1]
        if turn.again == "race":
            await asyncio.gather(self._call(reply), self._call(reply))
        else:
            await self._call(reply)
        if turn.again == "retry":
            await self._call(reply)
        if turn.again == "regenerate":
            reply = Reply(turn.instead)
            await self._call(reply)
        self._history.append({"role": "assistant", "content": reply.text})

    async def _in_background(self, prompt: str, answer: str) -> None:
        said = "\n".join(f"{one['role'].upper()}: {one['content']}" for one in self._history)
        messages = [{"role": "user", "content": prompt.replace("{history}", said)}]
        self._stage.clock.pass_time()
        await self._stage.call(self._scene, messages, Reply(answer))

    async def _call(self, reply: Reply) -> None:
        self._stage.clock.pass_time()
        leading = [{"role": "system", "content": self._scene.system}] if self._scene.system else []
        await self._stage.call(self._scene, [*leading, *self._history], reply)
