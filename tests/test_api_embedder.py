"""An embedding API as embedder: batches, caches, deadlines, and what it makes of an API's faults."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy import library
from proxy.api_embedder import BATCH, ApiEmbedder
from proxy.config import Config, Embedding, Recall
from proxy.doctor import installation
from proxy.embed import open_embedder, opened
from proxy.errors import EmbedderError, TextRefused
from proxy.store.dimension import remember
from proxy.store.sqlite import SqliteStore
from tests.embeddings import Embeddings
from tests.running import eventually, refused_start, running
from tests.scripted import ScriptedUpstream
from tests.store_samples import Clock

MODEL = "openai/scripted-embedding"
Make = Callable[..., ApiEmbedder]


@pytest.fixture(scope="module", autouse=True)
def litellm() -> None:
    """Imported once: the seconds that it takes are no part of what is tested."""
    library.load()


@pytest.fixture
def api() -> Iterator[Embeddings]:
    with Embeddings().running() as started:
        yield started


@pytest.fixture
def make(api: Embeddings) -> Iterator[Make]:
    made: list[ApiEmbedder] = []

    def one(*, query_s: float = 5.0, dimension: int | None = None, **settings: Any) -> ApiEmbedder:
        named = {"provider": "litellm", "model": MODEL, "api_base": api.url, **settings}
        made.append(ApiEmbedder(Embedding(**named), query_s=query_s, dimension=dimension))
        return made[-1]

    yield one
    for embedder in made:
        embedder.close()


def test_vectors_are_of_unit_length_in_the_order_of_the_texts(api: Embeddings, make: Make) -> None:
    embedder = make()
    texts = ["I like tea", "我喜欢喝茶", "the cat is called Tux"]
    for text, vector in zip(texts, embedder.documents(texts), strict=True):
        assert vector is not None
        expected = np.array(api.vector(text), np.float32)
        assert np.allclose(vector, expected / np.linalg.norm(expected), atol=1e-6)
        assert vector.dtype == np.float32


def test_many_texts_are_asked_for_in_batches_each_once(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=32)
    texts = [f"text number {i}" for i in range(150)]
    vectors = embedder.documents([*texts, *texts[:10]])
    assert [len(one) for one in api.asked] == [BATCH, BATCH, 150 - 2 * BATCH]
    assert len(vectors) == 160
    assert vectors[3] is not None
    assert vectors[153] is not None
    assert np.array_equal(vectors[3], vectors[153])


def test_a_text_without_a_letter_is_not_sent(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=32)
    assert embedder.documents(["…", "", "  \n"]) == [None, None, None]
    assert embedder.query("?!") is None
    assert api.asked == []


def test_a_long_text_is_cut_and_a_broken_one_repaired(api: Embeddings, make: Make) -> None:
    make(dimension=32).documents(["很长" * 10_000, "half a pair \ud800"])
    assert [len(text) for text in api.asked[0]] == [6_000, len("half a pair ?")]


def test_a_question_is_asked_for_once_and_its_parts_along_with_it(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=32)
    question = "Where do I live and what is my cat called?"
    first, again = embedder.query(question), embedder.query(question)
    assert first is not None
    assert again is not None
    assert np.array_equal(first, again)
    assert len(api.asked) == 1
    assert api.asked[0][0] == question


def test_the_caches_of_questions_and_of_stored_text_are_bounded(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=32)
    embedder.documents([f"text {i}" for i in range(600)])
    before = len(api.asked)
    embedder.documents(["text 599"])
    assert len(api.asked) == before
    embedder.documents(["text 0"])
    assert len(api.asked) == before + 1


def test_the_dimension_is_learnt_from_the_first_answer_and_named_in_the_fingerprint(make: Make) -> None:
    embedder = make()
    assert embedder.dimension == 32
    assert embedder.fingerprint == f"litellm-{MODEL}-32"


def test_configured_dimensions_and_the_key_are_sent(api: Embeddings, make: Make) -> None:
    api.dimension = 8
    embedder = make(dimensions=8, api_key="sk-embed")
    assert embedder.fingerprint == f"litellm-{MODEL}-8"
    assert api.asked == []
    embedder.query("tea")
    assert (api.bodies[0]["dimensions"], api.keys) == (8, ["Bearer sk-embed"])


def test_no_key_of_the_environment_is_sent(api: Embeddings, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-agent")
    make(dimension=32).query("tea")
    assert api.keys == ["Bearer none"]


def test_another_dimension_than_known_is_an_error_that_says_what_to_set(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=32)
    api.dimension = 8
    with pytest.raises(EmbedderError, match=r"length 8, not 32: set embedding\.dimensions"):
        embedder.query("tea")
    assert "length 8" in (embedder.trouble() or "")


def test_a_question_that_takes_too_long_is_given_up(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=32, query_s=0.1)
    api.silent.clear()
    started = time.monotonic()
    with pytest.raises(EmbedderError, match="did not answer within 100 ms"):
        embedder.query("tea")
    assert time.monotonic() - started < 1.0


def test_while_the_api_is_down_hardly_anybody_waits_for_it(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=32, query_s=0.1)
    api.silent.clear()
    for number in range(20):
        with pytest.raises(EmbedderError):
            embedder.query(f"question {number}")
    assert len(api.asked) <= 3
    api.silent.set()
    assert eventually(lambda: _vector_or_none(embedder) is not None)
    assert embedder.trouble() is None


def _vector_or_none(embedder: ApiEmbedder) -> object:
    try:
        return embedder.query("tea")
    except EmbedderError:
        return None


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_an_error_of_the_api_is_named(api: Embeddings, make: Make, status: int) -> None:
    embedder = make(dimension=32)
    api.status = status
    with pytest.raises(EmbedderError, match=f"{MODEL} answers {status}") as caught:
        embedder.documents(["tea"])
    assert not isinstance(caught.value, TextRefused)
    assert len(api.asked) == 1  # nothing is tried again while somebody waits
    assert embedder.trouble()


def test_a_text_that_is_refused_is_no_outage(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=32)
    api.refuses = "poison"
    with pytest.raises(TextRefused):
        embedder.documents(["tea", "poison"])
    assert embedder.trouble() is None
    assert embedder.documents(["tea"])[0] is not None


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"object": "list", "data": [], "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}',
        json.dumps({"object": "list", "model": "m", "data": [{"index": 0, "embedding": [[1.0]]}]}).encode(),
        json.dumps({"object": "list", "model": "m", "data": [{"index": 0, "embedding": ["x"]}]}).encode(),
        b"not json",
    ],
)
def test_an_answer_that_is_none_is_an_embedder_error(api: Embeddings, make: Make, body: bytes) -> None:
    embedder = make(dimension=32)
    api.body = body
    with pytest.raises(EmbedderError):
        embedder.documents(["tea"])


def test_a_vector_without_direction_is_none(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=4)
    data = [{"index": 0, "embedding": [0.0, 3.0, 0.0, 4.0]}, {"index": 1, "embedding": [0.0] * 4}]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    api.body = json.dumps({"object": "list", "model": "m", "data": data, "usage": usage}).encode()
    first, second = embedder.documents(["tea", "coffee"])
    assert first is not None
    assert first.tolist() == pytest.approx([0, 0.6, 0, 0.8])
    assert second is None


def test_an_unknown_dimension_and_a_silent_api_say_what_to_do(make: Make) -> None:
    with pytest.raises(EmbedderError, match=r"cannot be reached.*must answer at the first start.*dimensions"):
        make(api_base=f"http://127.0.0.1:{_free_port()}/v1")


def test_the_dimension_is_remembered_with_the_database(api: Embeddings, tmp_path: Path) -> None:
    config = _config(tmp_path, api)
    with opened(config) as first:
        store = SqliteStore(
            tmp_path / "sidemirror.db",
            fingerprint=first.fingerprint,
            dimension=first.dimension,
            answer_hash=lambda _: "",
            clock=Clock(),
        )
        with closing(store):
            remember(store, first)
    asked = len(api.asked)
    with opened(config) as again:
        assert again.dimension == 32
    assert len(api.asked) == asked
    other = _config(tmp_path, api, model=f"{MODEL}-large")
    with opened(other) as another:
        assert another.dimension == 32
    assert len(api.asked) == asked + 1


def test_a_question_leaves_time_for_the_words_of_it(tmp_path: Path, api: Embeddings) -> None:
    assert _config(tmp_path, api).recall.deadline_ms == 400
    assert _config(tmp_path, api, recall=Recall(deadline_ms=90)).recall.deadline_ms == 90
    for deadline_ms, query_s in ((400, 0.35), (90, 0.054)):
        with opened(_config(tmp_path, api, recall=Recall(deadline_ms=deadline_ms))) as embedder:
            assert isinstance(embedder, ApiEmbedder)
            assert embedder._query_s == pytest.approx(query_s)


def test_a_closed_embedder_keeps_nobody_waiting(api: Embeddings, make: Make) -> None:
    embedder = make(dimension=32)
    embedder.close()
    with pytest.raises(EmbedderError):
        embedder.documents(["tea"])


def test_the_local_models_do_not_import_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.api_embedder.load", lambda: pytest.fail("litellm was imported"))
    open_embedder(Config())


# ── the product ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_product_remembers_and_recalls_through_an_api(
    provider: ScriptedUpstream, api: Embeddings, tmp_path: Path
) -> None:
    config = _product(provider, api)
    with running(tmp_path, config=config) as product, product.http("ada") as http:
        eventually(lambda: _settled(product))
        _remember(http, "The user's cat is called Tux")
        (found,) = _searched(http, "The user's cat is called Tux")
        assert found["parts"]["dense"] > 0.9
        # The API goes: words are enough, and what is written is stored.
        api.status = 503
        body = {"model": "m", "messages": [{"role": "user", "content": "Where does the tax adviser work?"}]}
        answer = http.post("/v1/chat/completions", json=body, headers={"Authorization": "Bearer sk-x"})
        assert answer.headers["X-Memory-Status"] == "degraded:embedder"
        _remember(http, "The tax adviser works in Berlin")
        assert "embedder" in http.get("/readyz").json()["degraded"]
        assert http.get("/memory/stats").json()["memories"]["unembedded"] >= 1
        assert [one for one in _searched(http, "tax adviser") if one["parts"]["dense"] is None]
        # It comes back: nobody need do anything.
        api.status = 200
        eventually(lambda: http.get("/memory/stats").json()["memories"]["unembedded"] == 0, within_s=30)
        found = next(one for one in _searched(http, "tax adviser") if "tax" in one["content"])
        assert found["parts"]["dense"] > 0
        eventually(lambda: "embedder" not in http.get("/readyz").json()["degraded"])
    # The API is down at the next start: its dimension is known.
    api.status = 503
    with running(tmp_path, config=config) as product, product.http("ada") as http:
        assert _searched(http, "tax adviser")[0]["content"] == "The tax adviser works in Berlin"


def test_doctor_asks_the_api_and_warns_that_each_recall_does(api: Embeddings, tmp_path: Path) -> None:
    finding, fingerprint = installation.embedder(_config(tmp_path, api, recall=Recall(deadline_ms=50)))
    assert (finding.status, fingerprint) == ("warning", f"litellm-{MODEL}-32")
    assert "each recall asks it" in finding.message
    assert "leave recall.deadline_ms out" in finding.advice
    finding, _ = installation.embedder(_config(tmp_path, api))
    assert "deadline_ms" not in finding.advice


def test_doctor_tells_an_api_that_is_down_also_where_its_dimension_is_known(api: Embeddings, tmp_path: Path) -> None:
    api.status = 401
    known = Embedding(provider="litellm", model=MODEL, api_base=api.url, dimensions=32)
    finding, fingerprint = installation.embedder(Config(data_dir=tmp_path, embedding=known))
    assert (finding.status, fingerprint) == ("broken", f"litellm-{MODEL}-32")
    assert "answers 401" in finding.message
    finding, fingerprint = installation.embedder(_config(tmp_path, api))
    assert (finding.status, fingerprint) == ("broken", None)


def test_a_first_start_without_the_api_is_refused_with_what_to_do(tmp_path: Path) -> None:
    embedding = {"provider": "litellm", "model": MODEL, "api_base": f"http://127.0.0.1:{_free_port()}/v1"}
    status, said = refused_start(tmp_path, config={"embedding": embedding})
    assert status == 2
    assert "set embedding.dimensions" in said


def _settled(product: Any) -> bool:
    with product.http("nobody") as http:
        return bool(http.post("/memory/search", json={"query": "warm"}).status_code == 200)


def _remember(http: Any, content: str) -> None:
    assert http.post("/memory/records", json={"content": content}).status_code == 201


def _searched(http: Any, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.post("/memory/search", json={"query": query, "explain": True}).json()["data"]
    return found


def _product(provider: ScriptedUpstream, api: Embeddings) -> dict[str, Any]:
    return {
        "upstream": {"base_url": provider.url},
        "embedding": {"provider": "litellm", "model": MODEL, "api_base": api.url},
        "recall": {"deadline_ms": 5_000},
    }


def _config(folder: Path, api: Embeddings, model: str = MODEL, **more: Any) -> Config:
    embedding = Embedding(provider="litellm", model=model, api_base=api.url)
    return Config(data_dir=folder, embedding=embedding, **more)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
