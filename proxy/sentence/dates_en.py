"""English relative dates: where they stand in a sentence, and which day, week, month or year each one means.

Pure. In: a masked text and when it was said. Out: stretches of the text with their replacements. "next X" is the X of
the following week (Monday first), "this X" and "on X" the coming one or today, "last X" the nearest one before today.
What only looks like a date (every Friday, on Fridays, Black Friday, the Yesterday song) is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import get_args

from proxy.sentence import tense, when
from proxy.sentence.when import Step, When

_HINTS = ("day", "morrow", "night", "week", "month", "year", "ago", "now", "morning", "evening", "afternoon", "hour",
          "minute", "last ", "next ", "this ")  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS = {word: value for value, word in enumerate(_COUNTED)} | {
    "a": 1, "an": 1, "a couple of": 2, "fifteen": 15, "twenty": 20, "thirty": 30, "half a": 0, "half an": 0,
}  # fmt: skip
_WEEKDAY = "|".join(_DAYS)
_SHORT = "mon|tues?|wed|thu(?:rs?)?|fri|sat|sun"
_MONTH = "|".join(_MONTHS)
_NUMBER = r"\d{1,3}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True))
_PART = "morning|afternoon|evening|night"
_LETTER = r"A-Za-z0-9_\u00c0-\u024f"  # Chinese may stand right beside
_PATTERN = re.compile(
    rf"(?<![{_LETTER}@/-])(?=[ytlnpcmwfseiajhotd0-9])(?:"
    r"(?P<beyond>the\s+day\s+(?:before\s+yesterday|after\s+tomorrow))"
    rf"|(?P<day>yesterday|today|tomorrow)(?:\s+(?P<day_part>{_PART}))?"
    r"|(?P<night>tonight|last\s+night)"
    rf"|(?P<part>this\s+(?:morning|afternoon|evening))"
    rf"|(?P<week_day>(?P<week_day_rel>last|this(?:\s+past|\s+coming)?|past|coming|next)\s+(?P<week_day_name>{_WEEKDAY}"
    rf"|{_SHORT}(?!\w)))(?:\s+(?P<week_day_part>{_PART}))?"
    rf"|(?P<day_of>(?P<day_of_name>{_WEEKDAY})(?:\s+of)?\s+(?P<day_of_rel>last|this|next)\s+week)"
    rf"|(?P<of_week>(?P<of_week_rel>last|this|next)\s+week\s+(?:on\s+)?(?P<of_week_name>{_WEEKDAY}))"
    rf"|(?P<bare>{_WEEKDAY})(?:\s+(?P<bare_part>{_PART}))?"
    r"|(?P<span>(?P<span_rel>last|this|next)\s+(?P<span_unit>weekend|week|month|year))"
    rf"|(?P<month>(?P<month_rel>last|this|next)\s+(?P<month_name>{_MONTH}))"
    r"|(?P<edge>(?P<edge_the>the\s+)?end\s+of\s+(?:the\s+|this\s+)?(?P<edge_unit>week|month|year))"
    rf"|(?P<ago>(?P<ago_n>{_NUMBER})\s+(?P<ago_unit>minute|hour|day|week|month|year)s?\s+"
    r"(?P<ago_how>ago|from\s+(?:now|today)))"
    rf"|(?P<ahead>in\s+(?P<ahead_n>{_NUMBER})\s+(?P<ahead_unit>minute|hour|day|week|month|year)s?)"
    r"|(?P<just>just\s+now)"
    rf")(?P<owns>['’]s)?(?![{_LETTER}/@-]|['’]\w)",
    re.IGNORECASE,
)
_VERB_AFTER = re.compile(r"\s+(?:is|was|will|works?|would|isn['’]t|wasn['’]t|has|looks?|feels?|seems?)\b|['’]s\b")
_OTHER_DAY_AFTER = re.compile(
    rf"\s*(?:,|/|-|–|and|or|to|through|thru|until|till)\s*(?:{_WEEKDAY}|{_SHORT}(?!\w))", re.IGNORECASE
)
_OTHER_DAY_BEFORE = re.compile(
    rf"(?:{_WEEKDAY}|\b(?:{_SHORT})|\d)\s*(?:,|/|-|–|and|or|to|through|thru|until|till)\s*(?:on\s+)?$", re.IGNORECASE
)
_ENDS = re.compile(r"[.!?;\n]")
_IS = re.compile(r"\b(?:is|was)\s+$")
_SENTENCE_STARTS = re.compile(r"(?:^|[.!?:：\n]\s*)[\s(]*$")
_LED = re.compile(
    r"\b(on|in|by|until|till|since|from|for|before|after|of|to|through|than|like|about|around|during|as of)\s+$",
    re.IGNORECASE,
)
_FIRM_NAME = re.compile(r"\s+(?:Inc|Corp|Ltd|LLC|Group|Studios|Never|Land|Show)\b")
_NOWADAYS = re.compile(
    r"['’]s\s+(?:\w+\s+){0,2}(?:world|society|youth|age|market|kids|standards|media|economy|era|landscape)\b"
    r"|\s+Show\b"
)
_SUPPOSED = re.compile(r"\b(?:if|suppose|say|assuming)\s+$", re.IGNORECASE)
_SHORT_FOR_IS = re.compile(r"\s+(?:been|gonna|going|coming|looking|getting|got|an?|the|not|my|your|our|when|where)\b")
_PARTS = {
    "morning": "in the morning",
    "afternoon": "in the afternoon",
    "evening": "in the evening",
    "night": "at night",
}
_RELATIVE = {"last": -1, "past": -1, "this": 0, "coming": 0, "next": 1}
_STEPS: dict[str, Step] = {step: step for step in get_args(Step)}
_HALVES: dict[str, tuple[int, Step]] = {"hour": (30, "minute"), "year": (6, "month")}


def replacements(text: str, now: datetime, *, chinese: bool = False) -> list[tuple[int, int, str]]:
    """The relative dates of a masked text.

    Args:
        text: Without code, addresses and quotes.
        now: When it was said, in the user's zone.
        chinese: The sentence around them is Chinese, and wants no prepositions.

    Returns:
        (start, end, what stands there instead) of each, from left to right.
    """
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return []
    found = []
    for match in _PATTERN.finditer(text):
        instead = _instead(match, now, chinese=chinese)
        if instead is not None:
            found.append((*match.span(), instead))
    return found


def _instead(match: re.Match[str], now: datetime, *, chinese: bool) -> str | None:
    name = next((name for name in _RESOLVERS if match[name]), "just")
    if name == "just":
        return None if match["owns"] or _led_by(match) else ""
    found = _RESOLVERS[name](match, now)
    if found is None:
        return None
    meant, rest = found
    if chinese:
        return f"{meant.chinese()} {rest}".rstrip()
    if match["owns"] and not _SHORT_FOR_IS.match(match.string, match.end()):
        return meant.attribute()
    whole = f"{meant.english()} {rest}".rstrip() + (match["owns"] or "")
    if name == "edge":
        return f"{match['edge_the'] or ''}end of {whole}"
    return whole if _led_by(match) else _alone(match, meant, whole)


def _led_by(match: re.Match[str]) -> str:
    """The preposition before a match, in lower case; empty when there is none."""
    led = _LED.search(match.string, max(0, match.start() - 10), match.start())
    return led[1].lower() if led else ""


def _alone(match: re.Match[str], meant: When, whole: str) -> str:
    """A date that no preposition leads: it gets the one it needs, if it needs one."""
    capital = match.group()[0].isupper() and bool(_SENTENCE_STARTS.search(match.string[: match.start()]))
    if match["owns"] or _VERB_AFTER.match(match.string, match.end()):
        return whole[0].upper() + whole[1:] if capital else whole
    return f"{meant.preposition.capitalize() if capital else meant.preposition} {whole}"


Resolved = tuple[When, str] | None


def _with(found: When | None, part: str | None = None) -> Resolved:
    return None if found is None else (found, _PARTS[part.lower()] if part else "")


def _sentence(match: re.Match[str]) -> tuple[str, str]:
    """What stands before and after a match in its sentence, in lower case."""
    before = _ENDS.split(match.string[: match.start()])[-1]
    return before.lower(), _ENDS.split(match.string[match.end() :], maxsplit=1)[0].lower()


def _is_name(match: re.Match[str], name: str) -> bool:
    """A capital inside a sentence makes a name: "the Yesterday song", "USA Today"."""
    inside = not _SENTENCE_STARTS.search(match.string[: match.start(name)])
    return match[name][0].isupper() and (inside or _FIRM_NAME.match(match.string, match.end()) is not None)


def _beyond(match: re.Match[str], now: datetime) -> Resolved:
    return _with(when.days(now, -2 if "yesterday" in match["beyond"].lower() else 2))


def _day(match: re.Match[str], now: datetime) -> Resolved:
    if _is_name(match, "day") or _NOWADAYS.match(match.string, match.end("day")):
        return None
    if _SUPPOSED.search(match.string, 0, match.start()) or (match["owns"] and _led_by(match) == "in"):
        return None  # "in today's fast world"
    return _with(when.days(now, ("yesterday", "today", "tomorrow").index(match["day"].lower()) - 1), match["day_part"])


def _night(match: re.Match[str], now: datetime) -> Resolved:
    if _is_name(match, "night"):
        return None
    return _with(when.days(now, -1 if match["night"][0] in "lL" else 0), "night")


def _part(match: re.Match[str], now: datetime) -> Resolved:
    return _with(when.days(now, 0), match["part"].split()[-1])


def _index(name: str) -> int:
    return next(place for place, day in enumerate(_DAYS) if day.startswith(name.lower()[:3]))


def _week_day(match: re.Match[str], now: datetime) -> Resolved:
    relation, weekday = match["week_day_rel"].lower().split()[-1], _index(match["week_day_name"])
    if match["week_day_name"] in ("sat", "sun", "wed", "mon"):  # other words, where they are not capitalised
        return None
    if relation == "next":
        found = when.weeks(now, 1, weekday)
    else:
        found = when.gone(now, weekday) if relation in ("last", "past") else when.coming(now, weekday)
    return None if _after_the(match) else _with(found, match["week_day_part"])


def _after_the(match: re.Match[str]) -> bool:
    """ "The next day", "the last month of the war" tell of another time than now."""
    return match.string[: match.start()].rstrip().lower().endswith(("the", "very"))


def _day_of(match: re.Match[str], now: datetime) -> Resolved:
    return _with(when.weeks(now, _RELATIVE[match["day_of_rel"].lower()], _index(match["day_of_name"])))


def _of_week(match: re.Match[str], now: datetime) -> Resolved:
    return _with(when.weeks(now, _RELATIVE[match["of_week_rel"].lower()], _index(match["of_week_name"])))


def _bare(match: re.Match[str], now: datetime) -> Resolved:
    before, after = _sentence(match)
    prep = _led_by(match)
    led = prep or match["bare_part"] or _IS.search(before) or re.match(r"\s+at\s+\d", after)
    if not led or match["owns"] or tense.habitual(f"{before} {after}"):
        return None
    if _OTHER_DAY_AFTER.match(match.string, match.end()) or _OTHER_DAY_BEFORE.search(before):
        return None
    weekday = _index(match["bare"])
    told = f"{before} {after}"
    past = prep == "since" or (prep in ("on", "") and tense.past(told))
    return _with((when.gone if past else when.coming)(now, weekday), match["bare_part"])


def _span(match: re.Match[str], now: datetime) -> Resolved:
    if _after_the(match):
        return None
    count = _RELATIVE[match["span_rel"].lower()]
    unit = match["span_unit"].lower()
    if unit == "weekend":
        return _with(when.weekend(now, count))
    return _with({"week": when.weeks, "month": when.months, "year": when.years}[unit](now, count))


def _month(match: re.Match[str], now: datetime) -> Resolved:
    relation, month = match["month_rel"].lower(), _MONTHS.index(match["month_name"].lower()) + 1
    if _after_the(match) or match["month_name"] in ("may", "march"):  # the verbs
        return None
    passed = now.month > month if relation == "last" else now.month >= month
    count = {"last": 0 if passed else -1, "this": 0, "next": 1 if passed else 0}[relation]
    return _with(when.years(now, count, month))


def _edge(match: re.Match[str], now: datetime) -> Resolved:
    if tense.habitual(" ".join(_sentence(match))):
        return None
    return _with({"week": when.weeks, "month": when.months, "year": when.years}[match["edge_unit"].lower()](now, 0))


def _count(number: str, unit: str) -> tuple[int, Step] | None:
    unit = unit.lower()
    word = " ".join(number.lower().split())
    if word.startswith("half"):
        return _HALVES.get(unit)
    return (int(word) if word.isdigit() else _NUMBERS[word]), _STEPS[unit]


def _ago(match: re.Match[str], now: datetime) -> Resolved:
    counted = _count(match["ago_n"], match["ago_unit"])
    if counted is None:
        return None
    count, step = counted
    return _with(when.away(now, -count if match["ago_how"].lower() == "ago" else count, step))


def _ahead(match: re.Match[str], now: datetime) -> Resolved:
    before, after = _sentence(match)
    counted = _count(match["ahead_n"], match["ahead_unit"])
    told = f"{before} {after}"
    if counted is None or tense.habitual(told) or not tense.ahead(before, told):
        return None  # "I built it in two days" is how long, not when
    return _with(when.away(now, *counted))


_RESOLVERS: dict[str, Callable[[re.Match[str], datetime], Resolved]] = {
    "beyond": _beyond,
    "day": _day,
    "night": _night,
    "part": _part,
    "week_day": _week_day,
    "day_of": _day_of,
    "of_week": _of_week,
    "bare": _bare,
    "span": _span,
    "month": _month,
    "edge": _edge,
    "ago": _ago,
    "ahead": _ahead,
}
