"""A long memory in few words, made without a model: the sentences that carry most, in their order.

Pure. In: a text and how long it may be. Out: an extract with an ellipsis wherever something was left out. Nothing is
reworded, and no word, number or URL is cut in two. About a millisecond for 8,000 characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from proxy.language import sentence_spans

ELLIPSIS = "…"
_READ_HEAD_CHARS = 16_000
_READ_TAIL_CHARS = 8_000
"""Of a very long text its beginning and its end are read: there it says what it is about, and what came of it."""

_NO_SPACES = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003134f"
"""Scripts that put no spaces between words, and their punctuation: they may be cut between any two letters."""
_CUT_ANYWHERE = re.compile(f"[{_NO_SPACES}]")
_NUMERAL = re.compile("[0-9０-９〇零一二两三四五六七八九十百千万亿兆.,:：/%％年月日号时点分秒元块个岁度]")
_URL = re.compile(r"(?:https?://|www\.)[^\s，。；！？、）】》”\"'<>]+")
_CLAUSE_END = re.compile(r"[，；：、。！？]|[,;:](?=\s)")

_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_FRAME = re.compile(
    r"File \".*\", line \d+|at [\w.$<>/]+ ?\(|\.\.\. \d+ more|#\d+\s+0x|Traceback \(most recent|goroutine \d+|\^+\Z|~+\^"
)
_CODE = re.compile(
    r"(?:def|class|import|from|return|const|let|var|function|public|private|static|#include|elif|else|try|except|SELECT"
    r"|INSERT|UPDATE|export|func|fn|package|using|namespace)\b.*[(){};=:]"
    r"|[)}\]>;]|[\w.\[\]\"']+\s*(?:=|\+=|:=|=>|->)\s*\S|</?\w[^>]*>\Z|\|?[\s:|+=_*#-]{3,}\Z"
)
_SYMBOLS = re.compile(r"[{}()\[\];=<>|\\_$#&*^~+/`\"]")
_CODE_SHARE = 0.14
_EMPTY_TALK = re.compile(
    r"\W*(?:(?:hi|hello|hey|dear|thanks?|thank you|sure|certainly|of course|absolutely|great|okay|ok|good (?:morning|day)"
    r"|你好|您好|谢谢|多谢|感谢|好的|当然|you're welcome|that sounds|that's (?:a )?(?:great|good)|没问题|不客气|收到|明白)(?![\w\u4e00-\u9fff])[^.!?。！？]{0,40}\W*\Z"
    r"|(?:i hope (?:this|that|it|these)|let me know|feel free|if you (?:have|need) (?:any|more|further)|happy to help"
    r"|please (?:let me know|don't hesitate)|is there anything|would you like me|as an ai|great question"
    r"|i'd be happy|i'm (?:glad|here)|best regards|kind regards|good luck|希望(?:这|以上|能|对你|对您)|如果(?:你|您)?(?:还)?有(?:任何|其他|什么|更多)"
    r"|如有(?:任何|其他)?(?:问题|疑问|需要)|随时(?:告诉|联系|问)|欢迎随时|祝(?:你|您|好)|作为一个?\s?(?:AI|人工智能)|还有什么))",
    re.IGNORECASE,
)
_TELLING = frozenset(
    "agree agreed agreement always because broke broken cause caused choose chose chosen conclude conclusion deadline decide"
    " decided decision due error fail failed fails failure finally fix fixed fixes goal important instead moved must need"
    " needs never overall password plan plans prefer preferred prefers reason recommend recommended resolve resolved result"
    " results root should solution solve solved summary switch switched therefore total version want wants works"
    " 决定 敲定 选定 就用 改用 改成 换成 采用 因为 原因 由于 导致 结果 结论 所以 因此 解决 修复 失败 报错 必须 一定 不要 总是"
    " 偏好 截止 版本 总共 合计 重要 总之 建议 最终 最后 目标 计划 需要 想要".split()
)
"""Words of decisions, reasons, results and wishes."""
_DIGIT = re.compile(r"\d")
_ZH_NUMBER = re.compile(r"\d|[一二两三四五六七八九十百千万][个次天月号点人元块年周小分]")
_NAMES = re.compile(r"[a-z,;] [A-Z]\w|\w[./_@]\w|[《“「]|[\u4e00-\u9fff][A-Za-z]")
_FAILURE = re.compile(r"(?:[\w.]*(?:Error|Exception|Panic)\b|Caused by)")
_LIST_ITEM = re.compile(r"(?:[-*•·]|\d{1,2}[.)、]|[（(]\d{1,2}[）)]|[一二三四五六七八九十]、|\|)\s*")
_LATIN = re.compile(r"[a-z\u00df-\u024f]{3,}")
_IDEOGRAPHS = re.compile(r"[\u3400-\u9fff]{2,}")
_MARKUP = re.compile(r"\*\*|\A(?:#{1,6}|[-*•>])\s+")
_WITHOUT_MARKUP = re.compile(r"[^#*•>-]")
_SAME = 0.7
"""Share of the shorter one's words from which two sentences say the same."""
_BREADTH_CHARS = 60
"""What a sentence costs beside its letters, where its worth is weighed against its length."""
_LEAST_TAKEN_CHARS = 12
_GAP_CHARS = len(f" {ELLIPSIS} ")
_MOST_WEIGHED = 4
_FEW_WORDS = 3
_ITEM_NUMBER = re.compile(r"\d{1,3}[.)]")
_LONGEST_NUMBER = 4


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence that may be taken: its place among all, what it says, by which words, and what it is worth."""

    place: int
    said: str
    words: frozenset[str]
    worth: float


def short_form(text: str, max_chars: int) -> str:
    """An extract of a text that is too long.

    Args:
        text: Any text.
        max_chars: Its extract's greatest length, the ellipses included; ≥ 1.

    Returns:
        The text itself where it is short enough; else its most telling sentences, never more than `max_chars`. Only an
        ellipsis is left of a text that is one single word, longer than that.

    >>> short_form("Hi there! We looked at three databases. We chose PostgreSQL 16. Let me know if you need more.", 70)
    '…We looked at three databases. We chose PostgreSQL 16.…'
    >>> short_form("你好！周末我们看了好几处房子，各有各的好。最后决定租望京的两居室，月租 8200 元。希望对你有帮助！", 30)
    '…最后决定租望京的两居室，月租 8200 元。…'
    """
    if len(text) <= max_chars:
        return text
    spans = _spans(text)
    found = _weighed(text, spans)
    chosen = _chosen(text, spans, found, max_chars)
    return chosen or clip(text, max_chars)


def clip(text: str, max_chars: int) -> str:
    """The beginning of a text, cut where a clause ends or at least between words, with an ellipsis.

    Args:
        text: Any text.
        max_chars: Greatest length, the ellipsis included; ≥ 1.

    >>> clip("The port is 5433, as agreed", 20), clip("见 https://a.example/一二三 的说明", 12), clip("短", 5)
    ('The port is 5433,…', '见…', '短')
    """
    if len(text) <= max_chars:
        return text
    at = _cut(text, max(max_chars - len(ELLIPSIS), 0))
    return text[:at].rstrip() + ELLIPSIS


def _cut(text: str, most: int) -> int:
    """The last place up to `most` where a text may be cut."""
    at = most
    while at > 0 and not _may_cut(text, at):
        at -= 1
    for url in _URL.finditer(text, 0, min(len(text), most + 2_000)):
        if url.start() < at < url.end():
            at = url.start()
            break
    ends = [match.end() for match in _CLAUSE_END.finditer(text, at // 2, at)]
    return ends[-1] if ends else at


def _may_cut(text: str, at: int) -> bool:
    if at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before.isspace() or after.isspace():
        return True
    if unicodedata.category(after) in ("Mn", "Mc", "Me", "Cf", "Sk") or before == "\u200d":
        return False
    if _NUMERAL.match(before) and _NUMERAL.match(after):
        return False
    return bool(_CUT_ANYWHERE.match(before) or _CUT_ANYWHERE.match(after))


def _spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences stand, of a very long text those at its beginning and its end."""
    if len(text) <= _READ_HEAD_CHARS + _READ_TAIL_CHARS:
        return _with_numbers(text, sentence_spans(text))
    tail_at = len(text) - _READ_TAIL_CHARS
    # What the two cuts go through is not whole.
    head = sentence_spans(text[:_READ_HEAD_CHARS])[:-1]
    tail = sentence_spans(text[tail_at:])[1:]
    return _with_numbers(text, [*head, *((start + tail_at, end + tail_at) for start, end in tail)])


