"""What a user names when asking to forget something: "my address", "that I like coffee", "the staging port".

Pure. In: the words, and memories with their cosine to them. Out: those clearly meant. The thresholds err on the side of
leaving a memory alone: what is missed can be named again, what is wrongly put away is missed without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import regex

from proxy.shelf import compiled
from proxy.store.lexical import query_terms, terms
from proxy.types import Memory

_I = regex.IGNORECASE
_LAST = compiled(
    r"(?!我\Z)(?:刚才?|刚刚|上面|最后|上一[条句个])?(?:我)?(?:说的?)?(?:这个|那个|它|这些|那些|这件?事|那件?事|这[句条点]话?|那[句条点]话?|的话?)?"
    r"|(?:it|this|that|these|those|them|all (?:of )?(?:this|that)|(?:the )?last (?:one|thing|message)(?: i said)?"
    r"|(?:that|what|everything) i(?:'ve)? (?:just )?(?:said|told you|mentioned|wrote)(?: just now)?)",
    _I,
)
_EVERYTHING = compiled(
    r"(?:关于)?我?(?:的)?(?:一切|全部|所有)(?:的)?(?:事情?|信息|东西|记忆|内容|资料)?|(?:关于)?我"
    r"|(?:everything|all|anything)(?: (?:that )?you (?:know|remember|have))?(?: about me)?|about me|me"
    r"|all (?:of )?my (?:data|memories|memory|information|info|details|facts)",
    _I,
)
_OPENING = compiled(
    r"\A\s*(?:(?:关于|有关|我(?:们)?(?:的|以前的?|之前的?)?|咱们?的?|(?:之前|以前|旧|老)的?|[这那](?:个|件|次|些))\s*"
    r"|(?:the fact that|about|regarding|that|my|our|the|i(?:'m|'ve)?|we(?:'re|'ve)?|old|previous|former|earlier)"
    r"(?!\w)\s*)+",
    _I,
)
_CLOSING = compiled(
    r"\s*(?:这(?:件|回|个|条|点)?(?:事情?|信息|内容)|的(?:事情?|信息|资料|内容|记录|记忆)|(?:information|info|details|thing|stuff"
    r"|memory|memories|fact|facts|please|now|any ?more)(?!\w)|了|吧|[\s.。!！,，;；~～])+\Z",
    _I,
)
_SENTIMENT = compiled(
    r"不?(?:太|怎么)?(?:喜欢|偏好|偏爱|喜爱|爱(?=[吃喝看听玩用])|爱)[吃喝看听玩用]?|讨厌|反感"
    r"|\b(?:dis)?(?:like|love|prefer|enjoy|hate)(?:s|d|ring|ing|r?ed)?\b|\b(?:preference|taste)s?\b",
    _I,
)
_NEGATED = compiled(
    r"不(?!错|同|过(?!敏)|久)|没|讨厌|反感|别|\b(?:not|never|no longer|dislikes?|hates?)\b|n't\b",
    _I,
)
_OTHERS = compiled(
    r"[他她]|[妈爸爷奶姐妹哥弟叔婶伯姑舅姨婆嫂侄甥]|父亲|母亲|父母|老婆|老公|妻子|丈夫|朋友|[男女]友|同事|同学|儿子|女儿|孩子|老板|领导|上司|下属"
    r"|客户|邻居|室友|老师|医生|宠物|[猫狗]"
    r"|\b(?:he|she|his|her|they|their|mom|mum|mother|dad|father|parents?|wife|husband|partner|\w*friend|sister|brother|son"
    r"|daughter|kids?|child|boss|manager|colleague|co-?worker|roommate|neighbou?r|uncle|aunt|cousin|grand\w+|client|teacher"
    r"|doctor|pet|cat|dog)(?:'s)?\b",
    _I,
)
_OF_USER = compiled(r"\A\W*(?:用户|我|the user\b|my\b|i\b)", _I)
_WHOSE = compiled(r"用户的?|我们?的?|\b(?:the user(?:'s)?|i|we|my|our)\b", _I)
_PREDICATE = compiled(
    r"过敏|[是在住用吃喝有会能养]|\b(?:am|is|are|have|has|use|eat|drink|live|work|own|run|speak|allergic)\b", _I
)
_NUMBERS = compiled(
    r"\d+(?:[.:]\d+)*|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|thirty|first|second|third|fourth|fifth)\b",
    _I,
)
_NAMES = compiled(r"(?<=\p{Han}\s?)[A-Za-z][\w.+#-]*|[A-Za-z][\w.+#-]*(?=\s?\p{Han})|(?<=\s)[A-Z][\w.+#-]+")
_HAN = compiled(r"\p{Han}")
_OF_LITTLE_WEIGHT: Final = frozenset("的了在是有和与也都就还很又这那一个们")
_OWN_SURROUNDINGS: Final = ("env.*", "constraint.*")

_WHOLE, _WHOLE_COSINE = 0.99, 0.45
"""Every word of the subject is in the memory, which is about the same at all (unrelated ones: p95 .41 zh, .44 en)."""
_WORD_COSINE = 0.5
"""A single word is in many a memory that is about something else."""
_MOST = {True: 0.75, False: 0.5}
"""Share of the words from which nearness decides, in Chinese (where words overlap by halves: 深色, 浅色) and else."""
_MOST_COSINE = 0.58
_LOOSE = 0.8
"""What single ideographs count beside whole words: 养猫 is in 养了一只猫."""
_BEHIND = 0.2
"""How far behind the best one a memory may be and still be meant too."""
_RAW_COSINE = 0.5

_TOPICS: Final[Sequence[tuple[str, tuple[str, ...]]]] = (
    (
        r"(?:家庭|家里?的?)?(?:住址|地址|住处)|住(?:的地方|哪里?|在哪里?)|家在哪里?"
        r"|(?:home )?(?:address|residence)|home|location|where (?:i|we) live"
        r"|(?:city|place) (?:where )?(?:i|we) live(?: in)?",
        ("user.home",),
    ),
    (r"名字|姓名|全名|叫什么(?:名字)?|(?:first |last |full )?name|what (?:i'm|i am) called", ("user.name",)),
    (r"工作|职业|职位|岗位|job(?: title)?|occupation|profession|work", ("user.job", "user.employer")),
    (r"公司|单位|雇主|在哪里?(?:上班|工作)|company|employer|where (?:i|we) work", ("user.employer",)),
    (r"学校|大学|母校|school|university|college", ("user.school",)),
    (r"生日|出生日期|birthday|birth ?date|date of birth", ("user.birthday",)),
    (r"年龄|岁数|多大|几岁|age|how old (?:i am|i'm)", ("user.age",)),
    (r"老家|家乡|籍贯|hometown|origin|where (?:i'm|i am|i come) from", ("user.origin",)),
    (r"饮食(?:习惯|偏好|限制)?|忌口|diet(?:ary .*)?", ("user.diet",)),
    (
        r"(?:回答|回复)的?语言|语言(?:偏好|设置)?|(?:reply |answer )?language(?: preference)?",
        ("preference.reply_language",),
    ),
    (r"账号|账户|accounts?", ("account.*",)),
)
_BY_TOPIC = tuple((compiled(pattern, _I), keys) for pattern, keys in _TOPICS)
_BY_KIND = (
    (compiled(r"喜好|偏好|爱好|口味|preferences?|tastes?|likes(?: and dislikes)?", _I), "preference"),
    (compiled(r"指令|要求|规则|(?:standing )?instructions?|rules", _I), "instruction"),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be forgotten.

    Args:
        text: As said.
        core: Without "my", "about", "the fact that".
        keys: Globs of the slots that it names; empty when it names none.
        kind: The kind of memory that it names as a whole; None when it names none.
        last: Whether it only points at what was said last.
        everything: Whether it means all there is, which is not for a chat to decide.
    """

    text: str
    core: str
    keys: tuple[str, ...] = ()
    kind: str | None = None
    last: bool = False
    everything: bool = False


