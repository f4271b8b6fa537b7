"""`python -m bench [NAMES] [--quick] [--no-record]`: runs benches, prints their tables, writes RESULTS.md."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench import (
    baselines,
    conflicts,
    coverage,
    index,
    ingest,
    overhead,
    recall,
    replay,
    report,
    scale,
    sessions,
    soak,
    startup,
    streaming,
)
from bench.report import Section
from bench.run import Run
from proxy import log

cli = typer.Typer(pretty_exceptions_enable=False)


class Amounts(Protocol):
    """How much a bench does."""

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""


A = TypeVar("A", bound=Amounts)


@dataclass(frozen=True, slots=True)
class Bench:
    """One bench: how it is run, in full and in brief.

    Args:
        full: Measures with amounts that give steady figures.
        quick: Measures only to show that it works.
        steps: Units of work of the two, for the progress bar.
    """

    full: Callable[[Run], Section]
    quick: Callable[[Run], Section]
    steps: tuple[int, int]


def _bench(measure: Callable[[Run, A], Section], full: A, quick: A) -> Bench:
    return Bench(lambda run: measure(run, full), lambda run: measure(run, quick), (full.steps, quick.steps))


BENCHES: Mapping[str, Bench] = {
    "overhead": _bench(overhead.measure, overhead.FULL, overhead.QUICK),
    "streaming": _bench(streaming.measure, streaming.FULL, streaming.QUICK),
    "startup": _bench(startup.measure, startup.FULL, startup.QUICK),
    "recall": _bench(recall.measure, recall.FULL, recall.QUICK),
    "replay": _bench(replay.measure, replay.FULL, replay.QUICK),
    "index": _bench(index.measure, index.FULL, index.QUICK),
    "scale": _bench(scale.measure, scale.FULL, scale.QUICK),
    "baselines": _bench(baselines.measure, baselines.FULL, baselines.QUICK),
    "conflicts": _bench(conflicts.measure, conflicts.FULL, conflicts.QUICK),
    "ingest": _bench(ingest.measure, ingest.FULL, ingest.QUICK),
    "soak": _bench(soak.measure, soak.FULL, soak.QUICK),
    "sessions": _bench(sessions.measure, sessions.FULL, sessions.QUICK),
    "coverage": _bench(coverage.measure, coverage.FULL, coverage.QUICK),
}
"""In the order they run. A new bench is a module with `measure`, `FULL` and `QUICK`, and a line here."""


@cli.command()
def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"Which: {', '.join(BENCHES)}.  [default: all]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few repetitions: shows that it works, not how fast.")] = False,
    record: Annotated[bool, typer.Option(help="Write the figures into bench/RESULTS.md (never with --quick).")] = True,
    policies: Annotated[
        Path | None, typer.Option(help="Policies to measure with.  [default: the shipped ones]")
    ] = None,
    litellm_proxy: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Install and measure the litellm proxy as well; takes minutes."),
    ] = None,
) -> None:
    """Measure, each figure against a baseline in the same run."""
    chosen = names or list(BENCHES)
    if unknown := [name for name in chosen if name not in BENCHES]:
        raise typer.BadParameter(f"{', '.join(unknown)}: there is only {', '.join(BENCHES)}")
    settings: dict[str, Any] = {"policies": [str(policies.absolute())]} if policies else {}
    log.configure("warning")  # parts of the product that run in this process are not to speak into the tables
    console = Console()
    sections: list[Section] = []
    try:
        for name in chosen:
            sections.append(_run(name, console, settings, litellm_proxy, quick=quick))
            console.print(report.table(sections[-1]))
    finally:  # what was measured before a later bench failed is kept
        if record and sections and not quick:
            report.record(sections, " ".join(["python -m bench", *sys.argv[1:]]), datetime.now(UTC))
            console.print(f"written to {report.RESULTS.relative_to(report.ROOT)}")


def _run(
    name: str, console: Console, settings: Mapping[str, Any], litellm_proxy: str | None, *, quick: bool
) -> Section:
    bench = BENCHES[name]
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), console=console,
        transient=True,
    )  # fmt: skip
    with bar, tempfile.TemporaryDirectory(prefix="sidemirror-bench-") as folder:
        task = bar.add_task(name, total=bench.steps[quick])
        run = Run(Path(folder), lambda done: bar.advance(task, done), settings, litellm_proxy)
        return bench.quick(run) if quick else bench.full(run)


if __name__ == "__main__":
    cli()
