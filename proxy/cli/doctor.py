"""`sidemirror doctor`."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy import log
from proxy.app import utc_now
from proxy.cli.backup import ConfigOption, DataOption
from proxy.cli.progress import bars
from proxy.config import Override, default_path
from proxy.doctor.examination import examine
from proxy.doctor.finding import Finding, Report, Status
from proxy.doctor.repair import repair as put_right

_MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("✓ ok", "green"),
    "warning": ("! warning", "yellow"),
    "broken": ("✗ broken", "bold red"),
}


def doctor(
    repair: Annotated[
        bool, typer.Option("--repair", help="Put right what is safe: permissions, and indexes if no proxy runs.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --repair: also set a damaged database aside and restore a backup.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    config: ConfigOption = None,
    data: DataOption = None,
) -> None:
    """Look at settings, policies, model, store, index, Redis, disk and providers, and say what to do.

    Exit status: 0 when nothing is broken (there may be warnings), 1 when something is.

    Example: sidemirror doctor --repair
    """
    log.configure("error")
    path = config or default_path()
    flags = [] if data is None else [Override("--data", ("data_dir",), str(data.absolute()))]
    report, settings = examine(path, os.environ, flags, utc_now())
    repairs: list[str] = []
    if repair and settings is not None:
        with bars(Console(stderr=True)) as told:
            repairs = list(put_right(report, settings, may_restore=yes, clock=utc_now, told=told))
        report, _ = examine(path, os.environ, flags, utc_now())
    if as_json:
        typer.echo(json.dumps({**report.as_json(), "repairs": repairs}, ensure_ascii=False, indent=2))
    else:
        _print(report, repairs)
    raise typer.Exit(1 if report.status == "broken" else 0)


def _print(report: Report, repairs: list[str]) -> None:
    console = Console(highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in report.findings:
        mark, style = _MARKS[finding.status]
        table.add_row(Text(mark, style), finding.check, _told(finding))
    console.print(table)
    for line in repairs:
        console.print(Text(f"repair: {line}"))
    if report.proxy_runs:
        console.print("A proxy runs on this data folder; it was only looked at.")


def _told(finding: Finding) -> Text:
    text = Text(finding.message)
    if finding.advice:
        text.append(f"\n→ {finding.advice}", "bold")
    return text
