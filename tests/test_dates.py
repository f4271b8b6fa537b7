"""Relative dates: what each one means on a given Monday, what only looks like a date, and what nobody may touch."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dates import absolute
from proxy.sentence.masking import MAX_CHARS, mask, unmask
from proxy.types import Language

MONDAY = datetime(2026, 11, 30, 21, 15, tzinfo=ZoneInfo("Asia/Shanghai"))
FRIDAY = datetime(2026, 12, 4, 9, 0, tzinfo=UTC)

CHINESE = [
    ("今天发版", "2026-11-30 发版"),
    ("用户今天发版", "用户 2026-11-30 发版"),
    ("今晚去看电影", "2026-11-30 晚上去看电影"),
    ("昨天", "2026-11-29"),
    ("昨晚停电了", "2026-11-29 晚上停电了"),
    ("前天买的", "2026-11-28 买的"),
    ("大前天买的", "2026-11-27 买的"),
    ("明天开会", "2026-12-01 开会"),
    ("明早出发", "2026-12-01 早上出发"),
    ("后天", "2026-12-02"),
    ("大后天", "2026-12-03"),
    ("从明天开始", "从 2026-12-01 开始"),
    ("老板说明天开会", "老板说 2026-12-01 开会"),
    ("截至今天", "截至 2026-11-30"),
    ("明天下午三点开会", "2026-12-01 下午三点开会"),
    ("今天上午10点", "2026-11-30 上午10点"),
    ("上周", "2026-11-23 当周"),
    ("这周", "2026-11-30 当周"),
    ("本周", "2026-11-30 当周"),
    ("下周", "2026-12-07 当周"),
    ("上周五", "2026-11-27"),
    ("上上周五", "2026-11-20"),
    ("下周二", "2026-12-08"),
    ("下下周三", "2026-12-16"),
    ("上个星期一", "2026-11-23"),
    ("这个礼拜天", "2026-12-06"),
    ("这周日", "2026-12-06"),
    ("下周末", "2026-12-12 周末"),
    ("上周末", "2026-11-28 周末"),
    ("下周一到周三出差", "2026-12-07 到 2026-12-09 出差"),
    ("上周三次加班", "2026-11-23 当周三次加班"),
    ("下周一下午两点", "2026-12-07 下午两点"),
    ("上周一天气很好", "2026-11-23 天气很好"),
    ("周五", "2026-12-04"),
    ("周五要交报告", "2026-12-04 要交报告"),
    ("周五已经交了报告", "2026-11-27 已经交了报告"),
    ("会议改到星期三", "会议改到 2026-12-02"),
    ("周一发布", "2026-11-30 发布"),
    ("上个月", "2026-10"),
    ("上上个月", "2026-09"),
    ("这个月", "2026-11"),
    ("下个月", "2026-12"),
    ("下下个月", "2027-01"),
    ("下个月5号", "2026-12-05"),
    ("月底交报告", "2026-11 底交报告"),
    ("下月初", "2026-12 初"),
    ("本月底", "2026-11 底"),
    ("去年搬家", "2025年搬家"),
    ("今年", "2026年"),
    ("明年", "2027年"),
    ("前年", "2024年"),
    ("去年3月", "2025-03"),
    ("去年十二月", "2025-12"),
    ("明年五月一号", "2027-05-01"),
    ("去年年底", "2025年底"),
    ("年底发奖金", "2026年底发奖金"),
    ("三天前", "2026-11-27"),
    ("用户10天前入职", "用户 2026-11-20 入职"),
    ("两天后出发", "2026-12-02 出发"),
    ("用户两周前搬家了", "用户 2026-11-16 当周搬家了"),
    ("半年前", "2026-05"),
    ("三个月以后", "2027-02"),
    ("两年之前", "2024年"),
    ("半个月前", "2026-11-15"),
    ("两小时前", "2026-11-30 19:15"),
    ("半小时后", "2026-11-30 21:45"),
    ("刚才说的不算", "说的不算"),
    ("刚才的方案", "方案"),
    ("我 next Tuesday 去北京", "我 2026-12-08 去北京"),
]
ENGLISH = [
    ("Today is my birthday", "2026-11-30 is my birthday"),
    ("I fly tonight", "I fly on 2026-11-30 at night"),
    ("I met Bob yesterday", "I met Bob on 2026-11-29"),
    ("Yesterday I met Bob", "On 2026-11-29 I met Bob"),
    ("tomorrow's meeting", "the 2026-12-01 meeting"),
    ("the day before yesterday", "on 2026-11-28"),
    ("the day after tomorrow", "on 2026-12-02"),
    ("as of today", "as of 2026-11-30"),
    ("We met last Friday. It was nice", "We met on 2026-11-27. It was nice"),
    ("Tomorrow's gonna be hot", "2026-12-01's gonna be hot"),
    ("by tomorrow at 3pm", "by 2026-12-01 at 3pm"),
    ("at 3pm tomorrow", "at 3pm on 2026-12-01"),
    ("tomorrow morning", "on 2026-12-01 in the morning"),
    ("last night", "on 2026-11-29 at night"),
    ("this morning", "on 2026-11-30 in the morning"),
    ("I moved last week", "I moved in the week of 2026-11-23"),
    ("since last week", "since the week of 2026-11-23"),
    ("next week's release", "the week-of-2026-12-07 release"),
    ("this week", "in the week of 2026-11-30"),
    ("next weekend", "on the weekend of 2026-12-12"),
    ("last weekend", "on the weekend of 2026-11-28"),
    ("last month", "in 2026-10"),
    ("next month", "in 2026-12"),
    ("last year", "in 2025"),
    ("before next year", "before 2027"),
    ("last month's report", "the 2026-10 report"),
    ("next Monday", "on 2026-12-07"),
    ("next Tuesday", "on 2026-12-08"),
    ("this Tuesday", "on 2026-12-01"),
    ("last Monday", "on 2026-11-23"),
    ("last Friday", "on 2026-11-27"),
    ("on Friday", "on 2026-12-04"),
    ("on Monday", "on 2026-11-30"),
    ("by Friday", "by 2026-12-04"),
    ("since Friday", "since 2026-11-27"),
    ("I broke it on Friday", "I broke it on 2026-11-27"),
    ("I've booked a table on Friday", "I've booked a table on 2026-12-04"),
    ("the release was moved to Friday", "the release was moved to 2026-12-04"),
    ("the meeting is Friday", "the meeting is on 2026-12-04"),
    ("see you friday at 3pm", "see you on 2026-12-04 at 3pm"),
    ("Friday next week", "On 2026-12-11"),
    ("next week Friday", "on 2026-12-11"),
    ("next fri", "on 2026-12-11"),
    ("I leave in two days, I will pack", "I leave on 2026-12-02, I will pack"),
    ("the trial is over in 2 weeks", "the trial is over in the week of 2026-12-14"),
    ("three weeks ago", "in the week of 2026-11-09"),
    ("a couple of days ago", "on 2026-11-28"),
    ("a month ago", "in 2026-10"),
    ("half a year ago", "in 2026-05"),
    ("two years ago", "in 2024"),
    ("two days from now", "on 2026-12-02"),
    ("10 minutes ago", "at 2026-11-30 21:05"),
    ("due at the end of the month", "due at the end of 2026-11"),
    ("the end of next month", "the end of 2026-12"),
    ("last March", "in 2026-03"),
    ("next June", "in 2027-06"),
    ("just now I saw it", "I saw it"),
]
LEFT = [
    # names
    "明天集团", "《后天》", "“明天”", "今日头条", "黑色星期五", "周六福", "周五餐厅", "上周杰伦",
    "the Yesterday song", "USA Today", "Black Friday", "Good Friday", "Friday's restaurant", "TGI Friday's",
    "Tomorrow Inc is a firm",
    # habits and ranges
    "每周五", "每个周五", "周五都要开会", "例会周五", "周一到周五上班", "一周一次", "每月底", "月底都很忙",
    "each Friday", "every Friday", "on Fridays", "every other Tuesday", "I usually go on Friday", "weekdays",
    "Monday to Friday", "on Monday and Wednesday",
    # words that hold the characters of a date
    "以前天天", "目前天气", "如今天气", "聪明天真", "说明天气", "后天的努力", "最后天黑", "以上周期", "样本周期",
    "上周期", "日本周边", "四周一片", "3月底", "十月底", "上月球", "基本月供", "三天前端", "两天后端开发", "刚刚好",
    "年轻", "95后年轻人", "今明两天", "以后年年", "today's world", "next time", "last name", "the next day",
    "the next week", "the last month of the war", "this sun",
    # another point than now
    "发布两天后回滚", "出发三天前", "第三天前", "2024年前", "用了两天后", "I built it in two days",
    "there are 365 days in a year", "if today is January 1", "in today's digital landscape",
    "two days later",
    # code, addresses, quotes
    "`tomorrow`", "next_week", "tomorrow.py", "https://a.b/today?x=last week", "he said \"I leave tomorrow\"",
    "「下周五」", "a@tomorrow.com", "--today", "@tomorrow", "path/to/today", "yesterday-fix",
    # absolute already
    "2026-11-27", "5月3日", "10:30", "2026-11-23 当周", "2026年底", "on 2026-12-01 in the morning",
    "the week of 2026-11-23",
]  # fmt: skip


def language_of(text: str) -> Language:
    return "en" if text.isascii() else "zh"


@pytest.mark.parametrize(("said", "meant"), CHINESE, ids=[said for said, _ in CHINESE])
def test_chinese_dates_become_what_they_meant(said: str, meant: str) -> None:
    assert absolute(said, MONDAY, "zh") == meant


@pytest.mark.parametrize(("said", "meant"), ENGLISH, ids=[said for said, _ in ENGLISH])
def test_english_dates_become_what_they_meant(said: str, meant: str) -> None:
    assert absolute(said, MONDAY, "en") == meant


@pytest.mark.parametrize("said", LEFT)
def test_what_only_looks_like_a_date_stays(said: str) -> None:
    assert absolute(said, MONDAY, language_of(said)) == said


@pytest.mark.parametrize("meant", [*(meant for _, meant in CHINESE + ENGLISH)])
def test_an_absolute_date_stays_when_read_a_year_later(meant: str) -> None:
    later = MONDAY.replace(year=2027)
    assert absolute(meant, later, language_of(meant)) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("next Friday", "on 2026-12-11"),
        ("this Friday", "on 2026-12-04"),
        ("last Friday", "on 2026-11-27"),
        ("next Monday", "on 2026-12-07"),
        ("last Monday", "on 2026-11-30"),
        ("next Sunday", "on 2026-12-13"),
    ],
)
def test_english_weekdays_count_from_a_friday(said: str, meant: str) -> None:
    """ "next" is the following week's, "this" the coming one or today, "last" the nearest before today."""
    assert absolute(said, FRIDAY, "en") == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [("上周五", "2026-11-27"), ("这周一", "2026-11-30"), ("下周一", "2026-12-07"), ("周五", "2026-12-04")],
)
def test_chinese_weeks_start_on_monday(said: str, meant: str) -> None:
    assert absolute(said, FRIDAY, "zh") == meant


