"""What lies under the house: the data folder, the store, Redis, the embedder, the policies. Opened, and closed in turn.

In: a `Config`. Out: `Layers`. Whatever part of memory cannot start leaves the proxy relaying without it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from proxy.config import Config
from proxy.embed import opened
from proxy.errors import SidemirrorError, StoreUnavailable, WorkingMemoryUnavailable
from proxy.metrics import Metrics
from proxy.observe import answer_hash
from proxy.plugs import Embedder, Store, WorkingMemory
from proxy.policy.rules import PolicySet
from proxy.policy.watch import PolicyHolder
from proxy.store.dimension import remember
from proxy.store.directory_lock import FileLock
from proxy.store.embedded_redis import EmbeddedRedis
from proxy.store.showing import Showing
from proxy.store.sqlite import SqliteStore
from proxy.store.working import RedisWorkingMemory
from proxy.tokens import TokenCounter

log = structlog.get_logger(__name__)
_SECRET_BYTES = 32
_PATIENT_S = 1.0


@dataclass(frozen=True)
class Layers:
    """The parts that hold data.

    Args:
        policies: The live policy set, and its reloading.
        embedder: Text to vectors.
        store: Long-term layer.
        redis: The embedded server; None for one by URL.
        working: Working layer for the hot path: it gives up within recall's deadline.
        patient: The same for write-back and the memory API, where nobody's call waits.
        tokens: Counts tokens, of what is stored too.
    """

    policies: PolicyHolder
    embedder: Embedder
    store: Store
    redis: EmbeddedRedis | None
    working: WorkingMemory
    patient: WorkingMemory
    tokens: TokenCounter


def utc_now() -> datetime:
    """The clock: every other part is given it."""
    return datetime.now(UTC)


def open_layers(config: Config, stack: AsyncExitStack, metrics: Metrics, *, strict: bool) -> Layers:
    """Open everything, in the order in which it is closed backwards.

    Args:
        config: Settings.
        stack: Takes what must be closed.
        metrics: Counts reloads.
        strict: Refuse a damaged store.

    Raises:
        SidemirrorError: The data folder is taken or cannot be used, a policy file is wrong, or (strict) the store is.
    """
    _lock_data_dir(config, stack)
    policies = _hold_policies(config, metrics)
    embedder = stack.enter_context(opened(config))
    tokens = TokenCounter()
    store = _open_store(config, embedder, tokens, stack, strict=strict)
    redis = _start_redis(config, stack)
    # Within the deadline of recall, and with time left in it for the other layers.
    working = _connect(config, policies.current, redis, timeout_s=0.6 * config.recall.deadline_ms / 1000)
    stack.callback(working.close)
    # A moment's delay of Redis must not cost write-back a slot.
    patient = working.with_timeout(_PATIENT_S)
    stack.callback(patient.close)
    return Layers(policies, embedder, store, redis, working, patient, tokens)


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
            # Under another name until it is whole: a half-written secret would lock everybody out.
            half = path.with_name("secret.tmp")
            with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(secrets.token_bytes(_SECRET_BYTES))
                file.flush()
                os.fsync(file.fileno())
            half.replace(path)
        secret = path.read_bytes()
    except OSError as error:
        raise SidemirrorError(f"{path} cannot be used: {error.strerror or error}; check the data folder") from error
    if len(secret) != _SECRET_BYTES:
        raise SidemirrorError(f"{path} is damaged; restore it from a backup: tenants of provider keys hang on it")
    return secret


def _open_store(
    config: Config, embedder: Embedder, tokens: TokenCounter, stack: AsyncExitStack, *, strict: bool
) -> Store:
    store = SqliteStore(
        config.data_dir / "sidemirror.db",
        fingerprint=embedder.fingerprint,
        dimension=embedder.dimension,
        answer_hash=answer_hash,
        exact_below=config.index.exact_below,
        clock=utc_now,
        shown=Showing(tokens.count, config.inject.max_item_chars),
    )
    stack.callback(store.close)
    sick = store.health()
    if sick is not None:
        log.error("store_unusable", hint=sick)
        if strict:
            raise StoreUnavailable(sick)
    remember(store, embedder)
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


def _connect(
    config: Config, policies: PolicySet, redis: EmbeddedRedis | None, *, timeout_s: float
) -> RedisWorkingMemory:
    retention = policies.retention
    url = redis.url if redis is not None else config.redis.url
    return RedisWorkingMemory(
        url,
        ttl_s=retention.working_ttl_s,
        max_items=retention.working_max_items,
        timeout_s=timeout_s,
        discard=None if redis is None else redis.discard_damaged,
    )


def _hold_policies(config: Config, metrics: Metrics) -> PolicyHolder:
    def changed(policies: PolicySet) -> None:
        metrics.policies_reloaded("ok")
        log.info("policies_reloaded", count=len(policies.triggers), policy_hash=policies.hash)

    def refused(error: str) -> None:
        metrics.policies_reloaded("refused")
        log.error("policy_reload_refused", hint=error)

    models = [model.name for model in config.models]
    return PolicyHolder(config.policies, models=models, on_change=changed, on_refused=refused)
