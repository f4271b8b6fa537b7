"""The embedders: one contract for both, then the builtin one against model2vec itself."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import embed
from proxy.config import Config, Embedding
from proxy.embed import BUILTIN_MODEL, Model2VecEmbedder, StaticEmbedder, open_embedder
from proxy.errors import EmbedderError
from proxy.plugs import Embedder

TEXTS = [
    "The user prefers dark mode in every editor.",
    "I moved to Berlin last spring and work as a nurse.",
    "ssh -p 2222 deploy@example.com --port=2222",
    "def main(argv: list[str]) -> int:\n    return 0",
    '{"status": "ok", "items": [1, 2, 3]}',
    "What's the capital of France?",
    "Don't forget: the dentist, 3:30 p.m., on May 4th!",
    "HELLO WORLD, HELLO AGAIN",
    "a",
    "naïve café on the corner",
    "see https://example.com/a/b?c=d#e for more",
    "   leading and   inner \t spaces \n\n and lines   ",
    "version 3.11.2-rc1 of python, 100% done",
    "Caroline: Hey Mel! Good to see you! How have you been?",
    "half ½ and ﬁne ① ligatures",
    "😀 great, thanks 👍",
    "用户偏好用 pnpm 管理前端依赖",
    "我更喜欢深色模式。",
    "生产数据库使用 PostgreSQL 15,部署在阿里云 RDS 上",
    "我女儿今年上小学二年级，喜欢画画",
    "以后都用中文回答",
    "北京",
    "上次端口冲突怎么解决的？",
    "「你好」他说：“明天见”！",
    "我将要参加金融科技精英论坛。",
    "ＡＢＣ全角１２３",
    "三月十二日支付 128.50 元，订单号 20240312-0001",
    "カタカナとひらがな",
    "好",
    "繁體中文也可以嗎？臺北市",
    "深度学习 deep learning 混合 text 测试",
    "word " * 700,
    "很长的一段话，" * 500,
]


@pytest.fixture(scope="module")
def builtin() -> StaticEmbedder:
    return StaticEmbedder(BUILTIN_MODEL)


@pytest.fixture(scope="module")
def through_model2vec() -> Model2VecEmbedder:
    return Model2VecEmbedder(str(BUILTIN_MODEL))


@pytest.fixture(params=["builtin", "through_model2vec"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    one: Embedder = request.getfixturevalue(request.param)
    return one


# --- the contract ---


def test_vectors_are_float32_of_unit_length(embedder: Embedder) -> None:
    for vector in [*embedder.documents(TEXTS), embedder.query("好吗")]:
        assert vector is not None
        assert vector.shape == (embedder.dimension,)
        assert vector.dtype == np.float32
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_a_batch_keeps_the_order_and_the_values_of_single_texts(embedder: Embedder) -> None:
    batch = embedder.documents(["", *TEXTS[:5], "？！", *TEXTS[16:20]])
    singles = [embedder.documents([text])[0] for text in ["", *TEXTS[:5], "？！", *TEXTS[16:20]]]
    assert len(batch) == 11
    for left, right in zip(batch, singles, strict=True):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            np.testing.assert_allclose(left, right, atol=1e-6)


@pytest.mark.parametrize("text", ["", "   \n\t", "!!!", "？？。", "…—", "\u200b"])
def test_no_vector_for_a_text_without_content(embedder: Embedder, text: str) -> None:
    assert embedder.query(text) is None
    assert embedder.documents([text, "hello"])[0] is None


def test_a_broken_unicode_text_still_has_a_vector(embedder: Embedder) -> None:
    assert embedder.query("hello \ud83d there") is not None


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert list(embedder.documents([])) == []


def test_fingerprint_names_the_dimension_and_is_stable(embedder: Embedder) -> None:
    assert embedder.fingerprint.endswith("-256")
    assert embedder.fingerprint == type(embedder)(BUILTIN_MODEL).fingerprint  # type: ignore[call-arg]


def test_threads_get_the_vectors_that_one_thread_gets(embedder: Embedder) -> None:
    expected = [embedder.query(text) for text in TEXTS]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for one, other in zip(expected, pool.map(embedder.query, TEXTS), strict=True):
                np.testing.assert_array_equal(one, other)


# --- the builtin model ---


def test_builtin_equals_model2vec(builtin: StaticEmbedder, through_model2vec: Model2VecEmbedder) -> None:
    ours, theirs = builtin.documents(TEXTS), through_model2vec.documents(TEXTS)
    cosines = {
        text[:30]: float(one @ other)
        for text, one, other in zip(TEXTS, ours, theirs, strict=True)
        if one is not None and other is not None
    }
    assert len(cosines) == len({text[:30] for text in TEXTS})
    assert {text: cosine for text, cosine in cosines.items() if cosine < 0.9999} == {}


def test_the_cut_in_characters_is_model2vecs(through_model2vec: Model2VecEmbedder) -> None:
    model: Any = through_model2vec._model
    assert model.max_length == embed._MAX_TOKENS
    assert model.max_length * model.median_token_length == embed._MAX_CHARS


def test_questions_are_weighted_otherwise_than_stored_text(builtin: StaticEmbedder) -> None:
    question, stored = builtin.query("What port do I use?"), builtin.documents(["What port do I use?"])[0]
    assert question is not None
    assert stored is not None
    assert 0.2 < float(question @ stored) < 0.999


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("我前端用什么包管理器？", "用户偏好用 pnpm 管理前端依赖", "用户每天早上七点去江边跑步五公里"),
        ("Which editor theme do I like?", "The user prefers dark mode in editors", "The user's dog is called Rex"),
    ],
)
def test_a_question_is_nearer_to_its_answer(builtin: StaticEmbedder, question: str, answer: str, other: str) -> None:
    asked, (near, far) = builtin.query(question), builtin.documents([answer, other])
    assert asked is not None
    assert near is not None
    assert far is not None
    assert float(asked @ near) > 0.25
    assert float(asked @ near) > float(asked @ far) + 0.1


@pytest.mark.parametrize("text", ["안녕하세요 세계", "สวัสดีชาวโลก", "Привет мир", "مرحبا", "한국 123 좋아!", "हिन्दी में"])
def test_no_vector_where_unknown_scripts_collapse(builtin: StaticEmbedder, text: str) -> None:
    assert builtin.documents([text]) == [None]


def test_a_few_unknown_letters_do_not_cost_the_vector(builtin: StaticEmbedder) -> None:
    plain, accented = builtin.documents(["a meeting at the coffee house", "a meeting at the coffee house é"])
    assert plain is not None
    assert accented is not None
    assert float(plain @ accented) > 0.95


def test_text_past_the_limit_changes_nothing(builtin: StaticEmbedder) -> None:
    long = "the quick brown fox " * 200
    one, other = builtin.documents([long, long + "and something else at the end"])
    np.testing.assert_array_equal(one, other)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(), max_size=200))
def test_any_text_gives_a_unit_vector_or_none(builtin: StaticEmbedder, text: str) -> None:
    vector = builtin.query(text)
    assert vector is None or float(vector @ vector) == pytest.approx(1.0, abs=1e-4)


def test_loading_takes_a_fraction_of_the_models_bytes() -> None:
    psutil = importlib.import_module("psutil")
    process = psutil.Process()
    before = process.memory_info().rss
    held = StaticEmbedder(BUILTIN_MODEL)
    assert process.memory_info().rss - before < 60e6
    assert held.dimension == 256


def test_work_grows_at_most_linearly_with_a_hostile_text(builtin: StaticEmbedder) -> None:
    assert _seconds(lambda: builtin.query("a" * 1_000_000)) < 20 * _seconds(lambda: builtin.query("a" * 2_048)) + 0.05


# --- bad models and names ---


def _copy(folder: Path) -> Path:
    target = folder / "static-zhen-256"
    target.mkdir()
    for name in ("model.safetensors", "sentencepiece.model"):
        shutil.copy(BUILTIN_MODEL / name, target / name)
    return target


def test_fingerprint_changes_with_the_models_bytes(tmp_path: Path, builtin: StaticEmbedder) -> None:
    copy = _copy(tmp_path)
    assert StaticEmbedder(copy).fingerprint == builtin.fingerprint
    with (copy / "model.safetensors").open("r+b") as file:
        file.seek(-34_000_000, os.SEEK_END)
        file.write(bytes(2_000_000))
    assert StaticEmbedder(copy).fingerprint != builtin.fingerprint


def test_a_missing_model_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r"model\.safetensors cannot be read"):
        StaticEmbedder(tmp_path)


@pytest.mark.parametrize("size", [4, 100, 1_000_000])
def test_a_truncated_model_is_refused(tmp_path: Path, size: int) -> None:
    copy = _copy(tmp_path)
    os.truncate(copy / "model.safetensors", size)
    with pytest.raises(EmbedderError, match="install the package anew"):
        StaticEmbedder(copy)


@pytest.mark.parametrize("content", [b"\xff" * 64, b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{}", b""])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    copy = _copy(tmp_path)
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(EmbedderError, match=r"model\.safetensors"):
        StaticEmbedder(copy)


def test_a_damaged_tokenizer_is_refused(tmp_path: Path) -> None:
    copy = _copy(tmp_path)
    (copy / "sentencepiece.model").write_bytes(b"nothing")
    with pytest.raises(EmbedderError, match=r"sentencepiece\.model cannot be read as a tokenizer"):
        StaticEmbedder(copy)


def test_open_embedder_gives_the_builtin_model() -> None:
    assert isinstance(open_embedder(Config()), StaticEmbedder)


def test_open_embedder_gives_any_model2vec_folder(through_model2vec: Model2VecEmbedder) -> None:
    opened = open_embedder(Config(embedding=Embedding(model=str(BUILTIN_MODEL))))
    assert isinstance(opened, Model2VecEmbedder)
    assert opened.fingerprint == through_model2vec.fingerprint


def test_a_missing_folder_is_never_looked_up_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="does not exist; check the path"):
        Model2VecEmbedder(str(tmp_path / "nowhere"))


def test_a_folder_without_a_model_is_refused_and_the_environment_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(EmbedderError, match="cannot be loaded by model2vec"):
        Model2VecEmbedder(str(tmp_path))
    assert "HF_HUB_OFFLINE" not in os.environ


def test_without_model2vec_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(EmbedderError, match=r"pip install 'sidemirror\[model2vec\]'"):
        Model2VecEmbedder(str(BUILTIN_MODEL))


def _seconds(work: Callable[[], object]) -> float:
    """The best of three runs, in CPU seconds of this thread."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return best