def test_today_is_the_date_in_the_zone_that_the_moment_carries() -> None:
    late = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)
    assert absolute("今天", late, "zh") == "2026-11-30"
    assert absolute("今天", late.astimezone(ZoneInfo("Asia/Shanghai")), "zh") == "2026-12-01"


@pytest.mark.parametrize(
    ("at", "said", "meant"),
    [
        (datetime(2026, 1, 31, tzinfo=UTC), "上个月", "2025-12"),
        (datetime(2026, 12, 31, tzinfo=UTC), "下个月", "2027-01"),
        (datetime(2026, 12, 31, tzinfo=UTC), "明天", "2027-01-01"),
        (datetime(2028, 2, 28, tzinfo=UTC), "明天", "2028-02-29"),
        (datetime(2028, 3, 31, tzinfo=UTC), "一个月前", "2028-02"),
        (datetime(2026, 2, 10, tzinfo=UTC), "年底发的奖金用完了", "2025年底发的奖金用完了"),
    ],
)
def test_dates_cross_months_and_years(at: datetime, said: str, meant: str) -> None:
    assert absolute(said, at, "zh") == meant


@pytest.mark.parametrize("said", ["明年2月30号", "下个月31号见"])
def test_a_day_that_the_calendar_does_not_have_stays(said: str) -> None:
    assert absolute(said, datetime(2026, 10, 1, tzinfo=UTC), "zh") == said


