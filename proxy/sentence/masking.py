"""What stays as it was said while a sentence around it is rewritten: code, addresses, quoted words, names of files.

Pure. In: a text. Out: the same text with one stand-in character for each such span, and the spans to put back.
"""

from __future__ import annotations

import re

MAX_CHARS = 4_000
"""Longer texts are no sentence; there are more stand-ins than spans in any shorter one."""

_FIRST = 0xE000  # the private use area up to U+F8FF: no letter, no digit, no space
_MARKS = re.compile(r"[`\"'“「『《‘/\\.@#$\ue000-\uf8ff]|--?[A-Za-z]")
_SPANS = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"
    r"|https?://[^\s，。；！？、）】」』》”]+|www\.[^\s，。；！？、）】」』》”]+"
    r"|“[^”\n]*”|「[^」\n]*」|『[^』\n]*』|《[^》\n]*》|‘[^’\n]*’"
    r"|\"[^\"\n]*\"|(?<!\w)'[^'\n]+'(?!\w)"
    r"|[A-Za-z0-9_.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
    r"|(?<![A-Za-z0-9_])[A-Za-z0-9_.~-]*(?:[/\\][A-Za-z0-9_.~-]+)+[/\\]?"
    r"|(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*[A-Za-z0-9_])+(?![A-Za-z0-9_])"
    r"|(?<!\S)--?[A-Za-z][A-Za-z0-9_-]*|[@#$][A-Za-z_][A-Za-z0-9_-]*"
    r"|[\ue000-\uf8ff]",
    re.DOTALL,
)
_STAND_INS = re.compile("[\ue000-\uf8ff]")


def mask(text: str) -> tuple[str, tuple[str, ...]]:
    """Put one stand-in character for each span that nobody may touch.

    Args:
        text: At most `MAX_CHARS` characters.

    Returns:
        The masked text, and what stands behind each stand-in, in order.

    >>> masked, spans = mask("把 `tomorrow` 改成“明天”，见 https://a.b/today")
    >>> len(masked), spans
    (11, ('`tomorrow`', '“明天”', 'https://a.b/today'))
    >>> unmask(masked, spans)
    '把 `tomorrow` 改成“明天”，见 https://a.b/today'
    """
    if _MARKS.search(text) is None:
        return text, ()
    spans: list[str] = []

    def stand_in(found: re.Match[str]) -> str:
        spans.append(found.group())
        return chr(_FIRST + len(spans) - 1)

    return _SPANS.sub(stand_in, text), tuple(spans)


def unmask(masked: str, spans: tuple[str, ...]) -> str:
    """The text with its spans back in place.

    Args:
        masked: What became of the masked text.
        spans: As `mask` gave them.

    Returns:
        The whole text.
    """
    if not spans:
        return masked
    return _STAND_INS.sub(lambda found: spans[ord(found.group()) - _FIRST], masked)
