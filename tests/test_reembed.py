"""Re-embedding: after a change of model, and where the embedder had failed; in the background, and by reindex."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.config import Config
from proxy.embed import open_embedder
from proxy.errors import EmbedderError, TextRefused
from proxy.observe import answer_hash
from proxy.plugs import Embedder
from proxy.reembed import BATCH, Reembedding, embed_some
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.types import Vector
from tests.embeddings import Embeddings
from tests.running import eventually, running
from tests.scripted import ScriptedUpstream
from tests.store_samples import ALICE, DIMENSION, Clock, memory, put, unit
from tests.tiny_model import tiny_model


class Scripted(Embedder):
    """An embedder with faults as a test wants them."""

    def __init__(self, fingerprint: str = "new") -> None:
        self._fingerprint = fingerprint
        self.down = False
        self.refuses: str | None = None
        self.calls: list[list[str]] = []

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dimension(self) -> int:
        return DIMENSION

    def documents(self, texts: Sequence[str]) -> list[Vector | None]:
        self.calls.append(list(texts))
        if self.down:
            raise EmbedderError("down")
        if self.refuses is not None and any(self.refuses in text for text in texts):
            raise TextRefused("refused")
        return [self.query(text) for text in texts]

    def query(self, text: str) -> Vector | None:
        return unit(zlib.crc32(text.encode())) if any(map(str.isalnum, text)) else None


def opened(folder: Path, fingerprint: str = "new", exact_below: int = 2000) -> SqliteStore:
    return SqliteStore(
        folder / "store.db",
        fingerprint=fingerprint,
        dimension=DIMENSION,
        answer_hash=answer_hash,
        exact_below=exact_below,
        clock=Clock(),
    )


@pytest.fixture
def embedder() -> Scripted:
    return Scripted()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """With 100 records of another model."""
    with closing(opened(tmp_path, "old")) as old:
        put(old, *(memory(f"note {i}") for i in range(100)), vectors=[unit(i) for i in range(100)])
    with closing(opened(tmp_path)) as store:
        yield store


def service(store: SqliteStore, embedder: Embedder) -> tuple[Reembedding, list[int]]:
    waiting: list[int] = []
    return Reembedding(store, embedder, lambda _done, left: waiting.append(left)), waiting


def dense(store: SqliteStore, vector: Vector) -> list[str]:
    """What the dense leg finds, best first."""
    found = store.search(ALICE, vector, [], limit=5).candidates
    memories = store.load(ALICE, [one.row for one in found])
    return [memories[one.row].content for one in found if one.dense is not None]


def of(embedder: Embedder, text: str) -> Vector:
    vector = embedder.query(text)
    assert vector is not None
    return vector


# ── one batch ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_change_of_model_is_made_good_batch_by_batch(store: SqliteStore, embedder: Scripted) -> None:
    assert store.unembedded_count() == 100
    assert dense(store, unit(3)) == []
    assert embed_some(store, embedder) == BATCH
    assert store.unembedded_count() == 100 - BATCH
    assert embed_some(store, embedder) == 100 - BATCH
    assert embed_some(store, embedder) == 0
    assert dense(store, of(embedder, "note 3"))[0] == "note 3"
    assert sorted(text for call in embedder.calls for text in call) == sorted(f"note {i}" for i in range(100))


def test_a_text_that_has_no_vector_is_asked_for_once(tmp_path: Path, embedder: Scripted) -> None:
    with closing(opened(tmp_path)) as store:
        put(store, memory("…!"), memory("note 1"))
        assert embed_some(store, embedder) == 2
        assert (embed_some(store, embedder), store.unembedded_count(), len(embedder.calls)) == (0, 0, 1)
        assert dense(store, of(embedder, "note 1")) == ["note 1"]
    with closing(opened(tmp_path, "another")) as store:
        assert store.unembedded_count() == 2


def test_a_record_that_changed_meanwhile_is_not_given_the_vector_of_its_former_words(
    tmp_path: Path, embedder: Scripted
) -> None:
    with closing(opened(tmp_path)) as store:
        one = memory("note 1")
        put(store, one)
        (read,) = store.unembedded(10)
        later = replace(one, content="note 2", version=2)
        store.transact(lambda tx: tx.update(later, None, change="updated")).result()
        assert store.embed([(read, of(embedder, "note 1"))]).result() == 0
        assert store.unembedded(10)[0].content == "note 2"
        store.transact(lambda tx: tx.forget(ALICE, [one.id])).result()
        assert store.embed([(read, of(embedder, "note 1"))]).result() == 0
        assert store.unembedded(10) == ()


def test_a_vector_that_came_meanwhile_stays(tmp_path: Path, embedder: Scripted) -> None:
    with closing(opened(tmp_path)) as store:
        one = memory("note 1")
        put(store, one)
        (read,) = store.unembedded(10)
        store.transact(lambda tx: tx.update(one, unit(7), change="embedded")).result()
        assert store.embed([(read, unit(8))]).result() == 0
        assert dense(store, unit(7)) == ["note 1"]


def test_a_change_of_words_without_a_vector_leaves_the_former_one_to_nobody(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as store:
        one = memory("note 1")
        put(store, one, vectors=[unit(1)])
        store.transact(lambda tx: tx.update(replace(one, content="note 2"), None, change="updated")).result()
        assert dense(store, unit(1)) == []
        assert [waiting.content for waiting in store.unembedded(10)] == ["note 2"]


def test_one_refused_text_keeps_no_other_from_its_vector(store: SqliteStore, embedder: Scripted) -> None:
    embedder.refuses = "note 7"
    while embed_some(store, embedder):
        continue
    assert store.unembedded_count() == 0
    found = dense(store, of(embedder, "note 71"))
    assert "note 71" not in found
    assert dense(store, of(embedder, "note 42"))[0] == "note 42"


def test_where_every_text_is_refused_nothing_is_given_up(store: SqliteStore, embedder: Scripted) -> None:
    embedder.refuses = ""
    with pytest.raises(EmbedderError, match="no text is taken"):
        embed_some(store, embedder)
    assert store.unembedded_count() == 100


def test_a_cached_recall_is_not_kept_past_a_new_vector(store: SqliteStore, embedder: Scripted) -> None:
    before = store.generation(ALICE)
    embed_some(store, embedder)
    assert store.generation(ALICE) != before


def test_records_in_every_state_are_embedded_and_only_active_ones_found(tmp_path: Path, embedder: Scripted) -> None:
    with closing(opened(tmp_path)) as store:
        hidden = memory("note 1", state="pending")
        put(store, hidden)
        assert embed_some(store, embedder) == 1
        assert dense(store, of(embedder, "note 1")) == []
        store.transact(lambda tx: tx.update(replace(hidden, state="active"), None, change="approved")).result()
        assert dense(store, of(embedder, "note 1")) == ["note 1"]


# ── index files ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_index_files_are_made_for_the_new_model_and_the_old_ones_go(tmp_path: Path, embedder: Scripted) -> None:
    with closing(opened(tmp_path, "old", exact_below=20)) as old:
        put(old, *(memory(f"note {i}") for i in range(100)), vectors=[unit(i) for i in range(100)])
        put(old, *(memory("…", owner=replace(ALICE, user_id="carol")) for _ in range(30)), vectors=[unit(1)] * 30)
        for owner in (ALICE, replace(ALICE, user_id="carol")):
            old.search(owner, unit(0), [], limit=1)
        assert old.settle(20)
    assert len(list((tmp_path / "index").glob("*.usearch"))) == 2
    with closing(opened(tmp_path, exact_below=20)) as store:
        running_service, _ = service(store, embedder)
        assert dense(store, unit(3)) == []
        while running_service.step() < 5:
            continue
        assert store.settle(20)
        assert dense(store, of(embedder, "note 3"))[0] == "note 3"
        assert store.search(ALICE, unit(0), [], limit=1).source == "index"
        (left,) = (tmp_path / "index").glob("*.json")
        assert '"new"' in left.read_text(encoding="utf-8")
        assert len(list((tmp_path / "index").glob("*.usearch"))) == 1


# ── in the background ──────────────────────────────────────────────────────────────────────────────────────────────
def test_progress_is_told_and_the_trouble_goes_with_what_waits(store: SqliteStore, embedder: Scripted) -> None:
    working, waiting = service(store, embedder)
    assert working.trouble() is None
    embedder.down = True
    first, second = working.step(), working.step()
    assert 0 < first < second <= 60
    assert "100 records are found by their words only" in (working.trouble() or "")
    assert "down" in (working.trouble() or "")
    embedder.down = False
    while working.step() < 5:
        continue
    assert working.trouble() is None
    assert (waiting[0], waiting[-1]) == (100, 0)


def test_a_failing_embedder_is_asked_less_and_less(store: SqliteStore, embedder: Scripted) -> None:
    embedder.down = True
    working, _ = service(store, embedder)
    pauses = [working.step() for _ in range(10)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


async def test_it_stops_at_once(store: SqliteStore, embedder: Scripted) -> None:
    stop = asyncio.Event()
    working = Reembedding(store, embedder, lambda _done, _left: None, look_s=3_600)
    task = asyncio.get_running_loop().create_task(working.run(stop))
    while store.unembedded_count():  # noqa: ASYNC110 - the store tells nobody
        await asyncio.sleep(0)
    started = time.monotonic()
    stop.set()
    await task
    assert time.monotonic() - started < 2


async def test_what_is_written_without_a_vector_later_is_found_at_the_next_look(
    tmp_path: Path, embedder: Scripted
) -> None:
    with closing(opened(tmp_path)) as store:
        stop = asyncio.Event()
        working = Reembedding(store, embedder, lambda _done, _left: None, look_s=0.01)
        task = asyncio.get_running_loop().create_task(working.run(stop))
        put(store, memory("note 1"))
        while store.unembedded_count():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        stop.set()
        await task
        assert dense(store, of(embedder, "note 1")) == ["note 1"]


# ── the product ────────────────────────────────────────────────────────────────────────────────────────────────────
COUNT = 4 * BATCH - 20


def _config(upstream: ScriptedUpstream, **embedding: Any) -> dict[str, Any]:
    return {
        "upstream": {"base_url": upstream.url},
        "embedding": embedding or {"provider": "model2vec", "model": "builtin"},
        "recall": {"deadline_ms": 5_000},
        "index": {"exact_below": 50},
    }


def _waiting(http: httpx.Client) -> int:
    waiting: int = http.get("/memory/stats").json()["memories"]["unembedded"]
    return waiting


def _found(http: httpx.Client, query: str) -> dict[str, Any]:
    """The legs of the hit that says just this."""
    data = http.post("/memory/search", json={"query": query, "top_k": 50, "explain": True}).json()["data"]
    parts: dict[str, Any] = next(one for one in data if one["content"] == query)["parts"]
    return parts


def _remember(http: httpx.Client, content: str) -> None:
    answer = http.post("/memory/records", json={"content": content, "kind": "fact"})
    assert answer.status_code == 201, answer.text


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a product that has run on the builtin model."""
    folder = tmp_path_factory.mktemp("filled")
    builtin = open_embedder(Config())
    texts = [f"note {i}" for i in range(COUNT)]
    owner = Scope("default", "ada", "default")
    path = folder / "data" / "sidemirror.db"
    sizes: dict[str, Any] = {"fingerprint": builtin.fingerprint, "dimension": builtin.dimension}
    with closing(SqliteStore(path, **sizes, answer_hash=answer_hash, clock=Clock())) as store:
        put(store, *(memory(text, owner) for text in texts), vectors=builtin.documents(texts))
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "house"))


