"""kill -9 at random moments under a mixed load: what was acknowledged must be there once, after every restart.

Load: chats (streamed and not), API writes and, through a low `index.exact_below`, index rebuilds. Acknowledged means:
an API write answered 201, or a chat whose whole answer the client has, unless the product said before that end that
the turn was not on disk yet (`record.HOLD_S`: no answer is held up for long). By hand:
``python -m bench.kills --kills 100``.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.progress import track

from tests.running import Running, eventually, running
from tests.scripted import ScriptedUpstream, chunk, completion, stream

USER = "survivor"
_CLIENTS = 4
_AFTER_OPERATIONS = (3, 40)
_SETTLE_S = 60.0


@dataclass
class Acknowledged:
    """What the product has promised to keep.

    Args:
        written: Markers of API writes answered 201.
        said: Markers of chats whose whole answer arrived.
        calls: The ids of these chats, by marker.
    """

    written: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    calls: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    moved: threading.Condition = field(default_factory=threading.Condition)

    def add(self, among: list[str], marker: str) -> None:
        """Note one promise."""
        with self.moved:
            among.append(marker)
            self.moved.notify_all()

    def add_chat(self, marker: str, response: httpx.Response) -> None:
        """Note that a chat's whole answer is here."""
        self.calls[marker] = response.headers["X-Memory-Request-Id"]
        self.add(self.said, marker)

    def excuse(self, log: Sequence[str]) -> None:
        """Take back what the product has said it did not keep, in the log of one run."""
        late = {json.loads(line)["request_id"] for line in log if '"journal_failed"' in line}
        self.said = [marker for marker in self.said if self.calls[marker] not in late]

    @property
    def count(self) -> int:
        """How many promises there are."""
        return len(self.written) + len(self.said)


class Load(threading.Thread):
    """One client that writes and talks until it is told to stop or the product is gone."""

    def __init__(self, product: Running, key: str, promised: Acknowledged, seed: int) -> None:
        super().__init__(daemon=True)
        self._product = product
        self._key = key
        self._promised = promised
        self._random = random.Random(seed)
        self.stopped = threading.Event()

    def run(self) -> None:
        """Work until stopped; errors of a dying product are what this is about."""
        headers = {"X-Memory-User": USER, "Authorization": f"Bearer {self._key}"}
        with httpx.Client(base_url=self._product.address, headers=headers, timeout=20) as client:
            while not self.stopped.is_set():
                operation: Callable[[httpx.Client, str], None] = self._random.choice(
                    [self._write, self._talk, self._stream]
                )
                try:
                    operation(client, secrets.token_hex(6))
                except httpx.HTTPError:
                    return

    def _write(self, client: httpx.Client, marker: str) -> None:
        body = {"content": f"The deployment of project {marker} goes through the staging cluster", "kind": "fact"}
        if client.post("/memory/records", json=body).status_code == 201:
            self._promised.add(self._promised.written, marker)

    def _talk(self, client: httpx.Client, marker: str) -> None:
        response = client.post("/v1/chat/completions", json=_chat(marker))
        if response.status_code == 200 and response.json()["choices"]:
            self._promised.add_chat(marker, response)

    def _stream(self, client: httpx.Client, marker: str) -> None:
        with client.stream("POST", "/v1/chat/completions", json=_chat(marker, stream=True)) as response:
            received = b"".join(response.iter_raw())
        if response.status_code == 200 and received.endswith(b"data: [DONE]\n\n"):
            self._promised.add_chat(marker, response)


def _chat(marker: str, **more: Any) -> dict[str, Any]:
    text = f"I moved the invoices of client {marker} into the archive folder yesterday."
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **more}


def rampage(folder: Path, kills: int, *, seed: int = 0, progress: bool = False) -> Acknowledged:
    """Kill the product again and again under load, and check after each restart.

    Args:
        folder: Data and config, kept over all restarts.
        kills: How often.
        seed: Of the random moments.
        progress: Show a progress bar.

    Returns:
        Everything that was promised.

    Raises:
        AssertionError: A promise was broken: something is missing, or there twice.
    """
    chance, promised = random.Random(seed), Acknowledged()
    with ScriptedUpstream().running() as upstream:
        lane = upstream.lane(f"sk-{secrets.token_hex(8)}")
        lane.default = lambda received: (
            stream(chunk({"content": "Done"}), chunk({"content": "."}), chunk({}, finish="stop"))
            if received.json.get("stream")
            else completion("Done.")
        )
        config = {"upstream": {"base_url": upstream.url}, "index": {"exact_below": 50}}
        rounds = range(kills + 1)
        for number in track(rounds, "kill -9") if progress else rounds:
            with running(folder, config=config) as product:
                check(product, promised)
                if number < kills:
                    _kill_under_load(product, lane.key, promised, chance)
            promised.excuse(product.errors)
    return promised


def _kill_under_load(product: Running, key: str, promised: Acknowledged, chance: random.Random) -> None:
    clients = [Load(product, key, promised, chance.randrange(2**32)) for _ in range(_CLIENTS)]
    goal = promised.count + chance.randint(*_AFTER_OPERATIONS)
    for client in clients:
        client.start()
    with promised.moved:
        promised.moved.wait_for(lambda: promised.count >= goal, timeout=_SETTLE_S)
    product.stop(signal.SIGKILL)
    for client in clients:
        client.stopped.set()
        client.join(20)


def check(product: Running, promised: Acknowledged) -> None:
    """Every promise is kept exactly once, and both layers are well.

    Raises:
        AssertionError: Names the markers at fault.
    """
    with product.http(USER) as client:
        ready = client.get("/readyz").json()
        # An index file that the kill left behind, or unfinished, may be made anew right now; nothing else may ail.
        assert set(ready["degraded"]) <= {"index"}, ready
        eventually(lambda: client.get("/readyz").json()["degraded"] == [], within_s=_SETTLE_S)
        eventually(lambda: not _missing(client, promised), within_s=_SETTLE_S)
        written, said = _markers(client, promised)
    doubled = [marker for marker, count in (written + said).items() if count > 1]
    assert not doubled, f"stored more than once: {doubled}"


def _missing(client: httpx.Client, promised: Acknowledged) -> list[str]:
    written, said = _markers(client, promised)
    return [one for one in promised.written if not written[one]] + [one for one in promised.said if not said[one]]


def _markers(client: httpx.Client, promised: Acknowledged) -> tuple[Counter[str], Counter[str]]:
    """How often each marker is stored: API writes as facts, chats as raw turns."""
    facts: Counter[str] = Counter()
    turns: Counter[str] = Counter()
    cursor = None
    while True:
        query = {"limit": "500", "state": "all", **({"cursor": cursor} if cursor else {})}
        page = client.get("/memory/records", params=query).json()
        for record in page["data"]:
            words = {word.strip(".,") for word in record["content"].split()}
            among = turns if record["kind"] == "turn" else facts if record["source"]["role"] == "api" else Counter()
            among.update(words)
        cursor = page["next_cursor"]
        if cursor is None:
            return (
                Counter({one: facts[one] for one in promised.written}),
                Counter({one: turns[one] for one in promised.said}),
            )


def main() -> None:
    """The long run, by hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        promised = rampage(Path(folder), options.kills, seed=options.seed, progress=True)
    print(f"{options.kills} kills: {len(promised.written)} API writes and {len(promised.said)} turns, each there once")


if __name__ == "__main__":
    main()
