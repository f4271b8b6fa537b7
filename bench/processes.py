"""The measured processes: the product, the bare relay and the provider, each by itself, with their CPU clocks.

In: what to start. Out: a `Started` with its address; it ends with the context.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.report import ROOT

_START_S = 60.0
_STOP_S = 20.0


@dataclass(frozen=True)
class Started:
    """A running process.

    Args:
        address: Where it serves.
        pid: Its id.
        log: What it wrote to stderr.
    """

    address: str
    pid: int
    log: Path

    def cpu_s(self) -> float:
        """CPU it has used so far, all threads, user and system, in seconds."""
        return cpu_s(self.pid)

    def redis_cpu_s(self) -> float:
        """CPU that its embedded Valkey has used so far."""
        return sum(cpu_s(child.pid) for child in self._redis())

    def rss_mb(self) -> float:
        """Its resident memory, in 10⁶ bytes."""
        return float(psutil.Process(self.pid).memory_info().rss) / 1e6

    def redis_rss_mb(self) -> float:
        """Resident memory of its embedded Valkey."""
        return sum(float(child.memory_info().rss) for child in self._redis()) / 1e6

    def complaints(self) -> Counter[str]:
        """What the product logged as a warning or an error, by event name: a figure taken meanwhile is worth little."""
        lines = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines() if line[:1] == "{"]
        return Counter(line["event"] for line in lines if line["level"] not in ("debug", "info"))

    def _redis(self) -> list[psutil.Process]:
        return [child for child in psutil.Process(self.pid).children() if "valkey" in child.name()]


def cpu_s(pid: int) -> float:
    """A process's CPU clock, in seconds: to the nanosecond on Linux, to the tick elsewhere."""
    if platform.system() == "Linux":
        return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) makes it
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@contextmanager
def product(folder: Path, upstream: str, settings: Mapping[str, Any]) -> Iterator[Started]:
    """The product as a user starts it, on a free port.

    Args:
        folder: Holds config.yaml and data.
        upstream: The provider's address.
        settings: More of config.yaml.
    """
    command = [*serve_command(folder, upstream, settings), "--port", "0"]
    with _started(command, re.compile(r"base URL\s+(http://\S+)/v1"), folder / "log.jsonl") as started:
        yield started


def serve_command(folder: Path, upstream: str, settings: Mapping[str, Any]) -> list[str]:
    """Write config.yaml into a folder, and say how the product is started with it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"data_dir": "data", "upstream": {"base_url": f"{upstream}/v1"}, **settings}
    path = folder / "config.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    return [sys.executable, "-m", "proxy", "serve", "--config", str(path)]


@contextmanager
def provider_and_bare_relay(folder: Path) -> Iterator[tuple[Started, Started]]:
    """The scripted provider, and a bare relay in front of it."""
    with server(folder, "provider") as provider, server(folder, "bare_relay", provider.address) as relay:
        yield provider, relay


@contextmanager
def server(folder: Path, module: str, *arguments: str) -> Iterator[Started]:
    """One of the bench's own servers, which tell their address by `bench.serving`.

    Args:
        folder: For its log.
        module: Its name in this package.
        arguments: What it is given.
    """
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    with _started(command, re.compile(r"(http://\S+)"), folder / f"{module}.log") as started:
        yield started


def free_port() -> int:
    """A port that was free a moment ago, for servers that cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """The environment of measured processes: the user's, without the product's settings; Python keeps byte code."""
    out = ("SIDEMIRROR__", "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(out)}
    return {**kept, "PYTHONUNBUFFERED": "1"}


@contextmanager
def _started(command: list[str], address: re.Pattern[str], errors: Path) -> Iterator[Started]:
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield Started(_address(process, address, errors), process.pid, errors)
        finally:
            stop(process)


def _address(process: subprocess.Popen[str], pattern: re.Pattern[str], errors: Path) -> str:
    assert process.stdout is not None
    impatient = threading.Timer(_START_S, process.kill)
    impatient.start()
    try:
        for line in process.stdout:
            if found := pattern.search(line):
                return found.group(1)
    finally:
        impatient.cancel()
    raise RuntimeError(f"{process.args!r} did not start:\n{errors.read_text(encoding='utf-8')[-2000:]}")


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process: politely first."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