def _with_numbers(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The number of a list's item is no sentence of its own, for all its full stop."""
    found: list[tuple[int, int]] = []
    number_at: int | None = None
    for start, end in spans:
        if end - start <= _LONGEST_NUMBER and _ITEM_NUMBER.fullmatch(text, start, end):
            number_at = start if number_at is None else number_at
            continue
        found.append((start if number_at is None else number_at, end))
        number_at = None
    return found


def _weighed(text: str, spans: Sequence[tuple[int, int]]) -> list[_Sentence]:
    """The sentences worth telling; code, frames of a stack trace, courtesies and rules of tables are not."""
    fences = [match.span() for match in _FENCED.finditer(text)] if "```" in text or "~~~" in text else []
    kept = [(place, text[start:end]) for place, (start, end) in enumerate(spans) if _says(text, start, end, fences)]
    words = [_terms(said) for _, said in kept]
    often = Counter(term for one in words for term in one)
    met: set[frozenset[str]] = set()
    found = []
    for number, ((place, said), own) in enumerate(zip(kept, words, strict=True)):
        if own and own in met:
            continue
        met.add(own)
        plain = _MARKUP.sub("", said) if not _WITHOUT_MARKUP.fullmatch(said[0]) or "**" in said else said
        opens = 1.5 if number == 0 else 0.0
        found.append(_Sentence(place, plain, own, opens + _worth(plain, own, often)))
    return found


def _says(text: str, start: int, end: int, fences: Sequence[tuple[int, int]]) -> bool:
    if any(first <= start < last for first, last in fences):
        return False
    said = text[start:end]
    if _FRAME.match(said) or _EMPTY_TALK.match(said):
        return False
    if _LIST_ITEM.match(said):
        return any(letter.isalnum() for letter in said[2:])
    if len(said) > 2 and (text[max(0, start - 2) : start].isspace() and text[max(0, start - 4) : start] == "    "):
        return False  # an indented line: code, or what a stack trace quotes
    return not (_CODE.match(said) or len(_SYMBOLS.findall(said)) > _CODE_SHARE * len(said) + 1)


def _terms(said: str) -> frozenset[str]:
    """What two sentences are compared by: longer Latin words, pairs of ideographs."""
    found = set(_LATIN.findall(said.lower()))
    if not said.isascii():
        for run in _IDEOGRAPHS.findall(said):
            found.update(run[at : at + 2] for at in range(len(run) - 1))
    return frozenset(found)


def _worth(said: str, words: frozenset[str], often: Counter[str]) -> float:
    worth = 0.5
    if not words.isdisjoint(_TELLING):
        worth += 1.0
    if _DIGIT.search(said, _LONGEST_NUMBER) or (not said.isascii() and _ZH_NUMBER.search(said)):
        worth += 0.7
    if _NAMES.search(said):
        worth += 0.5
    if _FAILURE.match(said):
        worth += 1.5
    if said[-1] in "?？":
        worth -= 0.3
    if len(words) < _FEW_WORDS:
        worth -= 0.4  # a heading, an exclamation
    if words:
        worth += sum(min(often[word], _MOST_WEIGHED) - 1 for word in words) / (_MOST_WEIGHED * len(words))
    return worth


def _chosen(text: str, spans: Sequence[tuple[int, int]], found: Sequence[_Sentence], max_chars: int) -> str:
    """The best of the sentences that fit together; empty when there is none."""
    ranked = sorted(found, key=lambda one: (-one.worth / (len(one.said) + _BREADTH_CHARS), one.place))
    taken: dict[int, _Sentence] = {}
    room = max_chars - len(ELLIPSIS)  # at the end
    for one in ranked:
        if room < _LEAST_TAKEN_CHARS:
            break
        cost = len(one.said) + _gaps(taken, one.place)
        if cost <= room and not any(_repeats(one, other) for other in taken.values()):
            taken[one.place] = one
            room -= cost
    if taken:
        return _joined(text, spans, [taken[place] for place in sorted(taken)])
    return clip(ranked[0].said, max_chars) if ranked else ""


def _gaps(taken: Container[int], place: int) -> int:
    """How much longer the gaps become by one more sentence, at the most."""
    return (1 if place - 1 in taken else _GAP_CHARS) + (0 if place + 1 not in taken else 1)


def _repeats(one: _Sentence, other: _Sentence) -> bool:
    fewer = min(len(one.words), len(other.words))
    return fewer >= _FEW_WORDS and len(one.words & other.words) >= _SAME * fewer


def _joined(text: str, spans: Sequence[tuple[int, int]], chosen: Sequence[_Sentence]) -> str:
    told = "".join(_parts(text, spans, chosen))
    return told if chosen[-1].place == len(spans) - 1 else told + ELLIPSIS


def _parts(text: str, spans: Sequence[tuple[int, int]], chosen: Sequence[_Sentence]) -> Iterator[str]:
    last = -1
    for one in chosen:
        start, _ = spans[one.place]
        if one.place > last + 1:
            spaced = last >= 0 and not _CUT_ANYWHERE.match(text[start])
            yield f" {ELLIPSIS} " if spaced else ELLIPSIS
        elif last >= 0 and spans[last][1] < start:
            yield " "
        yield one.said
        last = one.place
