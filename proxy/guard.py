"""What must not be remembered as it was said: secrets, personal numbers, instructions to the model, our own block.

Pure: text in, text or a verdict out. Every pattern is linear in the text (possessive, or bounded), since text comes
from anywhere. Zh and en throughout.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import regex

from proxy.detectors import DETECTORS, SECRET_KINDS, Detector
from proxy.instructions import addresses_model
from proxy.shelf import compiled

__all__ = ["GuardOptions", "PiiRule", "Redacted", "SecretRule", "addresses_model", "guard", "redact", "strip_block"]

SecretRule = Literal["redact", "drop"]
PiiRule = Literal["redact", "keep"]


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """What is done about each kind, as the ``guard:`` section of a policy says.

    Args:
        secrets: ``redact`` replaces a secret; ``drop`` gives up the whole text around one.
        phone, id_number, card, email: ``redact`` or ``keep``.
    """

    secrets: SecretRule = "redact"
    phone: PiiRule = "redact"
    id_number: PiiRule = "redact"
    card: PiiRule = "redact"
    email: PiiRule = "keep"


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text that may be kept.

    Args:
        text: With ``[redacted:<kind>]`` where something was taken out; empty when it was dropped.
        found: One kind per thing found: ``private_key``, ``api_key``, ``password``, ``token``, ``id_number``,
            ``card``, ``phone``, ``email``.
    """

    text: str
    found: tuple[str, ...] = ()


_SHIPPED_OPTIONS: Final = GuardOptions()


def redact(text: str) -> Redacted:
    """Take secrets and personal numbers out of a text, by the shipped options (e-mail addresses stay).

    Args:
        text: Any text.

    Returns:
        The text without them. Applying it again changes nothing.

    >>> redact("密码是 hunter22，电话 13812345678")
    Redacted(text='密码是 [redacted:password]，电话 [redacted:phone]', found=('password', 'phone'))
    """
    return guard(text, _SHIPPED_OPTIONS)


def guard(text: str, options: GuardOptions) -> Redacted:
    """Take out of a text what the options say must not be kept.

    Args:
        text: Any text.
        options: What is done about each kind.

    Returns:
        The text without it; an empty one where a secret was found and secrets are dropped.
    """
    found: list[str] = []
    plain = _plain(text)
    # A pass that took something out may have uncovered more, such as a key that began right behind a phone number.
    for _ in range(_PASSES):
        known = len(found)
        lowered = plain.lower()
        for detector in DETECTORS:
            wanted = detector.kind in SECRET_KINDS or getattr(options, detector.kind) == "redact"
            if wanted and (not detector.hints or any(hint in lowered for hint in detector.hints)):
                text, plain = _take_out(detector, text, plain, found)
        if len(found) == known:
            break
    if options.secrets == "drop" and not SECRET_KINDS.isdisjoint(found):
        return Redacted("", tuple(found))
    return Redacted(text, tuple(found))


def strip_block(text: str, open_mark: str, close_mark: str) -> str:
    """Cut every marked block out of a text, so that what was recalled is never stored again.

    Blocks may be nested. One that is not closed ends with its paragraph (the next blank line); a closing mark alone is
    cut too. Letter case does not matter.

    Args:
        text: Any text.
        open_mark: How a block begins, e.g. ``<recalled_memories`` (attributes may follow).
        close_mark: How it ends, e.g. ``</recalled_memories>``.

    Returns:
        The text without blocks and marks; the very same text where it has none.

    >>> strip_block("Hello.\\n<m a='1'>likes tea</M>\\nBye.", "<m", "</m>")
    'Hello.\\n\\nBye.'
    """
    cuts: list[tuple[int, int]] = []
    opened: list[int] = []
    for mark in _marks(open_mark, close_mark).finditer(text):
        if mark.group("open") is not None:
            opened.append(mark.start())
        else:
            cuts.append((opened.pop() if opened else mark.start(), mark.end()))
    return _without(text, cuts + _unclosed(text, opened)) if cuts or opened else text


# --- the parts of guard ---

_PASSES: Final = 64
"""More kinds than that, taking turns without anything between them, are nobody's words."""


def _take_out(detector: Detector, text: str, plain: str, found: list[str]) -> tuple[str, str]:
    """Take out of a text what a detector sees in its plain form, which is as long; both, without it."""
    at = 0
    while match := detector.pattern.search(plain, at):
        start, end = match.span("secret")
        if detector.check is not None and not detector.check(match):
            at = match.start() + 1
            continue
        # In place: one that begins right behind it is now seen to begin there.
        mark = f"[redacted:{detector.kind}]"
        text = f"{text[:start]}{mark}{text[end:]}"
        plain = f"{plain[:start]}{mark}{plain[end:]}"
        found.append(detector.kind)
        at = start + len(mark)
    return text, plain


_ODD: Final = re.compile("[\u00a0\u2007\u2009\u202f\u2010\u2011\u2212\uff0d\uff10-\uff19]")
_MADE_PLAIN: Final = {
    **dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " "),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2212\uff0d"), "-"),
    **{ord("\uff10") + digit: str(digit) for digit in range(10)},
}


def _plain(text: str) -> str:
    """The text at the same length, with full-width digits, odd spaces and odd hyphens as numbers are mostly written."""
    return text if text.isascii() or _ODD.search(text) is None else text.translate(_MADE_PLAIN)


# --- the parts of strip_block ---

_WORD_END: Final = r"(?![\w-])"
_BLANK_LINE: Final = compiled(r"\n[ \t\r]*+\n")


@lru_cache(maxsize=16)
def _marks(open_mark: str, close_mark: str) -> regex.Pattern[str]:
    begins = regex.escape(open_mark) + (_WORD_END if open_mark[-1:].isalnum() else "")
    return compiled(f"(?P<open>{begins})|{regex.escape(close_mark)}", regex.IGNORECASE)


def _unclosed(text: str, opened: Sequence[int]) -> list[tuple[int, int]]:
    cuts: list[tuple[int, int]] = []
    end = 0
    for start in opened:
        if start >= end:  # else it stands in the paragraph that the one before it has cut
            blank = _BLANK_LINE.search(text, start)
            end = blank.start() if blank else len(text)
            cuts.append((start, end))
    return cuts


def _without(text: str, cuts: Sequence[tuple[int, int]]) -> str:
    kept: list[str] = []
    at = 0
    for start, end in [*sorted(cuts), (len(text), len(text))]:
        part = text[at:start]
        if part:
            # What stood on both sides of a cut must not join into a new mark.
            joins = kept and not kept[-1].endswith("\n") and not part.startswith("\n")
            kept.append(f"\n{part}" if joins else part)
        at = max(at, end)
    return "".join(kept)
