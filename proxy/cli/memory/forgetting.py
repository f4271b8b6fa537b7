"""`sidemirror memory forget/restore`: take memories out for good, and bring archived ones back."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from proxy.cli.client import Target
from proxy.cli.memory.options import (
    AgentOption,
    AgentsOption,
    IdsArgument,
    JsonOption,
    KeyOption,
    KindOption,
    SinceOption,
    TagOption,
    TypeOption,
    UntilOption,
    UrlOption,
    UserOption,
    asked,
    filters,
    moment,
    print_json,
    target,
)
from proxy.cli.memory.reviewing import each
from proxy.errors import SidemirrorError


def forget(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Of the memories; or say which ones with options.")
    ] = None,
    memory_type: TypeOption = None,
    kind: KindOption = None,
    tag: TagOption = None,
    state: Annotated[str | None, typer.Option(help="active, pending, superseded or archived.")] = None,
    text: Annotated[str | None, typer.Option(help="Those whose text holds this.")] = None,
    slot: Annotated[str | None, typer.Option("--slot", help="Those under this key.")] = None,
    session: Annotated[str | None, typer.Option(help="Those of this session.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    every: Annotated[bool, typer.Option("--all", help="Everything that the user has.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentsOption = "*",
) -> None:
    """Forget memories for good, with all that hangs on them: their history, raw turns, summaries made from them.

    There is no way back but a backup; 'memory update ID --state archived' can
    be undone.

    Exit status: 0; 1 when there are none, or you said no; 2 when the command is
    wrong, or the proxy could not be asked.

    Examples:
      sidemirror memory forget 0193a7c2-5b1e-7c44-9d0e-2f6b8a1c3d5e
      sidemirror memory forget --kind turn --until 2026-06-01 --dry-run
    """
    which = filters(
        ids=ids or (),
        memory_type=memory_type,
        kind=kind,
        tags=tag or (),
        state=state,
        text=text,
        key=slot,
        session_id=session,
        created_after=moment(since, "--since"),
        created_before=moment(until, "--until"),
    )
    which |= {"all": True} if every else {}
    if not which:
        raise SidemirrorError("which ones? Give ids, or options such as --kind, or --all for everything")
    whom = target(url, key, user, agent)
    which["agent_id"] = agent
    found = _forgotten(whom, which, dry_run=True)
    if not dry_run and found["matched"]:
        _make_sure(found["matched"], yes=yes)
        found = _forgotten(whom, which, dry_run=False)
    if as_json:
        print_json(found)
    elif dry_run:
        typer.echo(f"{found['matched']} memories would be forgotten")
    else:
        typer.echo(f"{found['forgotten']} memories forgotten" if found["matched"] else "there are none")
    raise typer.Exit(0 if found["matched"] else 1)


def restore(
    ids: IdsArgument,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentOption = None,
) -> None:
    """Bring archived memories back into use; what was forgotten for good is gone.

    Exit status: 0; 1 when one of them is not there, is not archived, or a newer
    one holds its key; 2 when the proxy could not be asked.

    Example:
      sidemirror memory restore 0193a7c2-5b1e-7c44-9d0e-2f6b8a1c3d5e
    """
    each(ids, "restore", target(url, key, user, agent), as_json=as_json)


def _forgotten(whom: Target, which: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    body = {**which, "dry_run": dry_run}
    return asked(whom, lambda client: client.request("POST", "forget", body=body))


def _make_sure(count: int, *, yes: bool) -> None:
    """Ask, unless that is answered already.

    Raises:
        typer.Exit: With 1: the answer is no.
        SidemirrorError: There is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise SidemirrorError(f"{count} memories would be forgotten for good; say --yes, or look with --dry-run")
    if not typer.confirm(f"Forget {count} memories for good?", err=True):
        raise typer.Exit(1)
