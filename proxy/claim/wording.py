"""A text in one form of writing: width, numerals, contractions; and its words without those that change nothing.

Pure. In: a text in Chinese or English. Out: the text rewritten, or its content words in order.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

IDEOGRAPH = r"\u3400-\u9fff"
_CACHED = 4096
_CACHED_CHARS = 400
"""Of longer texts nothing is kept: a cache of pages would cost more than it spares."""
# An ideograph, a word of any other script ("-5" and "node.js" are one each), or a sign ("+", "€", an emoji).
_WORDS = re.compile(
    rf"[{IDEOGRAPH}]"
    rf"|(?:(?<!\S)[-.])?[^\W_{IDEOGRAPH}]+(?:[-_.:][^\W_{IDEOGRAPH}]+)*"
    r"|[^\w\s.,;:!?。，；：！？、…'’‘\"“”()（）\[\]【】《》<>_-]"
)
_ARTICLE = re.compile(r"(^|[.!?:] )A (?=[a-z])")
_OWNER = re.compile(r"用户的?|用戶的?|\busers?(?:['’]s?)?\b|(?<=\w)['’]s\b", re.IGNORECASE)
"""Whose memory it is goes without saying."""
_AT_PRESENT = re.compile(r"现在|目前|\b(?:currently|at present)\b|\bnow (?=[a-z])", re.IGNORECASE)
# Words that change nothing: no negation, pronoun, direction or tense is among them.
_FUNCTION = frozenset("的了着是在用使来和与及也都就很会请里") | frozenset(
    ("the", "a", "an", "is", "are", "am", "be", "to", "of", "in", "on", "at", "for", "with", "and", "really", "very")
)

_ZH_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_ZH_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000}
# Only before what is counted: 一 in 统一 or 周一 is no number.
_ZH_NUMBER = re.compile(
    r"(?<![周期拜第统唯单专])[零〇一二两三四五六七八九十百千万]+"
    r"(?=[天个只条台年月日号点次位名岁级人块元秒页行倍层楼遍杯本辆间套份支部门种周]|年级|小时|分钟|星期|美元|公里|公斤|期[楼])"
)
_EN_NUMERALS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_EN_SMALL = {numeral: value for value, numeral in enumerate(_EN_NUMERALS.split(), start=1)}
_EN_TENS = {
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "seventy": 70,
    "eighty": 80,
    "ninety": 90,
}
_EN_NUMBER = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_EN_TENS)})(?:[- ](?P<digit>{'|'.join(list(_EN_SMALL)[:9])}))?"
    rf"|(?P<small>{'|'.join(_EN_SMALL)}))\b(?!-)",
    re.IGNORECASE,
)
_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"
)  # fmt: skip
_EN_ORDINAL = re.compile(rf"(?<!\d )\b(?:{'|'.join(_ORDINALS)})\b", re.IGNORECASE)
_WEEKDAYS = re.compile(r"\b((?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)s\b")
_CONTRACTIONS = tuple(
    (re.compile(pattern, re.IGNORECASE), full)
    for pattern, full in (
        (r"\bcan['’]?t\b|\bcannot\b", "can not"),
        (r"\bwon['’]t\b", "will not"),
        (r"(?<=[a-z])n['’]t\b", " not"),
        (r"(?<=[a-z])['’]re\b", " are"),
        (r"(?<=\bi)['’]m\b", " am"),
        (r"(?<=[a-z])['’]ve\b", " have"),
        (r"(?<=[a-z])['’]ll\b", " will"),
    )
)
# One thing written in two ways: 用英文写 and 写英文, 杭州市滨江区 and 杭州滨江区, 有个 and 有一个.
_REWRITTEN = (
    (re.compile(r"用([一-龥]{1,2}[文语]|双语|普通话)(写|回答|回复|交流|沟通|撰写|编写|标注)"), r"\2\1"),
    (re.compile(rf"(?<=[{IDEOGRAPH}]{{2}})市(?=[{IDEOGRAPH}]{{1,4}}[区县镇])"), ""),
    (re.compile(r"(?<=用户)的?家[里中](?=养|有)"), ""),
    (re.compile(r"(?<=[有是了养])(?=[个位条台辆]|只(?![有是能会]))"), "1"),
)


def plain(text: str) -> str:
    """A text in the plainest of the ways to write it; case and order of words stay.

    >>> plain("备份会保留三十天"), plain("It doesn't keep thirty-five copies")
    ('备份会保留30天', 'It does not keep 35 copies')
    >>> plain("统一周一开会"), plain("用户住在杭州市滨江区")
    ('统一周一开会', '用户住在杭州滨江区')
    """
    return _plain(text) if len(text) <= _CACHED_CHARS else _plain.__wrapped__(text)


@lru_cache(maxsize=_CACHED)
def _plain(text: str) -> str:
    flat = _ARTICLE.sub(r"\1a ", unicodedata.normalize("NFKC", text))
    if flat.isascii():
        for pattern, full in _CONTRACTIONS:
            flat = pattern.sub(full, flat)
        return _EN_ORDINAL.sub(_en_ordinal, _EN_NUMBER.sub(_en_number, _WEEKDAYS.sub(r"\1", flat)))
    flat = _ZH_NUMBER.sub(lambda match: str(_zh_number(match.group())), flat)
    for pattern, form in _REWRITTEN:
        flat = pattern.sub(form, flat)
    for pattern, full in _CONTRACTIONS:
        flat = pattern.sub(full, flat)
    return _EN_NUMBER.sub(_en_number, flat)


def content_words(text: str) -> tuple[str, ...]:
    """The words of a text that carry its meaning, in order: numbers, names and negation are among them.

    >>> content_words("The user likes dark themes"), content_words("用户养了两只猫")
    (('like', 'dark', 'theme'), ('养', '2', '只', '猫'))
    """
    return _content_words(text) if len(text) <= _CACHED_CHARS else _content_words.__wrapped__(text)


@lru_cache(maxsize=_CACHED)
def _content_words(text: str) -> tuple[str, ...]:
    return words(_OWNER.sub(" ", _AT_PRESENT.sub(" ", plain(text))))


def words(text: str) -> tuple[str, ...]:
    """The content words of a text that is plain already."""
    # "A" alone is a name ("room A"): as an article it was written small before (`plain`).
    return tuple(stem(word) for word in _WORDS.findall(text) if word == "A" or word.casefold() not in _FUNCTION)


def stem(word: str) -> str:
    """A word without the s of a plural or a third person; names are written with capitals: "Adams" is not "Adam"."""
    return word.removesuffix("s") if word.islower() else word.casefold()


def _zh_number(numeral: str) -> int | str:
    if all(character in _ZH_DIGITS for character in numeral):
        # 三四天 is no number but a guess; 二零二六年 is read digit by digit.
        return numeral if len(numeral) == 2 else "".join(str(_ZH_DIGITS[character]) for character in numeral)
    total, digit = 0, None
    for character in numeral:
        if character in _ZH_DIGITS:
            digit = _ZH_DIGITS[character]
        elif character == "万":
            total, digit = (total + (digit or 0)) * _ZH_UNITS[character], None
        else:
            total += (1 if digit is None else digit) * _ZH_UNITS[character]
            digit = None
    return total + (digit or 0)


def _en_ordinal(match: re.Match[str]) -> str:
    number = _ORDINALS.index(match[0].lower()) + 1
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"


def _en_number(match: re.Match[str]) -> str:
    if match["small"]:
        return str(_EN_SMALL[match["small"].lower()])
    return str(_EN_TENS[match["tens"].lower()] + _EN_SMALL.get((match["digit"] or "").lower(), 0))
