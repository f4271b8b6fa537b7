"""`sidemirror key …`: keys of our own, and the tenants of provider keys."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from proxy.auth import PERMISSIONS, Doorkeeper, hashed, new_key
from proxy.config import Override, default_path, load
from proxy.errors import SidemirrorError
from proxy.layers import install_secret
from proxy.scope import check_part
from proxy.settings import Auth, Key

key = typer.Typer(
    name="key", help="Make keys for auth.mode: keys, and tell tenants of provider keys.", no_args_is_help=True
)


@key.command()
def create(
    name: Annotated[str, typer.Option(help="For logs and error messages.")] = "default",
    permission: Annotated[
        list[str] | None,
        typer.Option(help=f"May be repeated: {', '.join(PERMISSIONS)}.  (default: chat, memory:read, memory:write)"),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Bind the key to one user.")] = None,
    agent: Annotated[str | None, typer.Option(help="Bind the key to one agent.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose memories it reaches at all.  (default: default)")] = None,
) -> None:
    """Print a new key, once, and the hashed line for auth.keys in config.yaml.

    Example: sidemirror key create --name alice --user alice
    """
    value = new_key()
    bounds = {"tenant": tenant, "user": user, "agent": agent}
    entry: dict[str, Any] = {
        "name": name,
        "hash": hashed(value),
        "permissions": [*dict.fromkeys(permission or PERMISSIONS[:3])],
        **{what: text for what, text in bounds.items() if text is not None},
    }
    _check(entry)
    line = ", ".join(f"{what}: {_quoted(given)}" for what, given in entry.items())
    typer.echo(f"The key, shown only now:\n\n  {value}\n")
    typer.echo(f"The line for config.yaml, under auth (with mode: keys) and keys:\n\n  - {{{line}}}")


@key.command()
def tenant(
    config: Annotated[Path | None, typer.Option(help="Settings file.  (default: config.yaml here, if any)")] = None,
    data: Annotated[Path | None, typer.Option(help="Data folder, where `serve` was given one.")] = None,
) -> None:
    """Print the tenant of a provider key, read from standard input, for auth.aliases (with auth.tenant: api_key).

    Example: echo "$OPENAI_API_KEY" | sidemirror key tenant
    """
    provider_key = sys.stdin.readline().strip()
    if not provider_key:
        raise SidemirrorError("no key on standard input; pipe it in, so that it stays out of the shell's history")
    flags = [] if data is None else [Override("--data", ("data_dir",), str(data.absolute()))]
    folder = load(config or default_path(), os.environ, flags).data_dir
    if not (folder / "secret").exists():
        # Another folder's secret would make another tenant of the same key: memories would seem lost.
        raise SidemirrorError(f"no Sidemirror has run on {folder} yet; name its settings with --config, or use --data")
    typer.echo(Doorkeeper(Auth(tenant="api_key"), install_secret(folder)).tenant_of(provider_key))


def _check(entry: dict[str, Any]) -> None:
    """Refuse what config.yaml would refuse, or read otherwise, before a key is given away with it."""
    wrong = [one for one in entry["permissions"] if one not in PERMISSIONS]
    if wrong:
        raise SidemirrorError(f"{', '.join(wrong)}: no such permission; one of {', '.join(PERMISSIONS)}")
    try:
        for what in entry.keys() - {"hash", "permissions"}:
            if "${" in check_part(f"--{what}", entry[what]):
                raise ValueError(f"--{what} holds ${{, which config.yaml replaces from the environment")
        Key.model_validate(entry)
    except ValidationError as error:
        said = [f"--{one['loc'][0]}: {one['msg']}" for one in error.errors(include_url=False)]
        raise SidemirrorError("; ".join(said)) from error
    except ValueError as error:
        raise SidemirrorError(str(error)) from error


def _quoted(given: str | list[str]) -> str:
    if isinstance(given, list):
        return f"[{', '.join(_quoted(one) for one in given)}]"
    return "'" + given.replace("'", "''") + "'"
