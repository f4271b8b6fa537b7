"""`sidemirror memory add/update`: write a memory on purpose, and correct one."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from proxy.cli.client import Answer, MemoryClient
from proxy.cli.memory import showing
from proxy.cli.memory.options import (
    AgentOption,
    IdArgument,
    JsonOption,
    KeyOption,
    KindOption,
    TagOption,
    TypeOption,
    UrlOption,
    UserOption,
    as_holder,
    asked,
    filters,
    moment,
    print_json,
    target,
)
from proxy.errors import SidemirrorError

ConfidenceOption = Annotated[
    float | None, typer.Option(min=0, max=1, help="How sure it is; below recall.min_confidence it waits for review.")
]
_SAID = {
    "created": "Written.",
    "merged": "Known already: merged into this one.",
    "superseded": "Written; it takes the place of {supersedes}.",
    "versioned": "Written beside an earlier one that says otherwise.",
    "pending": "Written, but it waits for review: 'memory accept {id}' lets it be recalled.",
}


def add(
    content: Annotated[
        str, typer.Argument(help="What is to be remembered, one thing; - reads it from standard input.")
    ],
    memory_type: TypeOption = None,
    kind: KindOption = None,
    tag: TagOption = None,
    scope: Annotated[
        str | None,
        typer.Option(help="agent, user (all of the user's agents) or shared.  (default: by kind)"),
    ] = None,
    slot: Annotated[
        str | None, typer.Option("--slot", help="Key that holds one answer at a time, such as user.diet.")
    ] = None,
    confidence: ConfidenceOption = None,
    since: Annotated[str | None, typer.Option(help="Since when it holds.  (default: now)")] = None,
    expires: Annotated[str | None, typer.Option(help="Until when it holds.  (default: no end)")] = None,
    session: Annotated[str | None, typer.Option(help="In which session it was said.")] = None,
    on_conflict: Annotated[
        str | None,
        typer.Option(
            help="Where another says otherwise: supersede, version, merge or keep_both.  (default: supersede)"
        ),
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentOption = None,
) -> None:
    """Write one memory; what is known already is merged, what it contradicts is replaced.

    Exit status: 0; 2 when it was refused, or the proxy could not be asked.

    Examples:
      sidemirror memory add "The user is allergic to peanuts" --kind fact --scope user
      sidemirror memory add "用户用 pnpm 管理前端依赖" --kind preference --tag tools
    """
    body = filters(
        content=sys.stdin.read() if content == "-" else content,
        memory_type=memory_type,
        kind=kind,
        tags=tag or (),
        scope=scope,
        key=slot,
        valid_from=moment(since, "--since"),
        expires_at=moment(expires, "--expires"),
        session_id=session,
        on_conflict=on_conflict,
    )
    body |= {} if confidence is None else {"confidence": confidence}
    written = asked(target(url, key, user, agent), lambda client: client.request("POST", "records", body=body))
    if as_json:
        return print_json(written)
    console = showing.console()
    console.print(_SAID[written["outcome"]].format(**written), markup=False)
    return console.print(showing.record(written))


def update(
    memory_id: IdArgument,
    content: Annotated[str | None, typer.Option(help="What it is to say.")] = None,
    memory_type: TypeOption = None,
    kind: KindOption = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Its tags from now on; may be repeated; '' takes all away.")
    ] = None,
    slot: Annotated[str | None, typer.Option("--slot", help="Its key; '' takes it away.")] = None,
    confidence: ConfidenceOption = None,
    expires: Annotated[str | None, typer.Option(help="Until when it holds; '' means no end.")] = None,
    state: Annotated[str | None, typer.Option(help="active or archived.")] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    agent: AgentOption = None,
) -> None:
    """Change fields of a memory; what it was stays in its history.

    Exit status: 0; 1 when there is no such memory, or it changed meanwhile, or
    another one holds its key; 2 when it was refused, or the proxy could not be
    asked.

    Example:
      sidemirror memory update 0193a7c2-5b1e-7c44-9d0e-2f6b8a1c3d5e --content "The user is vegan" --confidence 1
    """
    changes: dict[str, Any] = filters(content=content, memory_type=memory_type, kind=kind, state=state)
    changes |= {} if confidence is None else {"confidence": confidence}
    changes |= {} if tag is None else {"tags": [one for one in tag if one]}
    changes |= {} if slot is None else {"key": slot or None}
    changes |= {} if expires is None else {"expires_at": moment(expires or None, "--expires")}
    if not changes:
        raise SidemirrorError("nothing to change; name a field, such as --content (see --help)")
    whom = as_holder(target(url, key, user, agent), memory_id)
    changed = asked(whom, lambda client: _changed(client, memory_id, changes))
    if as_json:
        return print_json(changed.data)
    if changed.data["state"] == "pending":
        typer.echo(f"Changed, but it waits for review: 'memory accept {memory_id}' lets it be recalled.")
    return showing.console().print(showing.record(changed.data))


async def _changed(client: MemoryClient, memory_id: str, changes: dict[str, Any]) -> Answer:
    path = f"records/{memory_id}"
    before = await client.exchange("GET", path)
    # What somebody else changes in between is not written over.
    only_if = {} if before.etag is None else {"If-Match": before.etag}
    return await client.exchange("PATCH", path, body=changes, headers=only_if)
