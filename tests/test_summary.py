"""The summary without a model: telling sentences in the user's language, bounded, with results called results."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.summary import MAX_POINT_CHARS, MAX_POINTS, MAX_SUMMARY_CHARS, Line, Summary, summarise, transcript
from proxy.types import Language

ZH = [
    Line("我们想把测试库迁到新机器上。"),
    Line("谢谢！"),
    Line("最后决定用 PostgreSQL 15。"),
    Line("Docker 报端口冲突，改映射端口解决了"),
    Line("备份脚本还没写"),
]
EN = [
    Line("I'm planning a trip to Lisbon for 2 people."),
    Line("Thanks a lot!"),
    Line("We decided to go with TAP flight 1361."),
    Line("Reloading the page fixed the payment error."),
    Line("We still need to find a hotel near Alfama."),
]


@pytest.mark.parametrize(
    ("lines", "language", "points"),
    [
        (
            ZH,
            "zh",
            (
                "用户说：我们想把测试库迁到新机器上",
                "决定：最后决定用 PostgreSQL 15",
                "结果：Docker 报端口冲突，改映射端口解决了",
                "待办：备份脚本还没写",
            ),
        ),
        (
            EN,
            "en",
            (
                "The user said: I'm planning a trip to Lisbon for 2 people",
                "Decision: We decided to go with TAP flight 1361",
                "Result: Reloading the page fixed the payment error",
                "Open: We still need to find a hotel near Alfama",
            ),
        ),
    ],
)
def test_aim_decision_result_and_what_is_open_are_told_in_order(
    lines: list[Line], language: Language, points: tuple[str, ...]
) -> None:
    found = summarise(lines, language)
    assert found.points == points
    assert found.summary == ("；".join(points) + "。" if language == "zh" else "; ".join(points) + ".")


def test_what_the_assistant_reports_is_a_result_and_never_the_users_word() -> None:
    lines = [Line("We use Postgres 15."), Line("You seem to be a database expert.", "task", "assistant")]
    told = " ".join(summarise(lines, "en").points)
    assert "Result: You seem to be a database expert" in told
    assert "said: You seem" not in told
    zh = summarise([Line("我们用 Postgres 15。"), Line("已重启服务。", "task", "assistant")], "zh")
    assert "结果：已重启服务" in zh.points


def test_a_report_that_names_its_result_is_not_labelled_twice() -> None:
    report = 'The user asked "book it"; result: booked for 7 pm'
    assert report in summarise([Line("Dinner is on Friday at 7."), Line(report, "task", "assistant")], "en").points


@pytest.mark.parametrize(
    "text", ["好的，谢谢！", "Thanks a lot, that is great!", "这个端口怎么改？", "What is the port?"]
)
def test_talk_and_questions_are_left_out(text: str) -> None:
    assert summarise([Line(text)], "zh") == Summary()
    assert not any(text[:6] in point for point in summarise([*ZH, Line(text)], "zh").points)


def test_a_question_beside_a_statement_is_left_out() -> None:
    found = summarise([Line("The staging box went down twice on May 3. Any idea why?")], "en")
    assert found.points == ("The user said: The staging box went down twice on May 3",)


@pytest.mark.parametrize(
    ("turn", "memory"),
    [
        ("我们最后决定用 PostgreSQL，不用 MySQL", "用户决定：用 PostgreSQL"),
        ("We decided to go with Postgres.", "The user decided to go with Postgres"),
    ],
)
def test_a_turn_and_the_memory_made_of_it_are_told_once(turn: str, memory: str) -> None:
    assert summarise([Line(turn), Line(memory, "decision")], "zh").points == (memory,)


def test_sentences_that_differ_in_a_number_are_both_told() -> None:
    found = summarise([Line("Our staging port is 5432."), Line("Our staging port is 5433.")], "en")
    assert len(found.points) == 2


def test_nothing_is_told_without_a_statement_of_the_users() -> None:
    assert summarise([Line("Booked it for 7 pm.", "task", "assistant")], "en") == Summary()
    assert summarise([Line("Destination: Kyoto", "slot")], "en") == Summary()
    assert summarise([], "en") == Summary()


def test_a_users_statement_counts_among_many_results() -> None:
    done = [Line(f"Deployed service {n} to rack {n}.", "task", "assistant") for n in range(9)]
    assert summarise([*done, Line("Restarting the box fixed it.")], "en").points


def test_what_was_noted_of_the_task_is_told() -> None:
    found = summarise([Line("我们三个人想住在河边。"), Line("目的地：京都，日期：下周", "slot")], "zh")
    assert "目的地：京都，日期：下周" in found.points


def test_a_failed_tool_counts_less_than_what_the_user_decided() -> None:
    decisions = [Line(f"We decided to ship version {n} with {what}.") for n, what in enumerate(("ads", "maps", "sync"))]
    lines = [Line("Tool search failed", "tool_failure", "tool"), *decisions, *EN[2:]]
    assert not any("Tool search" in point for point in summarise(lines, "en").points)


def test_a_long_session_keeps_its_aim_and_what_is_open() -> None:
    many = [Line(f"We decided to move service {word} to rack {n}.") for n, word in enumerate("abcdefghij")]
    found = summarise([EN[0], *many, EN[4]], "en")
    assert "planning a trip" in found.summary
    assert "hotel near Alfama" in found.summary
    assert len(found.points) == MAX_POINTS


def test_a_long_sentence_is_cut_between_words() -> None:
    point = summarise([Line("We want " + "extraordinarily " * 12 + "good tea.")], "en").points[0]
    assert point.endswith("extraordinarily…")
    assert len(point) <= MAX_POINT_CHARS


def test_the_transcript_keeps_the_users_words_and_calls_results_so() -> None:
    lines = [
        Line("我们用\nVim。"),
        Line("已安装。", "task", "assistant"),
        Line("工具 run 失败", "tool_failure", "tool"),
    ]
    assert transcript(lines, "zh").splitlines() == ["我们用 Vim。", "结果：已安装。", "结果：工具 run 失败"]


lines = st.builds(
    Line,
    st.one_of(st.text(max_size=400), st.sampled_from([line.text for line in (*ZH, *EN)])),
    st.sampled_from(["turn", "fact", "decision", "task", "slot"]),
    st.sampled_from(["user", "assistant", "tool"]),
)


@given(st.lists(lines, max_size=12), st.sampled_from(["zh", "en", "other"]))
def test_the_bounds_hold_and_nothing_is_told_twice(given: list[Line], language: Language) -> None:
    found = summarise(given, language)
    assert len(found.summary) <= MAX_SUMMARY_CHARS
    assert len(found.points) <= MAX_POINTS
    assert all(0 < len(point) <= MAX_POINT_CHARS and "\n" not in point for point in found.points)
    assert len(set(found.points)) == len(found.points)
    assert bool(found.summary) == bool(found.points)
    assert summarise(given, language) == found
