"""Who and what a text names: products, quoted titles, code words; and the people in the user's life.

Pure. In: a text. Out: the names in it, each once. Made for finding what a pronoun stands for, so rather one name too
many (then nothing is replaced) than a word taken for a name.
"""

from __future__ import annotations

import re

from proxy.sentence import first_person
from proxy.types import Language

_QUOTED = re.compile(r"[「『《“\"]([^」』》”\"\n]{1,30})[」』》”\"]|(`[^`\n]{1,40}`)")
_VERSION = r"(?: v?\d+(?:\.\d+)*)?"
_WORD = r"(?:[A-Z][A-Za-z0-9]*[A-Za-z0-9](?:[-.][A-Za-z0-9]+)*|[a-z]+[A-Z][A-Za-z]+|[a-z]+\.js)"
_EN_NAME = re.compile(rf"(?<![\w./@'’-]){_WORD}(?: {_WORD})*{_VERSION}(?![\w/@'’])")
_ZH_NAME = re.compile(
    r"(?<![A-Za-z0-9_./@-])[A-Za-z][A-Za-z0-9+#]+(?:[-.][A-Za-z0-9]+)*(?: [A-Z][A-Za-z0-9]+)*"
    rf"{_VERSION}(?![A-Za-z0-9_/@])"
)
_PLAIN = re.compile(r"[A-Z][a-z]+$")
_NAMED_AFTER = re.compile(r" (?:is|was|has|runs|uses|works|supports|broke|failed|crashed|\d)\b|['’]s\b")
_SENTENCE_STARTS = re.compile(r"(?:^|[.!?:\n]\s*)[\s(]*$")
_NO_NAMES = frozenset(
    re.findall(
        r"\S+",
        "Try Use Using Run Set Add Install Open Check See Consider Maybe Let Update Start Stop Restart Move Switch "
        "Upgrade Download Visit Take Go Buy Get Make Create Delete Remove Replace Keep Put Ask Tell Call Remember "
        "Never Always I The A An My Our Your His Her Its It That This These Those He She We They You And But Or So "
        "If When While Because Then Now Yes No Not Ok OK Okay Sure Please Thanks Thank Hi Hello Hey Also Just What "
        "Why How Who Where Which There Here Do Does Did Is Are Was Were Can Could Will Would Should May For From "
        "In On At To Of With By As After Before Since Until Monday Tuesday Wednesday Thursday Friday Saturday "
        "Sunday January February March April June July August September October November December Everything "
        "Something Nothing Someone Everyone Chinese English French German Spanish Japanese API URL HTTP HTTPS JSON "
        "ID PR CI AI LLM TODO FYI BTW",
    )
)
_ROLE = (
    "mom|mum|mother|dad|father|wife|husband|partner|girlfriend|boyfriend|sister|brother|son|daughter|boss|manager"
    "|colleague|coworker|roommate|neighbou?r|uncle|aunt|cousin|teacher|doctor|friend|client|landlord"
)
_EN_PERSON = re.compile(
    rf"\b(?:[Mm]y|[Oo]ur|[Tt]he user's) (?:(?!and\b)[a-z]+ )?(?:{_ROLE})(?:,? [A-Z][a-z]+(?: [A-Z][a-z]+)?)?\b"
    r"|(?P<alone>\b[A-Z][a-z]+(?: [A-Z][a-z]+)?)(?= (?:said|says|told|thinks|asked|wants|likes|prefers|joined|left"
    r"|recommended|is (?:an? |the |our |my )?(?:new )?(?:[a-z]+ )?(?:engineer|manager|teacher|doctor|designer|colleague"
    r"|friend|boss|lead|developer|nurse|lawyer|student))\b)"
)
_SURNAMES = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯董"
_ZH_PERSON = re.compile(
    "(?:我们?|咱们?|用户)的?(?:妈妈?|爸爸?|母亲|父亲|爷爷|奶奶|外公|外婆|哥哥?|姐姐?|弟弟?|妹妹?|老婆|老公|妻子|丈夫|太太"
    "|[男女]朋友|[男女]友|儿子|女儿|同事|同学|朋友|老板|领导|导师|室友|邻居|客户|经理|主管)"
    f"(?:[小老][{_SURNAMES}]|[A-Z][a-z]+)?"
    f"|(?<![\u4e00-\u9fff])[小老][{_SURNAMES}]|[{_SURNAMES}](?:[总工哥姐](?![是作程]*程)|老师|经理|医生|师傅)"
)


def things(text: str, language: Language) -> tuple[str, ...]:
    """The things that a text names.

    Args:
        text: A message or a sentence.
        language: Of the text: in Chinese any Latin word is a name, in English one with a capital inside a sentence.

    >>> things("我们用 PostgreSQL 15 和 redis", "zh"), things("Please install Neovim for me", "en")
    (('PostgreSQL 15', 'redis'), ('Neovim',))
    >>> things("他在看《三体》", "zh"), things("Databases are slow", "en")
    (('《三体》',), ())
    """
    found = [match.group() for match in _QUOTED.finditer(text)]
    rest = _QUOTED.sub(" ; ", text)
    people = " ".join(persons(text, language))
    if language == "zh":
        names = [match.group() for match in _ZH_NAME.finditer(rest)]
    else:
        names = [name for match in _EN_NAME.finditer(rest) if (name := _english_name(match))]
    found += [name for name in names if name not in people and name not in _NO_NAMES]
    return tuple(dict.fromkeys(found))


def _english_name(match: re.Match[str]) -> str:
    words = match.group().split(" ")
    while words and words[0] in _NO_NAMES:
        words.pop(0)
    name = " ".join(words)
    starts = len(name) == len(match.group()) and _SENTENCE_STARTS.search(match.string, 0, match.start()) is not None
    if starts and _PLAIN.match(name) and (name.endswith("ing") or not _NAMED_AFTER.match(match.string, match.end())):
        return ""  # any word has a capital there
    return name


def persons(text: str, language: Language) -> tuple[str, ...]:
    """The people that a text names, as the user's where they are.

    >>> persons("My sister Anna moved", "en"), persons("我同事小王说要来", "zh"), persons("I like tea", "en")
    (("the user's sister Anna",), ('用户的同事小王',), ())
    """
    pattern, told = (_ZH_PERSON, first_person.chinese) if language == "zh" else (_EN_PERSON, first_person.english)
    found = []
    for match in pattern.finditer(text):
        if language == "en" and match["alone"] in _NO_NAMES:
            continue
        name = told(match.group())
        found.append(f"t{name[1:]}" if name.startswith("The user") else name)
    return tuple(dict.fromkeys(found))
