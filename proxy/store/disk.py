"""Plain files, read with suspicion and written down to the disk.

In: paths and bytes. Out: open files and checksums. What stands in a file's place may be anything.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 20


def regular(path: Path) -> BinaryIO:
    """Open a plain file for reading. A pipe in its place must not block, and a link must not lead elsewhere.

    Raises:
        OSError: It cannot be opened.
        ValueError: It is no plain file.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is no plain file")
    return os.fdopen(descriptor, "rb")


def pour(source: BinaryIO, write: Callable[[bytes], object], sha256: str) -> None:
    """Hand a file's bytes on, to its end.

    Raises:
        ValueError: Their checksum is another one.
    """
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        write(chunk)
    if digest.hexdigest() != sha256:
        raise ValueError("the checksum does not match")


def create(path: Path) -> BinaryIO:
    """A new private file, in the place of one of that name."""
    with suppress(FileNotFoundError):
        path.unlink()
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write_synced(file: BinaryIO, parts: Sequence[bytes | bytearray | memoryview]) -> str:
    """Write a file down to the disk, and close it.

    Returns:
        The SHA-256 of what was meant to be written.
    """
    digest = hashlib.sha256()
    with file:
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), CHUNK_BYTES):
                digest.update(view[start : start + CHUNK_BYTES])
                file.write(view[start : start + CHUNK_BYTES])
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def replace(new: Path, place: Path) -> None:
    """Rename a file into its place. A folder that stands there is put aside, unopened."""
    if place.is_dir() and not place.is_symlink():
        place.rename(place.with_name(f"{place.name}.aside"))
    new.replace(place)


def sync_folder(folder: Path) -> None:
    """Have the folder's names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
