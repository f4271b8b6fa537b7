"""Making a backup while the proxy runs, or while it does not.

In: what is to be backed up, and the folder for backups. Out: one new folder in it, complete and proved, or none at all:
it is made under another name and only renamed at the end. Then the oldest beyond `keep` go.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog

from proxy import __version__
from proxy.backup import archive
from proxy.backup.archive import SETTINGS, UNFINISHED, WORKING, Backup, Manifest, Told
from proxy.config import shipped
from proxy.errors import SidemirrorError, WorkingMemoryUnavailable
from proxy.store import working_copy
from proxy.store.data_dir import DATABASE, REDIS, SECRET, claimed, installation, living_redis
from proxy.store.database_copy import copy_database
from proxy.store.directory_lock import FileLock
from proxy.store.embedded_redis import EmbeddedRedis
from proxy.store.health import SCHEMA_VERSION

log = structlog.get_logger(__name__)
_LOCK = "backup.lock"
_ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Origin:
    """What is backed up.

    Args:
        data_dir: The data directory.
        redis_url: ``embedded``, or the URL of a Redis.
        config_file: The settings file, if there is one.
        policies: Policy files and folders; the shipped ones come with the product and are left out.
    """

    data_dir: Path
    redis_url: str
    config_file: Path | None = None
    policies: tuple[Path, ...] = ()


def create(origin: Origin, folder: Path, *, keep: int | None, clock: Callable[[], datetime], told: Told) -> Backup:
    """Make one backup.

    The database is copied first and working memory after it: a turn that the copy counts as done has its slots in the
    backup as well, and one that it does not is worked on again after a restore.

    Args:
        origin: What.
        folder: Where; made when missing.
        keep: Of this installation's complete backups there, the oldest beyond this many go; None keeps all.
        clock: The present time, aware UTC.
        told: Told of progress; what it raises ends the work, and nothing of it remains.

    Returns:
        The new backup; its `manifest.working_keys` is None when Redis did not answer.

    Raises:
        SidemirrorError: No backup was made; those that were there are as they were.
    """
    if not (origin.data_dir / DATABASE).is_file():
        raise SidemirrorError(f"there is nothing to back up: {origin.data_dir / DATABASE} does not exist")
    try:
        owner = installation(origin.data_dir)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _one_at_a_time(origin.data_dir):
            _sweep(folder, owner)
            _check_space(origin, folder)
            backup = _made(origin, folder, owner, clock, told)
            _rotate(folder, owner, keep)
    except OSError as error:
        raise SidemirrorError(
            f"no backup was made in {folder}: {error.strerror or error}; earlier ones are as they were"
        ) from error
    return backup


def _made(origin: Origin, folder: Path, owner: str, clock: Callable[[], datetime], told: Told) -> Backup:
    at = clock()
    place = _free(folder / archive.folder_name(at))
    work = folder / f"{UNFINISHED}{owner}-{place.name}"
    work.mkdir(mode=0o700)
    try:
        rows = copy_database(
            origin.data_dir / DATABASE, work / DATABASE, lambda done, total: told("copying the database", done, total)
        )
        keys = _copy_working(origin, work / WORKING, told)
        shutil.copyfile(origin.data_dir / SECRET, work / SECRET)
        _copy_settings(origin, work / SETTINGS)
        manifest = Manifest(
            format=archive.FORMAT,
            version=__version__,
            schema_version=SCHEMA_VERSION,
            installation=owner,
            created_at=at.timestamp(),
            rows=rows,
            working_keys=keys,
            files=_contents(work),
        )
        archive.write_manifest(work, manifest)
        archive.verify(archive.open_backup(work), told)
        work.rename(place)
        archive.sync_folder(folder)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return Backup(place, manifest)


@contextmanager
def _one_at_a_time(data_dir: Path) -> Iterator[None]:
    lock = FileLock(data_dir / _LOCK)
    if not lock.acquire():
        raise SidemirrorError(f"another backup of {data_dir} is under way; wait for it to end")
    try:
        yield
    finally:
        lock.release()


def _sweep(folder: Path, owner: str) -> None:
    """Remove what a killed backup of ours left; another one cannot be under way."""
    for path in folder.glob(f"{UNFINISHED}{owner}-*"):
        shutil.rmtree(path)


def _check_space(origin: Origin, folder: Path) -> None:
    needed = (origin.data_dir / DATABASE).stat().st_size
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SidemirrorError(
            f"no backup was made: {folder} has {free >> 20} MB left, and the database takes {needed >> 20} MB; "
            "free some space, or keep fewer backups"
        )


def _free(place: Path) -> Path:
    number, free = 1, place
    while free.exists():
        number += 1
        free = place.with_name(f"{place.name}-{number}")
    return free


def _copy_working(origin: Origin, target: Path, told: Told) -> int | None:
    """Write working memory down; how many keys, or None when its Redis does not answer."""
    try:
        with _redis_of(origin) as url, archive.new_file(target) as file:
            if url is None:
                return 0
            keys = 0
            with working_copy.connected(url) as client:
                for line in working_copy.lines(client):
                    file.write(line)
                    keys += 1
                    told("copying working memory", keys, 0)
            return keys
    except WorkingMemoryUnavailable as error:
        # Working memory is never the only copy of anything: a backup without it is worth having.
        log.warning("backup_without_working_memory", hint=str(error))
        target.unlink(missing_ok=True)
        return None


@contextmanager
def _redis_of(origin: Origin) -> Iterator[str | None]:
    """The URL of a Redis that answers; an embedded one that nobody runs is started for as long as this takes."""
    if origin.redis_url != "embedded":
        yield origin.redis_url
        return
    with claimed(origin.data_dir) as idle:
        if not idle:
            url = living_redis(origin.data_dir)
            if url is None:
                raise WorkingMemoryUnavailable("the embedded Redis does not answer")
            yield url
        elif not (origin.data_dir / REDIS).is_dir():
            yield None
        else:
            server = EmbeddedRedis(origin.data_dir)
            server.start()
            try:
                yield server.url
            finally:
                server.stop()


def _copy_settings(origin: Origin, target: Path) -> None:
    """Copy the settings file and the policies, laid out as they are around the settings file."""
    target.mkdir(mode=0o700)
    base = origin.config_file.parent if origin.config_file else Path.cwd()
    if origin.config_file is not None and origin.config_file.is_file():
        shutil.copyfile(origin.config_file, target / "config.yaml")
    for number, path in enumerate(origin.policies):
        if path.is_relative_to(base):
            place = target / path.relative_to(base)
        elif path.is_relative_to(shipped()):
            continue
        else:
            place = target / _ELSEWHERE / f"{number}-{path.name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, place, dirs_exist_ok=True, ignore=_not_yaml)
        elif path.is_file():
            shutil.copyfile(path, place)


def _not_yaml(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not (Path(folder, name).is_dir() or name.endswith((".yaml", ".yml")))}


def _contents(work: Path) -> dict[str, archive.Content]:
    found = {}
    for path in sorted(work.rglob("*")):
        if path.is_dir():
            path.chmod(0o700)
        else:
            path.chmod(0o600)
            found[path.relative_to(work).as_posix()] = archive.content_of(path)
    for path in (*(each for each in work.rglob("*") if each.is_dir()), work):
        archive.sync_folder(path)
    return found


def _rotate(folder: Path, owner: str, keep: int | None) -> None:
    backups = archive.complete(folder, owner)
    for old in backups[: max(0, len(backups) - keep)] if keep is not None else ():
        archive.remove(old.path)
        log.info("backup_removed", path=str(old.path))
