"""A long memory in few words, made without a model: the sentences that carry most, in their order.

Pure. In: a text and how long it may be. Out: an extract with an ellipsis wherever something was left out. Nothing is
reworded; only marks of Markdown go. A millisecond or two for 8,000 characters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass

from proxy.clip import ELLIPSIS, WITHOUT_SPACES, clip
from proxy.language import sentence_spans

_READ_HEAD_CHARS = 16_000
_READ_TAIL_CHARS = 8_000
"""Of a very long text its beginning and its end are read: there it says what it is about, and what came of it."""

# ── what is not worth telling ──────────────────────────────────────────────────────────────────────────────────────
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_FRAME = re.compile(
    r"File \".*\", line \d+|at [\w.$<>/]+ ?\(|\.\.\. \d+ more|#\d+\s+0x|Traceback \(most recent|goroutine \d+"
    r"|[\^~]+\Z"
)
_CODE = re.compile(
    r"(?:def|class|function|func|fn|const|let|var|public|private|static|async|elif|else|try|except|return|package|using"
    r"|for|if|while|export)\b.*[({;:]\Z|from \S+ import |import [\w.{*]+|#include|[)}\]];?|</?\w[^>]*>\Z"
    r"|\|?[\s:|+=_*#-]{3,}\Z"
)
_SYMBOLS = re.compile(r"[{}()\[\];=<>|\\_$#&*^~+/`\"]")
_CODE_SHARE = 0.14
_COURTESY = re.compile(
    r"\W*(?:(?:hi|hello|hey|dear|thanks?|thank you|sure|certainly|of course|absolutely|great|okay|ok|you're welcome"
    r"|good (?:morning|day|evening)|你好|您好|谢谢|多谢|感谢|好的|当然|没问题|不客气|收到|明白)"
    r"(?![^.!?。！？]*(?:\d|我|叫|是|\b(?:i|my|we|our|is|are|use)\b))(?![\w\u4e00-\u9fff])[^.!?。！？]{0,16}\W*\Z"
    r"|(?:i hope (?:this|that|it|these)|let me know|feel free|if you (?:have|need) (?:any|more|further)|happy to help"
    r"|please (?:let me know|don't hesitate)|is there anything|would you like me|as an ai|(?:great|good) question"
    r"|that(?:'s| sounds)(?: like)?(?: a)? (?:great|good|fantastic)|i'd be happy to|i'm here to"
    r"|i'm glad (?:you|it|that|to hear)|(?:best|kind) regards|good luck"
    r"|希望(?:这些?|以上)?[^。！]{0,8}(?:对[你您]|帮助|帮到)|如果[你您]?(?:还)?有(?:任何|其他|什么|更多)"
    r"|如有(?:任何|其他)?(?:问题|疑问|需要)|随时(?:告诉|联系|问)|欢迎随时|祝[你您]|作为一个?\s?(?:AI|人工智能)|还有什么))",
    re.IGNORECASE,
)
_LIST_ITEM = re.compile(r"(?:[-*•·]|\d{1,2}[.)、]|[（(]\d{1,2}[）)]|[一二三四五六七八九十]、|\|)\s*")

# ── what is ────────────────────────────────────────────────────────────────────────────────────────────────────────
_TELLING = frozenset(
    re.findall(
        r"\w+",
        "agree agreed agreement always because broke broken cause caused choose chose chosen conclude conclusion "
        "deadline decide decided decision due error fail failed fails failure finally fix fixed fixes goal important "
        "instead moved must need needs never overall password plan plans prefer preferred prefers reason recommend "
        "recommended resolve resolved result results root should solution solve solved summary switch switched "
        "therefore total version want wants works "
        "决定 敲定 选定 就用 改用 改成 换成 采用 因为 原因 由于 导致 结果 结论 所以 因此 解决 修复 失败 报错 必须 一定 "
        "不要 总是 偏好 截止 版本 总共 合计 重要 总之 建议 最终 最后 目标 计划 需要 想要",
    )
)
"""Words of decisions, reasons, results and wishes."""
_DIGIT = re.compile(r"\d")
_ZH_NUMBER = re.compile(r"\d|[一二两三四五六七八九十百千万][个次天月号点人元块年周小分]")
_NAMES = re.compile(r"[a-z,;] [A-Z]\w|\w[./_@]\w|[《“「]|[\u4e00-\u9fff][A-Za-z]")
_FAILURE = re.compile(r"[\w.]*(?:Error|Exception|Panic)\b|Caused by")
_LATIN = re.compile(r"[a-z\u00df-\u024f]{3,}|\d+(?:[.:/-]\d+)*")
_IDEOGRAPHS = re.compile(r"[\u3400-\u9fff]{2,}")
_MARKUP = re.compile(r"\*\*|\A(?:#{1,6}|[-*•>])\s+")
_ITEM_NUMBER = re.compile(r"\d{1,3}[.)]")
_LONGEST_NUMBER = 4
_MOST_WEIGHED = 4
_EARLY, _EARLY_SENTENCES = 4.0, 3
"""What standing at the very beginning is worth, and after how many sentences half of it."""
_FEW_WORDS = 3
_SAME = 0.8
"""Share of its words from which a sentence says nothing that another does not."""
_MOST_ALIKE = 2
"""How many sentences are told that differ in their numbers alone, such as the lines of a log."""
_BREADTH_CHARS = 150
"""What a sentence costs beside its letters, where its worth is weighed against its length."""
_OPENING_SHARE = 0.5
"""A text mostly opens with what it is about: that is told first, unless it would take more than this of the room."""
_LEAST_TAKEN_CHARS = 12
_GAP_CHARS = len(f" {ELLIPSIS} ")


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
        ellipsis is left of a text that begins with a single word longer than that.

    >>> short_form("Hi there! We looked at three databases. We chose PostgreSQL 16. Let me know if I can help.", 70)
    '…We looked at three databases. We chose PostgreSQL 16.…'
    >>> short_form("你好！周末看了好几处房子，各有各的好。最后决定租望京的两居室，月租 8200 元。希望对你有帮助！", 30)
    '…最后决定租望京的两居室，月租 8200 元。…'
    """
    if len(text) <= max_chars:
        return text
    spans = _spans(text)
    ranked = _ranked(_weighed(text, spans), max_chars)
    chosen = _chosen(ranked, max_chars)
    if chosen:
        return _joined(text, spans, chosen)
    # Nothing is short enough: the beginning of the best, and a sign that there is more.
    return clip(f"{ranked[0].said} {ELLIPSIS}" if ranked else text, max_chars)


