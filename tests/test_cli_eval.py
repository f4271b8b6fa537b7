"""`sidemirror eval` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.cli.commands import cli
from proxy.errors import SidemirrorError

CASES = str(Path(__file__).parent.parent / "docs" / "examples" / "cases.jsonl")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["eval", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_prints_a_table_and_writes_one_line_per_question(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    shown = run(CASES, "--out", str(out))
    assert all(word in shown for word in ("R@10", "B@1000", "stale-err", "OVERALL", "AUROC"))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 13
    assert all(len(line["ranked"]) == len(line["scores"]) == len(line["tokens"]) == 12 for line in lines)


def test_json_agrees_with_the_definitions_of_the_run(tmp_path: Path) -> None:
    figures = json.loads(run(CASES, "--json"))
    assert figures["categories"]["OVERALL"]["n"] == 11
    assert 0 < figures["categories"]["OVERALL"]["R@10"] <= 1
    assert figures["unanswerable"] == 2


def test_compare_names_the_questions_that_changed(tmp_path: Path) -> None:
    before = tmp_path / "before.jsonl"
    run(CASES, "--out", str(before))
    assert "0 better, 0 worse" in run(CASES, "--compare", str(before))
    lines = [json.loads(line) for line in before.read_text().splitlines()]
    assert lines[1]["ranked"][0] == "z2"
    lines[1]["ranked"].reverse()
    before.write_text("\n".join(map(json.dumps, lines)))
    shown = run(CASES, "--compare", str(before))
    assert "1 better, 0 worse" in shown
    assert lines[1]["id"] in shown


def test_conflicts_drop_what_was_replaced() -> None:
    figures = json.loads(run(CASES, "--json", "--conflicts"))
    assert figures["categories"]["changed"]["stale-err"] == 0.0


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    run(CASES)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SidemirrorError, match="cannot be read"):
        CliRunner().invoke(cli, ["eval", str(tmp_path / "none.jsonl")], catch_exceptions=False)
