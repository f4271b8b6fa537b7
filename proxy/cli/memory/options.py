"""Options that the memory commands share, and how a command asks the proxy.

In: what was typed. Out: a `Target`, filters as the API takes them, and an exit status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import typer

from proxy import log
from proxy.cli.client import Conflict, MemoryClient, NotFound, Target, local_url
from proxy.errors import SidemirrorError

T = TypeVar("T")

UrlOption = Annotated[
    str | None, typer.Option(help="The proxy's address.  (default: the one that runs here, else config.yaml's)")
]
KeyOption = Annotated[
    str | None, typer.Option(help="Key of the proxy, where it asks for one.", envvar="SIDEMIRROR_KEY")
]
UserOption = Annotated[
    str | None, typer.Option(help="Whose memories.  (default: the key's user, else the proxy's default user)")
]
AgentOption = Annotated[str | None, typer.Option(help="As which agent.  (default: the key's agent, else default)")]
AgentsOption = Annotated[str, typer.Option(help="Of which agent; * means all of the user's agents.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TypeOption = Annotated[str | None, typer.Option("--type", help="episodic, semantic or reflective.")]
KindOption = Annotated[str | None, typer.Option("--kind", help="Such as preference, fact, decision, task, turn.")]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.")]
SinceOption = Annotated[
    str | None, typer.Option("--since", help="Written at or after: 2026-11-30, or 2026-11-30T09:00 (+08:00).")
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Written before; as for --since.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Of the memory; 'memory list' shows it.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="Of the memories; 'memory list' shows them.")]


def target(url: str | None, key: str | None, user: str | None, agent: str | None) -> Target:
    """Which proxy is meant, and whose memories."""
    log.configure("error")
    return Target(url or local_url(), key, user, agent)


def asked(whom: Target, ask: Callable[[MemoryClient], Coroutine[Any, Any, T]]) -> T:
    """What the proxy answers.

    Args:
        whom: Which proxy, and whose memories.
        ask: Asks it.

    Raises:
        typer.Exit: With 1, after saying so, when there is no such memory or it is not as it must be.
        SidemirrorError: The proxy does not answer, or refuses.
    """

    async def within() -> T:
        async with MemoryClient(whom) as client:
            return await ask(client)

    try:
        return asyncio.run(within())
    except (NotFound, Conflict) as error:
        complain(str(error))
        raise typer.Exit(1) from error


def as_holder(whom: Target, memory_id: str) -> Target:
    """The same, as the agent that may read a memory: listings show what every agent of the user has."""
    if whom.agent is not None:
        return whom
    agent = asked(whom, lambda client: client.holder(memory_id))
    return Target(whom.url, whom.key, whom.user, agent)


def complain(text: str) -> None:
    """Say on stderr what went wrong."""
    typer.echo(f"sidemirror: {text}", err=True)


def print_json(data: Any) -> None:
    """Print data for scripts."""
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2))


def moment(text: str | None, option: str) -> str | None:
    """A time as people type it, as the API takes it.

    Args:
        text: A date, or a date and time; without an offset it is one of this machine's zone.
        option: Where it was given, for the message.

    Raises:
        SidemirrorError: It is no time.
    """
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise SidemirrorError(f"{option} {text!r} is no time; write 2026-11-30, or 2026-11-30T09:00+08:00") from error
    # Without an offset it is this machine's own.
    return found.astimezone().isoformat()


def filters(**named: str | int | Sequence[str] | None) -> dict[str, Any]:
    """Those filters that were given, by their names in the API."""
    return {
        name: list(value) if isinstance(value, list | tuple) else value
        for name, value in named.items()
        if value is not None and value != [] and value != ()
    }
