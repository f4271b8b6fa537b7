"""Chinese relative dates: where they stand in a sentence, and which day, week, month or year each one means.

Pure. In: a masked text and when it was said. Out: a stretch of the text with its replacement. A week starts on Monday;
a bare weekday is the last one where the clause tells of the past, else the coming one or today. What only looks like a
date (明天集团, 每周五, 说明天气, 后天的努力) is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from proxy.sentence import when
from proxy.sentence.when import Step, When

_DAY = "(?:[12][0-9]|3[01]|0?[1-9]|二?十[一二三四五六七八九]?|三十一?|[一二三四五六七八九])"
# A number right after a weekday counts something else: 上周三次, 上周五天, 周日本人, 周一直在.
_WEEKDAY = (
    "(?:[二三四五六](?!次|回|趟|天(?!气)|个|人|家|十|小时|[日一二三四五六]|福)"
    "|一(?!次|回|趟|共|直|起|些|样|般|下(?!午)|整|个|天(?!气)|[二三四五六])|日(?![本程报期常志历益])|天(?![天气]))"
)
_WEEK = "(?:周|星期|礼拜)"
# 以前天天, 目前天气; 如今天气, 当今年代; 聪明天真: the first character belongs to the word before it.
_NO_SIDE = "(?<![以之目当先午提眼最随背饭睡雨])"
_NOT_NOW = "(?<![如当现](?<!比如)(?<!例如))"
_NOT_CLEAR = "(?<![聪文透])"
_JOINED = f"(?:到|至|~|-|—|和|、|或|跟|与){_WEEK}"
_PATTERN = re.compile(
    "(?=[大前昨今明后上下这本周星礼月年去刚半0-9一二两三四五六七八九十])(?:"
    # 大前天 … 大后天, 今晚, 明早
    f"(?P<day>(?P<day_word>大前天|大后天|{_NO_SIDE}(?:前天|前晚|后晚|后天(?!天|免疫|形成|培养|努力|习得|因素|环境|失|教育"
    f"|获得|发育|养成|性|的(?:努力|因素|培养|教育|环境|影响)))|昨(?:[天日]|[晚早]上?|夜|儿个?)"
    f"|{_NOT_NOW}今(?:[天日晨夜]|[晚早]上?|儿个?)|{_NOT_CLEAR}明(?:[天日](?!才|气(?!温|压))|[晚早]上?|儿个?))"
    "(?!集团|系(?![统里上列数])|头条|说法|方舟|香|重现|控股|股份|乐队|会更好|之后|以后|两[天年]"
    "|的(?:社会|时代|世界|年轻人|人们|孩子)))"
    # 上周, 下下周三, 本周末, 下周一到周三
    "|(?P<week>(?<![以线桌身楼路晚早海网马基成样日版文课资根])(?P<week_rel>上{1,3}|下{1,3}|这|本)一?个?"
    + _WEEK
    + f"(?:(?P<week_end>末)|(?P<week_day>{_WEEKDAY})(?P<week_join>{_JOINED})?(?(week_join)(?P<week_to>{_WEEKDAY}))"
    "|(?![期转边围岁年杰刊报密全末])))"
    f"|(?P<bare>(?<![每逢双单隔个0-9一二两三四五六七八九十几半整色上下这本]){_WEEK}(?P<bare_day>{_WEEKDAY})"
    f"(?!{_JOINED}|餐厅|酒吧|乐队|集团|影院|限号))"
    # 上个月, 下月5号, 这个月底
    "|(?P<month>(?<![以早晚日基])(?P<month_rel>上{1,3}|下{1,3}|这|本)一?个?月(?![球亮饼票色季台牙])"
    f"(?:(?P<month_day>{_DAY})[号日])?)"
    "|(?P<edge>(?<![0-9一二三四五六七八九十每个上下这本当逐各次 ])月(?P<edge_part>[底初末]))"
    "|(?P<year_edge>(?<![0-9一二三四五六七八九十零〇每去今明前后当次本同这往历 ])年(?P<year_edge_part>[底初末]))"
    # 去年, 今年3月, 明年五月一号, 去年年底
    f"|(?P<year>(?P<year_word>大前年|{_NO_SIDE}(?<![0-9其此])[前后]年|(?<![过失])去年|{_NOT_NOW}今年|{_NOT_CLEAR}明年)"
    "(?![轻代龄均度份薪级收化迈])"
    f"(?:年?(?P<year_part>[底初末])|的?(?P<year_month>1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])月份?"
    f"(?:(?P<year_day>{_DAY})[号日])?)?)"
    # 三天前, 半年前, 两周后
    "|(?P<away>(?<![第每个几十百千万多年月0-9.一二两三四五六七八九零〇])"
    "(?P<away_n>[0-9]{1,4}|半|[一二两三四五六七八九十]{1,3}) ?"
    "(?P<away_unit>个?(?:小时|钟头|星期|礼拜)|个月|分钟|天|周|年)(?:以|之)?(?P<away_dir>[前后])"
    "(?![端后面期台天任者辈半段排景缀置卫]))"
    "|(?P<just>刚才的?|(?<!刚)刚刚(?![好够巧刚]))"
    ")"
)
_RANGE_BEFORE = re.compile(rf"(?:{_WEEK}[一二三四五六日天]|\d)\s*(?:到|至|~|-|—|和|、|或|跟|与)\s*$")
_CLAUSE_ENDS = re.compile(r"[，。；：！？,;!?\n]")
_FUTURE = re.compile(
    "要|将|会|准备|打算|计划|之前|以前|截止|预定|改[到成在]|推迟|提前|定[在到于]|安排|前(?:完成|交|提交|给)"
)
_PAST = re.compile("了|过(?!去|期|来|节|年|生日)|已经|刚|曾|的时候")
_HABIT = re.compile("每|总是?|一般|通常|经常|平时|平常|习惯|向来|固定|都|从不|例会|惯例|逢")
# "出发三天前" counts from the event, and so does "发布两天后"; "用户三天前" counts from now.
_EVENT_BEFORE = re.compile(
    "(?:出发|开会|考试|上线|发布|到期|截止|生日|婚礼|出生|会议|手术|离开|交付|面试|节|放?假|签约)的?$"
)
_FREE_BEFORE = re.compile(
    r"(?:^|(?<!\d)\s|[，。；：！？,;:、（(]|我们?|你们?|用户|他们?|她们?|它们?|[会要将就在于定是到再]|再过|大概|大约|预计|计划|打算|准备)$"
)
_DAYS = {"大前": -3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2, "大后": 3}
_YEARS = {"大前年": -3, "前年": -2, "去年": -1, "今年": 0, "明年": 1, "后年": 2}
_PARTS = {"晚": "晚上", "夜": "夜里", "早": "早上", "晨": "早晨"}
_STEPS: dict[str, Step] = {
    "小时": "hour",
    "钟头": "hour",
    "分钟": "minute",
    "天": "day",
    "周": "week",
    "星期": "week",
    "礼拜": "week",
    "月": "month",
    "年": "year",
}
_HALVES: dict[Step, tuple[int, Step]] = {"year": (6, "month"), "month": (15, "day"), "hour": (30, "minute")}
_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"两": 2, "日": 6, "天": 6}
_OLDEST_YEARS = 150


def number(text: str) -> int:
    """A number up to 99 in Chinese or any number in ASCII digits.

    >>> number("12"), number("两"), number("十五"), number("二十"), number("三十一")
    (12, 2, 15, 20, 31)
    """
    if text.isascii():
        return int(text)
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return _DIGITS[text[-1]]
    return 10 * (_DIGITS[tens[-1]] if tens else 1) + (_DIGITS[ones[-1]] if ones else 0)


def replacements(text: str, now: datetime) -> list[tuple[int, int, str]]:
    """The relative dates of a masked text.

    Args:
        text: Without code, addresses and quotes.
        now: When it was said, in the user's zone.

    Returns:
        (start, end, what stands there instead) of each, from left to right.
    """
    found = []
    for match in _PATTERN.finditer(text):
        name = match.lastgroup or ""
        instead = "" if name == "just" else _RESOLVERS[name](match, now)
        if instead is not None:
            found.append((*match.span(), instead))
    return found


def _clause(match: re.Match[str]) -> str:
    """The clause around a match, without the match itself."""
    before = match.string[: match.start()]
    cut = max((end.end() for end in _CLAUSE_ENDS.finditer(before)), default=0)
    after = _CLAUSE_ENDS.split(match.string[match.end() :], maxsplit=1)[0]
    return f"{before[cut:]} {after}"


def _written(found: When | None, rest: str = "") -> str | None:
    return None if found is None else f"{found.chinese()} {rest}".rstrip()


def _day(match: re.Match[str], now: datetime) -> str | None:
    word = match["day_word"]
    name = "大前" if word.startswith("大前") else "大后" if word.startswith("大后") else word[0]
    return _written(when.days(now, _DAYS[name]), _PARTS.get(word[1], ""))


def _relative(word: str) -> int:
    return -len(word) if word[0] == "上" else len(word) if word[0] == "下" else 0


def _weekday(text: str) -> int:
    return _DIGITS[text] - (0 if text in "日天" else 1)


def _week(match: re.Match[str], now: datetime) -> str | None:
    count = _relative(match["week_rel"])
    if match["week_end"]:
        return _written(when.weekend(now, count))
    if not match["week_day"]:
        return _written(when.weeks(now, count))
    first = _written(when.weeks(now, count, _weekday(match["week_day"])))
    if first is None or not match["week_to"]:
        return first
    second = _written(when.weeks(now, count, _weekday(match["week_to"])))
    return None if second is None else f"{first} {match['week_join'][0]} {second}"


def _bare(match: re.Match[str], now: datetime) -> str | None:
    clause = _clause(match)
    if _HABIT.search(clause) or _RANGE_BEFORE.search(match.string, 0, match.start()):
        return None
    past = _PAST.search(clause) and not _FUTURE.search(clause)
    return _written((when.gone if past else when.coming)(now, _weekday(match["bare_day"])))


def _month(match: re.Match[str], now: datetime) -> str | None:
    day = match["month_day"]
    return _written(when.months(now, _relative(match["month_rel"]), number(day) if day else None))


def _edge(match: re.Match[str], now: datetime) -> str | None:
    return None if _HABIT.search(_clause(match)) else _written(when.months(now, 0), match["edge_part"])


def _year_edge(match: re.Match[str], now: datetime) -> str | None:
    clause, part = _clause(match), match["year_edge_part"]
    if _HABIT.search(clause):
        return None
    past = _PAST.search(clause) and not _FUTURE.search(clause)
    if part == "初":
        count = 0 if past or now.month == 1 or not _FUTURE.search(clause) else 1
    else:
        count = -1 if past and now.month <= 6 else 0
    found = when.years(now, count)
    return None if found is None else f"{found.chinese()}{part}"


def _year(match: re.Match[str], now: datetime) -> str | None:
    month, day = match["year_month"], match["year_day"]
    found = when.years(now, _YEARS[match["year_word"]], number(month) if month else None, number(day) if day else None)
    return None if found is None else f"{found.chinese()}{match['year_part'] or ''}"


def _away(match: re.Match[str], now: datetime) -> str | None:
    before = match.string[: match.start()]
    past = match["away_dir"] == "前"
    if _EVENT_BEFORE.search(before) or (not past and not _FREE_BEFORE.search(before)):
        return None
    step = _STEPS[match["away_unit"].removeprefix("个")]
    if match["away_n"] == "半":
        if step not in _HALVES:
            return None
        count, step = _HALVES[step]
    else:
        count = number(match["away_n"])
    if step == "year" and count > _OLDEST_YEARS:  # 2024年前 is a year, no distance
        return None
    return _written(when.away(now, -count if past else count, step))


_RESOLVERS: dict[str, Callable[[re.Match[str], datetime], str | None]] = {
    "day": _day,
    "week": _week,
    "bare": _bare,
    "month": _month,
    "edge": _edge,
    "year_edge": _year_edge,
    "year": _year,
    "away": _away,
}