def test_another_model2vec_model_takes_over_beside_the_calls(
    provider: ScriptedUpstream, folder: Path, tmp_path: Path
) -> None:
    with running(folder, config=_config(provider)) as product, product.http("ada") as http:
        assert _waiting(http) == 0
        assert _found(http, "note 17")["dense"] > 0.9
    other = {"provider": "model2vec", "model": str(tiny_model(tmp_path / "tiny", seed=1))}
    with running(folder, config=_config(provider, **other)) as product, product.http("ada") as http:
        _remember(http, "tea coffee cat")
        assert _found(http, "note 17")["lexical"] > 0
        eventually(lambda: _waiting(http) == 0, within_s=30)
        for text in ("note 0", "note 17", f"note {COUNT - 1}", "tea coffee cat"):
            legs = _found(http, text)
            assert legs["dense"] > 0.99
            assert legs["lexical"] > 0
        eventually(lambda: "sidemirror_unembedded 0.0" in http.get("/metrics").text)
        assert "vectors" not in http.get("/readyz").json()["degraded"]


def test_a_kill_in_the_middle_costs_nothing_and_the_next_start_goes_on(
    provider: ScriptedUpstream, folder: Path
) -> None:
    with Embeddings().running() as api:
        api.batches = 2
        settings = {"provider": "litellm", "model": "openai/scripted", "api_base": api.url, "dimensions": 32}
        config = _config(provider, **settings)
        with running(folder, config=config) as product, product.http("ada") as http:
            eventually(lambda: _waiting(http) == COUNT - 2 * BATCH, within_s=30)
            # What waits is found by its words, what is written now both ways.
            waits = _found(http, f"note {COUNT - 1}")
            assert waits["lexical"] > 0
            assert waits["dense"] is None
            assert _found(http, "note 3")["dense"] > 0.99
            _remember(http, "tea coffee cat")
            written = _found(http, "tea coffee cat")
            assert written["dense"] > 0.99
            assert written["lexical"] > 0
            ready = http.get("/readyz").json()
            assert "vectors" in ready["degraded"]
            assert "found by their words only" in ready["details"]["vectors"]
            product.process.send_signal(signal.SIGKILL)
            product.process.wait(10)
        before = {text for call in api.asked for text in call if len(call) > 3}
        api.asked.clear()
        api.batches = None
        with running(folder, config=config) as product, product.http("ada") as http:
            eventually(lambda: _waiting(http) == 0, within_s=30)
            assert _found(http, f"note {COUNT - 1}")["dense"] > 0.99
            assert _found(http, "tea coffee cat")["dense"] > 0.99
        again = [text for call in api.asked for text in call if len(call) > 3]
        assert len(again) == COUNT - 2 * BATCH
        assert len(before & set(again)) == BATCH  # those that the kill took


def test_a_stop_does_not_wait_for_an_api_that_hangs(provider: ScriptedUpstream, folder: Path) -> None:
    with Embeddings().running() as api:
        api.batches = 0
        settings = {"provider": "litellm", "model": "openai/scripted", "api_base": api.url, "dimensions": 32}
        with running(folder, config=_config(provider, **settings)) as product:
            eventually(lambda: api.asked, within_s=30)
            started = time.monotonic()
            assert product.stop() == 0
            assert time.monotonic() - started < 8


def test_reindex_embeds_what_waits(folder: Path, tmp_path: Path) -> None:
    settings = {"data_dir": "data", "embedding": {"model": str(tiny_model(tmp_path / "tiny", seed=2))}}
    file = folder / "config.yaml"
    file.write_text(json.dumps(settings), encoding="utf-8")
    args = [sys.executable, "-m", "proxy", "reindex", "--config", str(file)]
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} records embedded by the present model" in done.stdout
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
    assert "embedded" not in done.stdout
    args[3] = "doctor"
    assert (
        "all are of the model in use, tiny-"
        in subprocess.run(args, capture_output=True, text=True, timeout=60, check=False).stdout
    )
