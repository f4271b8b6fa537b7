"""Records as people read them: tables, and one record in full. Text of memories is never taken for markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

Record = Mapping[str, Any]
_STATE_STYLES = {"pending": "yellow", "superseded": "dim", "archived": "dim", "forgotten": "dim"}
_ROOMY = 100
_PARTS = ("dense", "lexical", "relevance", "decay", "confidence", "strength", "bonus", "later")


def console(*, stderr: bool = False) -> Console:
    """Where commands print."""
    return Console(stderr=stderr, highlight=False)


def records(found: Sequence[Record], *, scores: bool = False, reasons: bool = False) -> Table:
    """Records as a table.

    Args:
        found: As the API gives them.
        scores: Whether each has a score.
        reasons: Whether each has a reason why it was left out.

    Where it is told what a call would do with each, that has a column of its own.
    """
    table = Table(_id(), *(["score"] if scores else []), "kind", "memory", _whole("since"), _whole("state"))
    if reasons:
        table.add_column("left out")
    told = any("call" in one for one in found)
    if told:
        table.add_column("in a call")
    for one in found:
        score = [f"{one['score']:.3f}"] if scores else []
        reason = [escape(str(one["reason"]))] if reasons else []
        reason += [escape(str(one.get("call", "")))] if told else []
        kind = f"{one['memory_type']}\n{one['kind']}"
        table.add_row(
            one["id"], *score, escape(kind), _content(one), day(one["valid_from"]), one["state"], *reason,
            style=_STATE_STYLES.get(one["state"]),
        )  # fmt: skip
    return table


def parts(found: Sequence[Record]) -> Table:
    """What the scores of search results are the product of."""
    table = Table(_id(), *map(_whole, _PARTS), box=None, pad_edge=False)
    for one in found:
        figures = [one["parts"].get(name) for name in _PARTS]
        table.add_row(one["id"], *("-" if figure is None else f"{figure:.3f}" for figure in figures))
    return table


def record(one: Record) -> Table:
    """One record with every field that it has."""
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in one.items():
        if value is None or value in ("", []):
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{inner}: {what}" for inner, what in value.items() if what is not None)
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        table.add_row(escape(name), escape(str(value)))
    return table


def versions(found: Sequence[Record]) -> Table:
    """States that a record was in, oldest first."""
    table = Table("when", "change", "version", "state", "memory")
    for one in found:
        cells = (minute(one["changed_at"]), one["change"], str(one["version"]), one["state"], one["content"])
        table.add_row(*map(escape, cells), style=_STATE_STYLES.get(one["state"]))
    return table


def steps(found: Sequence[Record]) -> Table:
    """The steps of a task that led to a record, oldest first."""
    table = Table("when", "tool", "status", "memory")
    for one in found:
        cells = (minute(one["at"]) if one["at"] else "", one["tool"] or "-", one["status"], one["content"] or "-")
        table.add_row(*map(escape, cells), style="red" if one["status"] == "error" else None)
    return table


def day(moment: str) -> str:
    """The local day of a time of the API."""
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d}"


def minute(moment: str) -> str:
    """The local minute of a time of the API."""
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}"


def _id() -> Column:
    """Whole where there is room for it; folded on a narrow terminal, never cut."""
    return Column("id", overflow="fold", no_wrap=console().width >= _ROOMY)


def _whole(name: str) -> Column:
    return Column(name, no_wrap=True)


def _content(one: Record) -> str:
    notes = [f"key {one['key']}"] if one.get("key") else []
    notes += [f"#{tag}" for tag in one.get("tags", ())]
    note = f"\n[dim]{escape(' '.join(notes))}[/dim]" if notes else ""
    return f"{escape(one['content'])}{note}"
