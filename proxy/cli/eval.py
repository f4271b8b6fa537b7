"""`sidemirror eval`: recall measured on a file of cases, with a bar, a table, and what changed since another run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from proxy import log
from proxy.app import utc_now
from proxy.cli.progress import bars
from proxy.config import Config, default_path, load
from proxy.evaluation import run as runs
from proxy.evaluation.cases import Case, read
from proxy.evaluation.score import OVERALL, Change, Figures, Ranked, compare, score
from proxy.policy.load import load as load_policies

_SHOWN_CHARS = 80
_SHOWN_COLUMNS = ("R@5", "R@10", "R@20", "hit@10", "nDCG@10", "B@500", "B@1000", "B@2000", "stale-err")


def evaluate(
    cases: Annotated[Path, typer.Argument(help="Cases: one JSON object per line and scope.")],
    out: Annotated[Path | None, typer.Option(help="Write what was ranked for each question, as JSON lines.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="Pass memories through the conflict step: superseded ones go.")
    ] = False,
    compare_with: Annotated[
        Path | None, typer.Option("--compare", help="An earlier --out: name what got better and worse.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file.  (default: config.yaml here, if any)")] = None,
) -> None:
    """Measure how well recall finds what answers a question: offline, in a throw-away store, with your own settings.

    Memories are stored as they are, no policy is asked what to remember; the live policies' retrieval section weighs.

    Exit status: 0 when all was asked, 2 when not.

    Example: sidemirror eval docs/examples/cases.jsonl --out before.jsonl
    """
    log.configure("error")
    settings = load(config or default_path(), os.environ, [])
    asked = read(cases)
    before = runs.read(compare_with) if compare_with is not None else None
    run = _played(settings, asked, conflicts=conflicts)
    if out is not None:
        runs.write(out, run)
    figures = score(asked, run)
    changes = compare(asked, before, run) if before is not None else None
    if as_json:
        typer.echo(json.dumps(_as_data(figures, changes), ensure_ascii=False, indent=2))
        return
    _show(figures, Console())
    if changes is not None:
        _show_changes(changes, Console())


def _played(settings: Config, asked: Sequence[Case], *, conflicts: bool) -> list[Ranked]:
    policies = load_policies(settings.policies, models=[model.name for model in settings.models])
    with bars(Console(stderr=True)) as told:
        return runs.play(settings, policies, asked, utc_now(), told, conflicts=conflicts)


def _show(figures: Figures, console: Console) -> None:
    columns = [name for name in _SHOWN_COLUMNS if name in figures.rows[OVERALL]]
    numbers = [Column(name, no_wrap=True, justify="right") for name in ("n", *columns)]
    table = Table("category", *numbers, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for category, row in figures.rows.items():
        cells = (f"{100 * row[name]:.1f}" if name in row else "-" for name in columns)
        table.add_row(escape(category), str(figures.counts[category]), *cells)
    console.print(table)
    low, high = figures.interval
    console.print(f"R@10 with 95 % confidence {100 * low:.1f}-{100 * high:.1f}")
    if figures.auroc is not None:
        console.print(
            f"abstain: AUROC {figures.auroc:.3f} of the top score, over {figures.answerable} questions"
            f" with an answer and {figures.unanswerable} without"
        )


def _show_changes(changes: Sequence[Change], console: Console) -> None:
    worse = sum(change.after < change.before for change in changes)
    console.print(f"against the earlier run: {len(changes) - worse} better, {worse} worse (nDCG@10)")
    if not changes:
        return
    table = Table("", "question", "asked", "was", "is")
    for change in changes:
        mark = "[red]worse[/]" if change.after < change.before else "[green]better[/]"
        asked = change.query.query
        shown = asked if len(asked) <= _SHOWN_CHARS else f"{asked[: _SHOWN_CHARS - 1]}…"
        table.add_row(mark, escape(change.query.id), escape(shown), f"{change.before:.2f}", f"{change.after:.2f}")
    console.print(table)


def _as_data(figures: Figures, changes: Sequence[Change] | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "categories": {
            name: {"n": figures.counts[name], **{column: round(value, 4) for column, value in row.items()}}
            for name, row in figures.rows.items()
        },
        "R@10_95": [round(value, 4) for value in figures.interval],
        "abstain_auroc": None if figures.auroc is None else round(figures.auroc, 4),
        "answerable": figures.answerable,
        "unanswerable": figures.unanswerable,
    }
    if changes is not None:
        data["changes"] = [
            {"id": one.query.id, "query": one.query.query, "before": round(one.before, 4), "after": round(one.after, 4)}
            for one in changes
        ]
    return data
