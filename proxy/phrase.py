"""What several sentences have in common, and a sentence that says so.

Pure. In: texts of one language. Out: their shared terms, the phrase they share, and a statement made of it. Times are
left out of the comparison: when something happens is for the statement to say.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from proxy.types import Language

_IDEOGRAPH = r"\u3400-\u4dbf\u4e00-\u9fff"
_ZH_TIMES = re.compile(
    r"(?:[每这本上下]+个?)?(?:周|星期|礼拜)[一二三四五六日天末]|[今昨明后前]天|今[早晚]|昨晚|刚才|刚刚|(?:大?清)?早[上晨]|上午|中午|下午|傍晚|晚上|凌晨|深夜"
    r"|(?:\d{4}\s*[-/年]\s*)?\d{1,2}\s*[-/月]\s*\d{1,2}[日号]?|\d{1,2}[点时:：]\d{0,2}分?半?|又一?次?|再次|已经?|终于"
)
_EN_TIMES = re.compile(
    r"\b(?:(?:on|this|last|next|every|late|early) ){0,2}(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"(?: (?:mornings?|afternoons?|evenings?|nights?))?"
    r"|\b(?:this|in the|every|yesterday|tomorrow) (?:morning|afternoon|evening|night)\b"
    r"|\b(?:today|yesterday|tomorrow|tonight|again|just|already|finally|now)\b"
    r"|\b(?:on )?\d{4}-\d{2}-\d{2}\b|\b(?:at )?\d{1,2}:\d{2}(?: ?[ap]m)?\b|\bat \d{1,2} ?[ap]m\b",
    re.IGNORECASE,
)
_HEAD = re.compile(r"^(?:用户解决了问题[：:]|The user solved a problem:)\s*", re.IGNORECASE)
"""How the shipped rules begin a solved task; a lesson says it in its own way."""
_ZH_SUBJECT = re.compile(
    r"^(?:用户解决了问题[：:])?\s*(?P<who>用户(?!的|[们端名组量群])|我们(?!的)|咱们?(?!的)"
    r"|我(?![的们妈爸爹娘哥姐弟妹爷奶叔姨舅姑婆公儿女孙老同朋室邻家外]))\s*"
)
_EN_SUBJECT = re.compile(
    r"^(?:The user solved a problem:)?\s*(?P<who>the user|user|I|we)(?:['’]ve| have| has)?(?!['’\w])\s*", re.IGNORECASE
)
# What is so, or what someone likes, is a fact and not something that is done again and again.
_ZH_STATE = re.compile(
    r"^[^，。,.]{0,12}的[^，。,.]*是|^[^，。,.]{0,8}[是叫姓]|^(?:最|很|更|也|都|还|不太?)?(?:有|在|住|喜欢|爱|讨厌|偏好|想|认为|觉得|知道|不)"
)
_EN_STATE = re.compile(
    r"^(?:really |also |always |do(?:es)?n['’]t )?(?:is|are|am|was|were|has|have|had|likes?|loves?|hates?|prefers?"
    r"|wants?|needs?|lives?|thinks?|believes?|knows?|enjoys?|feels?)\b",
    re.IGNORECASE,
)
_TOKENS = re.compile(rf"[{_IDEOGRAPH}]|[^\W{_IDEOGRAPH}]+(?:[-_.:'’/][^\W{_IDEOGRAPH}]+)*|[^\w\s]")
_ZH_RUNS = re.compile(rf"[{_IDEOGRAPH}]+")
_LATIN = re.compile(r"[a-z][\w.+#/-]*", re.IGNORECASE)
_ZH_PARTICLES = frozenset("的了着是我你他她它们这那和与及也都就很把被给吗呢吧啊")
_ZH_LIGHT = _ZH_PARTICLES | frozenset("过在有对从到为以于个一不没要会能可请用户来去上下又再还")
"""Two of these say nothing; one of them may be half a word, as in 会议 and 上线."""
_EN_FUNCTION = frozenset(
    re.findall(
        r"\w+",
        "the a an and or but to of in on at for with by from as is are was were be been has have had do does "
        "did it its this that these those i we you he she they my our your his her their user users not no so "
        "then there here out up into about after before some any all more very really will would can could "
        "should may might got get",
    )
)
_IRREGULAR = frozenset(
    re.findall(
        r"\w+",
        "ran went had ate wrote made built sent took got gave met read set put cut held led paid told thought "
        "drove slept bought brought taught caught left lost did saw spoke began chose broke rode swam drank "
        "sang won spent kept",
    )
)
_ASPECT = frozenset("了")
_VOTES = 0.75
_ZH_DAYS = {
    "Monday": "周一", "Tuesday": "周二", "Wednesday": "周三", "Thursday": "周四", "Friday": "周五", "Saturday": "周六",
    "Sunday": "周日", "weekend": "周末",
}  # fmt: skip
_ZH_PARTS = {"morning": "上午", "afternoon": "下午", "evening": "晚上", "night": "深夜"}
_EN_PARTS = {
    "morning": "in the morning", "afternoon": "in the afternoon", "evening": "in the evening", "night": "at night",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Phrase:
    """What texts share.

    Args:
        words: Without subject and time.
        whole: The plainest of the texts, without the head of a solved task.
        subject: Of most of the texts, in lower case: the user as ``用户``, ``i`` …; empty when they speak of others.
        share: Of the texts' own words that the phrase covers, 0–1, on average.
    """

    words: str
    whole: str
    subject: str
    share: float = 1.0


def content_terms(text: str, language: Language) -> frozenset[str]:
    """The terms that carry a text's meaning: two-character pieces of Chinese, stems of Latin words.

    >>> sorted(content_terms("用户周五下午部署了支付服务", "zh"))
    ['付服', '支付', '服务', '部署']
    >>> sorted(content_terms("The user deployed the payment services on Friday", "en"))
    ['deploy', 'payment', 'servic']
    """
    plain = _without_subject(_plain(text), language)
    latin = {_stem(word) for word in _LATIN.findall(plain) if word.casefold() not in _EN_FUNCTION and len(word) > 2}
    pairs = {run[at : at + 2] for run in _ZH_RUNS.findall(plain) for at in range(len(run) - 1)}
    return frozenset(latin | {pair for pair in pairs if not (set(pair) & _ZH_PARTICLES or set(pair) <= _ZH_LIGHT)})


def shared_phrase(texts: Sequence[str], language: Language) -> Phrase | None:
    """The words that most of the texts share, in their order in the shortest one.

    Args:
        texts: At least one.
        language: Theirs.

    Returns:
        None when they share no word that means something.

    >>> shared_phrase(["用户部署了支付服务", "用户又部署了订单服务", "用户周五部署了库存服务"], "zh").words
    '部署服务'
    >>> shared_phrase(["The user deployed the shop", "The user deployed the blog again"], "en").words
    'deployed'
    """
    plain = [_plain(text) for text in texts]
    place = min(range(len(plain)), key=lambda at: (len(plain[at]), plain[at]))
    tokens = [_TOKENS.findall(_without_subject(text, language)) for text in plain]
    own = sum(len(_meaning(one)) for one in tokens) / len(tokens)
    words = _joined(_voted(tokens.pop(place), tokens))
    kept = _meaning(_TOKENS.findall(words))
    if not content_terms(words, language):
        return None
    subject = _subject(plain, language)
    return Phrase(words, _HEAD.sub("", " ".join(texts[place].split())), subject, min(1.0, len(kept) / own))


def _meaning(tokens: Sequence[str]) -> list[str]:
    """The tokens that say something by themselves."""
    return [
        token
        for token in tokens
        if token[0].isalnum() and token not in _ZH_PARTICLES and token.casefold() not in _EN_FUNCTION
    ]


def _voted(base: list[str], others: Sequence[list[str]]) -> list[list[str]]:
    """Runs of the base's tokens that most of the others have in the same order."""
    votes = [0] * len(base)
    for other in others:
        for block in SequenceMatcher(None, base, other, autojunk=False).get_matching_blocks():
            for at in range(block.a, block.a + block.size):
                votes[at] += 1
    runs: list[list[str]] = [[]]
    for token, count in zip(base, votes, strict=True):
        if count >= _VOTES * len(others):
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _joined(runs: Sequence[list[str]]) -> str:
    # One ideograph alone may stand anywhere by chance.
    kept = [run for run in runs if len(run) > 1 or not _ZH_RUNS.fullmatch(run[0])]
    tokens = [token for run in kept for token in run if token not in _ASPECT]
    while tokens and (not tokens[-1][0].isalnum() or tokens[-1].casefold() in _EN_FUNCTION or tokens[-1] in "的在和与"):
        tokens.pop()
    while tokens and not tokens[0][0].isalnum():
        tokens.pop(0)
    text = ""
    for token in tokens:
        close = not text or not token[0].isalnum() or bool(_ZH_RUNS.fullmatch(token) and _ZH_RUNS.fullmatch(text[-1]))
        text += token if close else f" {token}"
    return text


