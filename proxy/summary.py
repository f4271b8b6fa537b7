"""A session in a few words, without a model: the sentences that tell most, labelled by what they are.

Pure. In: what a session left behind, one `Line` each, oldest first. Out: a `Summary`. Nothing is reworded, so nothing
is invented; what the assistant or a tool reports is always called a result, never something the user said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import regex

from proxy.conflict import normal
from proxy.language import sentences
from proxy.policy import speech
from proxy.shelf import compiled
from proxy.store.lexical import terms
from proxy.types import Language

MAX_SUMMARY_CHARS = 240
MAX_POINT_CHARS = 120
MAX_POINTS = 5
Role = Literal["user", "assistant", "tool"]
Sort = Literal["decision", "result", "open", "aim", "said"]

_I = regex.IGNORECASE
_OPEN = compiled(
    r"还没|尚未|没有?(?:解决|搞定|完成|修好)|待(?:办|定|确认|处理)|下一步|接下来|还(?:需要?|要|得|差)|剩下|回头"
    r"|(?:明天|下次|之后)[^，,。]{0,6}(?:再|继续|要)"
    r"|\b(?:not (?:yet|solved|fixed|done|working)|still (?:need|have to|fail|broken|open)|remaining|left to do"
    r"|next step|to-?do|follow up|waiting (?:for|on)|unresolved|yet to)\b",
    _I,
)
_DECIDED = compiled(
    r"决定|选定|敲定|定了|定下|就用|改用|改成|换成|选了|选择了?|采用|统一用"
    r"|\b(?:decided|agreed|settled on|go(?:ing)? with|chose|chosen|opted|switch(?:ed|ing) to|moved to"
    r"|we(?:'ll| will) (?:use|take|go))\b",
    _I,
)
_DONE = compiled(
    r"解决了|搞定|修好|完成|成功|通过了|上线了|订好|弄好|跑通|恢复正常|就好了"
    r"|\b(?:fixed|solved|resolved|works? now|worked|done|finished|completed|deployed|shipped|passed|did the trick)\b",
    _I,
)
_WANTED = compiled(
    r"我们?(?:现在|正|也|就)?(?:想|需要|希望|打算|计划|准备|正在|要)|目标是"
    r"|\b(?:want|need|would like|'d like|trying to|plan(?:s|ning)?|goal|looking for|hop(?:e|ing) to|working on"
    r"|building|preparing)\b",
    _I,
)
_CHITCHAT = compiled(
    r"\A(?:\W*(?:你好|您好|谢谢你?|多谢|感谢|辛苦了|好的?|行|可以|嗯+|哦+|哈+|太好了|太棒了|不错|明白了?|知道了|收到|没问题"
    r"|(?:hi|hello|hey|thanks?|thank you|thx|ok(?:ay)?|yes|no|sure|right|great|good|nice|cool|perfect|awesome|got it"
    r"|sounds good|a lot|(?:so|very) much|there|again|that|this|is|it|for|the|your|help)(?!\w)))+\W*\Z",
    _I,
)
_NUMBER = compiled(r"\d|[一二两三四五六七八九十百千万]+(?:个|次|天|月|号|点|人|元|块|年|周|小时|分钟)")
_DIGITS = compiled(r"\d+(?:[.:/-]\d+)*")
_NAME = compiled(r"《|“|(?<=[^\s.!?\"“(]\s)[A-Z]\w+|(?<=\p{Han}\s?)[A-Za-z]\w+|\w+[./_@]\w+")
_THIRD_PERSON = compiled(r"\A(?:用户|The user\b)", _I)
_NAMES_RESULT = compiled(r"结果：|\bresult: ", _I)
_WHOSE = compiled(r"用户的?|我们?的?|\b(?:the user(?:'s)?|i|we|my|our)\b", _I)
_LABELS: dict[Sort, tuple[str, str]] = {
    "decision": ("决定：", "Decision: "),
    "result": ("结果：", "Result: "),
    "open": ("待办：", "Open: "),
    "aim": ("用户说：", "The user said: "),
    "said": ("用户说：", "The user said: "),
}
_WEIGHTS: dict[Sort, float] = {"decision": 3.0, "result": 3.0, "open": 2.5, "aim": 2.5, "said": 0.0}
_IN_SUMMARY: tuple[Sort, ...] = ("aim", "decision", "result", "open", "said")
_DECISIONS = ("decision", "correction")
_TELLING = 1.0
"""Weight from which a sentence is a point; plain talk has less."""
_SAME = 0.6
"""Share of the shorter one's words from which two sentences say the same."""
_LONG_CHARS = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a session left behind.

    Args:
        text: A message of the user's, a memory made in the session, or what was noted of the task.
        kind: The memory's kind; ``turn`` for the user's own words, ``slot`` for what was noted of the task.
        role: Whose words it goes back to.
    """

    text: str
    kind: str = "turn"
    role: Role = "user"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a session was about.

    Args:
        summary: At most 240 characters; empty when nothing worth telling was said.
        points: At most 5 of at most 120 characters, in the order they came up.
    """

    summary: str = ""
    points: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sentence:
    place: int
    text: str
    line: Line
    sort: Sort
    weight: float


@dataclass(frozen=True, slots=True)
class _Look:
    """What two sentences are compared by."""

    plain: str
    words: frozenset[str]
    numbers: frozenset[str]


def key_of(session_id: str) -> str:
    """The slot that a session's summary stands in, as a rule's ``key: session.$session`` fills it.

    >>> key_of("Chat 7")
    'session.Chat 7'
    """
    return f"session.{session_id}"


