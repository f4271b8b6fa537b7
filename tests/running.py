"""The product as a user starts it: `python -m proxy serve` in a process of its own, on a free port."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import openai

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
START_S = 30.0


def eventually(probe: Callable[[], T], *, within_s: float = 10.0) -> T:
    """Ask until the answer is truthy, and return it; the condition, not the clock, ends the wait."""
    deadline = time.monotonic() + within_s
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come true within {within_s} s: {probe}")
        time.sleep(0.01)


@dataclass
class Running:
    """A running Sidemirror."""

    address: str
    process: subprocess.Popen[str]
    data: Path
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def client(self, key: str = "sk-test", **headers: str) -> openai.OpenAI:
        """An unmodified openai client; headers by their names with underscores."""
        named = {f"X-Memory-{name.title()}": value for name, value in headers.items()}
        return openai.OpenAI(base_url=f"{self.address}/v1", api_key=key, default_headers=named, max_retries=0)

    def http(self, user: str | None = None, **headers: str) -> httpx.Client:
        """A plain HTTP client."""
        named = {f"X-Memory-{name.title()}": value for name, value in headers.items()}
        if user is not None:
            named["X-Memory-User"] = user
        # There is no TLS on loopback, and reading the certificates takes longer than most calls.
        return httpx.Client(base_url=self.address, headers=named, timeout=30, verify=False)

    def ledger(self, request_id: str, user: str) -> dict[str, Any]:
        """The account of a call, once its memories are written."""
        with self.http(user) as http:

            def written() -> dict[str, Any] | None:
                response = http.get(f"/memory/requests/{request_id}")
                body: dict[str, Any] = response.json()
                if response.status_code != 200 or body["written"]["status"] == "queued":
                    return None
                # On a busy machine the journal may miss the answer's end, and go on in the background.
                return None if "not on disk within" in body["written"].get("reason", "") else body

            found = eventually(written)
            assert found is not None
            return found

    def records(self, user: str, **query: str) -> list[dict[str, Any]]:
        """The user's records, newest first."""
        data: list[dict[str, Any]] = []
        page: dict[str, str] = {}
        with self.http(user) as http:
            while True:
                response = http.get("/memory/records", params={"limit": "500", **query, **page})
                response.raise_for_status()
                body = response.json()
                data += body["data"]
                if body["next_cursor"] is None:
                    return data
                page = {"cursor": body["next_cursor"]}

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def running(
    folder: Path,
    *,
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    args: tuple[str, ...] = (),
) -> Iterator[Running]:
    """Start the product, and end it.

    Args:
        folder: Holds config.yaml and data; kept from one start to the next.
        config: Written to config.yaml (JSON is YAML).
        env: More environment variables.
        args: More arguments to `serve`.
    """
    process = _start(folder, config, env, args)
    product = Running("", process, folder / "data")
    readers = [
        threading.Thread(target=_read, args=(process.stdout, product.lines), daemon=True),
        threading.Thread(target=_read, args=(process.stderr, product.errors), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        product.address = _address(product)
        yield product
    finally:
        if process.poll() is None:
            product.stop()
        for reader in readers:
            reader.join(5)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def refused_start(
    folder: Path,
    *,
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    args: tuple[str, ...] = (),
) -> tuple[int, str]:
    """Start the product in vain; its exit status, and what it said on stderr. Arguments as for `running`."""
    process = _start(folder, config, env, args)
    try:
        _, said = process.communicate(timeout=START_S)
    finally:
        process.kill()
    return process.returncode, said


def _start(
    folder: Path, config: Mapping[str, Any] | None, env: Mapping[str, str] | None, args: tuple[str, ...]
) -> subprocess.Popen[str]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(json.dumps({"data_dir": "data", **(config or {})}), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SIDEMIRROR__")}
    return subprocess.Popen(
        [sys.executable, "-m", "proxy", "serve", "--config", str(path), "--port", "0", *args],
        cwd=ROOT,
        env={**environment, "PYTHONUNBUFFERED": "1", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _address(product: Running) -> str:
    def found() -> str | None:
        if product.process.poll() is not None:
            raise AssertionError("it did not start:\n" + "".join(product.errors))
        match = re.search(r"base URL\s+(http://\S+)/v1", "".join(product.lines))
        return match.group(1) if match else None

    address = eventually(found, within_s=START_S)
    assert address is not None
    return address


def _read(pipe: Any, lines: list[str]) -> None:
    for line in pipe:
        lines.append(line)
