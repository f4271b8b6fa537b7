"""Every command with its options and its help."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy import __version__, log
from proxy.cli import demo as demo_play
from proxy.cli.backup import backup, restore
from proxy.cli.doctor import doctor
from proxy.cli.key import key
from proxy.cli.policy import policy
from proxy.cli.reindex import reindex
from proxy.cli.serve import run_server
from proxy.config import Override, default_path, load
from proxy.errors import SidemirrorError

cli = typer.Typer(
    name="sidemirror",
    help="A memory sidecar for LLM calls: point OPENAI_BASE_URL at it, and your agent stops forgetting.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.add_typer(policy)
cli.add_typer(key)
for _command in (doctor, backup, restore, reindex):
    cli.command()(_command)
_LATER = {
    "init": "Write config.yaml, policies/ and docker-compose.yml for a project of your own.",
    "memory": "List, search, add and forget memories of a running proxy.",
    "eval": "Evaluate recall on a file of cases.",
    "mcp": "Serve MCP over stdio for a running proxy.",
}


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


def _refuse(name: str) -> None:
    raise SidemirrorError(f"'sidemirror {name}' is not supported yet")


def _later(name: str, text: str) -> None:
    @cli.command(
        name,
        help=f"{text} (not supported yet)",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        hidden=True,
    )
    def refuse() -> None:
        _refuse(name)


for _name, _text in _LATER.items():
    _later(_name, _text)
