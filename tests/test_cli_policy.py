"""`sidemirror policy replay` as people call it: what it prints, how it ends, and what it says about a wrong file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.cli import main

RULE = """
version: 1
triggers:
  - id: collects
    why: What the user collects.
    when: user_message
    if: {match: {en: 'I collect (?P<what>\\w+)'}}
    extract: {template: WORDS}
    write: {memory_type: semantic, kind: preference}
    examples: [{user: I collect stamps, expect: [{content: EXPECTED}]}]
"""


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit status, and what it printed."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


def rule(words: str) -> str:
    return RULE.replace("WORDS", words).replace("EXPECTED", words.replace("$what", "stamps"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command as `sidemirror` would, in a folder whose live set is one rule."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in [name for name in os.environ if name.startswith(("SIDEMIRROR__", "FORCE_COLOR"))]:
        monkeypatch.delenv(name)
    (tmp_path / "config.yaml").write_text("policies: [live.yaml]\n", encoding="utf-8")
    (tmp_path / "live.yaml").write_text(rule("The user collects $what"), encoding="utf-8")
    (tmp_path / "talk.jsonl").write_text(
        '{"role": "user", "content": "I collect [red] coins"}\n'
        '{"role": "assistant", "content": "Nice."}\n'
        '{"role": "user", "content": "And I collect coins. Hi"}\n',
        encoding="utf-8",
    )

    def ran(*args: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["sidemirror", "policy", "replay", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, printed.out, printed.err)

    return ran


def test_replay_prints_what_the_live_set_would_write(run: Run) -> None:
    shown = run("talk.jsonl")
    assert (shown.status, shown.err) == (0, "")
    row = next(line for line in shown.out.splitlines() if "collects" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "3", "", "collects", "semantic preference, agent, 0.8", "The user collects coins", "And I collect coins. Hi",
    ]  # fmt: skip
    assert "1 things to write" in shown.out
    assert "against" not in shown.out


def test_replay_tells_what_other_policies_would_do_otherwise(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(rule("The user keeps a collection of $what"), encoding="utf-8")
    shown = run("talk.jsonl", "--policies", "new.yaml")
    assert shown.status == 1
    assert "~" in shown.out
    assert "The user keeps a collection of coins" in shown.out
    assert "was: The user collects coins" in shown.out
    assert "against the live set: 0 new, 0 gone, 1 changed, 0 same" in shown.out


def test_replay_with_the_same_policies_finds_nothing_changed(run: Run) -> None:
    shown = run("talk.jsonl", "--policies", "live.yaml", "--changes")
    assert shown.status == 0
    assert "│" not in shown.out
    assert "0 new, 0 gone, 0 changed, 1 same" in shown.out


def test_replay_takes_several_policy_files(run: Run, tmp_path: Path) -> None:
    more = rule("The user also collects $what").replace("id: collects", "id: collects-too")
    (tmp_path / "more.yaml").write_text(more, encoding="utf-8")
    shown = run("talk.jsonl", "--policies", "live.yaml", "--policies", "more.yaml")
    assert "1 new, 0 gone, 0 changed, 1 same" in shown.out


def test_replay_as_json_has_every_event(run: Run, tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("version: 1\n", encoding="utf-8")
    shown = run("talk.jsonl", "--policies", "none.yaml", "--json")
    data = json.loads(shown.out)
    assert shown.status == 1
    assert data["totals"]["gone"] == 1
    (gone,) = [one for event in data["events"] for one in event["proposals"]]
    assert (gone["mark"], gone["content"]) == ("-", "The user collects coins")
    assert [event["line"] for event in data["events"] if event["event"] == "user_message"] == [1, 3]


def test_replay_as_json_marks_nothing_where_nothing_is_compared(run: Run) -> None:
    data = json.loads(run("talk.jsonl", "--json").out)
    (made,) = [one for event in data["events"] for one in event["proposals"]]
    assert "mark" not in made
    assert "same" not in data["totals"]


def test_replay_shows_words_in_brackets_as_they_were_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "talk.jsonl").write_text('{"role": "user", "content": "[red] I collect [/bold]"}', encoding="utf-8")
    (tmp_path / "live.yaml").write_text(rule("The user collects $what").replace("\\w+)'", "\\S+)'"), encoding="utf-8")
    assert "[red] I collect [/bold]" in run("talk.jsonl").out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"role": "user", "content": "a"}\n{"role": "cat"}\n{\n', ("talk.jsonl:2", "talk.jsonl:3", "cat")),
        (b"\xff\xfe", ("talk.jsonl",)),
        (b"", ("talk.jsonl", "no turn")),
    ],
)
def test_a_wrong_transcript_is_told_line_by_line(
    run: Run, tmp_path: Path, content: bytes, told: tuple[str, ...]
) -> None:
    (tmp_path / "talk.jsonl").write_bytes(content)
    shown = run("talk.jsonl")
    assert (shown.status, shown.out) == (2, "")
    for words in told:
        assert words in shown.err


def test_a_missing_transcript_and_missing_policies_are_told(run: Run) -> None:
    assert "nowhere.jsonl" in run("nowhere.jsonl").err
    missing = run("talk.jsonl", "--policies", "nowhere")
    assert missing.status == 2
    assert "nowhere" in missing.err
