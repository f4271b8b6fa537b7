"""Faults come and go under a steady load: each call is answered in time, the status says why, and all heals by itself.

Design §5 and §7: a call waits for memory at most for recall's deadline, and its end at most for the journal's hold.
"""

from __future__ import annotations

import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from proxy import app, embed, layers
from proxy.embed import open_embedder
from proxy.errors import EmbedderError
from proxy.plugs import Embedder, JournalTurn
from proxy.record import HOLD_S
from proxy.remember import Remember
from proxy.settings import Config
from proxy.types import Outcome, Vector, iso
from tests.calls import Memories, Said, ask, contents, tell
from tests.chaos import (
    RedisServer,
    Wire,
    config_for,
    degraded,
    emptied_log,
    folder_with_rules,
    full_disk,
    housed,
    locked_database,
    small_disk,
)
from tests.running import Running, eventually, running
from tests.scripted import Lane, Received, ScriptedUpstream, chunk, stream
from tests.steady_load import Heard, answering, extra_s, load, spoken

DEADLINE_S = Config().recall.deadline_ms / 1000
WITHIN_S = DEADLINE_S + HOLD_S
NOISE_S = 0.005
"""What two timers add, each fired a little late."""
MARGIN_S = 3.0
"""What a busy machine may add to the slowest of all calls."""
TRIES = 8
ENOUGH = 12
"""Calls before something is looked at."""
RESTING = {"", "deadline", "working-memory"}
"""Reasons that a busy machine gives without any fault."""


@dataclass(frozen=True)
class Grounds:
    """What the faults are done to: a product, its Redis, and what lies between and beneath."""

    product: Running
    redis: RedisServer
    wire: Wire
    mounted: bool


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis by URL."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def grounds(
    provider: ScriptedUpstream, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grounds]:
    """One product for all the faults that come from outside."""
    folder = folder_with_rules(tmp_path_factory.mktemp("chaos") / "product")
    with small_disk(folder / "data", 48) as mounted, Wire(redis_server.port).laid() as wire:
        config = {"upstream": {"base_url": provider.url}, "redis": {"url": f"redis://127.0.0.1:{wire.port}/0"}}
        with running(folder, config=config) as product:
            yield Grounds(product, redis_server, wire, mounted)


# ── faults from outside ────────────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def redis_stopped(on: Grounds) -> Iterator[None]:
    on.redis.stop()
    try:
        yield
    finally:
        on.redis.start()


@contextmanager
def redis_paused(on: Grounds) -> Iterator[None]:
    on.redis.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        on.redis.signal(signal.SIGCONT)


@contextmanager
def redis_slow(on: Grounds) -> Iterator[None]:
    on.wire.delay_s = 0.1
    try:
        yield
    finally:
        on.wire.delay_s = 0.0


@contextmanager
def redis_full(on: Grounds) -> Iterator[None]:
    on.redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    on.redis.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        yield
    finally:
        on.redis.ask("CONFIG", "SET", "maxmemory", "0")


@contextmanager
def disk_full(on: Grounds) -> Iterator[None]:
    with full_disk(on.product, mounted=on.mounted):
        yield


@contextmanager
def database_locked(on: Grounds) -> Iterator[None]:
    with locked_database(on.product):
        yield


Fault = Callable[[Grounds], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("fault", "layer"),
    [
        (redis_stopped, "working-memory"),
        (redis_paused, "working-memory"),
        (redis_slow, "working-memory"),
        (redis_full, "working-memory"),
        pytest.param(disk_full, "store", marks=pytest.mark.skipif(sys.platform != "linux", reason="limits by mount")),
        (database_locked, "store"),
    ],
)
def test_a_fault_costs_no_call_and_heals_by_itself(
    grounds: Grounds, lane: Lane, user: str, fault: Fault, layer: str
) -> None:
    product = grounds.product
    with load(product, lane, user) as heard:
        eventually(lambda: heard.said and heard.said[-1].status == "ok")
        before = len(heard.said)
        with fault(grounds):
            eventually(lambda: layer in reasons(heard, before))
            eventually(lambda: degraded(product) == [layer])
            eventually(lambda: len(heard.said) > before + ENOUGH)
            in_time(product, lane, user)
            assert reasons(heard, before) <= {layer, *RESTING}
        goes_well_again(product, heard)
    assert heard.slowest_s < WITHIN_S + MARGIN_S


def reasons(heard: Heard, before: int) -> set[str]:
    """The reasons in the statuses of the calls after the first `before`."""
    return {
        reason
        for status in heard.since(before)
        for reason in (status.removeprefix("degraded:") if status != "ok" else "").split(",")
    }


def in_time(product: Running, lane: Lane, user: str) -> None:
    """Calls take at most a deadline and a hold longer than without memory; noise may spoil some of the tries."""
    tried: list[float] = []
    while not tried or (tried[-1] > WITHIN_S + NOISE_S and len(tried) < TRIES):
        tried.append(extra_s(product, lane, user))
    assert tried[-1] <= WITHIN_S + NOISE_S, tried


