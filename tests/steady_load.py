"""A steady light load on the running product, and the account of it: every call answered, every memory there once.

In: a product. Out: what its clients met, checked to the byte; and what memory costs a call.
"""

from __future__ import annotations

import re
import secrets
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.running import Running, eventually
from tests.scripted import Lane, Received, Reply, chunk, completion, stream

WHOLE = completion("Noted.")
STREAMED = stream(chunk({"content": "Not"}), chunk({"content": "ed."}), chunk({}, finish="stop"))
SESSION = "steady"
_CLIENTS = 2
_PAIRS = 9
_PAUSE_S = 0.03
_SETTLE_S = 20.0


def answering(received: Received) -> Reply:
    """What the scripted provider says to every call of these tests."""
    return STREAMED if received.json.get("stream") else WHOLE


@dataclass(frozen=True)
class Said:
    """One call of the load: what it said, and what came of it."""

    marker: str
    request_id: str
    status: str


@dataclass
class Heard:
    """What the load's clients have met so far.

    Args:
        said: Calls, in order.
        kept: Markers of API writes answered 201.
        refused: Markers of those answered with an error.
        wrong: What no fault excuses.
        slowest_s: The slowest call.
    """

    said: list[Said] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def since(self, number: int) -> set[str]:
        """The statuses that calls got after the first `number`."""
        return {one.status for one in self.said[number:]}


class Client(threading.Thread):
    """One client of the load: talks, listens to streams and now and then writes through the API, until told to stop."""

    def __init__(
        self, product: Running, lane: Lane, user: str, heard: Heard, stop: threading.Event, *, writes: bool
    ) -> None:
        super().__init__(daemon=True)
        self._product = product
        self._writes = writes
        self._headers = {"Authorization": f"Bearer {lane.key}", "X-Memory-User": user, "X-Memory-Session": SESSION}
        self._heard = heard
        self._told = stop

    def run(self) -> None:
        """Work until stopped."""
        with self._product.http() as http:
            http.headers.update(self._headers)
            number = 0
            while not self._told.wait(_PAUSE_S):
                number += 1
                try:
                    self._write(http) if self._writes and number % 5 == 0 else self._talk(
                        http, streamed=number % 2 == 0
                    )
                except httpx.HTTPError as error:
                    self._heard.wrong.append(repr(error))

    def _talk(self, http: httpx.Client, *, streamed: bool) -> None:
        marker = f"m{secrets.token_hex(5)}"
        body = spoken(f"I collect {marker} and I fly to {marker}", stream=streamed)
        started = time.monotonic()
        response = http.post("/v1/chat/completions", json=body)
        self._heard.slowest_s = max(self._heard.slowest_s, time.monotonic() - started)
        wanted = b"".join((STREAMED if streamed else WHOLE).body)
        if (response.status_code, response.content) != (200, wanted):
            self._heard.wrong.append(f"{response.status_code} {response.text}")
            return
        self._heard.said.append(
            Said(marker, response.headers["X-Memory-Request-Id"], response.headers["X-Memory-Status"])
        )

    def _write(self, http: httpx.Client) -> None:
        marker = f"w{secrets.token_hex(5)}"
        response = http.post("/memory/records", json={"content": f"The cellar holds {marker}", "kind": "fact"})
        (self._heard.kept if response.status_code == 201 else self._heard.refused).append(marker)


def spoken(text: str, **more: Any) -> dict[str, Any]:
    """A request with one user message."""
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **more}


@contextmanager
def load(product: Running, lane: Lane, user: str, *, writes: bool = True) -> Iterator[Heard]:
    """A steady light load while the context lasts; at its end everything that was said is accounted for.

    Args:
        product: Where.
        lane: The provider's side of it.
        user: Who talks.
        writes: Whether the memory API is written to as well.
    """
    lane.default = answering
    heard, stop = Heard(), threading.Event()
    threads = [Client(product, lane, user, heard, stop, writes=writes) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield heard
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert heard.wrong == []
    settled(product, user, heard)


def settled(product: Running, user: str, heard: Heard) -> None:
    """Every call has its account, and what the account says is so: each memory is there once.

    Raises:
        AssertionError: Something acknowledged is missing, is there twice, or stays queued.
    """
    with product.http(user) as http:
        accounts = {one.marker: _account(http, one) for one in heard.said}
    stored = Counter(re.findall(r"\b[mw][0-9a-f]{10}\b", " ".join(_contents(product, user))))
    done = {marker: written for marker, written in accounts.items() if written["status"] == "done"}
    assert {marker: done.get(marker) for marker in [*done, *heard.kept] if stored[marker] != 1} == {}
    assert [marker for marker, count in stored.items() if count > 1] == []
    assert [marker for marker in heard.refused if stored[marker]] == []


def _account(http: httpx.Client, one: Said) -> dict[str, Any]:
    """What the ledger says was written of a call, once it is not queued any more."""

    def settled() -> dict[str, Any] | None:
        response = http.get(f"/memory/requests/{one.request_id}")
        assert response.status_code == 200, response.text
        written: dict[str, Any] = response.json()["written"]
        return None if written["status"] == "queued" else written

    found = eventually(settled, within_s=_SETTLE_S)
    assert found is not None
    return found


def _contents(product: Running, user: str) -> list[str]:
    found: list[str] = []
    with product.http(user) as http:
        cursor: str | None = None
        while True:
            query = {"limit": "500", "state": "all", **({"cursor": cursor} if cursor else {})}
            page = http.get("/memory/records", params=query).json()
            found += [record["content"] for record in page["data"] if record["kind"] != "turn"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found


def extra_s(product: Running, lane: Lane, user: str) -> float:
    """How much longer a call takes with memory than without: the difference of two medians, seconds."""
    lane.default = answering
    took: dict[str, list[float]] = {"off": [], "on": []}
    with product.http(user, session=SESSION) as http:
        http.headers["Authorization"] = f"Bearer {lane.key}"
        for _ in range(_PAIRS):
            for mode, times in took.items():
                body = spoken(f"I collect m{secrets.token_hex(5)}")
                started = time.monotonic()
                response = http.post("/v1/chat/completions", json=body, headers={"X-Memory-Mode": mode})
                times.append(time.monotonic() - started)
                assert response.content == b"".join(WHOLE.body)
    return statistics.median(took["on"]) - statistics.median(took["off"])
