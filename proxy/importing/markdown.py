"""Lists in Markdown: each item is one thing to remember, each heading above it a tag; a date in front is its time.

In: lines. Out: `Imported`. An item goes on over the lines that are indented under it; items under an item stand alone,
and take its text along where it ends with a colon. Code and tables are no lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from proxy.importing.imported import Imported, Statement, moment

_ITEM = re.compile(r"(?P<indent>\s*)(?:[-*+•]\s+|\d{1,4}(?:[.)]\s+|、\s*))(?:\[[ xX]\]\s+)?(?P<text>\S.*)")
_HEADING = re.compile(r"\s{0,3}(?P<marks>#{1,6})\s+(?P<text>.*?)\s*#*\s*")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_DATE = re.compile(
    r"[\[(（【]?(?P<date>\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?)"
    r"(?:[\])）】]\s*(?:[-–—:：]\s*)?|\s*[-–—:：]\s+|：|\s+)"
)
_EMPHASIS = re.compile(r"(?<!\w)(\*\*|__|\*|_|`)(?=\S)(.+?)(?<=\S)\1(?!\w)")
_KINDS = {
    "preference": ("preference", "likes", "dislikes", "tastes", "偏好", "喜好", "喜欢"),
    "instruction": ("instruction", "rules", "always", "要求", "指令", "规则"),
    "decision": ("decision", "决定", "决策"),
    "task": ("task", "todo", "to do", "任务", "待办"),
}


@dataclass(slots=True)
class _Item:
    line: int
    indent: int
    text: str
    tags: tuple[str, ...]
    above: str = ""


@dataclass(slots=True)
class _Page:
    items: list[_Item] = field(default_factory=list)
    headings: dict[int, str] = field(default_factory=dict)
    open: list[_Item] = field(default_factory=list)
    in_code: bool = False
    left_out: int = 0


def read(lines: Iterable[str], file: str, *, zone: tzinfo = UTC) -> Imported:
    """Read a list.

    Args:
        lines: Of the file.
        file: Its name.
        zone: Of dates without an offset.

    Returns:
        Its items; `left_out` counts the lines of text that stand in no list.
    """
    page = _Page()
    for number, line in enumerate(lines, 1):
        _take(page, number, line.rstrip())
    found = [_statement(item, file, zone) for item in page.items if not item.text.endswith((":", "："))]
    return Imported("markdown", statements=tuple(found), left_out=page.left_out)


def _take(page: _Page, number: int, line: str) -> None:
    if _FENCE.match(line):
        page.in_code = not page.in_code
        return
    if page.in_code or not line.strip():
        return
    if heading := _HEADING.fullmatch(line):
        depth = len(heading["marks"])
        page.headings = {at: text for at, text in page.headings.items() if at < depth} | {
            depth: _plain(heading["text"])
        }
        page.open.clear()
    elif item := _ITEM.fullmatch(line):
        _add(page, number, len(item["indent"].expandtabs(4)), item["text"].strip())
    elif page.open and line[:1].isspace():
        page.open[-1].text += f" {line.strip()}"
    else:
        page.open.clear()
        page.left_out += 1


def _add(page: _Page, number: int, indent: int, text: str) -> None:
    page.open = [one for one in page.open if one.indent < indent]
    above = page.open[-1] if page.open else None
    led = f"{above.above}{above.text} " if above is not None and above.text.endswith((":", "：")) else ""
    # A page's title is what all of it is about.
    deeper = [heading for depth, heading in page.headings.items() if depth > 1]
    item = _Item(number, indent, text, tuple(deeper or page.headings.values()), led)
    page.items.append(item)
    page.open.append(item)


def _statement(item: _Item, file: str, zone: tzinfo) -> Statement:
    text, at = item.text, None
    if dated := _DATE.match(text):
        at = moment(dated["date"].replace(" ", "T"), zone)
        text = text[dated.end() :] if at is not None else text
    content = _plain(f"{_plain(item.above)} {text}".strip())
    return Statement(f"{file}:{item.line}", content, at=at, kind=_kind(item.tags), tags=item.tags)


def _plain(text: str) -> str:
    """Without marks of emphasis.

    >>> _plain("likes **dark** mode and `vim`, not snake_case_names")
    'likes dark mode and vim, not snake_case_names'
    """
    return _EMPHASIS.sub(r"\2", text).strip()


def _kind(tags: Iterable[str]) -> str | None:
    headings = " ".join(tags).casefold()
    return next((kind for kind, words in _KINDS.items() if any(word in headings for word in words)), None)
