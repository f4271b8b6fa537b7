"""The partitions in use: read from the store on first use, kept up to date with each commit, the oldest ones let go.

In: a partition's name, then the changes of each commit. Out: immutable `Snapshot`s. Small partitions are held whole;
of large ones an index file holds the vectors, made and remade in the background. All of it is a cache of the store.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from proxy.store.build import build
from proxy.store.contents import Contents
from proxy.store.filed import Filed
from proxy.store.index_file import IndexFiles
from proxy.store.partition import Entry, Partition, Snapshot
from proxy.store.upkeep import Upkeep

log = structlog.get_logger(__name__)
CHURN = 0.3

_ALL = ""

Held = Partition | Filed
_Change = Callable[[Held], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is held; above it, the partitions used longest ago are let go, to be read again when needed.

    Args:
        nbytes: In memory.
        files: Open at once.
        file_bytes: Of these files together.
    """

    nbytes: int = 256 * 1024 * 1024
    files: int = 64
    file_bytes: int = 4 * 1024 * 1024 * 1024


class _Slot:
    """A partition in use.

    `lock` guards what is below it, and is held for moments only. `reading` is held while the partition is read from the
    store; commits meanwhile do not wait but leave their changes in `missed`. Every change may be applied twice.
    """

    __slots__ = ("held", "lock", "missed", "reading")

    def __init__(self) -> None:
        self.reading = threading.Lock()
        self.lock = threading.Lock()
        self.held: Held | None = None
        self.missed: list[_Change] | None = None