@pytest.mark.parametrize("said", ["9999年前", "150年前", "9000天前", "9999个月前", "999 years ago", "999 months ago"])
def test_distances_past_the_calendar_do_no_harm(said: str) -> None:
    for at in (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        absolute(said, at, language_of(said))


def test_a_text_that_is_no_sentence_comes_back_as_it_is() -> None:
    text = "明天" * MAX_CHARS
    assert absolute(text, MONDAY, "zh") == text


# ── masking ────────────────────────────────────────────────────────────────────────────────────────────────────────
@given(st.text(max_size=200) | st.text(alphabet="ab`\"'“”「」/\\.@-#$ \ue000\ue001\uf8ff\n天", max_size=80))
def test_masked_spans_come_back(text: str) -> None:
    masked, spans = mask(text)
    assert unmask(masked, spans) == text


# ── any text ───────────────────────────────────────────────────────────────────────────────────────────────────────
PIECES = st.sampled_from([*(said for said, _ in CHINESE + ENGLISH), *LEFT, "用户", "on", "8080", "了", "I"])
SENTENCES = st.builds(
    str.join, st.sampled_from(["，", "。", ", ", ". ", "；用户", " and "]), st.lists(PIECES, max_size=6)
)


@given(st.text(max_size=120) | SENTENCES, st.datetimes(), st.sampled_from(["zh", "en", "other"]))
def test_any_text_at_any_time_is_taken(text: str, at: datetime, language: Language) -> None:
    absolute(text, at.replace(tzinfo=UTC), language)


@given(st.text(max_size=60) | SENTENCES, st.sampled_from(["zh", "en"]))
def test_dates_made_absolute_are_left_the_second_time(text: str, language: Language) -> None:
    once = absolute(text, MONDAY, language)
    assert absolute(once, MONDAY, language) == once


@given(st.lists(st.integers(1_000, 99_999).map(str) | st.sampled_from(["明天", "上周五", "，", " today ", "端口"])))
def test_no_number_is_lost(pieces: list[str]) -> None:
    text = "|".join(pieces)
    after = re.findall(r"\d+", absolute(text, MONDAY, "zh"))
    for number in re.findall(r"\d+", text):
        assert number in after
