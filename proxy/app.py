"""Composition root: builds the house from a `Config`, runs it, and takes it down again in the opposite order.

Everything that starts here also stops here. Whatever part of memory cannot start leaves the proxy relaying without it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web

from proxy.auth import SINGLE_TENANT, Doorkeeper
from proxy.backup.create import Origin
from proxy.backup.daily import DailyBackup
from proxy.config import Config
from proxy.embed import open_embedder
from proxy.errors import SidemirrorError, StoreError, StoreUnavailable, WorkingMemoryUnavailable
from proxy.http.chat import ChatDoor
from proxy.http.gate import Gate
from proxy.http.health import HealthDoor
from proxy.http.memory_api import MemoryApi
from proxy.http.relay import RawDoor
from proxy.http.server import application, runner
from proxy.http.translated import TranslatedAnswers
from proxy.library import Library
from proxy.metrics import Metrics
from proxy.observe import answer_hash
from proxy.pipeline import Pipeline
from proxy.plugs import Embedder, Store, WorkingMemory
from proxy.policy.match import evaluate
from proxy.policy.rules import PolicySet
from proxy.policy.watch import PolicyHolder
from proxy.prepare import Preparation
from proxy.provider import Providers
from proxy.recall import Recall
from proxy.record import Recorder
from proxy.remember import Remember
from proxy.routes import Routes
from proxy.scope import Scope
from proxy.store.data_dir import address_known
from proxy.store.directory_lock import FileLock
from proxy.store.embedded_redis import EmbeddedRedis
from proxy.store.sqlite import SqliteStore
from proxy.store.working import RedisWorkingMemory
from proxy.tokens import TokenCounter
from proxy.translate import Translated
from proxy.types import Event
from proxy.upstream import Upstream
from proxy.worker import Worker

log = structlog.get_logger(__name__)
_THREADS = 8
_SECRET_BYTES = 32
_DRAIN_S = 5.0
_PATIENT_S = 1.0
_SHUTDOWN_S = 10.0


def utc_now() -> datetime:
    """The clock: every other part is given it."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class House:
    """The running parts, as the doors and tests see them."""

    config: Config
    store: Store
    working: WorkingMemory
    embedder: Embedder
    policies: PolicyHolder
    pipeline: Pipeline
    worker: Worker
    backups: DailyBackup | None
    metrics: Metrics
    app: web.Application

    def degraded(self) -> list[tuple[str, str]]:
        """What does not work now, as short names with a sentence each."""
        found = []
        if (sick := self.store.health()) is not None:
            found.append(("store", sick))
        if not self.working.healthy():
            found.append(("working-memory", "Redis does not answer; session slots are left out until it does"))
        if self.policies.error is not None:
            found.append(("policies", self.policies.error))
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
                    await house.worker.drain()


@asynccontextmanager
async def building(config: Config, *, strict: bool = False, config_file: Path | None = None) -> AsyncIterator[House]:
    """Build all parts and run their background work; take them down at the end."""
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        _lock_data_dir(config, stack)
        metrics = Metrics()
        passthrough = config.auth.mode == "passthrough"
        policies = _hold_policies(config, metrics)
        embedder = open_embedder(config.embedding.provider, config.embedding.model)
        store = _open_store(config, embedder, stack, strict=strict)
        redis = _start_redis(config, stack)
        # Within the deadline of recall, and with time left in it for the other layers.
        working = _connect(config, policies.current, redis, timeout_s=0.6 * config.recall.deadline_ms / 1000)
        stack.callback(working.close)
        # Nobody waits for write-back: a moment's delay of Redis must not cost it a slot.
        patient = working.with_timeout(_PATIENT_S)
        stack.callback(patient.close)
        threads = stack.enter_context(ThreadPoolExecutor(_THREADS, thread_name_prefix="memory"))
        openai = await stack.enter_async_context(
            Upstream(config.upstream.base_url, _secret(config), forwards_key=passthrough)
        )
        anthropic = await stack.enter_async_context(
            Upstream(f"{config.upstream.anthropic_base_url}/v1", None, forwards_key=passthrough)
        )
        gate = Gate(
            Doorkeeper(config.auth, install_secret(config.data_dir)),
            config.server.allowed_hosts,
            config.identity.default_user if passthrough else None,
        )
        tokens = TokenCounter()
        remember = Remember(
            store,
            patient,
            embedder,
            lambda: policies.current,
            tokens.count,
            utc_now,
            metrics,
            idle_s=config.session.idle_s,
        )
        worker = Worker(store, remember.turn, metrics)
        stack.callback(worker.close)
        group = await stack.enter_async_context(_background())
        recall = Recall(store, working, embedder, config.recall, metrics)
        preparation = Preparation(config, store, working, recall, lambda: policies.current, tokens)
        pipeline = Pipeline(
            config, preparation, lambda: policies.current, utc_now, metrics, threads, Routes(config.models)
        )
        recorder = Recorder(
            store,
            preparation,
            lambda: policies.current,
            config.inject.placement,
            worker.submit,
            metrics,
            threads,
            group.spawn,
        )
        memory_api = MemoryApi(
            store=store,
            working=patient,
            recall=recall,
            remember=remember,
            failure=recorder.failure,
            policies=lambda: policies.current,
            clock=utc_now,
            metrics=metrics,
            threads=threads,
            gate=gate,
        )
        max_body_bytes = config.server.max_body_mb * 2**20
        library = Library()
        providers = await stack.enter_async_context(Providers(library, forwards_key=passthrough))
        translated = TranslatedAnswers(Translated(library), recorder, metrics, forwards_key=passthrough)
        chat = ChatDoor(pipeline, recorder, openai, providers, translated, metrics, gate)
        raw = RawDoor(openai, anthropic, gate, max_body_bytes)
        house: House
        health = HealthDoor(
            lambda: house.degraded(),
            lambda: not stop.is_set(),
            metrics,
            # Who watches over us must get an answer also when every other thread is stuck.
            stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="health")),
            # With keys the port may be open to others than the owner.
            shows_details=config.auth.is_open,
        )
        routes = [*chat.routes(), *memory_api.routes(), *health.routes(), *raw.routes()]
        app = application(routes, max_body_bytes=max_body_bytes)
        backups = _daily_backup(config, config_file, redis, metrics)
        house = House(config, store, working, embedder, policies, pipeline, worker, backups, metrics, app)
        group.service(worker.run())
        if backups is not None:
            group.service(backups.run())
        group.service(policies.watch(stop))
        if redis is not None:
            group.service(redis.supervise(stop))
        await asyncio.to_thread(_warm_up, recall, policies.current)
        group.spawn(asyncio.to_thread(tokens.warm))
        if config.models:
            group.spawn(library.warm())
        try:
            yield house
        finally:
            stop.set()


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


