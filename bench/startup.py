"""How soon the product is ready, and how much memory it then takes, before any call has needed litellm.

The baseline is the bare relay: Python, uvloop and aiohttp with nothing in between.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.processes import Started, environment, free_port, provider_and_bare_relay, serve_command, stop
from bench.report import ROOT, Figure, Section
from bench.run import Run

GOAL_READY_S = 3.0
GOAL_RSS_MB = 250.0
_LOOK_AGAIN_S = 0.01
_PATIENCE_S = 60.0
_COMES_WITH_LITELLM = ("fastuuid",)
"""Compiled modules that importing litellm loads, and nothing of ours does."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How often both are started."""

    rounds: int = 5

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return self.rounds


FULL = Amounts()
QUICK = Amounts(rounds=1)


@dataclass(frozen=True, slots=True)
class _Start:
    ready_s: float
    ready_mb: float
    redis_mb: float


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Measure start-up time and resident memory."""
    ours, bare = [], []
    with provider_and_bare_relay(run.folder) as (provider, running):
        relay = [sys.executable, "-m", "bench.bare_relay", provider.address]
        for number in range(amounts.rounds):
            bare.append(_bare(relay))
            folder = run.folder / f"start-{number}"
            command = serve_command(folder, provider.address, run.settings)
            ours.append(_ours(command, folder / "log.jsonl"))
            run.step(1)
        bare_mb = running.rss_mb()
    figures = [
        Figure("exec to /readyz 200", "s", median(one.ready_s for one in ours), median(bare), GOAL_READY_S),
        Figure("RSS when ready", "MB", median(one.ready_mb for one in ours), bare_mb, GOAL_RSS_MB),
        Figure("RSS of the embedded Valkey", "MB", median(one.redis_mb for one in ours)),
    ]
    how = (
        f"{amounts.rounds} starts on an empty data folder, in turn with the bare relay's, once all is compiled "
        "(`make install`); no call was made, and no module that comes with litellm is loaded (looked up in /proc on "
        "Linux)."
    )
    return Section("Start-up and memory", how, figures)


def _bare(command: Sequence[str]) -> float:
    started = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            _until_ready(address, process)
            return time.perf_counter() - started
        finally:
            stop(process)


def _ours(command: Sequence[str], errors: Path) -> _Start:
    address = f"http://127.0.0.1:{free_port()}"
    port = address.rpartition(":")[2]
    with errors.open("wb") as log:
        started = time.perf_counter()
        with subprocess.Popen(
            [*command, "--port", port], cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=log
        ) as process:
            try:
                _until_ready(address, process)
                ready_s, me = time.perf_counter() - started, Started(address, process.pid, errors)
                _without_litellm(process.pid)
                return _Start(ready_s, me.rss_mb(), me.redis_rss_mb())
            finally:
                stop(process)


def _until_ready(address: str, process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    deadline = time.perf_counter() + _PATIENCE_S
    while time.perf_counter() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/readyz", timeout=_PATIENCE_S) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(_LOOK_AGAIN_S)
    raise RuntimeError("it did not become ready; try `sidemirror serve` by hand")


def _without_litellm(pid: int) -> None:
    maps = Path(f"/proc/{pid}/maps")
    if not maps.exists():
        return
    found = maps.read_text(encoding="utf-8")
    loaded = [name for name in _COMES_WITH_LITELLM if f"/{name}" in found]
    if loaded:
        raise RuntimeError(f"litellm seems to be loaded at start: {', '.join(loaded)} is in memory")
