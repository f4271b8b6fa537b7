"""Token counts against tiktoken's own o200k, the estimate's bounds, and the windows of models."""

from __future__ import annotations

import base64
import importlib.util
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import tokens
from proxy.tokens import TokenCounter, count_for, estimate, window

PROSE = [
    "The user prefers dark mode in every editor, and asked for short answers.",
    "I moved to Berlin last spring, and since then I have worked as a nurse in a large hospital near the river.",
    "Hey Mel! Good to see you! How have you been? I went to a support group yesterday and it was so powerful.",
    "To plan the week, start with the tasks that have a fixed date; then fill in the rest. Don't forget the dentist!",
    "Remember that the deployment happens on Friday at 16:30, unless the tests fail, in which case we wait.",
    "It turned out that the server had been listening on the wrong interface, so we changed the address and restarted.",
    "我更喜欢深色模式，回答请简短一些。",
    "用户每天早上七点去江边跑步五公里，周末和女儿一起画画。",
    "上次端口冲突是把服务改到另一个端口解决的，后来写进了部署文档。",
    "我将要参加金融科技精英论坛，地点是北京，规模大约三千人。",
    "这个项目的前端用的是什么框架？我记得你说过要换成另一个。",
    "能呀，讲述的是陆军上尉在休假中邂逅了芭蕾舞女郎，之后两人坠入爱河并互订终身的爱情故事。",
]
_RANDOM = random.Random(7)
MIXED = [
    *PROSE,
    "def count(text: str) -> int:\n    return sum(1 for _ in text)\n\n\nclass A(B):\n\tpass\n",
    '{"status": "ok", "items": [1, 2, 3], "created_at": "2026-11-02T08:30:00Z"}',
    "$ kubectl get pods -n kube-system -o wide | grep -v Running",
    "https://example.com/a/b/c?x=1&y=2#frag and ssh -p 2222 deploy@127.0.0.1",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- [ ] todo\n- [x] done\n",
    "1,234,567.89 + 3.14159 = 1,234,571.03",
    base64.b64encode(_RANDOM.randbytes(300)).decode(),
    _RANDOM.randbytes(20).hex(),
    f"request {uuid.UUID(int=_RANDOM.getrandbits(128))} failed",
    "用户偏好用 pnpm 管理前端依赖，PostgreSQL 15 部署在阿里云 RDS 上",
    "カタカナとひらがなと漢字が混ざった文章です。",
    "안녕하세요 반갑습니다 오늘 날씨가 좋네요",
    "Привет, как дела? Сегодня хорошая погода.",
    "مرحبا كيف حالك اليوم",
    "สวัสดีชาวโลก วันนี้อากาศดี",
    "Zażółć gęślą jaźń; Việt Nam đẹp lắm",
    "😀😂👍🎉🎉🔥 great 👨‍👩‍👧‍👦",
    "=" * 40 + "\n" + "-" * 40,
    "a",
    "好",
    " ",
    "\x00\x01\x02",
]


@pytest.fixture(scope="module")
def counter() -> TokenCounter:
    one = TokenCounter()
    one.warm()
    assert one.is_exact
    return one


@pytest.fixture(scope="module")
def o200k() -> Iterator[tiktoken.Encoding]:
    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        yield tiktoken.get_encoding("o200k_base")


@pytest.mark.parametrize("text", ["", *MIXED, "<|endoftext|> is plain text", "it's we'll THEY'RE", "lone \ud83d half"])
def test_a_warm_count_is_o200ks(counter: TokenCounter, o200k: tiktoken.Encoding, text: str) -> None:
    assert counter.count(text) == len(o200k.encode_ordinary(text))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_a_warm_count_is_o200ks_on_any_text(counter: TokenCounter, o200k: tiktoken.Encoding, text: str) -> None:
    assert counter.count(text) == len(o200k.encode_ordinary(text))


def test_a_long_text_is_counted_within_a_token_per_chunk(counter: TokenCounter, o200k: tiktoken.Encoding) -> None:
    text = "\n\n".join(MIXED * 20)[:60_000]
    exact = len(o200k.encode_ordinary(text))
    assert abs(counter.count(text) - exact) <= len(text) / tokens._CHUNK_CHARS + 1


def test_a_very_long_text_is_sampled_close_above_the_exact_count(
    counter: TokenCounter, o200k: tiktoken.Encoding
) -> None:
    text = "\n\n".join(MIXED * 200)
    exact = len(o200k.encode_ordinary(text))
    assert len(text) > tokens._EXACT_CHARS
    assert exact <= counter.count(text) <= 1.25 * exact


