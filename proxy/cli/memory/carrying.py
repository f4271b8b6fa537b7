"""`sidemirror memory export/import`: all that a user has, as JSON lines, out and in again."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.cli.client import MemoryClient
from proxy.cli.memory import showing
from proxy.cli.memory.options import AgentsOption, JsonOption, KeyOption, UrlOption, UserOption, asked, target
from proxy.cli.progress import bars
from proxy.cli.sending import Line, Totals, send
from proxy.cli.telling import going_on, tell_records
from proxy.errors import SidemirrorError

ToUserOption = Annotated[
    str | None, typer.Option("--to-user", help="Copy what belongs to another user to this one, under new ids.")
]
ToAgentOption = Annotated[
    str | None, typer.Option("--to-agent", help="Copy what belongs to another agent to this one, under new ids.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only check, and say what would come in.")]


def export(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to.  (default: standard output)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentsOption = "*",
) -> None:
    """Write everything that a user has as JSON lines: every state, with history; 'memory import' takes it back.

    Exit status: 0; 2 when the file is there already or cannot be written, or
    the proxy could not be asked.

    Example:
      sidemirror memory export ada.jsonl --user ada
    """
    if file is not None and file.exists() and not force:
        raise SidemirrorError(f"{file} is there already; --force writes over it")
    params = {} if agent == "*" else {"agent_id": agent}
    whom = target(url, key, user, agent)

    async def streamed(client: MemoryClient) -> int:
        pieces = client.receive("export", params=params)
        return await (_to_stdout(pieces) if file is None else _to_file(pieces, file))

    count = asked(whom, streamed)
    typer.echo(f"{count} memories exported", err=True)


def take_in(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="From 'memory export'; - reads standard input.")],
    to_user: ToUserOption = None,
    to_agent: ToAgentOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentsOption = "*",
) -> None:
    """Take in what 'memory export' wrote, as it was: ids, times, states, history. What is there already is skipped.

    A killed import is simply run again. Files of other products: 'sidemirror
    import'.

    Exit status: 0; 1 when some lines did not come in; 2 when the file cannot be
    read, or the proxy could not be asked.

    Examples:
      sidemirror memory import ada.jsonl --user ada
      sidemirror memory import ada.jsonl --to-user bob --dry-run
    """
    lines = record_lines(file)
    params: dict[str, Any] = {"dry_run": str(dry_run).lower()}
    params |= {"move": "true"} if to_user or to_agent else {}
    whom = target(url, key, to_user or user, to_agent or agent)
    totals = Totals()
    with bars(showing.console(stderr=True)) as told, going_on():
        asked(whom, lambda client: send(client, "import", lines, told, totals, params=params))
    tell_records(totals, dry_run=dry_run, as_json=as_json)
    raise typer.Exit(1 if totals.errors else 0)


def record_lines(file: Path) -> list[Line]:
    """The lines of an export.

    Raises:
        SidemirrorError: It cannot be read, or is empty.
    """
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise SidemirrorError(f"{file} cannot be read: {error.strerror or error}") from error
    lines = [Line(f"{file}:{number}", line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise SidemirrorError(f"{file} is empty")
    return lines


async def _to_stdout(pieces: AsyncIterator[bytes]) -> int:
    count = 0
    async for piece in pieces:
        sys.stdout.buffer.write(piece)
        count += piece.count(b"\n")
    sys.stdout.buffer.flush()
    return count


async def _to_file(pieces: AsyncIterator[bytes], file: Path) -> int:
    """Beside it first: half an export must not look like a whole one."""
    beside = file.with_name(f"{file.name}.part")
    count = 0
    try:
        with beside.open("wb") as out, bars(showing.console(stderr=True)) as told:
            async for piece in pieces:
                out.write(piece)
                count += piece.count(b"\n")
                told("memories", count, 0)
        beside.replace(file)
    except OSError as error:
        raise SidemirrorError(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)
    return count