def statement(phrase: Phrase, kind: str, days: str | None, part: str | None, language: Language) -> str:
    """A sentence that says what comes back, and when.

    Args:
        phrase: What.
        kind: Of the episodes: what went wrong or was solved is not something the user likes to do.
        days: ``Friday``, ``weekend``, or None.
        part: ``afternoon`` and the like, or None.
        language: Of the sentence.

    >>> statement(Phrase("部署服务", "", "用户"), "fact", "Friday", "afternoon", "zh")
    '用户常在周五下午部署服务'
    >>> statement(Phrase("deployed the service", "", "the user"), "fact", "Friday", "afternoon", "en")
    'The user has often deployed the service on Friday afternoons'
    >>> statement(Phrase("goes running", "", "the user"), "fact", None, "morning", "en")
    'The user often goes running in the morning'
    >>> statement(Phrase("no seats left", "Tool book failed: no seats left", ""), "tool_failure", None, None, "en")
    'Happened repeatedly: Tool book failed: no seats left'
    """
    return _zh(phrase, kind, days, part) if language == "zh" else _en(phrase, kind, days, part)


def _zh(phrase: Phrase, kind: str, days: str | None, part: str | None) -> str:
    when = _ZH_DAYS.get(days or "", "") + _ZH_PARTS.get(part or "", "")
    if kind == "task":
        return f"同类问题多次这样解决：{phrase.whole}"
    if kind in ("tool_failure", "tool_result"):
        return f"常在{when}出现：{phrase.whole}" if when else f"多次出现：{phrase.whole}"
    return f"用户常在{when}{phrase.words}" if when else f"用户多次{phrase.words}"


