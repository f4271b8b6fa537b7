"""Composition root: builds the house from a `Config`, runs it, and takes it down again in the opposite order.

Everything that starts here also stops here. Whatever part of memory cannot start leaves the proxy relaying without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web

from proxy.api_embedder import ApiEmbedder
from proxy.assembly import Memory, assemble
from proxy.auth import SINGLE_TENANT, Doorkeeper
from proxy.backup.create import Origin
from proxy.backup.daily import DailyBackup
from proxy.config import Config
from proxy.errors import SidemirrorError, StoreError
from proxy.http.chat import ChatDoor
from proxy.http.gate import Gate
from proxy.http.health import HealthDoor
from proxy.http.mcp.door import McpDoor
from proxy.http.mcp.tools import Tools
from proxy.http.memory_api import Access, MemoryApi
from proxy.http.relay import RawDoor
from proxy.http.server import application, runner
from proxy.http.translated import TranslatedAnswers
from proxy.knowing import Knowing
from proxy.layers import Layers, install_secret, open_layers, utc_now
from proxy.library import Library
from proxy.metrics import Metrics
from proxy.policy.knowledge import Knowledge
from proxy.policy.match import evaluate
from proxy.policy.rules import PolicySet
from proxy.provider import Providers
from proxy.recall import Recall
from proxy.rehearsal import Rehearsal
from proxy.retelling import Retelling
from proxy.scope import Scope
from proxy.shelf import save_if_allowed
from proxy.store.data_dir import address_known
from proxy.store.embedded_redis import EmbeddedRedis
from proxy.transfer.importer import Importer
from proxy.translate import Translated
from proxy.types import Event
from proxy.upstream import Upstream

log = structlog.get_logger(__name__)
_API_THREADS = 4
_DRAIN_S = 5.0
_SHUTDOWN_S = 10.0


@dataclass
class House:
    """The running parts, as the doors and tests see them."""

    config: Config
    layers: Layers
    memory: Memory
    backups: DailyBackup | None
    metrics: Metrics
    app: web.Application = field(init=False)

    def degraded(self) -> list[tuple[str, str]]:
        """What does not work now, as short names with a sentence each."""
        found = []
        if (sick := self.layers.store.health()) is not None:
            found.append(("store", sick))
        if (waiting := self.layers.store.index_health()) is not None:
            found.append(("index", waiting))
        embedder = self.layers.embedder
        if isinstance(embedder, ApiEmbedder) and (silent := embedder.trouble()) is not None:
            found.append(("embedder", silent))
        if (unembedded := self.memory.reembedding.trouble()) is not None:
            found.append(("vectors", unembedded))
        if not self.layers.working.healthy():
            found.append(("working-memory", "Redis does not answer; session slots are left out until it does"))
        if self.layers.policies.error is not None:
            found.append(("policies", self.layers.policies.error))
        if self.backups is not None and (failed := self.backups.trouble()) is not None:
            found.append(("backup", failed))
        self.metrics.degraded([name for name, _ in found])
        return found


@asynccontextmanager
async def serving(config: Config, *, strict: bool = False, config_file: Path | None = None) -> AsyncIterator[str]:
    """Run the proxy.

    Args:
        config: Settings.
        strict: Refuse to start with a damaged store, instead of relaying without memory.
        config_file: Where the settings were read from; the daily backup takes it along.

    Yields:
        Its address, e.g. ``http://127.0.0.1:8080``.

    Raises:
        SidemirrorError: It cannot start; the message says why and what to do.
    """
    async with building(config, strict=strict, config_file=config_file) as house:
        web_runner = runner(house.app, shutdown_timeout_s=_SHUTDOWN_S)
        await web_runner.setup()
        try:
            site = web.TCPSite(web_runner, config.server.host, config.server.port)
            try:
                await site.start()
            except OSError as error:
                raise SidemirrorError(
                    f"cannot listen on {config.server.host}:{config.server.port}: {error.strerror or error}; "
                    "stop what uses the port, or choose another with --port"
                ) from error
            port = web_runner.addresses[0][1]
            address = f"http://{_callable_host(config.server.host)}:{port}"
            with address_known(config.data_dir, address):
                yield address
        finally:
            await web_runner.cleanup()
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await house.memory.drain()


@asynccontextmanager
async def building(config: Config, *, strict: bool = False, config_file: Path | None = None) -> AsyncIterator[House]:
    """Build all parts and run their background work; take them down at the end."""
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        metrics = Metrics()
        layers = open_layers(config, stack, metrics, strict=strict)
        library = Library()
        memory = await assemble(config, layers, library, metrics, stop, stack)
        backups = _daily_backup(config, config_file, layers.redis, metrics)
        house = House(config, layers, memory, backups, metrics)
        routes = await _routes(house, library, stop, stack)
        house.app = application(routes, max_body_bytes=config.server.max_body_mb * 2**20)
        for service in _services(house, stop):
            memory.group.service(service)
        await asyncio.to_thread(memory.tokens.warm)  # whoever is served meanwhile would wait for it
        await asyncio.to_thread(_warm_up, memory.recall, layers.policies.current)
        memory.group.spawn(_speed_up_next_start())
        if config.models:
            memory.group.spawn(library.warm())
        try:
            yield house
        finally:
            stop.set()


async def _routes(house: House, library: Library, stop: asyncio.Event, stack: AsyncExitStack) -> list[web.RouteDef]:
    """Every door's routes, the catch-all last."""
    config, memory, metrics = house.config, house.memory, house.metrics
    forwards_key = config.auth.mode == "passthrough"
    openai = await stack.enter_async_context(
        Upstream(config.upstream.base_url, _secret(config), forwards_key=forwards_key)
    )
    anthropic = await stack.enter_async_context(
        Upstream(f"{config.upstream.anthropic_base_url}/v1", None, forwards_key=forwards_key)
    )
    gate = Gate(
        Doorkeeper(config.auth, install_secret(config.data_dir)),
        config.server.allowed_hosts,
        config.identity.default_user if forwards_key else None,
    )
    providers = await stack.enter_async_context(Providers(library, forwards_key=forwards_key))
    translated = TranslatedAnswers(Translated(library), memory.recorder, metrics, forwards_key=forwards_key)
    chat = ChatDoor(memory.pipeline, memory.recorder, openai, providers, translated, metrics, gate)
    memory_api = MemoryApi(
        store=house.layers.store,
        working=house.layers.patient,
        recall=memory.recall,
        rehearsal=Rehearsal(memory.recall, config.inject, memory.tokens.count),
        remember=memory.remember,
        importer=Importer(
            house.layers.store,
            house.layers.embedder,
            lambda: house.layers.policies.current,
            memory.tokens.count,
            memory.remember.lock,
            utc_now,
        ),
        retelling=Retelling(
            house.layers.store,
            house.layers.patient,
            memory.remember,
            memory.life.ending,
            lambda: house.layers.policies.current,
            utc_now,
            config.identity.zone,
        ),
        end=memory.life.ending.end,
        drain=memory.drain,
        failure=memory.recorder.failure,
        policies=lambda: house.layers.policies.current,
        refused=lambda: house.layers.policies.error,
        knowledge=_knowledge(house.layers, memory),
        clock=utc_now,
        metrics=metrics,
        # Recalls that hang must not take the API's threads along.
        threads=stack.enter_context(ThreadPoolExecutor(_API_THREADS, thread_name_prefix="api")),
        gate=gate,
        access=Access(
            debug=config.debug,
            keyed=config.auth.mode == "keys",
            shows_details=config.auth.is_open,
            min_confidence=config.recall.min_confidence,
        ),
    )
    health = HealthDoor(
        house.degraded,
        lambda: not stop.is_set(),
        metrics,
        # Who watches over us must get an answer also when every other thread is stuck.
        stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="health")),
        # With keys the port may be open to others than the owner.
        shows_details=config.auth.is_open,
    )
    raw = RawDoor(openai, anthropic, gate, config.server.max_body_mb * 2**20)
    tools = Tools(
        house.layers.store,
        memory.recall,
        memory.remember,
        lambda: house.layers.policies.current,
        utc_now,
        config.identity.zone,
    )
    mcp = McpDoor(tools, gate, memory_api.threads)
    return [*chat.routes(), *mcp.routes(), *memory_api.routes(), *health.routes(), *raw.routes()]


