"""The benches work, and their report says what was met: kept alive here with the smallest amounts, never judged."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import overhead, report
from bench.report import Figure, Section
from bench.run import Run, percentile
from bench.texts import memories, sayings
from proxy.language import detect

NOW = datetime(2026, 11, 2, 8, 30, tzinfo=UTC)


def test_overhead_bench_measures_every_lane_with_memory_at_work(tmp_path: Path) -> None:
    steps: list[int] = []
    amounts = overhead.Amounts(rounds=1, sessions=2, turns=2, memories=20)

    section = overhead.measure(Run(tmp_path, steps.append), amounts)

    by_name = {figure.name: figure for figure in section.figures}
    on = by_name["CPU per chat, memory on, write-back included"]
    assert on.baseline is not None
    assert on.measured > on.baseline > 0
    assert all(figure.measured > 0 for figure in section.figures if "Valkey" not in figure.name)
    lanes = dict(note.split(": ", 1) for note in section.notes[:3])  # a busy machine may add a complaint
    assert list(lanes) == ["read", "on", "on, 8 at once"]
    assert not any(said.startswith("0.0 memories") for said in lanes.values())
    assert sum(steps) == amounts.steps


def test_texts_are_distinct_repeatable_and_half_chinese() -> None:
    said = sayings(400, seed=3)
    kept = memories(1000, seed=3)

    assert said == sayings(400, seed=3)
    assert len(set(said)) == 400
    assert len({one.content for one in kept}) == 1000
    assert 150 < sum(detect(text) == "zh" for text in said) < 250
    assert 400 < sum(one.language == "zh" for one in kept) < 600


@pytest.mark.parametrize(
    ("figure", "met", "last_cell"),
    [
        (Figure("a", "ms", 3.0, 1.5, goal=3.0), True, "yes"),
        (Figure("a", "ms", 3.5, 1.5, goal=3.0), False, "no, by 0.50 ms"),
        (Figure("a", "ms", 3.5), None, ""),
    ],
)
def test_figure_says_whether_its_goal_is_met(figure: Figure, met: bool | None, last_cell: str) -> None:
    assert figure.met is met
    assert figure.cells()[-1] == last_cell


def test_ratio_is_taken_to_the_baseline_of_the_same_run() -> None:
    assert Figure("a", "ms", 3.0, 1.5).ratio == 2.0
    assert Figure("a", "ms", 3.0).ratio is None
    assert Figure("a", "ms", 3.0, 0.0).ratio is None


def test_results_are_recorded_newest_first_under_one_title(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    for title in ("Older", "Newer"):
        report.record([Section(title, "How.", [Figure("a", "ms", 1.0)], ["Noted."])], "python -m bench", NOW, path)

    text = path.read_text(encoding="utf-8")

    assert text.count("# Results\n") == 1
    assert text.index("### Newer") < text.index("### Older")
    assert "`python -m bench` at" in text
    assert "\n\n| figure | goal |" in text
    assert "\n\n- Noted.\n\n" in text
    assert "\n\n\n" not in text


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
def test_percentile_is_a_measured_value(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected
