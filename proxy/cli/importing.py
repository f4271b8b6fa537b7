"""`sidemirror import`: conversations and memories of other products, into a running proxy."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import orjson
import typer

from proxy.cli.client import Target
from proxy.cli.memory import showing
from proxy.cli.memory.options import AgentOption, JsonOption, KeyOption, UrlOption, UserOption, asked, target
from proxy.cli.progress import bars
from proxy.cli.sending import Line, Totals, send
from proxy.cli.telling import going_on, tell_records, tell_turns
from proxy.errors import Problem, SidemirrorError
from proxy.importing.imported import Format, Imported
from proxy.importing.reader import FORMATS, read
from proxy.importing.wire import as_conversations, as_records, owners
from proxy.local_zone import LocalZone

_SCOPES = ("agent", "user", "shared")
_AT_A_TIME = 10
"""Conversations in one request: each may take its seconds where a model is asked."""


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to import; - reads standard input.")],
    format_: Annotated[
        str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}.  (default: told by what stands in it)")
    ] = None,
    as_is: Annotated[
        bool | None,
        typer.Option(
            "--as-is/--through-policies",
            help="Keep everything as it is, or let the policies decide what is worth keeping."
            "  (default: conversations through the policies, memories as they are)",
        ),
    ] = None,
    to_user: Annotated[
        str | None, typer.Option("--to-user", help="Give memories that belong to another user to this one.")
    ] = None,
    to_agent: Annotated[
        str | None, typer.Option("--to-agent", help="Give memories that belong to another agent to this one.")
    ] = None,
    to_scope: Annotated[
        str | None, typer.Option("--to-scope", help="Who may read them: agent, user or shared.  (default: by kind)")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentOption = None,
) -> None:
    """Import what other products hold: conversations, or memories.

    Formats: ChatGPT's conversations.json; transcripts as JSON lines (one
    message, or one {"messages": [...]} each); memories of mem0 as JSON; lists
    in Markdown. What 'memory export' wrote goes in with 'memory import'.

    Nothing is doubled when it is run again: a killed import goes on where it
    stopped, and a file that has grown adds what is new. Memories keep their
    times, and ids where they can.

    Exit status: 0; 1 when some of it did not come in; 2 when the file cannot be
    read, or the proxy could not be asked; 130 when it was interrupted.

    Examples:
      sidemirror import conversations.json --user ada --dry-run
      sidemirror import conversations.json --user ada
      sidemirror import mem0.json --to-user ada --to-scope user
      sidemirror import 我的偏好.md --user ada
    """
    _check(format_, to_scope)
    found = _read(file, format_)
    kept_as_is = not found.conversations if as_is is None else as_is
    whom = target(url, key, to_user or user, to_agent or agent)
    if not kept_as_is:
        _check_owners(found, to_user or user, to_scope)
    totals = Totals()
    totals.errors += [_told(problem) for problem in found.problems]
    totals.counts["failed"] += len(found.problems)
    lines = _records(found, whom, to_scope) if kept_as_is else _lines(as_conversations(found))
    moved = kept_as_is and bool(to_user or to_agent)
    params = {"dry_run": str(dry_run).lower(), **({"move": "true"} if moved else {})}
    path, at_most = ("import", 200) if kept_as_is else ("import/turns", _AT_A_TIME)
    with bars(showing.console(stderr=True)) as told, going_on():
        asked(whom, lambda client: send(client, path, lines, told, totals, params=params, at_most=at_most))
    if found.left_out and not as_json:
        typer.echo(f"{found.left_out} entries of {file} hold nothing to remember", err=True)
    (tell_records if kept_as_is else tell_turns)(totals, dry_run=dry_run, as_json=as_json)
    raise typer.Exit(1 if totals.errors else 0)


def _check(format_: str | None, to_scope: str | None) -> None:
    for option, value, allowed in (("--format", format_, FORMATS), ("--to-scope", to_scope, _SCOPES)):
        if value is not None and value not in allowed:
            raise SidemirrorError(f"{option} {value!r}: one of {', '.join(allowed)}")


def _check_owners(found: Imported, user: str | None, to_scope: str | None) -> None:
    """Refuse what the policies would hide: to whom it belonged, and who may read it."""
    if to_scope is not None:
        raise SidemirrorError("--to-scope goes with --as-is: what goes through the policies, they give its scope")
    others = [one for one in owners(found.statements) if one != user]
    if others:
        raise SidemirrorError(f"these are memories of {', '.join(others)}; --to-user gives them to another")


def _read(file: Path, format_: str | None) -> Imported:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise SidemirrorError(f"{file} cannot be read: {error.strerror or error}") from error
    known = next((one for one in get_args(Format) if one == format_), None)
    found = read(data, str(file), known, LocalZone())
    if not found.conversations and not found.statements:
        problems = "".join(f"\n{problem}" for problem in found.problems[:20])
        raise SidemirrorError(f"{file} holds nothing to import (read as {found.format}){problems}")
    return found


def _records(found: Imported, whom: Target, to_scope: str | None) -> list[Line]:
    return _lines(as_records(found, f"{whom.user or ''}/{whom.agent or ''}", scope=to_scope))


def _lines(entries: Iterable[tuple[str, dict[str, Any]]]) -> list[Line]:
    return [Line(place, orjson.dumps(entry)) for place, entry in entries]


def _told(problem: Problem) -> tuple[str, str]:
    parts: Sequence[object] = (problem.file, problem.line, problem.where)
    return ":".join(str(part) for part in parts if part not in (None, "")), problem.message
