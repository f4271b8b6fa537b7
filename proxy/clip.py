"""Where a text may be cut: between words, never in a word, a number, a URL or a character made of several.

Pure. In: a text and a length. Out: its beginning with an ellipsis. Chinese and other scripts without spaces may be cut
between any two letters; there is no telling where their words end.
"""

from __future__ import annotations

import re
import unicodedata

ELLIPSIS = "…"
_NO_SPACES = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003134f"
)
WITHOUT_SPACES = re.compile(f"[{_NO_SPACES}]")
"""A letter or sign of a script that puts no spaces between words."""
_NUMERAL = re.compile("[0-9０-９〇零一二两三四五六七八九十百千万亿兆.,:：/%％年月日号时点分秒元块个岁度]")
_URL = re.compile(r"(?:https?://|www\.)[^\s，。；！？、）】》”\"'<>]+")
_CLAUSE_END = re.compile(r"[，；：、。！？]|[.,;:!?](?=\s)")
_LONGEST_URL = 2_000
_JOINER = "\u200d"


def clip(text: str, max_chars: int) -> str:
    """The beginning of a text, cut where a clause ends or at least between words.

    Args:
        text: Any text.
        max_chars: Greatest length, the ellipsis included; ≥ 1.

    Returns:
        The text itself where it is short enough; the ellipsis alone where it begins with a longer word.

    >>> clip("The port is 5433, as agreed", 20), clip("见 https://a.example/一二三 的说明", 12), clip("短", 5)
    ('The port is 5433,…', '见…', '短')
    """
    if len(text) <= max_chars:
        return text
    return text[: _cut(text, max(max_chars - len(ELLIPSIS), 0))].rstrip() + ELLIPSIS


def one_line(text: str, max_chars: int) -> str:
    """A text as one line of a table or a message, cut anywhere: what is shown to be recognised, not to be read.

    Args:
        text: Any text.
        max_chars: Greatest length, the ellipsis included; ≥ 1.

    >>> one_line("a  long\\n\\nline", 7), one_line("short", 7)
    ('a long…', 'short')
    """
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - len(ELLIPSIS)] + ELLIPSIS


def _cut(text: str, most: int) -> int:
    """The last good place up to `most`."""
    at = most
    while at > 0 and not _may_cut(text, at):
        at -= 1
    for url in _URL.finditer(text, 0, most + _LONGEST_URL):
        if url.start() < at < url.end():
            at = url.start()
            break
    ends = [match.end() for match in _CLAUSE_END.finditer(text, at // 2, at)]
    # A full stop at the very end may be one of a number.
    return next((end for end in reversed(ends) if _may_cut(text, end)), at)


def _may_cut(text: str, at: int) -> bool:
    before, after = text[at - 1], text[at]
    if before.isspace() or after.isspace():
        return True
    if unicodedata.category(after) in ("Mn", "Mc", "Me", "Cf", "Sk") or before == _JOINER:
        return False
    if _NUMERAL.match(before) and _NUMERAL.match(after):
        return False
    return bool(WITHOUT_SPACES.match(before) or WITHOUT_SPACES.match(after))