def _spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences stand, of a very long text those at its beginning and its end."""
    if len(text) <= _READ_HEAD_CHARS + _READ_TAIL_CHARS:
        return _with_numbers(text, sentence_spans(text))
    tail_at = len(text) - _READ_TAIL_CHARS
    # What the two cuts go through is not whole.
    head = sentence_spans(text[:_READ_HEAD_CHARS])[:-1]
    tail = sentence_spans(text[tail_at:])[1:]
    # An empty place between them, so that nobody takes them for neighbours.
    between = [(tail_at, tail_at)]
    return _with_numbers(text, [*head, *between, *((start + tail_at, end + tail_at) for start, end in tail)])


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
    found: list[_Sentence] = []
    for (place, said), own in zip(kept, words, strict=True):
        if own and own in met:
            continue
        met.add(own)
        plain = _MARKUP.sub("", said)
        early = _EARLY / (1 + len(found) / _EARLY_SENTENCES)
        if plain:
            found.append(_Sentence(place, plain, own, early + _worth(plain, own, often)))
    return found


def _says(text: str, start: int, end: int, fences: Sequence[tuple[int, int]]) -> bool:
    said = text[start:end]
    if not said or any(first <= start < last for first, last in fences):
        return False
    if _FRAME.match(said) or _COURTESY.match(said):
        return False
    if _LIST_ITEM.match(said):
        return any(letter.isalnum() for letter in said[2:])
    if start >= 4 and text[start - 4 : start] == "    ":
        return False  # an indented line: code, or what a stack trace quotes
    return not (_CODE.match(said) or len(_SYMBOLS.findall(said)) > _CODE_SHARE * len(said) + 1)


def _terms(said: str) -> frozenset[str]:
    """What two sentences are compared by: longer Latin words, numbers, pairs of ideographs."""
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


def _ranked(found: Sequence[_Sentence], max_chars: int) -> list[_Sentence]:
    """By worth for its length, the opening first."""
    ranked = sorted(found, key=lambda one: (-one.worth / (len(one.said) + _BREADTH_CHARS), one.place))
    if found and len(found[0].said) <= _OPENING_SHARE * max_chars:
        ranked.remove(found[0])
        ranked.insert(0, found[0])
    return ranked


def _chosen(ranked: Sequence[_Sentence], max_chars: int) -> list[_Sentence]:
    """The best of the sentences that fit together, in their order."""
    taken: dict[int, _Sentence] = {}
    room = max_chars - len(ELLIPSIS)  # at the end
    for one in ranked:
        if room < _LEAST_TAKEN_CHARS:
            break
        cost = len(one.said) + _gaps(taken, one.place)
        if cost <= room and not _repeats(one, taken.values()):
            taken[one.place] = one
            room -= cost
    return [taken[place] for place in sorted(taken)]


def _gaps(taken: Container[int], place: int) -> int:
    """How much longer the gaps become by one more sentence, at the most."""
    return (1 if place - 1 in taken else _GAP_CHARS) + (1 if place + 1 in taken else 0)


def _repeats(one: _Sentence, taken: Collection[_Sentence]) -> bool:
    alike = 0
    for other in taken:
        news = one.words - other.words
        numbers = sum(word[0].isdigit() for word in news)
        if len(news) - numbers <= (1 - _SAME) * len(one.words):
            alike += 1
            if alike == _MOST_ALIKE or not numbers:
                return True
    return False


def _joined(text: str, spans: Sequence[tuple[int, int]], chosen: Sequence[_Sentence]) -> str:
    told = "".join(_parts(text, spans, chosen))
    return told if chosen[-1].place == len(spans) - 1 else told + ELLIPSIS


def _parts(text: str, spans: Sequence[tuple[int, int]], chosen: Sequence[_Sentence]) -> Iterator[str]:
    last = -1
    for one in chosen:
        start, _ = spans[one.place]
        if one.place > last + 1:
            spaced = last >= 0 and not WITHOUT_SPACES.match(text[start])
            yield f" {ELLIPSIS} " if spaced else ELLIPSIS
        elif last >= 0 and spans[last][1] < start:
            yield " "
        yield one.said
        last = one.place