@pytest.mark.parametrize("unit", ["a", " ", "\n", "哈", "!", "1", "ab", "a b ", "\u0301", "😀"])
@pytest.mark.parametrize("warm", [True, False])
def test_hostile_runs_cost_no_more_than_their_length(counter: TokenCounter, unit: str, warm: bool) -> None:
    one = counter if warm else TokenCounter()
    small = _seconds(lambda: one.count((unit * 8_000)[:8_000]))
    large = _seconds(lambda: one.count((unit * 800_000)[:800_000]))
    assert large < 30 * small + 0.02
    assert small < 60 * _seconds(lambda: one.count((unit * 400)[:400])) + 0.02


# --- the estimate ---


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(MIXED), min_size=1, max_size=8), st.sampled_from(["", " ", "\n", "\n\n", "，", ". "]))
def test_estimate_is_never_below_the_count_of_mixed_text(
    counter: TokenCounter, parts: list[str], separator: str
) -> None:
    text = separator.join(parts)
    assert estimate(text) >= counter.count(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PROSE), min_size=1, max_size=8), st.sampled_from([" ", "\n"]))
def test_estimate_is_at_most_twice_the_count_of_prose(counter: TokenCounter, parts: list[str], separator: str) -> None:
    text = separator.join(parts)
    assert estimate(text) <= 2 * counter.count(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=500))
def test_estimate_never_fails_and_is_zero_for_nothing_only(text: str) -> None:
    assert (estimate(text) == 0) == (text == "")


def test_a_cold_counter_estimates() -> None:
    cold = TokenCounter()
    assert not cold.is_exact
    assert cold.count("Hello, world") == estimate("Hello, world")


# --- loading ---


@pytest.mark.parametrize("content", [None, b"IQ== 0\n", b""])
def test_an_unusable_table_leaves_estimates_and_is_logged_once(tmp_path: Path, content: bytes | None) -> None:
    table = tmp_path / "o200k"
    if content is not None:
        table.write_bytes(content)
    one = TokenCounter(table)
    with structlog.testing.capture_logs() as logs:
        one.warm()
        one.warm()
    assert [entry["event"] for entry in logs] == ["token_table_unusable"]
    assert not one.is_exact
    assert one.count("Hello, world") == estimate("Hello, world")
    assert content is None or table.read_bytes() == content


def test_without_litellm_counts_are_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    one = TokenCounter()
    one.warm()
    assert one.count("hello") == estimate("hello")


def test_threads_may_count_while_another_warms() -> None:
    one, exact = TokenCounter(), 3
    counts: set[int] = set()
    warming = threading.Thread(target=one.warm)
    warming.start()
    while warming.is_alive():
        counts.add(one.count("Hello, world"))
    warming.join()
    counts.add(one.count("Hello, world"))
    assert counts <= {exact, estimate("Hello, world")}
    assert exact in counts


def test_litellm_is_never_imported() -> None:
    code = (
        "import sys; from proxy.tokens import TokenCounter, window; one = TokenCounter(); one.warm(); "
        "assert one.is_exact and window('gpt-4o') == 128000; assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parent.parent)


# --- models ---


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4o-mini", "openai/gpt-5", "azure/gpt-4.1-mini", "o3", "o4-mini", "chatgpt-4o-latest"]
)
def test_current_gpt_models_count_in_o200k(model: str) -> None:
    assert count_for(model, 1000) == 1000


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-sonnet-4-5", 1450),
        ("us.anthropic.claude-opus-4-6-v1", 1450),
        ("Claude-3-Haiku", 1450),
        ("gpt-4-turbo", 1550),
        ("gpt-3.5-turbo", 1550),
        ("gemini/gemini-2.5-pro", 1100),
        ("qwen3-max", 1100),
        ("deepseek-chat", 1100),
        ("llama-3.1-70b", 1100),
        ("something-new", 1100),
        ("demo/echo", 1000),
        ("", 1100),
    ],
)
def test_other_families_get_their_factor(model: str, expected: int) -> None:
    assert count_for(model, 1000) == pytest.approx(expected, abs=1)


@given(st.text(max_size=30), st.integers(0, 10_000_000))
def test_no_model_counts_fewer_tokens_than_o200k(model: str, text_tokens: int) -> None:
    assert count_for(model, text_tokens) >= text_tokens


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o", 128_000),
        ("openai/gpt-4o", 128_000),
        ("my-gateway/team/gpt-4o-mini", 128_000),
        ("gemini/gemini-2.5-pro", 1_048_576),
        ("demo/echo", 32_768),
        ("no-such-model", None),
        ("sample_spec", None),
        ("", None),
    ],
)
def test_window_is_read_from_litellms_list(model: str, expected: int | None) -> None:
    assert window(model) == expected


def test_without_litellm_no_window_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens._windows.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    try:
        assert window("gpt-4o") is None
        assert window("demo/echo") == 32_768
    finally:
        tokens._windows.cache_clear()


def _seconds(work: Callable[[], object]) -> float:
    """The best of three runs, in CPU seconds of this thread."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return best
