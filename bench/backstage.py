"""What goes on behind a play: the product goes by the play's clock in all it does, and its write-back is timed.

The product looks every half minute whether a session has ended or a sweep is due; a play's days pass in seconds. So
the stage does the looking, whenever the play's time has gone on, and nothing depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from types import ModuleType
from typing import Any
from unittest.mock import patch

from proxy import layers
from proxy.life import Life
from proxy.plugs import JournalTurn
from proxy.remember import Remember
from proxy.schedule import Schedules
from proxy.types import Outcome

Clock = Callable[[], datetime]


class Backstage:
    """Stands in for the product's own clock and for what it does in the background.

    Args:
        clock: The play's.
    """

    def __init__(self, clock: Clock) -> None:
        self.turn_cpu_s: list[float] = []
        """CPU seconds of each turn's write-back on its own thread, in order."""
        self._clock = clock
        self._life: Life | None = None
        self._schedules: Schedules | None = None

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """While this lasts, a product that is started goes by the play's clock."""
        with ExitStack() as stack:
            for part in _clocked():
                stack.enter_context(patch.object(part, "utc_now", self._clock))
            stack.enter_context(patch.object(Life, "services", self._services()))
            stack.enter_context(patch.object(Remember, "turn", self._timed(Remember.turn)))
            yield

    async def catch_up(self) -> None:
        """End the sessions that have gone idle by now, and run the sweeps that are due."""
        assert self._life is not None
        await asyncio.get_running_loop().run_in_executor(self._life.threads, self._look)

    def _look(self) -> None:
        assert self._life is not None
        assert self._schedules is not None
        while self._life.ending.run():
            pass
        self._schedules.run_due()

    def _services(self) -> Callable[[Life, asyncio.Event], Iterator[Coroutine[Any, Any, None]]]:
        def services(life: Life, stop: asyncio.Event) -> Iterator[Coroutine[Any, Any, None]]:
            self._life = life
            self._schedules = Schedules(life.policies, life.sweep, life.clock, life.zone, life.on_time)
            return iter(())

        return services

    def _timed(
        self, write: Callable[[Remember, JournalTurn], tuple[Outcome, ...]]
    ) -> Callable[[Remember, JournalTurn], tuple[Outcome, ...]]:
        def timed(remember: Remember, turn: JournalTurn) -> tuple[Outcome, ...]:
            started = time.thread_time()
            try:
                return write(remember, turn)
            finally:
                self.turn_cpu_s.append(time.thread_time() - started)

        return timed


def _clocked() -> list[ModuleType]:
    """The modules that hand the house's clock on to its parts."""
    real = layers.utc_now
    ours = [module for name, module in sys.modules.items() if name.startswith("proxy.")]
    return [module for module in ours if vars(module).get("utc_now") is real]
