"""The policies in force, and their replacement when files change: all checked first, then swapped as a whole.

In: folders and files. Out: `PolicyHolder.current`, always a set that loaded without a mistake.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from watchfiles import awatch

from proxy.errors import PolicyError
from proxy.policy.load import load, policy_files
from proxy.policy.rules import PolicySet

LOOK_AGAIN_MS = 2_000
DEBOUNCE_MS = 200
STEP_MS = 50

Signature = tuple[tuple[str, int, int], ...]


class PolicyHolder:
    """Holds the live set; readers take `current` once per event and keep it.

    Args:
        paths: Folders and files, as for `load`.
        models: Names under `models:` in config.yaml.
        on_change: Called with the new set after each swap.
        on_refused: Called with the message when a reload is refused.

    Raises:
        PolicyError: The first load failed; there is no old set to keep.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        models: Collection[str] = (),
        on_change: Callable[[PolicySet], None] | None = None,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._models = tuple(models)
        self._on_change = on_change
        self._on_refused = on_refused
        self._lock = threading.Lock()
        self._signature = self._signed()
        self._error: str | None = None
        self._current = load(self._paths, models=self._models)

    @property
    def current(self) -> PolicySet:
        """The set in force."""
        return self._current

    @property
    def error(self) -> str | None:
        """Why the newest files are not in force; None when they are."""
        return self._error

    def reload(self) -> bool:
        """Load again; keep the old set when anything is wrong.

        Returns:
            Whether the files are in force now.
        """
        with self._lock:
            self._signature = self._signed()
            try:
                fresh = load(self._paths, models=self._models)
            except PolicyError as error:
                self._error = str(error)
                if self._on_refused is not None:
                    self._on_refused(self._error)
                return False
            self._error = None
            self._current = fresh
        if self._on_change is not None:
            self._on_change(fresh)
        return True

    async def watch(self, stop: asyncio.Event) -> None:
        """Reload whenever a policy file changes, until `stop` is set.

        Changes made before watching began, or on a file system that tells nothing, are found by looking again every
        few seconds.
        """
        await self._reload_if_changed()
        watched = {path if path.is_dir() else path.parent for path in self._paths}
        changes = awatch(
            *(path for path in watched if path.is_dir()),
            stop_event=stop,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            rust_timeout=LOOK_AGAIN_MS,
            yield_on_timeout=True,
        )
        async for _ in changes:
            await self._reload_if_changed()

    async def _reload_if_changed(self) -> None:
        if self._signed() != self._signature:
            await asyncio.to_thread(self.reload)

    def _signed(self) -> Signature:
        found = []
        for file, _ in policy_files(self._paths):
            try:
                status = file.stat()
            except OSError:
                continue
            found.append((str(file), status.st_mtime_ns, status.st_size))
        return tuple(found)