def summarise(lines: Sequence[Line], language: Language) -> Summary:
    """Pick what tells most of a session: what the user was after, what was decided, what came of it, what is open.

    Args:
        lines: Oldest first.
        language: Of the labels; the sentences stay as they were said.

    Returns:
        The summary; empty when no sentence of the user's says anything.

    >>> said = ["我们想把测试库迁到新机器。", "好的谢谢", "最后决定用 PostgreSQL 15。", "备份脚本还没写"]
    >>> summarise([Line(text) for text in said], "zh").summary
    '用户说：我们想把测试库迁到新机器；决定：最后决定用 PostgreSQL 15；待办：备份脚本还没写。'
    >>> summarise([Line("Thanks a lot!")], "en")
    Summary(summary='', points=())
    """
    found = sorted(_sentences(lines), key=lambda one: (-one.weight, one.place))
    if not any(one.line.role == "user" and one.line.kind != "slot" for one in found):
        return Summary()
    kept = _distinct(found)
    telling = [one for one in kept if one.weight >= _TELLING] or kept[:1]
    if not telling:
        return Summary()  # nothing but signs
    points = sorted(telling[:MAX_POINTS], key=lambda one: one.place)
    return Summary(_joined(telling, language), tuple(_labelled(one, language, MAX_POINT_CHARS) for one in points))


def transcript(lines: Sequence[Line], language: Language) -> str:
    """The lines as a text, one a line, with results called so.

    >>> transcript([Line("We use\\nVim."), Line("Installed it.", "task", "assistant")], "en")
    'We use Vim.\\nResult: Installed it.'
    """
    told = ((line, " ".join(line.text.split())) for line in lines)
    return "\n".join(text if line.role == "user" else _marked(text, line, "result", language) for line, text in told)


def _sentences(lines: Sequence[Line]) -> Iterator[_Sentence]:
    place = 0
    for line in lines:
        own_words = line.kind == "turn"
        for text in sentences(line.text) if own_words else [" ".join(line.text.split())]:
            if not text or _CHITCHAT.match(text) or (own_words and not speech.says_something(text)):
                continue
            sort = _sort(text, line)
            weight = _weight(text, line, sort)
            if place == 0 and line.role == "user":
                # What a session opens with is most often what the user is after.
                sort, weight = "aim" if sort == "said" else sort, weight + 1.0
            yield _Sentence(place, text.rstrip(" 。.；;，,"), line, sort, weight)
            place += 1


def _sort(text: str, line: Line) -> Sort:
    if line.role != "user":
        return "result"
    if line.kind == "slot":
        return "aim"
    if _OPEN.search(text):
        return "open"
    if line.kind in _DECISIONS or _DECIDED.search(text):
        return "decision"
    if line.kind == "task" or _DONE.search(text):
        return "result"
    return "aim" if _WANTED.search(text) else "said"


def _weight(text: str, line: Line, sort: Sort) -> float:
    known_to_tell = 1.5 if line.kind not in ("turn", "slot", "tool_failure") else 0.0
    failed = -1.5 if line.kind == "tool_failure" else 0.0
    number = 1.0 if _NUMBER.search(text) else 0.0
    name = 0.5 if _NAME.search(text) else 0.0
    long = -0.5 if len(text) > _LONG_CHARS else 0.0
    return _WEIGHTS[sort] + known_to_tell + failed + number + name + long


def _distinct(ranked: Sequence[_Sentence]) -> list[_Sentence]:
    """Each thing said once; of one sort no more than could be told."""
    kept: list[tuple[_Sentence, _Look]] = []
    count = Counter[Sort]()
    for one in ranked:
        if count[one.sort] == MAX_POINTS:
            continue
        look = _look(one.text)
        if look.words and not any(_same(look, had) for _, had in kept):
            kept.append((one, look))
            count[one.sort] += 1
    return [one for one, _ in kept]


def _look(text: str) -> _Look:
    found = terms(_WHOSE.sub(" ", text))
    # Single ideographs are in everything.
    words = {term for term in found if len(term) > 1 or term.isascii()} or set(found)
    return _Look(normal(text), frozenset(words), frozenset(_DIGITS.findall(text)))


def _same(one: _Look, other: _Look) -> bool:
    if one.plain in other.plain:
        return True
    if one.numbers - other.numbers and other.numbers - one.numbers:
        return False
    return len(one.words & other.words) >= _SAME * min(len(one.words), len(other.words))


def _joined(telling: Sequence[_Sentence], language: Language) -> str:
    # The best of each sort first, so that a session of ten decisions still says what it was for and what is open.
    best = {one.sort: one for one in reversed(telling)}
    firsts = [best[sort] for sort in _IN_SUMMARY if sort in best]
    ranked = [*firsts, *(one for one in telling if one not in firsts)]
    between, end = ("；", "。") if language == "zh" else ("; ", ".")
    chosen: dict[int, str] = {}
    room = MAX_SUMMARY_CHARS - len(end)
    for one in ranked:
        text = _labelled(one, language, MAX_POINT_CHARS)
        needed = len(text) + (len(between) if chosen else 0)
        if needed <= room:
            chosen[one.place] = text
            room -= needed
    told = between.join(chosen[place] for place in sorted(chosen))
    return told if told.endswith("…") else told + end


def _labelled(one: _Sentence, language: Language, most: int) -> str:
    return _clipped(_marked(one.text, one.line, one.sort, language), most)


def _marked(text: str, line: Line, sort: Sort, language: Language) -> str:
    """With a label that says what it is, unless it says so itself."""
    says_so = _NAMES_RESULT.search(text) if line.role != "user" else _THIRD_PERSON.match(text)
    if line.kind == "slot" or says_so:
        return text
    return _LABELS[sort][0 if language == "zh" else 1] + text


def _clipped(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = text[: most - 1]
    # Half a word of Latin script tells less than none.
    return regex.sub(r"(?<=\s)\w+\Z", "", head).rstrip(" ,，;；") + "…"
