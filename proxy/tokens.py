"""How many tokens a text costs, and how many a model takes.

A leaf: counts in o200k (the tokenizer of current GPT models) from the table that litellm ships, times a factor per
model family; windows from litellm's price list. Never imports litellm, never downloads. Until the table is loaded, and
where it is missing, a text is over-estimated.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import importlib.util
import math
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import orjson
import structlog
import tiktoken

_log = structlog.get_logger(__name__)

_TABLE: Final = "litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790"
_TABLE_SHA256: Final = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_PRICES: Final = "model_prices_and_context_window_backup.json"
_DEMO_WINDOW: Final = 32_768
_KEPT_COUNTS: Final = 8_192
_KEPT_CHARS: Final = 600

# tiktoken's own pattern for o200k_base; its loader is not used, since it deletes and downloads what it finds unfit.
_O200K_PATTERN: Final = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

# A chunk bounds what a single odd run (100,000 × "a") can cost, at an error of one token per border. Past the exact
# part a text is sampled: a million characters cost as much as sixty-four thousand.
_CHUNK_CHARS: Final = 8_000
_EXACT_CHARS: Final = 64_000
_SAMPLES: Final = 32
_SAMPLE_CHARS: Final = 2_000
_SAMPLING_MARGIN: Final = 1.1

# Tokens per o200k token. Measured where a tokenizer is at hand, as the largest of chat, code and Chinese, so that a
# budget holds in each: Claude 1.06 / 1.17 / 1.44 (its last public tokenizer), cl100k (GPT-4, GPT-3.5) 1.03 / 1.00 /
# 1.53, DeepSeek 1.04 / 1.11 / 0.83. Of the others (Gemini, Qwen, Llama …) none is: they have vocabularies of 128,000
# to 256,000 tokens, like o200k, and get 1.1.
_FAMILIES: Final = (
    (re.compile(r"(?:^|[/.])(?:chatgpt|gpt-4o|gpt-4\.[15]|gpt-[5-9]|gpt-oss|codex|o[1-9](?![a-z0-9]))"), 1.0),
    (re.compile(r"^demo/"), 1.0),
    (re.compile(r"claude"), 1.45),
    (re.compile(r"(?:^|[/.])gpt-(?:4|3\.5)"), 1.55),
)
_UNKNOWN_FACTOR: Final = 1.1

_WORD: Final = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")
_LONG_WORD_CHARS: Final = 12
_MIXED: Final = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]++[0-9]|[0-9]++[A-Za-z])[A-Za-z0-9]*+")
_DIGITS: Final = re.compile(r"[0-9]{1,3}")
_LONE_SPACE: Final = re.compile(r" (?=[0-9\x00-\x08\x0e-\x1f\x7f])")
_SYMBOLS: Final = re.compile(r"[!-/:-@\[-`{-~]+")
_SPACES: Final = re.compile(r"\s{2,}|[\t\n\r]")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_CJK: Final = re.compile(r"[\u2010-\u203a\u3001-\u30ff\u4e00-\u9fff\uff00-\uffef]")
_ASTRAL: Final = re.compile(r"[\U00010000-\U0010ffff]")


class TokenCounter:
    """Counts tokens in o200k; over-estimates until it is warm. Safe to call from any thread.

    Args:
        table: The o200k ranks in tiktoken's format; None takes the file that litellm ships.
    """

    def __init__(self, table: Path | None = None) -> None:
        self._table = table or _litellm_file(_TABLE)
        self._exact: Callable[[str], int] | None = None
        self._tried = False
        self._lock = threading.Lock()

    @property
    def is_exact(self) -> bool:
        """Whether counts are o200k's own, not estimates."""
        return self._exact is not None

    def warm(self) -> None:
        """Load o200k (0.2 s, in which nothing else runs, and 50 MB) and the table of windows.

        Where the table is missing or damaged, counts stay estimates, and the log says so once.
        """
        _windows()
        with self._lock:
            if self._tried:
                return
            self._tried = True
            try:
                encoding = _read_encoding(self._table)
            except (OSError, ValueError) as error:
                _log.warning("token_table_unusable", table=_TABLE, error_type=type(error).__name__, hint=str(error))
                return
            self._exact = _keeping_short(lambda text: len(encoding.encode_ordinary(text)))

    def count(self, text: str) -> int:
        """Tokens of a text; markers such as ``<|endoftext|>`` count as plain text.

        Args:
            text: Any text; past 64,000 characters it is sampled.

        Returns:
            ≥ 0. Exact when warm and up to 8,000 characters, within a token per 8,000 up to 64,000; an estimate, mostly
            1.1 to 2 times the exact count, before.
        """
        return _measure(text, self._exact or estimate)