def _knowledge(layers: Layers, memory: Memory) -> Callable[[Scope], Knowledge]:
    return lambda scope: Knowing(layers.store, layers.embedder, memory.value, scope)


def _services(house: House, stop: asyncio.Event) -> Iterator[Coroutine[Any, Any, Any]]:
    """What runs as long as the house stands."""
    yield house.memory.worker.run()
    yield house.layers.policies.watch(stop)
    yield from house.memory.life.services(stop)
    yield house.memory.reembedding.run(stop)
    if house.backups is not None:
        yield house.backups.run()
    if house.layers.redis is not None:
        yield house.layers.redis.supervise(stop)


def _daily_backup(
    config: Config, config_file: Path | None, redis: EmbeddedRedis | None, metrics: Metrics
) -> DailyBackup | None:
    settings = config.backup
    if settings.time is None:
        return None
    url = redis.url if redis is not None else config.redis.url
    origin = Origin(config.data_dir, url, config_file, config.policies)
    zone = config.identity.zone
    return DailyBackup(origin, settings.dir, settings.keep, settings.time, zone, utc_now, metrics)


def _callable_host(host: str) -> str:
    """The host to call: a wildcard address listens everywhere, but nobody can call it by that name."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - shown, not bound
    return f"[{shown}]" if ":" in shown else shown


def _warm_up(recall: Recall, policies: PolicySet) -> None:
    """Touch what the first recall needs (the model's pages, compiled patterns), or it would miss its deadline."""
    scope = Scope(SINGLE_TENANT, "warm-up")
    with suppress(StoreError):
        recall.search(scope, "What was it? 是什么来着？", now=utc_now(), policies=policies, top_k=1, filters=None)
    evaluate(policies, Event("user_message", "I like tea. 我喜欢茶。", "en", "user", utc_now()))


async def _speed_up_next_start() -> None:
    with suppress(OSError):  # an installation that may not be written to
        await asyncio.to_thread(save_if_allowed)


def _secret(config: Config) -> str | None:
    return None if config.upstream.api_key is None else config.upstream.api_key.get_secret_value()


__all__: Sequence[str] = ["House", "building", "serving", "utc_now"]
