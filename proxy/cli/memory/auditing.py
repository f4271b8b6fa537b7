"""`sidemirror memory audit`: how much of what is remembered is junk, with examples."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.app import utc_now
from proxy.audit import JUNK, AuditReport, Injected, suspects
from proxy.audit import audit as audited
from proxy.cli.client import MemoryClient, Target
from proxy.cli.memory.options import AgentsOption, JsonOption, KeyOption, UrlOption, UserOption, print_json, target
from proxy.cli.progress import bars
from proxy.config import default_path, load
from proxy.policy import load as loader
from proxy.policy.retention import Retention
from proxy.types import Memory

_STATES: Final = ("active", "pending")
"""States in use; what was superseded, archived or forgotten is history, and no junk."""
_NAMES: Final = {
    "duplicate": "duplicates",
    "question": "questions",
    "assistant_authored": "assistant-authored",
    "recall_echo": "recall echoes",
    "secret": "secrets",
    "stale": "stale",
    "never_used": "never used in 30 days (no junk yet)",
}
_LOOK_UPS = 8


def audit(
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentsOption = "*",
    fail_above: Annotated[
        float | None, typer.Option(min=0, max=100, help="Exit with 1 when more than this percentage is junk.")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="How many examples of each fault are shown.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Say how much of what is remembered is junk, and show examples.

    Junk: duplicates, questions, the assistant's guesses, echoes of recalled
    memories, secrets, what is out of date. Raw turns are counted apart. Whether
    a memory has faded is judged by the policies named in config.yaml here.

    Exit status: 0; 1 when --fail-above is given and exceeded; 2 when the proxy
    could not be asked.

    Example:
      sidemirror memory audit --user ada --fail-above 5
    """
    found = asyncio.run(_collect(target(url, key, user, agent), Console(stderr=True)))
    report = audited(found.records, utc_now(), retention=_retention(), injected=found.injected, examples=examples)
    if as_json:
        print_json(report.as_json())
    else:
        _print(report, Console(highlight=False))
    exceeded = fail_above is not None and 100 * report.junk_share > fail_above
    raise typer.Exit(1 if exceeded else 0)


@dataclass(frozen=True, slots=True)
class _Found:
    records: Sequence[Memory]
    injected: Injected


async def _collect(whom: Target, console: Console) -> _Found:
    """All records in use, and what was injected into the calls that suspects came from."""
    with bars(console) as told:
        async with MemoryClient(whom) as client:
            records = [
                one
                for state in _STATES
                async for one in client.records(told=lambda done: told("records", done, 0), state=state)
            ]
            return _Found(records, await _injected(client, records))


async def _injected(client: MemoryClient, records: Sequence[Memory]) -> Injected:
    known = {one.id: one for one in records}
    free = asyncio.Semaphore(_LOOK_UPS)
    found: dict[str, list[Memory]] = defaultdict(list)

    async def look_up(request_id: str) -> None:
        async with free:
            for memory_id in await client.injected(request_id):
                recalled = known.get(memory_id) or await client.record(memory_id)
                if recalled is not None:
                    found[request_id].append(recalled)

    await asyncio.gather(*map(look_up, sorted(suspects(records))))
    return found


def _retention() -> Retention:
    return loader.load(load(default_path(), os.environ).policies).retention


def _print(report: AuditReport, console: Console) -> None:
    table = Table("fault", "records", "share", "examples")
    for name, fault in report.faults.items():
        shown = [
            f"{example.content}\n  {example.id}: {_why(example.reason, example.other_id)}" for example in fault.examples
        ]
        style = "yellow" if fault.count and name in JUNK else None
        table.add_row(_NAMES[name], str(fault.count), _percent(fault.share), escape("\n".join(shown)), style=style)
    console.print(table)
    console.print(
        f"{report.records} records, {report.junk} of them junk ({_percent(report.junk_share)}); besides, "
        f"{report.turns} raw turns, {report.repeated_turns} of them repeated"
    )


def _why(reason: str, other_id: str | None) -> str:
    return f"{reason} ({other_id})" if other_id else reason


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
