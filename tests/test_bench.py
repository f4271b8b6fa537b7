"""The benches work, and their report says what was met: kept alive here with the smallest amounts, never judged."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import baselines, ingest, overhead, report, soak
from bench.litellm_proxy import CannotInstall, install
from bench.overhead import Relays
from bench.report import Figure, Section
from bench.run import Run, percentile
from bench.streaming import Lengths
from bench.texts import memories, sayings
from proxy.language import detect

NOW = datetime(2026, 11, 2, 8, 30, tzinfo=UTC)


OVERHEAD = overhead.Amounts(rounds=1, sessions=2, turns=2, memories=20)
BASELINES = baselines.Amounts(rounds=1, sessions=1, turns=2, lengths=Lengths(1, short=1, long=301), memories=20)
INGEST = ingest.Amounts(rounds=1, writes=10, memories=20)
SOAK = soak.Amounts(calls=36, leg=4, turns=2, memories=20)
USERS = dict.fromkeys([*OVERHEAD.users, *BASELINES.users, *INGEST.users, *soak.USERS])


@pytest.fixture(scope="module")
def relays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relays]:
    """A bare relay and the product: starting them takes longer than all that is done with them here."""
    with overhead.relays(Run(tmp_path_factory.mktemp("relays")), list(USERS), 20) as started:
        yield started


def test_overhead_bench_measures_every_lane_with_memory_at_work(tmp_path: Path, relays: Relays) -> None:
    steps: list[int] = []

    section = overhead.compare(Run(tmp_path, steps.append), OVERHEAD, relays)

    by_name = {figure.name: figure for figure in section.figures}
    on = by_name["CPU per chat, memory on, write-back included"]
    assert on.baseline is not None
    assert on.measured > on.baseline > 0
    assert all(figure.measured > 0 for figure in section.figures if "Valkey" not in figure.name)
    lanes = dict(note.split(": ", 1) for note in section.notes[:3])  # a busy machine may add a complaint
    assert list(lanes) == ["read", "on", "on, 8 at once"]
    assert not any(said.startswith("0.0 memories") for said in lanes.values())
    assert sum(steps) == OVERHEAD.steps - len(OVERHEAD.users) * OVERHEAD.memories


def test_ingest_bench_writes_with_one_client_and_with_eight(tmp_path: Path, relays: Relays) -> None:
    steps: list[int] = []

    section = ingest.compare(Run(tmp_path, steps.append), INGEST, relays.ours)

    assert [figure.name for figure in section.figures if figure.unit == "/s"] == [
        "writes per second, 1 client",
        "writes per second, 8 clients",
    ]
    assert all(figure.measured > 0 for figure in section.figures if "Valkey" not in figure.name)
    assert sum(steps) == INGEST.steps - len(INGEST.users) * INGEST.memories


def test_soak_bench_reads_resident_memory_after_each_leg(tmp_path: Path, relays: Relays) -> None:
    steps: list[int] = []

    section = soak.compare(Run(tmp_path, steps.append), SOAK, relays)

    assert section.figures[0].goal == soak.GOAL_MB_PER_1000
    readings = section.notes[0].removeprefix("RSS in MB, reading by reading: ").rstrip(".").split()
    assert len(readings) == 10
    assert all(30 < float(mb) < 1000 for mb in readings)
    assert sum(steps) == SOAK.calls


def test_baselines_bench_measures_chats_and_streams_beside_litellm(tmp_path: Path, relays: Relays) -> None:
    steps: list[int] = []

    section = baselines.compare(Run(tmp_path, steps.append), BASELINES, relays)

    by_name = {figure.name: figure for figure in section.figures}
    for what in ("CPU per chat, mode off", "CPU per streamed chunk, memory on, write-back included"):
        litellm = by_name[f"{what}; litellm.acompletion"]
        assert litellm.baseline is not None
        assert litellm.measured < litellm.baseline
    assert sum(steps) == BASELINES.steps - len(BASELINES.users) * BASELINES.memories


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("WARNING: slow\nERROR: no version of it\nERROR: nothing fits\n", "nothing fits"),
        ("ERROR: cannot reach https://index.invalid/simple\n", "pip failed"),
        ("", "pip failed"),
    ],
)
def test_litellm_proxy_that_cannot_be_installed_is_told_without_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, reason: str
) -> None:
    def refuse(command: list[object], **_: object) -> None:
        raise subprocess.CalledProcessError(1, list(map(str, command)), stderr=said)

    monkeypatch.setattr(subprocess, "run", refuse)

    with pytest.raises(CannotInstall, match=f"^{reason}$"):
        install(tmp_path, "1.2.3")


@pytest.mark.parametrize(("read_mb", "expected"), [([250, 250, 250], 0.0), ([100, 101, 102, 103], 2.0)])
def test_soak_slope_is_told_per_thousand_calls(read_mb: list[float], expected: float) -> None:
    assert soak.slope_per_1000(read_mb, 500) == pytest.approx(expected)


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
    assert Figure("a", "ms", 3.0, 1.5).cells()[-2] == "2.0×"
    assert Figure("a", "ms", 0.1, 2.0).cells()[-2] == "0.05×"


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