def subject_of(about: str | None) -> Subject:
    """Understand what a user asks to forget.

    Args:
        about: In their words; None for what was said last.

    >>> subject_of("我的地址").keys, subject_of("my home address").keys, subject_of("my preferences").kind
    (('user.home',), ('user.home',), 'preference')
    >>> subject_of("the fact that I like coffee").core, subject_of("我喜欢咖啡这件事").core
    ('like coffee', '喜欢咖啡')
    >>> subject_of("what I just said").last, subject_of(None).last, subject_of("everything about me").everything
    (True, True, True)
    """
    text = " ".join((about or "").replace("’", "'").split())
    plain = text.strip(" .。!！,，;；“”\"'")
    if _LAST.fullmatch(plain):
        return Subject(text, "", last=True)
    if _EVERYTHING.fullmatch(plain):
        return Subject(text, plain, everything=True)
    core = _CLOSING.sub("", plain)
    stripped = _OPENING.sub("", core)
    # "where I live" must keep its I to be known.
    keys = next((keys for word, keys in _BY_TOPIC if word.fullmatch(stripped) or word.fullmatch(core)), ())
    kind = next((kind for word, kind in _BY_KIND if word.fullmatch(stripped)), None)
    return Subject(text, stripped or core, keys, kind)


def meant(subject: Subject, found: Sequence[tuple[Memory, float | None]], most: int) -> list[Memory]:
    """The memories that are clearly meant.

    Args:
        subject: From `subject_of`.
        found: Candidates with their cosine to the subject; None where there is none.
        most: How many at most; a kind named as a whole that has more is too much to be meant by the way.

    Returns:
        Those meant, the closest first; empty when none clearly is.
    """
    named = [memory for memory, _ in found if _in_slot(subject, memory)]
    if named:
        return named[:most]
    if subject.kind is not None:
        of_kind = [memory for memory, _ in found if memory.kind == subject.kind]
        return of_kind if len(of_kind) <= most else []
    scored = [(closeness(subject, memory, cosine), memory) for memory, cosine in found]
    best = max((score for score, _ in scored), default=0.0)
    close = [(score, memory) for score, memory in scored if score > 0 and score >= best - _BEHIND]
    if len(close) > most:
        return []  # as many as that are not one thing
    return [memory for _, memory in sorted(close, key=lambda one: -one[0])]


def closeness(subject: Subject, memory: Memory, cosine: float | None) -> float:
    """How clearly a memory is meant: 0 when it is not."""
    if subject.keys and not _is_personal(memory):
        return 0.0  # "my address" is not the server's, "my birthday" not the boss's
    content = memory.content.casefold()
    if set(_NUMBERS.findall(subject.core.casefold())) - set(_NUMBERS.findall(content)):
        return 0.0
    if any(name.casefold() not in content for name in _NAMES.findall(subject.core)):
        return 0.0
    states = _SENTIMENT.search(subject.core) or _PREDICATE.search(subject.core)
    if states and _is_negated(subject.core) != _is_negated(memory.content):
        return 0.0
    share = covered(subject.core, memory.content)
    near = 0.0 if cosine is None else cosine
    if memory.kind == "turn" and (share < _WHOLE or near < _RAW_COSINE):
        return 0.0  # a raw turn says other things besides
    whole = share >= _WHOLE and near >= (_WHOLE_COSINE if len(query_terms(subject.core)) > 1 else _WORD_COSINE)
    chinese = _HAN.search(subject.core) is not None
    # A statement with another word in one place states something else: "I use pnpm for it", "I use yarn for it".
    most = share >= _MOST[chinese] and near >= _MOST_COSINE and (chinese or not states)
    return share + near if whole or most else 0.0


def covered(core: str, content: str) -> float:
    """Which share of a subject's words a text holds, 0–1; words of liking do not count beside others.

    >>> covered("like coffee", "The user loves black coffee"), covered("养猫", "用户养了一只猫"), covered("tea", "jazz")
    (1.0, 0.8, 0.0)
    """
    plain = _WHOSE.sub(" ", core)
    words = set(query_terms(_SENTIMENT.sub(" ", plain))) or set(query_terms(plain))
    if not words:
        return 0.0
    had = set(terms(content))
    share = len(words & had) / len(words)
    signs = set(_HAN.findall(_SENTIMENT.sub(" ", plain))) - _OF_LITTLE_WEIGHT
    return max(share, _LOOSE * len(signs & had) / len(signs)) if len(signs) > 1 else share


def _in_slot(subject: Subject, memory: Memory) -> bool:
    return memory.key is not None and any(fnmatchcase(memory.key, glob) for glob in subject.keys)


def _is_personal(memory: Memory) -> bool:
    surroundings = memory.key is not None and any(fnmatchcase(memory.key, glob) for glob in _OWN_SURROUNDINGS)
    return not surroundings and bool(_OF_USER.match(memory.content)) and not _OTHERS.search(memory.content)


def _is_negated(text: str) -> bool:
    return _NEGATED.search(text) is not None
