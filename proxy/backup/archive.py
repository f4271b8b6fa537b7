"""One backup on disk: a folder with a manifest that says what must be in it, and what that must hash to.

In: folders. Out: manifests, complete backups by age, and an error for whatever is not as its manifest says. A folder
without a manifest, or under a name of work in progress, is no backup.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from proxy.errors import SidemirrorError, StoreUnavailable
from proxy.store import working_copy
from proxy.store.data_dir import DATABASE
from proxy.store.database_copy import read_back
from proxy.store.health import SCHEMA_VERSION

FORMAT = 1
PREFIX = "sidemirror-"
MANIFEST = "manifest.json"
WORKING = "working.jsonl"
SETTINGS = "settings"
UNFINISHED = ".unfinished-"
_CHUNK_BYTES = 1 << 20
_MANIFEST_BYTES = 16 << 20
Told = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is (0 when unknown)."""


class Content(BaseModel):
    """One file of a backup."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    bytes: int = Field(ge=0)
    sha256: str


class Manifest(BaseModel):
    """What a backup is.

    Args:
        format: Of the folder and this file.
        version: Of the Sidemirror that made it.
        schema_version: Of the database.
        installation: Whose (`data_dir.installation`).
        created_at: When, Unix seconds.
        rows: Of the database, by table.
        working_keys: Of working memory; None when Redis did not answer.
        files: Path inside the folder → content, for every file but this one.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: int
    version: str
    schema_version: int
    installation: str
    created_at: float
    rows: Mapping[str, int]
    working_keys: int | None
    files: Mapping[str, Content]


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup."""

    path: Path
    manifest: Manifest


def folder_name(at: datetime) -> str:
    """The name of a backup made at this moment.

    >>> from datetime import UTC
    >>> folder_name(datetime(2026, 11, 30, 3, 0, tzinfo=UTC))
    'sidemirror-20261130T030000Z'
    """
    return f"{PREFIX}{at:%Y%m%dT%H%M%SZ}"


def open_backup(path: Path) -> Backup:
    """Read a backup's manifest, and see that its files are there; `verify` looks into them.

    Raises:
        SidemirrorError: It is no backup, one of another format, or files are missing or too short.
    """
    try:
        manifest = _manifest(path)
    except FileNotFoundError:
        raise SidemirrorError(f"{path} is no backup: there is no {MANIFEST} in it{_hint(path)}") from None
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its manifest is damaged"
        raise SidemirrorError(f"{path} cannot be used: {reason}; take another backup") from error
    if manifest.format != FORMAT:
        raise SidemirrorError(
            f"{path} has format {manifest.format}, this Sidemirror reads {FORMAT}: use version {manifest.version}"
        )
    for name, content in manifest.files.items():
        file = path / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise SidemirrorError(f"{path} cannot be used: its manifest names a file outside of it: {name}")
        if not file.is_file() or file.is_symlink() or file.stat().st_size != content.bytes:
            raise SidemirrorError(f"{path} is damaged: {name} is missing, or not {content.bytes} bytes long")
    if DATABASE not in manifest.files:
        raise SidemirrorError(f"{path} is damaged: its manifest names no database")
    return Backup(path, manifest)


def complete(folder: Path, installation: str | None = None) -> list[Backup]:
    """The complete backups in a folder, oldest first.

    Args:
        folder: May be missing.
        installation: Only this one's; None for all.
    """
    found = []
    for path in folder.glob(f"{PREFIX}*") if folder.is_dir() else ():
        try:
            backup = open_backup(path)
        except SidemirrorError:
            continue
        if installation is None or backup.manifest.installation == installation:
            found.append(backup)
    return sorted(found, key=lambda backup: (backup.manifest.created_at, backup.path.name))


def verify(backup: Backup, told: Told) -> None:
    """Read a whole backup back: every byte against the manifest, every page of the database, every key.

    Raises:
        SidemirrorError: Something is not as the manifest says; the message names it.
    """
    manifest = backup.manifest
    total, done = sum(content.bytes for content in manifest.files.values()), 0
    for name, content in sorted(manifest.files.items()):
        digest = hashlib.sha256()
        try:
            with (backup.path / name).open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    done += len(chunk)
                    told("reading back", done, total)
        except OSError as error:
            raise SidemirrorError(f"{backup.path / name} cannot be read: {error.strerror or error}") from error
        if digest.hexdigest() != content.sha256:
            raise SidemirrorError(f"{backup.path} is damaged: {name} is not what was backed up; take another backup")
    if manifest.schema_version != SCHEMA_VERSION:
        raise SidemirrorError(
            f"{backup.path} holds schema {manifest.schema_version}, this Sidemirror reads {SCHEMA_VERSION}: "
            f"use version {manifest.version}"
        )
    _check_contents(backup.path, manifest.rows, manifest.working_keys, told)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write the manifest, down to the disk."""
    with new_file(path / MANIFEST) as file:
        file.write(manifest.model_dump_json(indent=1).encode())
        sync(file.fileno())


def content_of(file: Path) -> Content:
    """A file's length and hash, read from the disk after it was told to keep it."""
    with file.open("r+b") as opened:
        sync(opened.fileno())
        return Content(bytes=opened.seek(0, os.SEEK_END), sha256=_hash(file))


def remove(path: Path) -> None:
    """Delete a backup, so that a half deleted one is not taken for a whole one."""
    (path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path)


def new_file(path: Path) -> BinaryIO:
    """A file that is not there yet, opened for writing; nobody else on the machine may read it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def sync(descriptor: int) -> None:
    """Have the system write what it holds of a file or folder."""
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Have the system write a folder's entries."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_contents(path: Path, rows: Mapping[str, int], working_keys: int | None, told: Told) -> None:
    try:
        found = read_back(path / DATABASE, lambda done, total: told("checking the database", done, total))
    except StoreUnavailable as error:
        raise SidemirrorError(f"{path} cannot be used: {error}") from error
    if found != rows:
        raise SidemirrorError(f"{path} is damaged: its database holds {found}, not {dict(rows)}")
    if working_keys is None:
        return
    keys = 0
    try:
        with (path / WORKING).open("rb") as file:
            for line in file:
                working_copy.check(line)
                keys += 1
    except (OSError, ValueError) as error:
        raise SidemirrorError(f"{path} is damaged: {WORKING}: {error}") from error
    if keys != working_keys:
        raise SidemirrorError(f"{path} is damaged: it holds {keys} keys of working memory, not {working_keys}")


def _manifest(path: Path) -> Manifest:
    with (path / MANIFEST).open("rb") as file:
        return Manifest.model_validate_json(file.read(_MANIFEST_BYTES))


def _hint(path: Path) -> str:
    inside = complete(path)
    return f"; name one of those inside, the newest is {inside[-1].path}" if inside else ""


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
