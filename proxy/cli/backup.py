"""`sidemirror backup` and `sidemirror restore`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy import log
from proxy.app import utc_now
from proxy.backup.archive import Backup, open_backup, verify
from proxy.backup.create import Origin, create
from proxy.backup.restore import Restored, restore_settings
from proxy.backup.restore import restore as put_back
from proxy.cli.progress import bars
from proxy.config import Config, Override, default_path, load
from proxy.errors import SidemirrorError

ConfigOption = Annotated[Path | None, typer.Option(help="Settings file.  (default: config.yaml here, if any)")]
DataOption = Annotated[Path | None, typer.Option(help="Data folder, where `serve` was given one.")]


def backup(
    dest: Annotated[Path, typer.Argument(help="Folder for backups; each becomes a folder in it.")],
    keep: Annotated[int, typer.Option(min=1, help="How many backups of this installation are kept there.")] = 7,
    config: ConfigOption = None,
    data: DataOption = None,
) -> None:
    """Back up memory, settings and policies, also while the proxy runs, and prove the copy by reading it back.

    Exit status: 0 when a backup was made, 2 when none was.

    Example: sidemirror backup /mnt/backups --keep 14
    """
    log.configure("error")
    path = config or default_path()
    settings = settings_of(path, data)
    origin = Origin(settings.data_dir, settings.redis.url, path.absolute() if path else None, settings.policies)
    with bars(Console(stderr=True)) as told:
        made = create(origin, dest.absolute(), keep=keep, clock=utc_now, told=told)
    typer.echo(f"{made.path}: {_contents(made)}")
    if made.manifest.working_keys is None:
        typer.echo("without working memory: its Redis does not answer; 'sidemirror doctor' says more", err=True)


def restore(
    src: Annotated[Path, typer.Argument(help="One backup: a folder sidemirror-<time>.")],
    config: ConfigOption = None,
    data: DataOption = None,
) -> None:
    """Put a backup in the place of the present data, which is moved aside; the proxy must not run.

    Where there is neither a config.yaml nor a policies folder here, those of the backup are put here too.

    Exit status: 0 when it was restored, 2 when nothing was.

    Example: sidemirror restore /mnt/backups/sidemirror-20261130T030000Z
    """
    log.configure("error")
    found = open_backup(src.absolute())
    with bars(Console(stderr=True)) as told:
        path = config or default_path()
        if path is None and not Path("policies").exists():
            verify(found, told)
            _bring_settings(found)
            path = default_path()
        settings = settings_of(path, data)
        done = put_back(found, settings.data_dir, settings.redis.url, now=utc_now(), told=told)
    _tell(done, settings)


def _bring_settings(found: Backup) -> None:
    try:
        for written in restore_settings(found, Path.cwd()):
            typer.echo(f"{written}: from the backup")
    except SidemirrorError as error:  # memory can be restored all the same, as in a read-only container
        typer.echo(str(error), err=True)


def settings_of(path: Path | None, data: Path | None) -> Config:
    """The settings, with the data folder that the command line names."""
    flags = [] if data is None else [Override("--data", ("data_dir",), str(data.absolute()))]
    return load(path, os.environ, flags)


def age(since: datetime, now: datetime) -> str:
    """How long ago, roughly.

    >>> age(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 3, 12, tzinfo=UTC))
    '2 days'
    """
    minutes = max(0, int((now - since).total_seconds() // 60))
    number, unit = next(
        ((minutes // size, unit) for size, unit in ((1440, "day"), (60, "hour")) if minutes >= size),
        (minutes, "minute"),
    )
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _tell(done: Restored, settings: Config) -> None:
    made_at = datetime.fromtimestamp(done.backup.manifest.created_at, UTC)
    typer.echo(f"{settings.data_dir}: {_contents(done.backup)}")
    typer.echo(
        f"The backup is {age(made_at, utc_now())} old ({made_at:%Y-%m-%d %H:%M} UTC): "
        "what was said since is not in it, and what was forgotten since is back."
    )
    if done.forgotten_since:
        typer.echo(f"Forgotten since, and to be forgotten again: {done.forgotten_since} texts or messages.")
    if done.working_keys is None:
        typer.echo("The backup holds no working memory: its Redis did not answer then.")
    elif done.backup.manifest.working_keys:
        typer.echo(f"Of working memory {done.working_keys} keys had not expired.")
    if done.aside is not None:
        typer.echo(f"The former data is in {done.aside}; remove it once all is well.")
    typer.echo("Index files are made anew as they are needed. Start the proxy with 'sidemirror serve'.")


def _contents(made: Backup) -> str:
    manifest = made.manifest
    size = sum(content.bytes for content in manifest.files.values())
    keys = manifest.working_keys
    working = "no working memory" if keys is None else f"{keys} keys of working memory"
    return f"{manifest.rows.get('memories', 0)} memories, {working}, {size / 2**20:.1f} MB, read back and whole"