def goes_well_again(product: Running, heard: Heard) -> None:
    """Without a restart and without a word to anybody."""
    eventually(lambda: degraded(product) == [])
    after = len(heard.said)
    eventually(lambda: len(heard.said) > after + ENOUGH)
    eventually(lambda: heard.said[-1].status == "ok")


def test_an_answer_that_ends_in_a_long_lock_is_written_after_it(grounds: Grounds, lane: Lane, user: str) -> None:
    product, hold = grounds.product, threading.Event()
    lane.script(stream(chunk({"content": "Well."}), chunk({}, finish="stop"), hold={0: hold}))
    with product.http(user, session="s") as http:
        body = spoken("I collect shells", stream=True)
        headers = {"Authorization": f"Bearer {lane.key}"}
        with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            request = f"/memory/requests/{response.headers['X-Memory-Request-Id']}"
            eventually(lambda: http.get(request).status_code == 200)
            with locked_database(product):
                hold.set()
                assert response.read().endswith(b"data: [DONE]\n\n")
                eventually(lambda: "locked" in http.get(request).json()["written"].get("reason", ""))
                assert http.get(request).json()["written"]["status"] == "failed"
        eventually(lambda: http.get(request).json()["written"]["status"] == "done")
    assert contents(product, user) == ["The user collects shells"]
    eventually(lambda: degraded(product) == [])


def test_a_lock_that_is_gone_is_noticed_though_nobody_writes(grounds: Grounds, user: str) -> None:
    with locked_database(grounds.product), grounds.product.http(user) as http:
        assert http.post("/memory/records", json={"content": "The cellar is cold"}).status_code == 503
        assert degraded(grounds.product) == ["store"]
    eventually(lambda: degraded(grounds.product) == [])
    assert contents(grounds.product, user) == []


def test_a_database_damaged_under_the_product_costs_no_call_and_is_well_after_a_restart_once_put_back(
    provider: ScriptedUpstream, redis_server: RedisServer, lane: Lane, user: str, tmp_path: Path
) -> None:
    lane.default = answering
    folder = folder_with_rules(tmp_path / "own")
    config = {"upstream": {"base_url": provider.url}, "redis": {"url": f"redis://127.0.0.1:{redis_server.port}/0"}}
    database = folder / "data" / "sidemirror.db"
    with running(folder, config=config) as product:
        with load(product, lane, user) as heard:
            eventually(lambda: len(heard.said) > ENOUGH)
        eventually(lambda: emptied_log(database))
        whole = database.read_bytes()
        overwrite(database, secrets.token_bytes(len(whole)))

        def damage_is_told() -> bool:
            return "degraded:store" in ask(product, lane, "hello", user=f"not-{user}").headers["X-Memory-Status"]

        eventually(damage_is_told)
        eventually(lambda: degraded(product) == ["store"])
        in_time(product, lane, user)
        overwrite(database, whole)
        # It may hold anything by now: only a start examines it.
        assert "store" in degraded(product)
        assert product.stop() == 0
    with running(folder, config=config) as product:
        eventually(lambda: degraded(product) == [])
        markers = {f"The user collects {one.marker}" for one in heard.said}
        assert markers <= set(contents(product, user))
        tell(product, lane, "I collect coins", user=user)
        assert "The user collects coins" in contents(product, user)


def overwrite(path: Path, data: bytes) -> None:
    """Other bytes in the same file, as a failing disk or a careless hand leaves them."""
    with path.open("r+b") as file:
        file.write(data)


