"""`sidemirror memory list/search/show/history`: see what is remembered."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from proxy.cli.client import MemoryClient
from proxy.cli.memory import showing
from proxy.cli.memory.options import (
    AgentOption,
    AgentsOption,
    IdArgument,
    JsonOption,
    KeyOption,
    KindOption,
    SinceOption,
    TagOption,
    TypeOption,
    UntilOption,
    UrlOption,
    UserOption,
    as_holder,
    asked,
    complain,
    filters,
    moment,
    print_json,
    target,
)

MOST = 500
"""Records in one page of the API."""


def list_(
    memory_type: TypeOption = None,
    kind: KindOption = None,
    tag: TagOption = None,
    state: Annotated[str, typer.Option(help="active, pending, superseded, archived or all.")] = "active",
    text: Annotated[str | None, typer.Option(help="Only those whose text holds this.")] = None,
    slot: Annotated[str | None, typer.Option("--slot", help="Only those under this key, such as user.diet.")] = None,
    session: Annotated[str | None, typer.Option(help="Only those of this session.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, the newest first.")] = 50,
    every: Annotated[bool, typer.Option("--all", help="As many as there are.")] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentsOption = "*",
) -> None:
    """List memories, the newest first.

    Exit status: 0, also when there are none; 2 when the proxy could not be
    asked.

    Example:
      sidemirror memory list --kind preference --since 2026-11-01
    """
    wanted = filters(
        memory_type=memory_type,
        kind=kind,
        tags=tag or (),
        state=state,
        text=text,
        key=slot,
        session_id=session,
        created_after=moment(since, "--since"),
        created_before=moment(until, "--until"),
        agent_id=agent,
    )
    page = asked(target(url, key, user, agent), lambda client: _listed(client, wanted, None if every else limit))
    if as_json:
        return print_json(page)
    console = showing.console()
    if not page["data"]:
        return console.print("No memories.")
    console.print(showing.records(page["data"]))
    more = "; there are more, --all shows them" if page["next_cursor"] else ""
    return console.print(f"{_count(len(page['data']))}{more}")


def search(
    query: Annotated[str, typer.Argument(help="What is sought, in any words.")],
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=100, help="How many at most.")] = 5,
    memory_type: TypeOption = None,
    kind: KindOption = None,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what scores are made of, and who missed out.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentOption = None,
) -> None:
    """Search memories by meaning and words, as a call would recall them.

    Exit status: 0; 1 when nothing was found; 2 when the proxy could not be
    asked.

    Example:
      sidemirror memory search "which database" --top-k 3 --explain
    """
    span = filters(after=moment(since, "--since"), before=moment(until, "--until"))
    body = filters(query=query, top_k=top_k, memory_type=memory_type, kind=kind, tags=tag or ())
    body |= {"time_range": span} if span else {}
    body |= {"explain": True} if explain else {}
    found = asked(target(url, key, user, agent), lambda client: client.request("POST", "search", body=body))
    if as_json:
        print_json(found)
    else:
        _show_found(found)
    raise typer.Exit(0 if found["data"] else 1)


def show(
    memory_id: IdArgument,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentOption = None,
) -> None:
    """Show one memory in full, in whatever state it is.

    Exit status: 0; 1 when there is no such memory; 2 when the proxy could not
    be asked.

    Example:
      sidemirror memory show 0193a7c2-5b1e-7c44-9d0e-2f6b8a1c3d5e
    """
    whom = as_holder(target(url, key, user, agent), memory_id)
    found = asked(whom, lambda client: client.request("GET", f"records/{memory_id}"))
    print_json(found) if as_json else showing.console().print(showing.record(found))


def history(
    memory_id: IdArgument,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentOption = None,
) -> None:
    """Show every state that a memory, and those it replaced, were in, and the tool calls that led to it; the oldest
    first.

    Exit status: 0; 1 when there is no such memory; 2 when the proxy could not
    be asked.

    Example:
      sidemirror memory history 0193a7c2-5b1e-7c44-9d0e-2f6b8a1c3d5e
    """
    whom = as_holder(target(url, key, user, agent), memory_id)
    found = asked(whom, lambda client: client.request("GET", f"records/{memory_id}/history"))
    if as_json:
        print_json(found)
        return
    console = showing.console()
    console.print(showing.versions(found["data"]))
    if found["steps"]:
        console.print("It came of these steps:", showing.steps(found["steps"]))


def _count(number: int) -> str:
    return "1 memory" if number == 1 else f"{number} memories"


async def _listed(client: MemoryClient, wanted: dict[str, Any], limit: int | None) -> dict[str, Any]:
    """Pages put together, until there are enough."""
    data: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        size = MOST if limit is None else min(MOST, limit - len(data))
        page = await client.request("GET", "records", params={**wanted, "limit": size, **filters(cursor=cursor)})
        data += page["data"]
        cursor = page["next_cursor"]
        if cursor is None or (limit is not None and len(data) >= limit):
            return {"data": data, "next_cursor": cursor}


def _show_found(found: dict[str, Any]) -> None:
    console = showing.console()
    if found["data"]:
        console.print(showing.records(found["data"], scores=True))
    else:
        complain("nothing was found")
    left_out = found.get("left_out")
    if left_out is None:
        return
    if every := [*found["data"], *left_out]:
        console.print(showing.parts(every))
    if left_out:
        console.print(showing.records(left_out, scores=True, reasons=True))
