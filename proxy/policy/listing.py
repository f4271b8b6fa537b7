"""Lines that machines and clerks write: logs, tables, clauses, transcripts, check lists, code. Pure.

In: a text. Out: the text without them. Two such lines in a row are material that somebody pasted; one may be a note.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import regex

from proxy.shelf import compiled

_I = regex.IGNORECASE
_KINDS = compiled(
    r"""[ \t]*(?:
      (?P<log>[\[(]?\d{4}[-/]\d\d?[-/]\d\d?[T ]\d{1,2}:\d\d | [\[(]?\d{1,2}:\d\d:\d\d
        | \[?(?-i:INFO|WARN(?:ING)?|ERROR|DEBUG|FATAL|TRACE|CRITICAL)\b
        | at\s+[\w.$]+\( | File\s".+",\sline | \w{3}\s+\d{1,2}\s\d\d:\d\d:\d\d | \$\s\w | \S+@\S+[:~]\S*[$\#]\s)
    | (?P<clause>第\s?[零〇一二三四五六七八九十百\d]+\s?[条款章节]
        | (?:article|clause|section|§)\s?\d | \d{1,2}\.\d{1,2}(?:\.\d+)?\.?\s+\p{L}
        | 甲方[（(：:] | 乙方[（(：:])
    | (?P<check>(?:[-*•]\s*|\d+[.)]\s*)?\[[ xX√✓]?\]\s | (?:[-*•]\s*)?(?:TODO|DONE|FIXME|待办|已完成)\b\s*[:：]?
        | [☐☑✅❌✔]\s?)
    | (?P<code>(?:def|class|import|from\s\w+\simport|function|const|let|var|return|public|private|static
          |SELECT|INSERT|UPDATE|CREATE|export|\#include)\b.*[\w;{}():,]$
        | .*[{};]$ | "[\w-]+"\s*: | </?\w+[^>]*> | [\w.-]+\s?=\s?\S+$)
    | (?P<stars>[★☆⭐]{2,} | \d(?:\.\d)?\s?/\s?5\b | \d\s?(?:stars?|星)\b)
    | (?P<cells>[^\n,;\t|，]*(?:(?:,(?=\S)|;(?=\S)|\t+|\s?\|\s?)[^\n,;\t|]*){2,}$ | [^\t\n]*\t.*)
    | (?P<says>(?:[\[(]?\d{1,2}:\d\d(?::\d\d)?[\])]?\s*)?[\p{L}_][\p{L}\d_·.-]{0,15}(?:\s[\p{L}\d_.-]{1,12})?
        \s?(?:[(（][^)）]{0,16}[)）])?\s?(?:\d{1,2}:\d\d)?[:：]\s?\S)
    )""",
    _I | regex.X,
)
_ANY = compiled(r"[\d:：,;\t|{}\[=<\"★☆⭐☐☑✅❌✔甲乙条款章]|TODO|DONE|FIXME|待办|已完成|\(", _I)
"""One of them is in each such line."""
_SPEAKER = compiled(
    r"[ \t]*(?:[\[(]?\d{1,2}:\d\d(?::\d\d)?[\])]?\s*)?([\p{L}_][\p{L}\d_·.-]{0,15}(?:\s[\p{L}\d_.-]{1,12})?)"
)
_ROLES = frozenset(
    {
        "user",
        "assistant",
        "system",
        "ai",
        "bot",
        "human",
        "agent",
        "customer",
        "client",
        "interviewer",
        "candidate",
        "q",
        "a",
        "me",
        "them",
        "host",
        "guest",
        "客服",
        "顾客",
        "客户",
        "买家",
        "卖家",
        "对方",
        "我",
        "问",
        "答",
        "甲",
        "乙",
        "面试官",
        "老师",
        "学生",
        "用户",
        "助手",
        "机器人",
        "主持人",
        "嘉宾",
    }
)
_DIGITS = compiled(r"\d+")
_ALIKE_LINES = 5
_ALIKE_CHARS = 6
_MANY = 2


def without_listings(text: str) -> str:
    """A text without runs of lines that nobody says.

    >>> without_listings("slow?\\n[2026-11-06 20:58:11] INFO start\\n[2026-11-06 20:58:12] WARN I lag").strip()
    'slow?'
    >>> without_listings("客服：您好\\n顾客：我喜欢红色的\\n客服：好的").strip()
    ''
    >>> without_listings("负责人：韩冰\\n截止：10 月 8 日")
    '负责人：韩冰\\n截止：10 月 8 日'
    """
    if text.count("\n") < _MANY - 1 or not _ANY.search(text):
        return text
    lines = text.split("\n")
    kinds = [_kind(line) for line in lines]
    if kinds.count("says") >= _MANY and not _a_talk(
        [line for line, one in zip(lines, kinds, strict=True) if one == "says"]
    ):
        kinds = ["" if one == "says" else one for one in kinds]
    pasted = {one for one, count in Counter(filter(None, kinds)).items() if count >= _MANY or one == "log"}
    alike = _alike(lines)
    kept = [line for line, one, same in zip(lines, kinds, alike, strict=True) if one not in pasted and not same]
    return "\n".join(kept) if len(kept) < len(lines) else text


def _kind(line: str) -> str:
    found = _KINDS.match(line)
    return (found.lastgroup or "") if found else ""


def _a_talk(lines: list[str]) -> bool:
    """Whether lines "name: words" are a transcript: somebody speaks again, or speaks as one does in transcripts."""
    names = [found.group(1).casefold() for line in lines if (found := _SPEAKER.match(line))]
    return len(set(names)) < len(names) or len(_ROLES.intersection(names)) >= _MANY


def _alike(lines: list[str]) -> list[bool]:
    """Which lines stand in a run of many that begin alike but for their numbers."""
    found: list[bool] = []
    for _, run in groupby(lines, key=lambda line: _DIGITS.sub("0", line.strip())[:_ALIKE_CHARS]):
        some = list(run)
        many = len(some) >= _ALIKE_LINES and len(some[0].strip()) > 1 and any(map(_DIGITS.search, some))
        found += [many] * len(some)
    return found