# ── faults inside ──────────────────────────────────────────────────────────────────────────────────────────────────
class FaultyEmbedder(Embedder):
    """The real one, until a test breaks it."""

    def __init__(self, real: Embedder) -> None:
        self._real = real
        self.broken = False
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    @property
    def fingerprint(self) -> str:
        return self._real.fingerprint

    @property
    def dimension(self) -> int:
        return self._real.dimension

    def documents(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        if self.broken:
            raise EmbedderError
        return self._real.documents(texts)

    def query(self, text: str) -> Vector | None:
        self.may_go_on.wait(60)
        if self.broken:
            raise EmbedderError
        return self._real.query(text)


@pytest.fixture
def house_config(provider: ScriptedUpstream, redis_server: RedisServer, tmp_path: Path) -> Config:
    """Settings of a product in this process."""
    return config_for(folder_with_rules(tmp_path / "own"), provider.url, redis_server.port)


@pytest.fixture
def quiet(provider: ScriptedUpstream) -> Lane:
    """A side of the provider that the load does not use."""
    lane = provider.lane(f"sk-{secrets.token_hex(8)}")
    lane.default = answering
    return lane


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> FaultyEmbedder:
    """The embedder of the product that is built next."""
    faulty = FaultyEmbedder(open_embedder(Config()))
    monkeypatch.setattr(embed, "open_embedder", lambda config: faulty)
    return faulty


def test_a_broken_embedder_leaves_the_words_to_be_found(
    house_config: Config, embedder: FaultyEmbedder, lane: Lane, quiet: Lane, user: str
) -> None:
    with housed(house_config) as product, load(product, lane, user) as heard:
        eventually(lambda: heard.said and heard.said[-1].status == "ok")
        before = len(heard.said)
        embedder.broken = True
        eventually(lambda: len(heard.said) > before + ENOUGH)
        in_time(product, lane, user)
        assert "embedder" in reasons(heard, before)
        assert reasons(heard, before) <= {"embedder", *RESTING}
        tell(product, quiet, "I collect porcelain", user=f"not-{user}", session="one")
        assert "The user collects porcelain" in recalled(product, quiet, f"not-{user}", "Where is my porcelain?")
        embedder.broken = False
        goes_well_again(product, heard)


def test_recalls_that_hang_take_every_thread_but_no_call(
    house_config: Config, embedder: FaultyEmbedder, lane: Lane, user: str
) -> None:
    with housed(house_config) as product:
        try:
            with load(product, lane, user, writes=False) as heard:
                eventually(lambda: heard.said and heard.said[-1].status == "ok")
                before = len(heard.said)
                embedder.may_go_on.clear()
                eventually(lambda: len(heard.said) > before + 2 * ENOUGH)
                assert heard.said[-1].status == "degraded:deadline"
                eventually(lambda: degraded(product) == [])
                in_time(product, lane, user)
                embedder.may_go_on.set()
                goes_well_again(product, heard)
        finally:
            embedder.may_go_on.set()


def test_a_turn_that_cannot_be_written_is_told_as_failed_and_holds_up_no_other(
    house_config: Config, monkeypatch: pytest.MonkeyPatch, lane: Lane, user: str
) -> None:
    honest = Remember.turn
    poison: str | None = "arsenic"

    def turn(remember: Remember, journalled: JournalTurn) -> tuple[Outcome, ...]:
        if poison is not None and poison in journalled.user_text:
            # Half a character: the reason must be told all the same.
            raise RuntimeError("does not agree with \ud83d")
        return honest(remember, journalled)

    monkeypatch.setattr(Remember, "turn", turn)
    with housed(house_config) as product, load(product, lane, user) as heard:
        poisoned = ask(product, lane, "I collect arsenic", user=f"not-{user}", session="s")
        eventually(lambda: len(heard.said) > ENOUGH)
        account = product.ledger(poisoned.headers["X-Memory-Request-Id"], f"not-{user}")["written"]
        assert account["status"] == "failed"
        assert "RuntimeError: does not agree with" in account["outcomes"][0]["reason"]
        poison = None
        assert tell(product, lane, "I collect arsenic", user=f"not-{user}", session="s")["written"]["status"] == "done"
        assert contents(product, f"not-{user}") == ["The user collects arsenic"]


def test_a_clock_that_is_set_back_loses_nothing_and_keeps_the_order(
    house_config: Config, monkeypatch: pytest.MonkeyPatch, lane: Lane, quiet: Lane, user: str
) -> None:
    moved, now = timedelta(), layers.utc_now
    for module in (app, layers):
        monkeypatch.setattr(module, "utc_now", lambda: now() + moved)
    with housed(house_config) as product, load(product, lane, f"not-{user}") as heard, product.http(user) as http:
        memories = Memories(http)
        tell(product, quiet, "I live in Paris and I fly to Lisbon", user=user, session="trip")
        begun = tell(product, quiet, "I collect stamps", user=user)
        memories.create("The cellar key is with the neighbour", expires_at=iso(now() + timedelta(minutes=30)))
        eventually(lambda: len(heard.said) > ENOUGH)

        moved = timedelta(hours=-1)
        trip = recalled(product, quiet, user, "Where do I fly to?", session="trip")
        assert "place: Lisbon" in trip
        assert "lives in Paris" in trip
        assert "cellar key" in recalled(product, quiet, user, "Where is the cellar key?")
        history: Said = [{"role": "user", "content": "I collect stamps"}, {"role": "assistant", "content": "Noted."}]
        going_on = tell(product, quiet, [*history, {"role": "user", "content": "I live in Rome"}], user=user)
        assert going_on["scope"]["session_id"] == begun["scope"]["session_id"]
        assert sorted(contents(product, user)) == [
            "The cellar key is with the neighbour",
            "The user collects stamps",
            "The user lives in Rome",
        ]
        goes_well_again(product, heard)

        moved = timedelta(minutes=31)
        assert "cellar key" not in recalled(product, quiet, user, "Where is the cellar key?")


def recalled(product: Running, lane: Lane, user: str, question: str, session: str | None = None) -> str:
    """What is injected for a question; on a busy machine recall may miss its deadline, and is asked again."""

    def injected() -> Received | None:
        response = ask(product, lane, question, user=user, session=session or secrets.token_hex(4), mode="read")
        status = response.headers["X-Memory-Status"]
        return None if "deadline" in status or "working-memory" in status else lane.last

    received = eventually(injected)
    assert received is not None
    return received.system