class VectorIndex:
    """All partitions in use. Safe to use from any thread.

    Args:
        contents: Of the store.
        files: The index files.
        dimension: Vector length.
        exact_below: A partition of at most this many vectors has no file.
        limits: How much is held.

    Attributes:
        churn: Share of changed records above which a file is made anew.
    """

    def __init__(
        self, contents: Contents, files: IndexFiles, dimension: int, exact_below: int, limits: Limits | None = None
    ) -> None:
        self._contents = contents
        self._files = files
        self._dimension = dimension
        self._exact_below = exact_below
        self._limits = limits or Limits()
        self.churn = CHURN
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._sizes: dict[str, tuple[int, int]] = {}
        self._nbytes = self._file_bytes = self._open_files = 0
        self._erasures = Counter[str]()
        self._undropped: set[str] = set()
        self._lock = threading.Lock()
        self._upkeep = Upkeep(self._renew)

    def snapshots(self, partition: str) -> tuple[Snapshot, ...]:
        """What to search in a partition, as of the last commit.

        Args:
            partition: Its name.

        Raises:
            StoreUnavailable: It is not in memory and cannot be read.
        """
        with self._lock:
            slot = self._slots.get(partition)
            if slot is None:
                slot = self._slots[partition] = _Slot()
            self._slots.move_to_end(partition)
        held = slot.held
        if held is None:
            with slot.reading:
                held = slot.held or self._read(partition, slot)
            self._let_go()
        elif self._upkeep.trouble() is not None and self._due(held):
            self._upkeep.request(partition)
        return held.parts

    def put(self, partition: str, entry: Entry) -> None:
        """A commit added or changed an active record."""
        self._contents.changed(entry.row)
        self._change(partition, lambda held: held.put(entry))

    def remove(self, partition: str, row: int) -> None:
        """A commit took a record out of the active ones."""
        self._contents.changed(row)
        self._change(partition, lambda held: held.remove(row))

    def erase(self, partition: str, *, committed: bool = True) -> None:
        """A record's vector is to be in no file any more: the file goes at once, and is made anew in the background.

        To be called before the commit, so that no crash leaves the file, and after it, so that a file which was built
        meanwhile goes as well. Until the new one is there, searches go on in the nameless copy of the old.
        """
        with self._lock:
            self._erasures[partition] += 1
            slot = self._slots.get(partition)
        self._drop(partition)
        if committed and slot is not None and isinstance(slot.held, Filed):
            slot.held.stale = True
            self._upkeep.request(partition)

    def renew_all(self) -> None:
        """Drop everything held and every file; all that should have a file gets a new one in the background."""
        with self._lock:
            self._slots.clear()
            self._sizes.clear()
            self._nbytes = self._file_bytes = self._open_files = 0
        self._contents.changed_all()
        self._upkeep.forgive()
        for partition in self._files.partitions():
            self.erase(partition)
        self._upkeep.request(_ALL)

    def drop_foreign(self) -> None:
        """Remove the files of other models, which nothing needs once every record has a vector of this one."""
        self._files.drop_foreign()

    def trouble(self) -> str | None:
        """What keeps large partitions from being searched by their files; None when nothing does."""
        if self._undropped:
            return (
                "an index file that holds erased vectors cannot be removed: check the permissions of the index folder"
            )
        with self._lock:
            held = [slot.held for slot in self._slots.values()]
        exact = sum(isinstance(one, Partition) and self._due(one) for one in held)
        waiting = f"{exact} large scopes are searched exactly until their index is built" if exact else None
        return self._upkeep.trouble() or waiting

    def settle(self, timeout_s: float) -> bool:
        """Wait for the background work; False when it goes on longer than that."""
        return self._upkeep.settle(timeout_s)

    def close(self) -> None:
        """Stop the background work."""
        self._upkeep.close()

    # ── partitions in memory ───────────────────────────────────────────────────────────────────────────────────
    def _read(self, partition: str, slot: _Slot) -> Held:
        """Fill a slot from the store; its `reading` is held."""
        erasures = self._erasures[partition]
        with slot.lock:
            slot.missed = []
        try:
            held = self._opened(partition)
        except BaseException:
            with slot.lock:
                slot.missed = None
            raise
        with slot.lock:
            for change in slot.missed or ():
                change(held)
            if isinstance(held, Filed) and self._erasures[partition] != erasures:
                held.stale = True
            slot.held, slot.missed = held, None
        self._size(partition, slot)
        if self._due(held):
            self._upkeep.request(partition)
        return held

    def _opened(self, partition: str) -> Held:
        file = self._files.open(partition)
        if file is None:
            return Partition(self._contents.chunks(partition), self._dimension)
        held = Filed(file, self._contents.chunks(partition), self._dimension)
        if held.vectors > self._exact_below:
            return held
        self._drop(partition)
        return Partition(self._contents.chunks(partition), self._dimension)

    def _change(self, partition: str, change: _Change) -> None:
        with self._lock:
            slot = self._slots.get(partition)
        if slot is None:
            return
        with slot.lock:
            if slot.missed is not None:
                slot.missed.append(change)
            if slot.held is None:
                return
            change(slot.held)
            due = self._due(slot.held)
        self._size(partition, slot)
        if due:
            self._upkeep.request(partition)

    def _due(self, held: Held) -> bool:
        if isinstance(held, Filed):
            return held.stale or held.churn > self.churn
        return held.vectors > self._exact_below

    # ── how much is held ───────────────────────────────────────────────────────────────────────────────────────
    def _size(self, partition: str, slot: _Slot) -> None:
        held = slot.held
        if held is None:
            return
        size = held.nbytes, held.file.nbytes if isinstance(held, Filed) else 0
        if self._sizes.get(partition) != size:
            with self._lock:
                if self._slots.get(partition) is slot:
                    self._count(self._sizes.get(partition, (0, 0)), -1)
                    self._sizes[partition] = size
                    self._count(size, 1)

    def _count(self, size: tuple[int, int], sign: int) -> None:
        nbytes, file_bytes = size
        self._nbytes += sign * nbytes
        self._file_bytes += sign * file_bytes
        self._open_files += sign * bool(file_bytes)

    def _let_go(self) -> None:
        with self._lock:
            for name in list(self._slots)[:-1] if self._too_full() or self._too_many_files() else ():
                nbytes, file_bytes = self._sizes.get(name, (0, 0))
                if (self._too_full() and nbytes) or (self._too_many_files() and file_bytes):
                    del self._slots[name]
                    self._count(self._sizes.pop(name), -1)

    def _too_full(self) -> bool:
        return self._nbytes > self._limits.nbytes

    def _too_many_files(self) -> bool:
        return self._open_files > self._limits.files or self._file_bytes > self._limits.file_bytes

    # ── files ──────────────────────────────────────────────────────────────────────────────────────────────────
    def _renew(self, partition: str, go_on: Callable[[], bool]) -> None:
        """Make a partition's file anew, if that is still due; on the upkeep thread."""
        if partition == _ALL:
            for name in self._contents.large_partitions(self._exact_below):
                self._upkeep.request(name)
            return
        with self._lock:
            slot, erasures = self._slots.get(partition), self._erasures[partition]
        held = None if slot is None else slot.held
        if not self._due(held) if held is not None else self._files.present(partition):
            return

        def unerased() -> bool:
            return self._erasures[partition] == erasures

        built = build(self._contents, partition, self._dimension, lambda: go_on() and unerased())
        if built is not None and not self._files.publish(partition, built, unerased):
            built = None
        if not unerased():
            self._upkeep.request(partition)  # what was read of the erased record must not come back
        elif go_on():
            if built is None:
                self._drop(partition)
            else:
                log.info("index_built", partition=partition, count=len(built.rows))
            if slot is not None and held is not None:
                with slot.reading:
                    self._read(partition, slot)

    def _drop(self, partition: str) -> None:
        try:
            self._files.drop(partition)
            self._undropped.discard(partition)
        except OSError as error:
            self._undropped.add(partition)
            log.error("index_file_not_removed", partition=partition, error_type=type(error).__name__)
