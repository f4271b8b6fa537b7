"""What must be asked: Redis, the providers, the port, and the proxy if it runs.

In: settings. Out: findings. The embedded Redis is tried on a copy of its files, so that nothing of them changes.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import SecretStr

from proxy.config import Config
from proxy.doctor.finding import Finding, Status
from proxy.errors import SidemirrorError, WorkingMemoryUnavailable
from proxy.store.data_dir import REDIS, living_address, living_redis
from proxy.store.embedded_redis import EmbeddedRedis
from proxy.store.redis_url import shown
from proxy.store.working_copy import connected

_ANSWER_S = 5.0
_AOF = "appendonlydir"
_TRIAL = ("sidemirror:health", 1)


def redis(config: Config, *, proxy_runs: bool) -> Finding:
    """Whether working memory's Redis answers and takes writes.

    Args:
        config: Settings.
        proxy_runs: Whether a proxy should be running the embedded one.
    """
    try:
        if config.redis.url != "embedded":
            return _asked(config.redis.url, shown(config.redis.url))
        if proxy_runs:
            url = living_redis(config.data_dir)
            if url is None:
                advice = "the proxy starts it again by itself; else look at redis/server.log in the data folder"
                return Finding("redis", "broken", "the embedded server does not answer", advice)
            return _asked(url, "embedded")
        return _tried(config.data_dir)
    except WorkingMemoryUnavailable as error:
        return Finding("redis", "broken", str(error), "check that it runs and that redis.url is right")
    except SidemirrorError as error:
        return Finding("redis", "broken", str(error))


def _asked(url: str, name: str) -> Finding:
    with connected(url) as client:
        key, value = _TRIAL
        client.set(key, value, px=1000)
        info: Any = client.info()
    make = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info.get('redis_version')}"
    used = f"{name}: {make}, {int(info.get('used_memory', 0)) / 2**20:.0f} MB in use"
    if info.get("aof_enabled") and info.get("aof_last_write_status") != "ok":
        return Finding("redis", "warning", f"{used}; its last write to disk failed", "free disk space, see its log")
    return Finding("redis", "ok", f"{used}, takes writes")


def _tried(data_dir: Path) -> Finding:
    with tempfile.TemporaryDirectory(prefix="sidemirror-doctor-") as folder:
        trial = Path(folder)
        if (data_dir / REDIS / _AOF).is_dir():
            shutil.copytree(data_dir / REDIS / _AOF, trial / REDIS / _AOF)
        server = EmbeddedRedis(trial)
        server.start()
        try:
            found = _asked(server.url, "embedded")
        finally:
            server.stop()
        if list((trial / REDIS).glob("damaged-*")):
            message = f"the append-only file in {data_dir / REDIS} cannot be read"
            advice = "the next start sets it aside, and working memory starts empty; nothing else is lost"
            return Finding("redis", "warning", message, advice)
    return found


def port(config: Config, *, proxy_runs: bool) -> Iterator[Finding]:
    """Whether the port is free for us, or answers as us."""
    host, number = config.server.host, config.server.port
    if proxy_runs:
        yield from asyncio.run(_ask_proxy(living_address(config.data_dir)))
        return
    if number == 0:
        yield Finding("port", "ok", f"{host}: the system chooses one")
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, number))
        except OSError as error:
            message = f"{host}:{number} cannot be listened on: {error.strerror or error}"
            yield Finding("port", "broken", message, "stop what uses it, or choose another with server.port")
            return
    yield Finding("port", "ok", f"{host}:{number} is free")


async def _ask_proxy(address: str | None) -> Sequence[Finding]:
    if address is None:
        return [Finding("proxy", "warning", "it holds the data folder, but does not serve yet", "wait, or see its log")]
    # Whoever listens on every address is asked on this machine's own.
    asked = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    try:
        async with _session() as session, session.get(f"{asked}/readyz") as response:
            body = await response.json()
            degraded, details = list(body["degraded"]), body.get("details", {})
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError, KeyError) as error:
        return [Finding("proxy", "broken", f"{address} does not answer ({type(error).__name__})", "see its log")]
    if not degraded:
        return [Finding("proxy", "ok", f"runs at {address}, nothing is degraded")]
    return [
        Finding("proxy", "warning", f"{address} is degraded: {name}: {details.get(name, '')}", "see its log")
        for name in degraded
    ]


def upstreams(config: Config) -> Sequence[Finding]:
    """Whether the providers can be reached; an answer that asks for a key is one."""
    return asyncio.run(_ask_upstreams(config))


async def _ask_upstreams(config: Config) -> Sequence[Finding]:
    main = config.upstream
    asked: list[tuple[str, str, SecretStr | None, Status]] = [
        ("upstream", main.base_url, main.api_key, "broken"),
        # Many never call it: it is no fault of theirs when it cannot be reached.
        ("anthropic", f"{main.anthropic_base_url}/v1", None, "warning"),
    ]
    asked += [
        (f"model {model.name}", model.api_base, model.api_key, "broken") for model in config.models if model.api_base
    ]
    async with _session() as session:
        return await asyncio.gather(*(_ask(session, *one) for one in asked))


async def _ask(
    session: aiohttp.ClientSession, check: str, base: str, key: SecretStr | None, unreached: Status
) -> Finding:
    headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
    try:
        async with session.get(f"{base}/models", headers=headers, allow_redirects=False) as response:
            status = response.status
    except aiohttp.ClientConnectorCertificateError as error:
        advice = "set the clock, or install the certificate of the company that looks into TLS"
        return Finding(check, unreached, f"{base}: its certificate is refused: {error.certificate_error}", advice)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        return Finding(check, unreached, f"{base} cannot be reached: {reason}", "check the address and the network")
    if status in (401, 403):
        if key is not None:
            return Finding(check, "warning", f"{base} refuses our key ({status})", "check the api_key in the settings")
        return Finding(check, "ok", f"{base} answers; it wants a key, which clients send")
    if status >= 500:
        return Finding(check, "warning", f"{base} answers {status}", "the provider has trouble; try again later")
    if status == 404:
        return Finding(
            check, "warning", f"{base} answers, but has no /models", "check the end of the address, often /v1"
        )
    return Finding(check, "ok", f"{base} answers {status}")


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S))
