"""What rules may ask of the store and the classifier; what cannot be found out loses nobody's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import EmbedderError, StoreUnavailable
from proxy.knowing import Knowing
from proxy.plugs import Embedder
from proxy.store.sqlite import SqliteStore
from proxy.types import Vector
from proxy.value import WEIGHTS, ValueModel
from tests.store_samples import ALICE, ALICES_CODER, BOB
from tests.sweep_samples import EMBEDDER, opened, remember


class Faulty(Embedder):
    """An embedder whose model is gone; counts how often it was asked."""

    def __init__(self, *, works: bool = False) -> None:
        self.works = works
        self.asked: list[str] = []

    @property
    def fingerprint(self) -> str:
        return EMBEDDER.fingerprint

    @property
    def dimension(self) -> int:
        return EMBEDDER.dimension

    def documents(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        self.asked += texts
        if not self.works:
            raise EmbedderError
        return EMBEDDER.documents(texts)

    def query(self, text: str) -> Vector | None:
        return EMBEDDER.query(text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A store of this test's own."""
    with opened(tmp_path) as one:
        yield one


@pytest.fixture(scope="module")
def model() -> ValueModel:
    """The shipped classifier."""
    found = ValueModel.load(WEIGHTS, EMBEDDER.fingerprint)
    assert found is not None
    return found


def knowing(store: SqliteStore, embedder: Embedder = EMBEDDER, model: ValueModel | None = None, **more: Any) -> Knowing:
    """What Alice's memories tell."""
    return Knowing(store, embedder, model, more.get("scope", ALICE))


# ── known ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("content", "name"), [("Ada Lovelace leads the team", "Ada Lovelace"), ("李雷是后端组长", "李雷")]
)
def test_a_name_that_a_memory_holds_is_known(store: SqliteStore, content: str, name: str) -> None:
    assert not knowing(store).known(name)
    remember(store, content)
    assert knowing(store).known(f" {name} ")
    assert knowing(store).known(name.upper())


def test_a_name_of_which_only_the_words_are_known_is_not(store: SqliteStore) -> None:
    remember(store, "Lovelace wrote to Ada")
    assert not knowing(store).known("Ada Lovelace")


def test_a_raw_turn_makes_no_name_known(store: SqliteStore) -> None:
    remember(store, "I met Ada today", kind="turn")
    assert not knowing(store).known("Ada")


def test_nobody_knows_from_others_memories(store: SqliteStore) -> None:
    remember(store, "Ada leads the team", BOB)
    remember(store, "Grace leads the other team", ALICES_CODER)
    assert not knowing(store).known("Ada")
    assert not knowing(store).known("Grace")
    assert knowing(store, scope=ALICES_CODER).known("Grace")


# ── similar ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_nearest_memory_says_how_close_a_text_is(store: SqliteStore) -> None:
    assert knowing(store).similar("The user likes green tea", None) == 0.0
    remember(store, "The user likes green tea", kind="preference")
    remember(store, "The staging port is 5433", kind="fact")
    asked = knowing(store)
    assert asked.similar("The user likes green tea", None) == pytest.approx(1.0, abs=0.01)
    assert asked.similar("The user likes green tea", "preference") == pytest.approx(1.0, abs=0.01)
    assert asked.similar("The user likes green tea", "fact") < 0.6


def test_a_text_without_a_vector_is_close_to_nothing(store: SqliteStore) -> None:
    remember(store, "The user likes green tea")
    assert knowing(store).similar("?!", None) == 0.0


# ── value ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("lasting", "chat"),
    [
        ("我们的测试库在 5433 端口。", "哈哈，好的，谢谢你。"),
        ("Our staging database is on port 5433.", "Haha, okay, thanks a lot."),
    ],
)
def test_the_classifier_tells_a_lasting_fact_from_talk(
    store: SqliteStore, model: ValueModel, lasting: str, chat: str
) -> None:
    asked = knowing(store, model=model)
    language = "zh" if lasting[0] == "我" else "en"
    assert asked.value(lasting, language) > 0.5 > asked.value(chat, language)  # type: ignore[arg-type]


def test_without_a_classifier_or_in_another_language_nothing_is_worth_keeping(
    store: SqliteStore, model: ValueModel
) -> None:
    assert knowing(store).value("I live in Rome", "en") == 0.0
    asked = knowing(store, model=model)
    assert asked.value("Спасибо, до свидания", "other") == 0.0
    assert asked.value("Спасибо, до свидания", "en") == 0.0


# ── what fails ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_store_that_cannot_be_read_knows_nothing(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(store, "Ada leads the team")

    def gone(*_: object, **__: object) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(store, "holding", gone)
    monkeypatch.setattr(store, "search", gone)
    asked = knowing(store)
    assert not asked.known("Ada")
    assert asked.similar("Ada leads the team", None) == 0.0


def test_without_vectors_the_surface_alone_is_judged(store: SqliteStore, model: ValueModel) -> None:
    remember(store, "Our staging database is on port 5433")
    asked = knowing(store, Faulty(), model)
    assert asked.similar("Our staging database is on port 5433", None) == 0.0
    assert asked.value("Our staging database is on port 5433.", "en") == model.score(
        "Our staging database is on port 5433.", None
    )


def test_a_sentence_that_several_rules_ask_about_is_embedded_once(store: SqliteStore, model: ValueModel) -> None:
    embedder = Faulty(works=True)
    asked = knowing(store, embedder, model)
    for kind in (None, "fact", "preference"):
        asked.similar("The user likes tea", kind)
    asked.value("The user likes tea", "en")
    assert embedder.asked == ["The user likes tea"]
