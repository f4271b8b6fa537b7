"""Putting a backup back in the place of the present data, which is moved aside and never deleted.

In: a verified backup, and where the data lives. Out: what was restored. Everything is made ready beside the present
data first; until then nothing of it has changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from proxy.backup import archive
from proxy.backup.archive import SETTINGS, WORKING, Backup, Told
from proxy.errors import SidemirrorError, WorkingMemoryUnavailable
from proxy.store import working_copy
from proxy.store.data_dir import DATABASE, LOCK, SECRET, claimed
from proxy.store.database_copy import forgotten_since
from proxy.store.embedded_redis import EmbeddedRedis

_AHEAD = "restoring"
_ASIDE = "before-restore"


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    Args:
        backup: From what.
        aside: Where the former data is now; None when there was none.
        working_keys: Keys of working memory that had not expired; None when the backup holds no working memory.
        forgotten_since: How many things were forgotten after the backup was made, and are back now.
    """

    backup: Backup
    aside: Path | None
    working_keys: int | None
    forgotten_since: int


def restore(backup: Backup, data_dir: Path, redis_url: str, *, now: datetime, told: Told) -> Restored:
    """Put a backup in the place of the present data.

    Args:
        backup: From `archive.open_backup`; it is verified here before anything else.
        data_dir: Where the data lives; may be missing.
        redis_url: ``embedded``, or the URL of a Redis, whose keys of ours are replaced.
        now: For the names of folders.
        told: Told of progress; what it raises ends the work.

    Raises:
        SidemirrorError: Nothing was changed, unless the message says so.
    """
    archive.verify(backup, told)
    data_dir = data_dir.resolve()
    with claimed(data_dir) as idle:
        if not idle:
            raise SidemirrorError(f"a Sidemirror works on {data_dir}: stop it, then restore")
        try:
            return _restored(backup, data_dir, redis_url, f"{now:%Y%m%dT%H%M%SZ}", told)
        except OSError as error:
            raise SidemirrorError(
                f"{backup.path} was not restored: {error.strerror or error}; if {data_dir} is missing now, its data is "
                f"in {data_dir.name}.{_ASIDE}-… beside it"
            ) from error


def _restored(backup: Backup, data_dir: Path, redis_url: str, stamp: str, told: Told) -> Restored:
    # A volume cannot be renamed, nor can what lies in a folder of somebody else's; what is in it can be moved inside.
    fixed = os.path.ismount(data_dir) or (data_dir.exists() and not os.access(data_dir.parent, os.W_OK))
    ahead, aside = (_beside(data_dir, f"{word}-{stamp}", inside=fixed) for word in (_AHEAD, _ASIDE))
    had_data = data_dir.exists()
    since = forgotten_since(data_dir / DATABASE, backup.path / DATABASE)
    embedded = redis_url == "embedded"
    with _working(backup) as entries:
        try:
            _prepare(backup, ahead, told)
            if embedded:
                keys = _load_embedded(entries, ahead)
            else:
                _keep_present_working(redis_url, data_dir / f"working.{_ASIDE}.jsonl" if had_data else None)
        except BaseException:
            shutil.rmtree(ahead, ignore_errors=True)
            raise
        if fixed:
            _swap_contents(data_dir, ahead, aside)
        else:
            if had_data:
                data_dir.rename(aside)
            ahead.rename(data_dir)
        archive.sync_folder(data_dir if fixed else data_dir.parent)
        if not embedded:
            keys = _load_late(entries, redis_url)
    return Restored(backup, aside if had_data else None, keys, since)


@contextmanager
def _working(backup: Backup) -> Iterator[Iterable[bytes] | None]:
    """The lines of working memory; read from an open file, since the backup may lie in the folder that is moved."""
    if backup.manifest.working_keys is None:
        yield None
        return
    with (backup.path / WORKING).open("rb") as file:
        yield file


def restore_settings(backup: Backup, folder: Path) -> list[Path]:
    """Put the backed up settings file and policies into a folder, where there are none of the same name.

    Returns:
        What was written.

    Raises:
        SidemirrorError: They cannot be written there.
    """
    names = [name for name in sorted(backup.manifest.files) if name.startswith(f"{SETTINGS}/")]
    places = {folder / Path(name).relative_to(SETTINGS): backup.path / name for name in names}
    written = [place for place in places if not place.exists()]
    try:
        for place in written:
            place.parent.mkdir(parents=True, exist_ok=True)
            with archive.new_file(place) as file:
                file.write(places[place].read_bytes())
    except OSError as error:
        raise SidemirrorError(
            f"the settings cannot be put into {folder} ({error.strerror}); they are in {backup.path / SETTINGS}"
        ) from error
    return written


def _beside(data_dir: Path, word: str, *, inside: bool) -> Path:
    place = data_dir / word if inside else data_dir.with_name(f"{data_dir.name}.{word}")
    if place.exists():
        raise SidemirrorError(f"{place} exists: another restore began this very second; run it again")
    return place


def _prepare(backup: Backup, ahead: Path, told: Told) -> None:
    ahead.parent.mkdir(parents=True, exist_ok=True)
    ahead.mkdir(mode=0o700)
    for number, name in enumerate((DATABASE, SECRET), start=1):
        shutil.copyfile(backup.path / name, ahead / name)
        (ahead / name).chmod(0o600)
        if archive.content_of(ahead / name) != backup.manifest.files[name]:
            raise SidemirrorError(f"{name} changed on its way to {ahead}: check that disk; nothing was changed")
        told("copying", number, 2)
    archive.sync_folder(ahead)


def _load_embedded(entries: Iterable[bytes] | None, ahead: Path) -> int | None:
    if entries is None:
        return None
    server = EmbeddedRedis(ahead)
    server.start()
    try:
        return _load(entries, server.url)
    finally:
        server.stop()


def _load(entries: Iterable[bytes] | None, url: str) -> int | None:
    if entries is None:
        return None
    with working_copy.connected(url) as client:
        working_copy.clear(client)
        return working_copy.put(client, entries)


def _load_late(entries: Iterable[bytes] | None, url: str) -> int | None:
    try:
        return _load(entries, url)
    except WorkingMemoryUnavailable as error:
        raise SidemirrorError(
            f"memories are restored, working memory is not: {error}; restore once more when Redis answers"
        ) from error


def _keep_present_working(url: str, target: Path | None) -> None:
    """See that Redis answers before anything changes, and write down what it holds of ours."""
    with working_copy.connected(url) as client:
        if target is not None:
            target.unlink(missing_ok=True)
            with archive.new_file(target) as file:
                file.writelines(working_copy.lines(client))


def _swap_contents(data_dir: Path, ahead: Path, aside: Path) -> None:
    aside.mkdir(mode=0o700)
    for entry in list(data_dir.iterdir()):
        # The lock stays, so that nobody starts half way; what earlier restores moved aside stays where it is.
        if entry.name != LOCK and entry not in (ahead, aside) and not entry.name.startswith(_ASIDE):
            entry.rename(aside / entry.name)
    for entry in list(ahead.iterdir()):
        entry.rename(data_dir / entry.name)
    with suppress(OSError):
        ahead.rmdir()


__all__ = ["Restored", "restore", "restore_settings"]
