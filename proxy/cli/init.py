"""`sidemirror init`: settings, policies and a compose file for a project of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from proxy.config import shipped
from proxy.errors import SidemirrorError

PRESETS = {
    "support": "customer support: complaints, orders, requests, mood",
    "recommend": "recommending: tastes, what was had already, budgets",
    "task": "agents at work: slots, progress, tools",
}
_COMPOSE = Path(__file__).resolve().parent / "project" / "docker-compose.yml"
_PLACE = "17-{}.yaml"
"""Before the shipped rules for anything else, which leave alone what a special rule has taken."""


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to; made where it is not there.")] = Path(),
    preset: Annotated[
        str | None,
        typer.Option(help="; ".join(f"{name}: {what}" for name, what in PRESETS.items()) + ".  (default: none)"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write config.yaml, policies/ and docker-compose.yml for a project of your own.

    Presets differ in policies only: each adds a file of rules to the shipped
    ones. Without files of your own the proxy uses the shipped ones, so that you
    need none of this to start.

    Exit status: 0; 2 when files are there already, or cannot be written.

    Examples:
      sidemirror init
      sidemirror init my-shop --preset support
    """
    if preset is not None and preset not in PRESETS:
        raise SidemirrorError(f"--preset {preset!r}: one of {', '.join(PRESETS)}")
    files = dict(_files(preset))
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        shown = ", ".join(there[:3]) + (f" and {len(there) - 3} more" if len(there) > 3 else "")
        raise SidemirrorError(f"{folder} holds {shown} already; choose another folder, or write over them with --force")
    _write(folder, files)
    _tell(folder, list(files), preset, as_json=as_json)


def _files(preset: str | None) -> Iterator[tuple[str, str]]:
    """Name and text of each file."""
    yield "config.yaml", (shipped() / "config.yaml").read_text(encoding="utf-8")
    policies = shipped() / "policies"
    for path in sorted(policies.iterdir()):
        if path.suffix in (".yaml", ".json"):
            yield f"policies/{path.name}", path.read_text(encoding="utf-8")
    if preset is not None:
        text = (policies / "presets" / f"{preset}.yaml").read_text(encoding="utf-8")
        # There it lies beside the schema that editors use.
        yield f"policies/{_PLACE.format(preset)}", text.replace("$schema=../schema.json", "$schema=./schema.json", 1)
    yield "docker-compose.yml", _COMPOSE.read_text(encoding="utf-8")


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SidemirrorError(f"{path} cannot be written: {error.strerror or error}") from error


def _tell(folder: Path, names: list[str], preset: str | None, *, as_json: bool) -> None:
    if as_json:
        return typer.echo(json.dumps({"folder": str(folder.resolve()), "preset": preset, "written": names}, indent=2))
    rules = sum(name.endswith(".yaml") and name.startswith("policies/") for name in names)
    typer.echo(f"{folder.resolve()}: config.yaml, policies/ ({rules} files), docker-compose.yml")
    if preset is not None:
        typer.echo(f"  policies/{_PLACE.format(preset)} is for {PRESETS[preset]}")
    typer.echo("Next:")
    if folder.resolve() != Path.cwd():
        typer.echo(f"  cd {folder}")
    typer.echo("  sidemirror policy check     # after every change to policies/")
    return typer.echo("  sidemirror serve            # or: docker compose up --detach")
