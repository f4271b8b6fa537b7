"""`sidemirror memory …`: what a running proxy remembers, over its memory API."""

from __future__ import annotations

from collections.abc import Callable

import typer

from proxy.cli.memory.auditing import audit
from proxy.cli.memory.carrying import export, take_in
from proxy.cli.memory.forgetting import forget, restore
from proxy.cli.memory.reading import history, list_, search, show
from proxy.cli.memory.reviewing import accept, reject
from proxy.cli.memory.writing import add, update

__all__ = ["memory"]

memory = typer.Typer(
    name="memory",
    help="""See, correct and carry the memories of a running proxy.

    Every command asks the proxy that runs here, or the one at --url, for the
    memories of --user. With --json it prints what scripts read.

    Exit status of every command: 0 when it did what was asked; 1 when there is
    no such memory, nothing was found, or some of it could not be done; 2 when
    the command is wrong, or the proxy does not answer or refuses.""",
    epilog="Example: sidemirror memory search 'which editor' --user ada",
    no_args_is_help=True,
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_,
    "search": search,
    "show": show,
    "history": history,
    "add": add,
    "update": update,
    "forget": forget,
    "restore": restore,
    "accept": accept,
    "reject": reject,
    "export": export,
    "import": take_in,
    "audit": audit,
}
for _name, _command in _COMMANDS.items():
    memory.command(_name)(_command)