def _lock_data_dir(config: Config, stack: AsyncExitStack) -> None:
    try:
        config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(config.data_dir / "lock")
        taken = lock.acquire()
    except OSError as error:
        raise SidemirrorError(
            f"the data folder {config.data_dir} cannot be used: {error.strerror or error}; choose another with --data"
        ) from error
    if not taken:
        raise SidemirrorError(
            f"another Sidemirror works on {config.data_dir}; stop it, or choose another folder with --data"
        )
    stack.callback(lock.release)


def install_secret(data_dir: Path) -> bytes:
    """This installation's secret, made at the first start; provider keys become tenants with it.

    Raises:
        SidemirrorError: It cannot be read or written, or is damaged.
    """
    path = data_dir / "secret"
    try:
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_SECRET_BYTES))
                file.flush()
                os.fsync(file.fileno())
        secret = path.read_bytes()
    except OSError as error:
        raise SidemirrorError(f"{path} cannot be used: {error.strerror or error}; check the data folder") from error
    if len(secret) != _SECRET_BYTES:
        raise SidemirrorError(f"{path} is damaged; restore it from a backup: tenants of provider keys hang on it")
    return secret


def _open_store(config: Config, embedder: Embedder, stack: AsyncExitStack, *, strict: bool) -> Store:
    store = SqliteStore(
        config.data_dir / "sidemirror.db",
        fingerprint=embedder.fingerprint,
        dimension=embedder.dimension,
        answer_hash=answer_hash,
        exact_below=config.index.exact_below,
        clock=utc_now,
    )
    stack.callback(store.close)
    sick = store.health()
    if sick is not None:
        log.error("store_unusable", hint=sick)
        if strict:
            raise StoreUnavailable(sick)
    return store


def _start_redis(config: Config, stack: AsyncExitStack) -> EmbeddedRedis | None:
    """Start the embedded server, on the main thread: on Linux it dies with the thread that started it."""
    if config.redis.url != "embedded":
        return None
    server = EmbeddedRedis(config.data_dir)
    stack.callback(server.stop)
    try:
        server.start()
    except WorkingMemoryUnavailable as error:
        log.error("embedded_redis_not_started", hint=str(error))
    return server


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


def _connect(config: Config, policies: PolicySet, redis: EmbeddedRedis | None, *, timeout_s: float) -> RedisWorkingMemory:
    retention = policies.retention
    url = redis.url if redis is not None else config.redis.url
    return RedisWorkingMemory(
        url,
        ttl_s=retention.working_ttl_s,
        max_items=retention.working_max_items,
        timeout_s=timeout_s,
    )


def _secret(config: Config) -> str | None:
    return None if config.upstream.api_key is None else config.upstream.api_key.get_secret_value()


def _hold_policies(config: Config, metrics: Metrics) -> PolicyHolder:
    def changed(policies: PolicySet) -> None:
        metrics.policies_reloaded("ok")
        log.info("policies_reloaded", count=len(policies.triggers), policy_hash=policies.hash)

    def refused(error: str) -> None:
        metrics.policies_reloaded("refused")
        log.error("policy_reload_refused", hint=error)

    return PolicyHolder(config.policies, on_change=changed, on_refused=refused)


class _Background:
    """Background tasks with an owner: services run until the end, jobs until they are done."""

    def __init__(self) -> None:
        self._jobs: set[asyncio.Task[Any]] = set()
        self._services: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a job; its failure is logged and stays its own."""
        return self._start(work, self._jobs)

    def service(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a service; it is cancelled at the end."""
        return self._start(work, self._services)

    async def close(self) -> None:
        """Let jobs end (they are short), then cancel the services."""
        if self._jobs:
            await asyncio.wait(self._jobs, timeout=_DRAIN_S)
        tasks = [*self._jobs, *self._services]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, Any], among: set[asyncio.Task[Any]]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(_report)
        return task


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background_task_failed", error_type=type(error).__name__, exc_info=error)


@asynccontextmanager
async def _background() -> AsyncIterator[_Background]:
    group = _Background()
    try:
        yield group
    finally:
        await group.close()


__all__: Sequence[str] = ["House", "building", "serving", "utc_now"]
