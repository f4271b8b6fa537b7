"""`sidemirror memory accept/reject`: decide on memories that wait for review."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from proxy.cli.client import Conflict, MemoryClient, NotFound, Target
from proxy.cli.memory import showing
from proxy.cli.memory.options import (
    AgentOption,
    IdsArgument,
    JsonOption,
    KeyOption,
    UrlOption,
    UserOption,
    as_holder,
    asked,
    complain,
    print_json,
    target,
)


def accept(
    ids: IdsArgument,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentOption = None,
) -> None:
    """Approve memories that wait for review ('memory list --state pending'): they are recalled from now on.

    Exit status: 0; 1 when one of them is not there, or does not wait; 2 when
    the proxy could not be asked.

    Example:
      sidemirror memory accept 0193a7c2-5b1e-7c44-9d0e-2f6b8a1c3d5e
    """
    each(ids, "accept", target(url, key, user, agent), as_json=as_json)


def reject(
    ids: IdsArgument,
    forget: Annotated[bool, typer.Option("--forget", help="Erase them for good, instead of archiving them.")] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentOption = None,
) -> None:
    """Refuse memories that wait for review: they are archived.

    Exit status: 0; 1 when one of them is not there, or does not wait; 2 when
    the proxy could not be asked.

    Example:
      sidemirror memory reject 0193a7c2-5b1e-7c44-9d0e-2f6b8a1c3d5e --forget
    """
    each(ids, "reject", target(url, key, user, agent), as_json=as_json, body={"forget": forget})


def each(ids: Sequence[str], action: str, whom: Target, *, as_json: bool, body: dict[str, Any] | None = None) -> None:
    """Do something with each of several records, and print what they are now.

    Args:
        ids: Which.
        action: Last step of the path, e.g. ``restore``.
        whom: Which proxy, and whose memories.
        as_json: Whether to print JSON.
        body: Of each request.

    Raises:
        typer.Exit: With 1, after all, when it could not be done with one of them.
    """
    done: list[dict[str, Any]] = []
    failed = False
    for memory_id in ids:
        path = f"records/{memory_id}/{action}"
        try:
            holder = as_holder(whom, memory_id)
        except typer.Exit:
            failed = True
            continue
        found = asked(holder, lambda client, path=path: _done(client, path, body))  # type: ignore[misc]
        failed |= found is None
        done += [] if found is None else [found]
    if as_json:
        print_json({"data": done})
    elif kept := [one for one in done if "content" in one]:
        showing.console().print(showing.records(kept))
    for one in done:
        if not as_json and "content" not in one:
            typer.echo(f"{one['id']}: forgotten")
    raise typer.Exit(1 if failed else 0)


async def _done(client: MemoryClient, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
    try:
        return await client.request("POST", path, body=body)
    except (NotFound, Conflict) as error:
        complain(str(error))
        return None
