"""`sidemirror key …`: keys of our own, and the tenants of provider keys."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from proxy.app import install_secret
from proxy.auth import PERMISSIONS, Doorkeeper, hashed, new_key
from proxy.config import default_path, load
from proxy.errors import SidemirrorError
from proxy.settings import Auth

key = typer.Typer(
    name="key", help="Make keys for auth.mode: keys, and tell tenants of provider keys.", no_args_is_help=True
)


@key.command()
def create(
    name: Annotated[str, typer.Option(help="For logs and error messages.")] = "default",
    permission: Annotated[
        list[str] | None,
        typer.Option(help=f"May be repeated: {', '.join(PERMISSIONS)}.  [default: chat, memory:read, memory:write]"),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Bind the key to one user.")] = None,
    agent: Annotated[str | None, typer.Option(help="Bind the key to one agent.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose memories it reaches at all.  [default: default]")] = None,
) -> None:
    """Print a new key, once, and the hashed line for auth.keys in config.yaml.

    Example: sidemirror key create --name alice --user alice
    """
    wrong = [one for one in permission or () if one not in PERMISSIONS]
    if wrong:
        raise SidemirrorError(f"{', '.join(wrong)}: no such permission; one of {', '.join(PERMISSIONS)}")
    value = new_key()
    entry = [f"name: {_quoted(name)}", f"hash: {_quoted(hashed(value))}"]
    entry.append(f"permissions: [{', '.join(_quoted(one) for one in permission or PERMISSIONS[:3])}]")
    entry += [
        f"{what}: {_quoted(text)}" for what, text in (("tenant", tenant), ("user", user), ("agent", agent)) if text
    ]
    typer.echo(f"The key, shown only now:\n\n  {value}\n")
    typer.echo(f"The line for config.yaml, under auth (with mode: keys) and keys:\n\n  - {{{', '.join(entry)}}}")


@key.command()
def tenant(
    config: Annotated[Path | None, typer.Option(help="Settings file.  [default: config.yaml here, if any]")] = None,
) -> None:
    """Print the tenant of a provider key, read from standard input, for auth.aliases (with auth.tenant: api_key).

    Example: echo "$OPENAI_API_KEY" | sidemirror key tenant
    """
    provider_key = sys.stdin.readline().strip()
    if not provider_key:
        raise SidemirrorError("no key on standard input; pipe it in, so that it stays out of the shell's history")
    secret = install_secret(load(config or default_path(), os.environ).data_dir)
    typer.echo(Doorkeeper(Auth(tenant="api_key"), secret).tenant_of(provider_key))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
