"""Days of mixed talk leave clean memory: the replay bench, held to its goals; and how plays are read."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from bench.playscript import plays
from bench.replay import JUNK_GOAL, PRECISION_GOAL, RECALL_GOAL, Ended, part, replay
from bench.run import Run
from bench.screenplay import Mark
from proxy.policy.speech import question

USERS = ("ada", "kai", "lin", "mei", "rosa", "sam", "tom", "wei")
"""Both languages, with tool loops, retries, role-plays, pasted mails and dumps, and sessions without a name."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """How the replay of their dialogues ended."""
    return asyncio.run(replay(part(USERS), Run(tmp_path_factory.mktemp("replay"))))


# ── what is left ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_hardly_anything_that_is_kept_is_junk(ended: Ended) -> None:
    assert sum(report.records for report in ended.verdict.audits.values()) > 10
    assert ended.verdict.junk_share <= JUNK_GOAL


def test_what_is_claimed_about_the_user_is_so(ended: Ended) -> None:
    assert ended.verdict.claims > 10
    precision, wrong = ended.verdict.precision, ended.verdict.wrong
    assert precision >= PRECISION_GOAL, "\n".join(map(str, wrong))


def test_what_the_user_told_is_remembered(ended: Ended) -> None:
    assert ended.verdict.planted > 40
    recall, missed = ended.verdict.recall, ended.verdict.missed
    assert recall >= RECALL_GOAL, "\n".join(f"{one.place}: {one.said}" for one in missed)


def test_nothing_is_kept_twice(ended: Ended) -> None:
    assert ended.verdict.faults("duplicate") == 0
    assert {user: report.repeated_turns for user, report in ended.verdict.audits.items()} == dict.fromkeys(USERS, 0)


def test_no_secret_is_kept_in_any_state(ended: Ended) -> None:
    assert ended.verdict.leaks == ()


def test_saying_all_of_it_again_changes_nothing(ended: Ended) -> None:
    assert ended.changed == ()


def test_every_turns_handling_is_timed(ended: Ended) -> None:
    # Calls of tool loops are turns as well; what is said again is not measured.
    assert len(ended.turn_cpu_ms) > part(USERS).user_turns
    assert 0 < ended.mean_cpu_ms < max(ended.turn_cpu_ms)


# ── the plays ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_plays_are_as_long_and_as_mixed_as_promised() -> None:
    play = plays()
    turns = [turn for scene in play.scenes for turn in scene.turns]
    calls = [call for turn in turns for reply in turn.replies for call in reply.calls]
    assert play.user_turns == len(turns) >= 320
    assert play.conversations >= 24
    assert len({scene.at.date() for scene in play.scenes}) >= 5
    assert {scene.named for scene in play.scenes} == {"header", "metadata", "none"}
    assert {turn.again for turn in turns} == {None, "retry", "race", "regenerate"}
    assert sum(turn.background is not None for turn in turns) >= 3
    assert len(calls) >= 20
    assert sum(question(turn.said) for turn in turns) >= 40
    resumed = Counter(scene.conversation for scene in play.scenes)
    assert sum(times > 1 for times in resumed.values()) >= 5
    assert max(Counter(scene.at for scene in play.scenes).values()) >= 2
    assert any(len(turn.said) > 3_000 for turn in turns)


def test_a_part_of_the_plays_keeps_the_marks_of_its_users() -> None:
    some = part(("kai",))
    assert {scene.user for scene in some.scenes} == {mark.user for mark in some.marks} == {"kai"}


SCRIPT = """\
## talk-1 user=ada agent=coder session=header at=2026-11-02T09:10
@system Be brief.
U: run it
    twice
C: run {"n": 1}
C: run {"n": 2}
R: one\\nmore
R: two
C: run {"n": 3}
R: three
A: Done.
+ runs/executes it_twice !thrice
@retry
@background Title: {history}
A: Running

## talk-1 user=ada agent=coder session=header at=2026-11-03T09:10
U: again
A: Sure.
@regenerate Of course.
"""


def read(folder: Path, script: str = SCRIPT) -> list[Path]:
    path = folder / "play.txt"
    path.write_text(script, encoding="utf-8")
    return [path]


def test_a_play_is_read_with_its_calls_directions_and_marks(tmp_path: Path) -> None:
    play = plays(read(tmp_path))
    first, second = play.scenes
    [turn] = first.turns
    assert (first.user, first.agent, first.named, first.system) == ("ada", "coder", "header", "Be brief.")
    assert first.at == datetime.fromisoformat("2026-11-02T09:10+08:00")
    assert turn.said == "run it\ntwice"
    assert [[call.result for call in reply.calls] for reply in turn.replies] == [["one\nmore", "two"], ["three"], []]
    assert (turn.again, turn.background) == ("retry", ("Title: {history}", "Running"))
    assert (second.system, second.turns[0].again, second.turns[0].instead) == ("Be brief.", "regenerate", "Of course.")
    [mark] = play.marks
    assert (mark.wanted, mark.place, mark.said) == ("remembered", "play.txt:12", "run it\ntwice")
    assert (play.user_turns, play.conversations) == (2, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("session=header", "session=cookie"),
        ("@retry", "@repeat"),
        ("A: Done.", "Z: Done."),
        ("R: three\n", ""),
        ('{"n": 3}', "{n: 3}"),
        ("at=2026-11-02T09:10", "at=monday"),
        ("A: Sure.\n", ""),
    ],
)
def test_a_line_that_makes_no_sense_is_named(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(ValueError, match=r"play\.txt"):
        plays(read(tmp_path, SCRIPT.replace(old, new)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("The user runs it twice", True),
        ("用户 executes it twice", True),
        ("The user runs it", False),
        ("It reruns it twice", False),
        ("The user runs it twice, or thrice", False),
    ],
)
def test_a_mark_asks_for_every_word_and_for_none_of_the_others(content: str, says: bool) -> None:
    mark = Mark("ada", "remembered", (("runs", "executes"), ("it twice",)), ("thrice",), "play.txt:1")
    assert mark.says(content) is says
