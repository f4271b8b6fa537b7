"""What takes long to work out, yet follows from the code alone: kept beside the byte code, as Python keeps modules.

The `regex` engine compiles patterns in Python: those of the shipped policies took longer than all else at start, and
take a fiftieth of that when they are read in compiled. In: a key, and how to work its value out. Out: the value.
`python -m proxy.ahead` fills the shelf; else the first start does, where it may write. A shelf that is missing, torn or
old costs time, nothing else.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Final, TypeVar

import regex

T = TypeVar("T")
Key = tuple[str | int, ...]
_MOST: Final = 8_192
_DIGEST_BYTES: Final = 32


class Shelf:
    """Values by key, in one file.

    Args:
        path: Of the file. Whoever can write it can run code here, as with byte code.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[Key, bytes] | None = None
        self._used: dict[Key, Any] = {}
        self._lacking = False

    def get(self, key: Key, make: Callable[[], T]) -> T:
        """The value of a key: from the shelf, or else made and remembered.

        Args:
            key: All that the value follows from: a change in any of it must change the key.
            make: Works the value out; it can be pickled. What it raises is raised.
        """
        if key in self._used:
            found: T = self._used[key]
            return found
        if self._kept is None:
            self._kept = self._read()
        if (data := self._kept.get(key)) is not None:
            value: T = pickle.loads(data)  # noqa: S301 - as trusted as the byte code that lies beside it
        else:
            value = make()
            self._lacking = True
        if len(self._used) < _MOST:
            self._used[key] = value
        return value

    def lacks_some(self) -> bool:
        """Whether something had to be made that the file does not hold."""
        return self._lacking

    def save(self) -> None:
        """Write what was used, and as much as there is room for of what was there before.

        Raises:
            OSError: It cannot be written; what was there is as before.
        """
        kept = self._kept or {}
        used = {key: kept.get(key) or pickle.dumps(value) for key, value in list(self._used.items())}
        others = [(key, data) for key, data in kept.items() if key not in used]
        content = pickle.dumps(used | dict(others[: max(0, _MOST - len(used))]))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_name(f"{self.path.name}.{os.getpid()}")  # others may start at the same time
        try:
            half.write_bytes(hashlib.sha256(content).digest() + content)
            half.replace(self.path)
        finally:
            half.unlink(missing_ok=True)
        self._lacking = False

    def _read(self) -> dict[Key, bytes]:
        try:
            whole = self.path.read_bytes()
        except OSError:
            return {}
        digest, content = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            return {}
        kept: dict[Key, bytes] = pickle.loads(content)  # noqa: S301 - as above
        return kept


SHELF: Final = Shelf(Path(cache_from_source(__file__)).with_suffix(".kept"))
"""The installation's own."""


def compiled(pattern: str, flags: int = 0) -> regex.Pattern[str]:
    """`regex.compile`, from the shelf.

    Args:
        pattern: As written.
        flags: Of the `regex` module.

    Raises:
        regex.error: The pattern is broken.
    """
    key = ("pattern", regex.__version__, int(flags), pattern)
    return SHELF.get(key, lambda: regex.compile(pattern, flags))


def digest_of(source: str) -> str:
    """What a module's code is known by, for the keys of what it works out.

    Args:
        source: The module's `__file__`.
    """
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()


def save_if_allowed() -> None:
    """Keep what this process had to work out for the next one, where Python would keep byte code.

    Raises:
        OSError: As `Shelf.save`.
    """
    if SHELF.lacks_some() and not sys.dont_write_bytecode:
        SHELF.save()
