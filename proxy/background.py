"""Background tasks with an owner: what starts here also stops here, and no failure goes unseen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

log = structlog.get_logger(__name__)
_DRAIN_S = 5.0


class Background:
    """Background tasks with an owner: services run until the end, jobs until they are done."""

    def __init__(self) -> None:
        self._jobs: set[asyncio.Task[Any]] = set()
        self._services: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a job; its failure is logged and stays its own."""
        return self._start(work, self._jobs)

    def service(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a service; it is cancelled at the end."""
        return self._start(work, self._services)

    async def close(self) -> None:
        """Let jobs end (they are short), then cancel the services."""
        if self._jobs:
            await asyncio.wait(self._jobs, timeout=_DRAIN_S)
        tasks = [*self._jobs, *self._services]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, Any], among: set[asyncio.Task[Any]]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(_report)
        return task


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background_task_failed", error_type=type(error).__name__, exc_info=error)


@asynccontextmanager
async def background() -> AsyncIterator[Background]:
    group = Background()
    try:
        yield group
    finally:
        await group.close()
