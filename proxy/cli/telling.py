"""What an import came to, as it is told to people and to scripts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from proxy.cli.memory.options import print_json
from proxy.cli.memory.showing import console
from proxy.cli.sending import Totals

STOPPED = 130
"""Exit status of a command that was interrupted."""
_MOVE, _TO_USER = "with move=true it is", "with --to-user (or --to-agent) it is"
"""What the API calls it, and what the commands do."""
_MOST_ERRORS = 20
_MOST_PROPOSALS = 40


@contextmanager
def going_on() -> Iterator[None]:
    """Interrupted, an import says that it can be gone on with."""
    try:
        yield
    except KeyboardInterrupt as error:
        typer.echo("sidemirror: stopped; the same command goes on where this one stopped", err=True)
        raise typer.Exit(STOPPED) from error


def tell_records(totals: Totals, *, dry_run: bool, as_json: bool) -> None:
    """Say what became of records that came in as they are."""
    if as_json:
        return print_json(_data(totals, dry_run=dry_run))
    counts = totals.counts
    verb = "would come in" if dry_run else "came in"
    typer.echo(f"{counts['imported']} memories {verb}, {counts['skipped']} were there already")
    if counts["forgotten"]:
        typer.echo(f"{counts['forgotten']} were forgotten once, and were left out")
    return _tell_errors(totals)


def tell_turns(totals: Totals, *, dry_run: bool, as_json: bool) -> None:
    """Say what the policies made of conversations."""
    if as_json:
        return print_json(_data(totals, dry_run=dry_run))
    counts = totals.counts
    notes = [f"{counts['known']} turns were told before"] if counts["known"] else []
    notes += [f"{counts['dropped']} kept out by a rule"] if counts["dropped"] else []
    told = f"{counts['conversations']} conversations, {counts['turns']} new turns"
    typer.echo("; ".join([told, *notes]))
    if dry_run:
        _tell_proposals(totals)
    else:
        made = ", ".join(f"{count} {name}" for name, count in sorted(totals.outcomes.items()))
        typer.echo(f"memories: {made or 'none'}")
    return _tell_errors(totals)


def _tell_proposals(totals: Totals) -> None:
    table = Table("kind", "would be written", "rule")
    for one in totals.proposals[:_MOST_PROPOSALS]:
        table.add_row(*map(escape, (one["kind"] or one["sort"], one["content"], one["rule_id"])))
    if table.rows:
        console().print(table)
    typer.echo(f"{totals.counts['proposed']} things would be written, before duplicates are merged")


def _tell_errors(totals: Totals) -> None:
    for place, reason in totals.errors[:_MOST_ERRORS]:
        typer.echo(f"{place}: {reason.replace(_MOVE, _TO_USER)}", err=True)
    if totals.counts["failed"]:
        typer.echo(f"{totals.counts['failed']} did not come in", err=True)


def _data(totals: Totals, *, dry_run: bool) -> dict[str, Any]:
    errors = [{"place": place, "message": reason} for place, reason in totals.errors]
    outcomes = {"outcomes": dict(totals.outcomes), "proposals": totals.proposals} if "turns" in totals.counts else {}
    return {**totals.counts, **outcomes, "dry_run": dry_run, "errors": errors}
