"""Figures and where they go: a table in the terminal, a section in RESULTS.md.

In: `Section`s of `Figure`s. Out: text; every figure stands beside its goal and its baseline of the same run.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.table import Table

RESULTS = Path(__file__).with_name("RESULTS.md")
ROOT = RESULTS.parent.parent
_TITLE = """# Results

Written by `make bench`, newest first. Every figure is a median of several runs, in turn with its baseline.
"""
_COLUMNS = ("figure", "goal", "measured", "baseline", "ratio", "met")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    Args:
        name: What was measured.
        unit: Of goal, measured and baseline.
        measured: The product's.
        baseline: The same of the baseline; None where there is nothing to compare with.
        goal: At most this; None where there is no goal.
    """

    name: str
    unit: str
    measured: float
    baseline: float | None = None
    goal: float | None = None

    @property
    def ratio(self) -> float | None:
        """Measured over baseline; None without one."""
        return self.measured / self.baseline if self.baseline else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        return None if self.goal is None else self.measured <= self.goal

    def cells(self) -> tuple[str, ...]:
        """One text for each column."""
        met = {None: "", True: "yes", False: f"no, by {_shown(self.measured - (self.goal or 0))} {self.unit}"}
        return (
            self.name,
            f"≤ {_shown(self.goal)} {self.unit}" if self.goal is not None else "",
            f"{_shown(self.measured)} {self.unit}",
            f"{_shown(self.baseline)} {self.unit}" if self.baseline is not None else "",
            f"{self.ratio:.{1 if abs(self.ratio) >= 1 else 2}f}×" if self.ratio is not None else "",
            met[self.met],
        )


@dataclass(frozen=True, slots=True)
class Section:
    """The figures of one bench.

    Args:
        title: Its name.
        how: How they were taken, in a sentence or two.
        figures: In reading order.
        notes: What else was seen.
    """

    title: str
    how: str
    figures: Sequence[Figure]
    notes: Sequence[str] = ()


def table(section: Section) -> Table:
    """A section for the terminal."""
    result = Table(
        *_COLUMNS, title=section.title, caption="\n".join([section.how, *section.notes]), title_justify="left"
    )
    for figure in section.figures:
        style = {None: None, True: "green", False: "red"}[figure.met]
        result.add_row(*figure.cells(), style=style)
    return result


def record(sections: Sequence[Section], command: str, now: datetime, path: Path = RESULTS) -> None:
    """Write the sections to the top of the results file.

    Args:
        sections: What was measured.
        command: How the run was started.
        now: When, aware.
        path: The file; made when missing.
    """
    earlier = path.read_text(encoding="utf-8").removeprefix(_TITLE) if path.exists() else ""
    blocks = [f"## {now:%Y-%m-%d %H:%M} UTC", f"`{command}` at {_revision()}, on {machine()}."]
    for section in sections:
        blocks += [f"### {section.title}", section.how, "\n".join(_markdown(section))]
        blocks += ["\n".join(f"- {note}" for note in section.notes)] if section.notes else []
    path.write_text("\n\n".join([_TITLE.rstrip(), *blocks]) + "\n" + earlier, encoding="utf-8")


def machine() -> str:
    """Cores, processor, Python, and how busy this machine was."""
    busy = f", load {os.getloadavg()[1]:.1f} over five minutes" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores of {_processor()}, {platform.system()}, Python {platform.python_version()}{busy}"


def _markdown(section: Section) -> list[str]:
    head = [f"| {' | '.join(_COLUMNS)} |", "|---|---:|---:|---:|---:|---|"]
    return head + [f"| {' | '.join(figure.cells())} |" for figure in section.figures]


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _revision() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    revision = git("rev-parse", "--short", "HEAD")
    if not revision:
        return "an unknown revision"
    return f"revision {revision}" + (" with uncommitted changes" if git("status", "--porcelain") else "")
