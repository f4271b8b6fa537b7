"""What happens to memories when nobody calls: sessions end, schedules run, records are swept.

In: the layers and write-back. Out: `Ending` for the doors, and services that run as long as the house stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any

import structlog

from proxy.ending import Ending
from proxy.episodes import episodes
from proxy.errors import SidemirrorError
from proxy.plugs import Store
from proxy.policy.rules import PolicySet, Rule
from proxy.remember import Remember
from proxy.schedule import keep_schedules
from proxy.sweep import Sweep

log = structlog.get_logger(__name__)
_LOOK_S = 30.0
_LOOKS_PER_IDLE = 4


@dataclass(frozen=True)
class Life:
    """The background life of memories.

    Args:
        ending: Ends sessions.
        sweep: Runs sweeps.
        store: Long-term layer.
        remember: Writes what events come to.
        policies: Returns the live policy set.
        clock: Returns now, aware UTC.
        zone: `identity.timezone`.
        threads: Where it works: one thread, so that nothing of it runs twice at a time.
        idle_s: `session.idle_s`.
    """

    ending: Ending
    sweep: Sweep
    store: Store
    remember: Remember
    policies: Callable[[], PolicySet]
    clock: Callable[[], datetime]
    zone: tzinfo
    threads: ThreadPoolExecutor
    idle_s: float

    def services(self, stop: asyncio.Event) -> Iterator[Coroutine[Any, Any, None]]:
        """What is to run until `stop` is set."""
        yield self._end_idle_sessions(stop)
        yield keep_schedules(self.policies, self.sweep, self.clock, self.zone, stop, self.threads, on_time=self.on_time)

    async def _end_idle_sessions(self, stop: asyncio.Event) -> None:
        loop, pause_s = asyncio.get_running_loop(), min(_LOOK_S, self.idle_s / _LOOKS_PER_IDLE)
        while not stop.is_set():
            told = await loop.run_in_executor(self.threads, self._ended)
            if not told:
                try:
                    await asyncio.wait_for(stop.wait(), pause_s)
                except TimeoutError:
                    continue

    def _ended(self) -> int:
        """Top of the loop: what fails is told, and tried again at the next look."""
        try:
            return self.ending.run()
        except SidemirrorError as error:
            log.warning("idle_sessions_not_ended", error_type=type(error).__name__, hint=str(error))
        except Exception as error:
            log.error("idle_sessions_not_ended", error_type=type(error).__name__, exc_info=error)
        return 0

    def on_time(self, policies: PolicySet, rule: Rule, since: datetime, now: datetime) -> None:
        """Put what each owner lived through before a schedule rule that is no sweep.

        Args:
            policies: The set in force.
            rule: Which; only this one is put to it.
            since, now: What happened after the one and up to the other counts.
        """
        alone = replace(policies, triggers=(rule,))
        for owner in self.store.owners():
            for scope, event in episodes(self.store.survey(owner), since, now):
                self.remember.happened(scope, event, policies=alone)
