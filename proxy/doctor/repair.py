"""What the doctor may put right by itself: permissions, the indexes, and with leave a damaged database.

In: a report and the settings. Out: one line for each repair done or left. Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from proxy.backup import archive
from proxy.backup.archive import Backup, Told
from proxy.backup.restore import restore
from proxy.config import Config
from proxy.doctor.finding import Report
from proxy.errors import SidemirrorError
from proxy.reindex import reindex
from proxy.store.data_dir import DATABASE, SECRET, installation


def repair(
    report: Report, config: Config, *, may_restore: bool, clock: Callable[[], datetime], told: Told
) -> Iterator[str]:
    """Put right what can be.

    Args:
        report: Of an examination just made.
        config: Settings.
        may_restore: Whether a damaged database may be moved aside and the newest good backup restored.
        clock: The present time, aware UTC.
        told: Told of progress.

    Yields:
        What was done, or why it was not.
    """
    wanted = {finding.repair for finding in report.findings if finding.repair is not None}
    if "permissions" in wanted:
        yield _close_to_others(config)
    if not wanted - {"permissions"}:
        return
    if report.proxy_runs:
        yield "indexes and database: not repaired while a proxy runs; stop it and repeat this"
        return
    try:
        if "restore" in wanted:
            yield _restore(config, clock, told) if may_restore else _ask(config)
        elif "reindex" in wanted:
            done = reindex(config, clock, told)
            yield f"indexes: made anew from {done.records} records" + (f"; {done.trouble}" if done.trouble else "")
    except SidemirrorError as error:
        yield f"not repaired: {error}"


def _close_to_others(config: Config) -> str:
    try:
        config.data_dir.chmod(0o700)
        for name in (SECRET, DATABASE):
            if (config.data_dir / name).exists():
                (config.data_dir / name).chmod(0o600)
    except OSError as error:
        return f"permissions: not changed: {error.strerror or error}"
    return f"permissions: {config.data_dir} is closed to others"


def _ask(config: Config) -> str:
    newest = next(_good(config, lambda *_: None), None)
    if newest is None:
        return (
            f"database: damaged, and there is no good backup in {config.backup.dir}; name one to 'sidemirror restore'"
        )
    return (
        f"database: damaged; --repair --yes moves the data folder aside and restores the backup of {_at(newest)} "
        f"({newest.path})"
    )


def _restore(config: Config, clock: Callable[[], datetime], told: Told) -> str:
    newest = next(_good(config, told), None)
    if newest is None:
        return _ask(config)
    done = restore(newest, config.data_dir, config.redis.url, now=clock(), told=told)
    return f"database: restored from the backup of {_at(newest)}; the damaged data is in {done.aside}"


def _good(config: Config, told: Told) -> Iterator[Backup]:
    """Backups of this installation that are whole, newest first."""
    try:
        owner = installation(config.data_dir)
    except OSError:
        owner = None
    for backup in reversed(archive.complete(config.backup.dir, owner)):
        try:
            archive.verify(backup, told)
        except SidemirrorError:
            continue
        yield backup


def _at(backup: Backup) -> str:
    return f"{datetime.fromtimestamp(backup.manifest.created_at, UTC):%Y-%m-%d %H:%M} UTC"