def estimate(text: str) -> int:
    """An upper estimate of a text's o200k tokens, without any table.

    Counts what the tokenizer would cut at (words, runs of digits and symbols, CJK characters) and weighs each kind so
    that the sum is not below the exact count on text people write; for prose it is not above twice that count.

    Args:
        text: Any text.

    Returns:
        ≥ 0; 0 for an empty text only.

    >>> estimate(""), estimate("Hello, world"), estimate("我喜欢深色模式")
    (0, 5, 9)
    """
    if not text:
        return 0
    words = _WORD.findall(text)
    symbols = _SYMBOLS.findall(text)
    spaces = _SPACES.findall(text)
    tokens = 0.9 * len(words) + 0.15 * sum(map(len, words))
    tokens += 0.25 * sum(len(word) - _LONG_WORD_CHARS for word in words if len(word) > _LONG_WORD_CHARS)
    # Hashes, keys and base64 hold a token every one or two characters.
    tokens += 0.25 * sum(map(len, _MIXED.findall(text)))
    # A space joins the word after it, but no number and no control character.
    tokens += len(_DIGITS.findall(text)) + len(_LONE_SPACE.findall(text))
    tokens += 0.55 * len(symbols) + 0.45 * sum(map(len, symbols))
    tokens += len(spaces) + sum(map(len, spaces)) / 16 + len(_CONTROLS.findall(text))
    if not text.isascii():
        cjk = len(_CJK.findall(text))
        other = len(text) - len(text.encode("ascii", "ignore")) - cjk
        tokens += 1.15 * cjk + 1.8 * other + 1.5 * len(_ASTRAL.findall(text))
    return int(tokens) + 1


def count_for(model: str, text_tokens: int) -> int:
    """What o200k tokens come to in a model's own tokenizer, rounded up.

    Args:
        model: Name as the client or config.yaml gives it, with or without a provider before it.
        text_tokens: Tokens in o200k, ≥ 0.

    Returns:
        ≥ `text_tokens`.

    >>> count_for("gpt-5-mini", 100), count_for("anthropic/claude-sonnet-4-5", 100), count_for("qwen3-max", 100)
    (100, 145, 111)
    """
    return math.ceil(text_tokens * _factor(model))


@functools.lru_cache(maxsize=1_024)
def _factor(model: str) -> float:
    name = model.lower()
    return next((factor for pattern, factor in _FAMILIES if pattern.search(name)), _UNKNOWN_FACTOR)


def window(model: str) -> int | None:
    """The most input tokens that a model takes, by litellm's list.

    Args:
        model: Name as the client or config.yaml gives it; looked up as it is, then without what stands before its
            last ``/``.

    Returns:
        Tokens, or None when the list does not know the model (or is missing).

    >>> window("demo/echo")
    32768
    """
    if model == "demo/echo":
        return _DEMO_WINDOW
    known = _windows()
    return known.get(model) or known.get(model.rsplit("/", 1)[-1])


def _measure(text: str, measure: Callable[[str], int]) -> int:
    if len(text) <= _CHUNK_CHARS:
        return measure(text)
    if len(text) <= _EXACT_CHARS:
        return sum(measure(text[start : start + _CHUNK_CHARS]) for start in range(0, len(text), _CHUNK_CHARS))
    last = len(text) - _SAMPLE_CHARS
    starts = [last * sample // (_SAMPLES - 1) for sample in range(_SAMPLES)]
    sampled = sum(measure(text[start : start + _SAMPLE_CHARS]) for start in starts)
    return math.ceil(sampled / (_SAMPLES * _SAMPLE_CHARS) * len(text) * _SAMPLING_MARGIN)


def _keeping_short(measure: Callable[[str], int]) -> Callable[[str], int]:
    """The same measure, which keeps its figures for short texts: the lines of a block come again and again."""
    kept = functools.lru_cache(_KEPT_COUNTS)(measure)
    return lambda text: kept(text) if len(text) <= _KEPT_CHARS else measure(text)


def _read_encoding(table: Path | None) -> tiktoken.Encoding:
    if table is None:
        raise FileNotFoundError("litellm is not installed")
    content = table.read_bytes()
    if hashlib.sha256(content).hexdigest() != _TABLE_SHA256:
        raise ValueError("the file is not the o200k table that was expected")
    parts = content.split()  # tokens and ranks in turn
    ranks = dict(zip(map(binascii.a2b_base64, parts[::2]), map(int, parts[1::2]), strict=True))
    encoding = tiktoken.Encoding("o200k_base", pat_str=_O200K_PATTERN, mergeable_ranks=ranks, special_tokens={})
    # The encoding keeps its ranks in Rust; the Python dict, which it also holds on to, would cost 30 MB for nothing.
    ranks.clear()
    return encoding


@functools.cache
def _windows() -> Mapping[str, int]:
    path = _litellm_file(_PRICES)
    try:
        models = orjson.loads(path.read_bytes()) if path else {}
    except (OSError, orjson.JSONDecodeError) as error:
        _log.warning("model_windows_unusable", table=_PRICES, error_type=type(error).__name__)
        return {}
    limits = {name: entry.get("max_input_tokens") for name, entry in models.items() if isinstance(entry, dict)}
    return {name: limit for name, limit in limits.items() if isinstance(limit, int) and limit > 0}


def _litellm_file(name: str) -> Path | None:
    """A file of the litellm package, found without importing it (which takes seconds)."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / name
