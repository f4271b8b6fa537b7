"""The files under ``data/index/``: one of usearch's per large partition, with what proves that it is ours and whole.

In: usearch's bytes with the rows they were built from. Out: the same, verified, or None. ``<partition>.usearch`` holds
usearch's bytes, then the rows (int64) and a mark of each row's vector (uint64, 0 for none), little endian;
``<partition>.json`` is the manifest, written last. A damaged file would answer wrongly, and one that shrinks under a
mapping crashes the process: a file is copied while it is checked, and what is searched is the copy, which has no name
in the folder.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from proxy.store import disk
from proxy.store.marks import Marks
from proxy.store.usearch_file import USEARCH_VERSION, Buffer, UsearchVectors

log = structlog.get_logger(__name__)
FORMAT = 2
_NEW, _COPY = ".new-", ".copy-"
_ALIGNED = 64
_MANIFEST_BYTES = 65_536


class Manifest(BaseModel):
    """What a file must be, in JSON beside it.

    Args:
        format: Of the file and of this manifest.
        usearch: Version that wrote the file.
        partition: Whose.
        fingerprint: Model of the vectors.
        dimension: Their length.
        rows: How many records it was built from.
        vectors: How many of these have a vector.
        highest_row: The newest of them.
        usearch_bytes: Length of what usearch wrote; the rows follow at the next multiple of 64.
        sha256: Of the whole file.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: int
    usearch: str
    partition: str
    fingerprint: str
    dimension: int
    rows: int = Field(ge=1)
    vectors: int = Field(ge=1)
    highest_row: int
    usearch_bytes: int = Field(ge=1)
    sha256: str

    @property
    def rows_at(self) -> int:
        """Where the rows begin."""
        return -(-self.usearch_bytes // _ALIGNED) * _ALIGNED

    @property
    def nbytes(self) -> int:
        """Length of the file."""
        return self.rows_at + 16 * self.rows


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A verified file, as it is searched.

    Args:
        rows: Sorted; a record's position in them is its key to usearch.
        marks: Of the vectors that the file was built from.
        vectors: Of the rows that have one.
        nbytes: Length.
    """

    rows: npt.NDArray[np.int64]
    marks: Marks
    vectors: UsearchVectors
    nbytes: int


@dataclass(frozen=True, slots=True)
class Built:
    """What was just built; `rows` and `marks` as in `IndexFile`, `usearch` is usearch's part of the file."""

    usearch: Buffer
    rows: npt.NDArray[np.int64]
    marks: Marks


class IndexFiles:
    """The folder. Safe to use from any thread.

    Args:
        folder: Made when first needed; whatever else lies there is let be.
        fingerprint: Of the present model.
        dimension: Its vectors' length.
    """

    def __init__(self, folder: Path, fingerprint: str, dimension: int) -> None:
        self._folder = folder
        self._fingerprint = fingerprint
        self._dimension = dimension
        self._lock = threading.Lock()
        self._sweep()

    def open(self, partition: str) -> IndexFile | None:
        """The partition's file, verified; None when there is none that can be trusted.

        Args:
            partition: From `Scope.partition`.
        """
        try:
            manifest = self._manifest(partition)
            memory = self._copied(self._folder / f"{partition}.usearch", manifest)
            rows = np.frombuffer(memory, "<i8", manifest.rows, manifest.rows_at)
            marks = np.frombuffer(memory, "<u8", manifest.rows, manifest.rows_at + rows.nbytes)
            if np.count_nonzero(marks) != manifest.vectors:
                raise ValueError("the manifest tells of another number of vectors")
            vectors = UsearchVectors(memoryview(memory)[: manifest.usearch_bytes], self._dimension, marks != 0)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("index_file_refused", partition=partition, error_type=type(error).__name__, hint=_told(error))
            return None
        return IndexFile(rows, marks, vectors, manifest.nbytes)

    def publish(self, partition: str, built: Built, still_good: Callable[[], bool]) -> bool:
        """Put a new file in the place of the old one. A crash leaves the one or the other, or none.

        Args:
            partition: Whose.
            built: What goes in.
            still_good: Asked once no `drop` can come between.

        Returns:
            Whether it was put there.

        Raises:
            OSError: It cannot be written; the old file is as it was.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new, new_manifest = self._new(partition), self._folder / f"{_NEW}{partition}.json"
        try:
            # Made while nobody drops: from here on `drop` finds it, before here `still_good` knows of the drop.
            with self._lock:
                if not still_good():
                    return False
                file = disk.create(new)
            manifest = self._write(file, partition, built)
            disk.write_synced(disk.create(new_manifest), [manifest.model_dump_json(indent=1).encode()])
            with self._lock:
                if not still_good():
                    return False
                disk.replace(new, self._folder / f"{partition}.usearch")
                disk.replace(new_manifest, self._folder / f"{partition}.json")
            disk.sync_folder(self._folder)
        finally:
            for path in (new, new_manifest):
                with suppress(OSError):
                    path.unlink()
        return True

    def drop(self, partition: str) -> None:
        """Take the partition's file away, and the one that is being written.

        Raises:
            OSError: It is still there.
        """
        with self._lock:
            for path in (*(self._folder / f"{partition}.{one}" for one in ("json", "usearch")), self._new(partition)):
                with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    path.unlink()

    def present(self, partition: str) -> bool:
        """Whether there seems to be a file."""
        return (self._folder / f"{partition}.json").is_file()

    def partitions(self) -> list[str]:
        """Those that seem to have a file."""
        try:
            return sorted(path.stem for path in self._folder.glob("[!.]*.json"))
        except OSError:
            return []

    def drop_foreign(self) -> None:
        """Take away the files of other models. One that stays does no harm: none of them is opened."""
        with self._lock:
            for partition in filter(self._is_foreign, self.partitions()):
                for path in (self._folder / f"{partition}.{one}" for one in ("json", "usearch")):
                    with suppress(OSError):
                        path.unlink()

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────
    def _is_foreign(self, partition: str) -> bool:
        try:
            return self._read_manifest(partition).fingerprint != self._fingerprint
        except (OSError, ValueError):
            return False  # whose it is cannot be told; opening it refuses it

    def _read_manifest(self, partition: str) -> Manifest:
        with disk.regular(self._folder / f"{partition}.json") as file:
            try:
                return Manifest.model_validate_json(file.read(_MANIFEST_BYTES))
            except ValidationError as error:
                raise ValueError("the manifest is not one of ours") from error

    def _manifest(self, partition: str) -> Manifest:
        manifest = self._read_manifest(partition)
        ours = {
            "format": FORMAT,
            "usearch": USEARCH_VERSION,
            "partition": partition,
            "fingerprint": self._fingerprint,
            "dimension": self._dimension,
        }
        if wrong := [name for name, value in ours.items() if getattr(manifest, name) != value]:
            raise ValueError(f"the manifest tells of another {', '.join(wrong)}")
        return manifest

    def _copied(self, path: Path, manifest: Manifest) -> mmap.mmap | bytearray:
        """The file's bytes, verified, where nobody else reaches them: in a nameless file, or failing that in memory."""
        with disk.regular(path) as source:
            if os.fstat(source.fileno()).st_size != manifest.nbytes:
                raise ValueError("the file is not as long as its manifest says")
            try:
                with tempfile.TemporaryFile(dir=self._folder, prefix=_COPY) as copy:
                    disk.pour(source, copy.write, manifest.sha256)
                    copy.flush()
                    return mmap.mmap(copy.fileno(), manifest.nbytes, access=mmap.ACCESS_READ)
            except OSError:
                source.seek(0)
                copied = bytearray()
                disk.pour(source, copied.extend, manifest.sha256)
                return copied

    # ── writing ────────────────────────────────────────────────────────────────────────────────────────────────
    def _new(self, partition: str) -> Path:
        return self._folder / f"{_NEW}{partition}.usearch"

    def _write(self, file: BinaryIO, partition: str, built: Built) -> Manifest:
        usearch_bytes = len(built.usearch)
        padding = bytes(-usearch_bytes % _ALIGNED)
        parts = [built.usearch, padding, built.rows.astype("<i8").tobytes(), built.marks.astype("<u8").tobytes()]
        return Manifest(
            format=FORMAT,
            usearch=USEARCH_VERSION,
            partition=partition,
            fingerprint=self._fingerprint,
            dimension=self._dimension,
            rows=len(built.rows),
            vectors=int(np.count_nonzero(built.marks)),
            highest_row=int(built.rows[-1]),
            usearch_bytes=usearch_bytes,
            sha256=disk.write_synced(file, parts),
        )

    def _sweep(self) -> None:
        """Remove what a crash left half done."""
        with suppress(OSError):
            for path in [*self._folder.glob(f"{_NEW}*"), *self._folder.glob(f"{_COPY}*")]:
                with suppress(OSError):
                    path.unlink()


def _told(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