def _en(phrase: Phrase, kind: str, days: str | None, part: str | None) -> str:
    when = _en_when(days, part)
    if kind == "task":
        return f"Solved this way more than once: {phrase.whole}"
    if kind in ("tool_failure", "tool_result"):
        return f"Happened often {when}: {phrase.whole}" if when else f"Happened repeatedly: {phrase.whole}"
    verb, _, rest = phrase.words.partition(" ")
    tail = f" {rest}" if rest else ""
    often = "often" if when else "repeatedly"
    if verb.endswith("ed") or verb in _IRREGULAR:
        return f"The user has {often} {verb}{tail} {when}".rstrip()
    third = verb if phrase.subject not in ("i", "we") else _third_person(verb)
    return f"The user {often} {third}{tail} {when}".rstrip()


def _en_when(days: str | None, part: str | None) -> str:
    if days is None:
        return _EN_PARTS.get(part or "", "")
    if days == "weekend":
        return "at weekends"
    return f"on {days} {part}s" if part else f"on {days}s"


def _third_person(verb: str) -> str:
    special = {"have": "has", "am": "is", "are": "is", "do": "does", "go": "goes"}
    if verb in special:
        return special[verb]
    if re.search(r"(?:s|x|z|ch|sh)$", verb):
        return verb + "es"
    return verb[:-1] + "ies" if re.search(r"[^aeiou]y$", verb) else verb + "s"


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text)
    return " ".join(_EN_TIMES.sub(" ", _ZH_TIMES.sub("", folded)).split())


def _subject(plain: Sequence[str], language: Language) -> str:
    """Who does it in most of the texts, when that is the user; one way of saying it stands for all."""
    state = _ZH_STATE if language == "zh" else _EN_STATE
    found = [
        match.group("who").casefold()
        for text in plain
        if (match := _subjects(language).match(text)) and not state.match(text[match.end() :])
    ]
    return min(found) if 2 * len(found) > len(plain) else ""


def _subjects(language: Language) -> re.Pattern[str]:
    return _ZH_SUBJECT if language == "zh" else _EN_SUBJECT


def _without_subject(plain: str, language: Language) -> str:
    return _subjects(language).sub("", plain, count=1)


def _stem(word: str) -> str:
    plain = word.casefold()
    for ending in ("ing", "ed", "es", "s"):
        stem = plain.removesuffix(ending)
        if stem != plain and len(stem) > 3 and not (ending in ("es", "s") and plain.endswith("ss")):
            return stem.removesuffix("e")
    return plain.removesuffix("e") if len(plain) > 4 else plain
