"""Patterns of the policy language: written per language or once for all, compiled once, tried on texts made to hurt.

In: what a policy file says. Out: patterns of the `regex` engine, which can be interrupted; `matcher.py` runs them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

import regex
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from proxy import shelf
from proxy.types import Language

CHECK_TIMEOUT_S = 0.02
CHECK_CHARS = 8_000
CHECK_TRIES = 3
YARDSTICK_S = 0.0065
LANGUAGES: tuple[Language, ...] = ("zh", "en", "other")
MAX_MATCHES = 8

_MADE_PLAIN = (("’", "'"), ("‘", "'"), ("\u00a0", " "), ("\u3000", " "))


def readable(text: str) -> str:
    """The text as patterns see it: same length, with curly apostrophes and odd spaces made plain.

    >>> readable("I’m here")
    "I'm here"
    """
    if not text.isascii():
        for odd, plain in _MADE_PLAIN:  # four times faster than str.translate
            text = text.replace(odd, plain)
    return text


def compiled(pattern: str, lines: bool = False) -> regex.Pattern[str]:
    """Compile a pattern once.

    Args:
        pattern: As written.
        lines: Whether ``^`` and ``$`` also stand for the ends of each line: for texts with one sentence a line.

    Raises:
        ValueError: What is wrong with it, and where.
    """
    try:
        return shelf.compiled(pattern, regex.MULTILINE if lines else 0)
    except regex.error as error:
        raise ValueError(f"broken pattern: {error}") from error


def _readable_pattern(pattern: str) -> str:
    if not pattern:
        raise ValueError("an empty pattern matches everything; leave the key out")
    bad = next((char for char in pattern if ord(char) < 32 and char != "\n"), None)
    if bad is not None:
        hint = "use single quotes, where a backslash stays a backslash"
        raise ValueError(f"the pattern holds the control character U+{ord(bad):04X}; {hint}")
    return pattern


BUILT_IN_NAMES = frozenset({"text", "tool", "asked", "error", "arguments"})
"""Names that every template may use without capturing them; a capture of the same name wins."""
SESSION_NAMES = frozenset({"summary", "points", "session"})
"""Those that rules on `session_end` may use besides."""
PROMPT_NAMES = frozenset({"message"})
"""Those that the prompt of an `llm` may use besides."""

PatternText = Annotated[str, AfterValidator(_readable_pattern)]


class ByLanguage(BaseModel):
    """One or more patterns per language; any of them may match. ``any`` holds those written without a language."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    zh: tuple[PatternText, ...] = ()
    en: tuple[PatternText, ...] = ()
    other: tuple[PatternText, ...] = ()
    every: tuple[PatternText, ...] = ()

    def for_language(self, language: Language) -> tuple[str, ...]:
        """The patterns to try on a text in this language."""
        own: tuple[str, ...] = getattr(self, language)
        return own + self.every

    def given(self) -> Mapping[Language, tuple[str, ...]]:
        """The languages that have patterns, with them."""
        return {language: found for language in LANGUAGES if (found := self.for_language(language))}


def _by_language(value: Any) -> Any:
    if isinstance(value, str | list):
        return {"every": _listed(value)}
    if isinstance(value, dict):
        if unknown := [key for key in value if key not in LANGUAGES]:
            raise ValueError(f"'{unknown[0]}' is not a language here; one of zh, en, other")
        if not value:
            raise ValueError("give a pattern, or one per language (zh, en, other)")
        return {key: _listed(text) for key, text in value.items()}
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


PatternInput = str | list[str] | dict[Language, str | list[str]]
Patterns = Annotated[ByLanguage, BeforeValidator(_by_language, json_schema_input_type=PatternInput)]
"""A field with patterns: one text, a list (any of them), or either of these per language."""


_YARDSTICK = shelf.compiled("(?:ab?){1,60}z")
_YARDSTICK_TEXT = "ab" * 1_000


@lru_cache(maxsize=4_096)
def too_slow(pattern: str, lines: bool = False) -> bool:
    """Whether a pattern needs more than 20 ms for some text of 8,000 characters made from its own parts.

    Args:
        pattern: One that compiles.
        lines: As in `compiled`; such a pattern never sees line ends in a row.

    A slow try is repeated: only the best of three counts, so that a busy machine raises no false alarm.
    """
    ready = compiled(pattern, lines)
    return any(_too_slow_on(ready, text) for text in hard_texts(pattern) if not (lines and "\n" in text))


def _too_slow_on(pattern: regex.Pattern[str], text: str) -> bool:
    # A quarter of the text takes a sixteenth of the time where time grows with the square; most end here.
    if _cpu_s(pattern, text[: len(text) // 4] + text[-1]) < CHECK_TIMEOUT_S / 20:
        return False
    return all(_cpu_s(pattern, text) > CHECK_TIMEOUT_S * _slowness() for _ in range(CHECK_TRIES))


def _slowness() -> float:
    """How many times slower this machine is now than the one that the limit was set on, from 1 to 3.

    A busy or small machine must not refuse what another one takes.
    """
    return min(3.0, max(1.0, _cpu_s(_YARDSTICK, _YARDSTICK_TEXT) / YARDSTICK_S))


def _cpu_s(pattern: regex.Pattern[str], text: str) -> float:
    started = time.thread_time()
    with contextlib.suppress(TimeoutError):
        for _ in zip(range(MAX_MATCHES), pattern.finditer(text, timeout=CHECK_TIMEOUT_S * 4), strict=False):
            pass
    return time.thread_time() - started


_LITERAL = shelf.compiled(
    r"\\(?:[pP]\{\w+\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)|\(\?(?:P<\w+>|<?[=!]|[a-zA-Z:]+\)?)|[^\\]"
)
_CLASSES = {"d": "7", "s": " ", "w": "w", "S": "w", "D": "w", "W": "-", "n": "\n", "t": "\t"}
_SYNTAX = frozenset("()[]{}|*+?^$.")


def hard_texts(pattern: str, size: int = CHECK_CHARS) -> list[str]:
    """Texts that make a careless pattern backtrack: its own letters and words, repeated, with an end that fits nothing.

    >>> [len(text) for text in hard_texts("(a+)+b", 100)][:2]
    [100, 100]
    """
    words, word, singles = [], "", dict[str, None]()
    for token in _LITERAL.findall(pattern):
        char = _CLASSES.get(token[1], token[1]) if token[0] == "\\" and len(token) == 2 else token
        if len(char) == 1 and (char not in _SYNTAX or token[0] == "\\"):
            word += char
            singles[char] = None
        elif word:
            words.append(word)
            word = ""
    words += [word] if word else []
    longest = sorted(dict.fromkeys(words), key=len, reverse=True)[:4]
    seeds = [*list(singles)[:4], *longest, "".join(words), " ".join(longest), "a", " ", "\n", "字"]
    return [(seed * (size // len(seed) + 1))[: size - 1] + "\x1f" for seed in dict.fromkeys(seeds) if seed]
