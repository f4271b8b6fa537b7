"""Every command with its options and its help."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy import __version__, log
from proxy.cli import demo as demo_play
from proxy.cli.backup import backup, restore
from proxy.cli.doctor import doctor
from proxy.cli.eval import evaluate
from proxy.cli.importing import import_
from proxy.cli.init import init
from proxy.cli.key import key
from proxy.cli.mcp import mcp
from proxy.cli.memory import memory
from proxy.cli.policy import policy
from proxy.cli.reindex import reindex
from proxy.cli.serve import run_server
from proxy.config import Override, default_path, load

cli = typer.Typer(
    name="sidemirror",
    help="""A memory sidecar for LLM calls: point OPENAI_BASE_URL at it, and your agent stops forgetting.

    Exit status of every command: 0 when it did what was asked; 1 when it found
    what it looks for (a fault, a difference, nothing at all) or did only a part;
    2 when the command is wrong, or what it needs cannot be reached. The help of
    each command says more.

    --install-completion makes the shell complete commands and options.""",
    epilog="Start here: sidemirror demo; then: sidemirror serve",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.add_typer(policy)
cli.add_typer(key)
cli.add_typer(memory)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sidemirror {__version__}")
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


@cli.command()
def serve(
    config: Annotated[Path | None, typer.Option(help="Settings file.  (default: config.yaml here, if any)")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of everything that is kept.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse to start with a damaged store.")] = False,
) -> None:
    """Run the proxy, and say which base URL to set.

    Example: sidemirror serve --port 8081 --data ~/sidemirror-data
    """
    flags = []
    if host is not None:
        flags.append(Override("--host", ("server", "host"), host))
    if port is not None:
        flags.append(Override("--port", ("server", "port"), port))
    if data is not None:
        flags.append(Override("--data", ("data_dir",), str(data.absolute())))
    path = config or default_path()
    settings = load(path, os.environ, flags)
    run_server(settings, strict=strict, config_file=path.absolute() if path else None)


@cli.command()
def demo(
    url: Annotated[str | None, typer.Option(help="A running proxy; by default the demo starts one of its own.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model; by default demo/echo, or gpt-4o-mini when OPENAI_API_KEY is set.")
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Ask again with memory off.")] = False,
) -> None:
    """Play two conversations (Chinese and English) in two sessions each, and show what memory did."""
    log.configure("warning")
    asyncio.run(demo_play.run(url, model, compare=compare, console=Console()))


_ELSEWHERE: dict[str, Callable[..., None]] = {
    "init": init,
    "doctor": doctor,
    "import": import_,
    "eval": evaluate,
    "mcp": mcp,
    "backup": backup,
    "restore": restore,
    "reindex": reindex,
}
for _name, _command in _ELSEWHERE.items():
    cli.command(_name)(_command)
