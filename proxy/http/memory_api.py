"""The memory API, put together from its doors: every route below `/memory`, `/debug/memories`, and their description.

Every read takes a `Scope`, every write `Remember` (an import its lock), and every handler runs behind the gate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from aiohttp import web

from proxy.http.errors import not_supported_yet
from proxy.http.gate import Gate
from proxy.http.memory.calls import CallsDoor
from proxy.http.memory.entrance import Entrance
from proxy.http.memory.house import HouseDoor
from proxy.http.memory.idempotency import Idempotency
from proxy.http.memory.policies import PoliciesDoor
from proxy.http.memory.records import RecordsDoor
from proxy.http.memory.review import ReviewDoor
from proxy.http.memory.search import SearchDoor
from proxy.http.memory.sessions import SessionsDoor
from proxy.http.memory.transfer import TransferDoor
from proxy.http.memory.turns import TurnsDoor
from proxy.http.openapi import ELSEWHERE, OpenApiDoor
from proxy.http.operation import Route
from proxy.metrics import Metrics
from proxy.plugs import Store, WorkingMemory
from proxy.policy.knowledge import Knowledge
from proxy.policy.rules import PolicySet
from proxy.recall import Recall
from proxy.record import Failure
from proxy.rehearsal import Rehearsal
from proxy.remember import Remember
from proxy.retelling import Retelling
from proxy.scope import Scope
from proxy.transfer.importer import Importer

_LATER = (("*", "/ui"),)


@dataclass(frozen=True)
class Access:
    """Who sees what, as config.yaml has it.

    Args:
        debug: `debug`: opens `/debug/memories`.
        keyed: Whether keys are on.
        shows_details: Whether every caller may see where policy files lie, and what is wrong in them.
        min_confidence: `recall.min_confidence`.
    """

    debug: bool
    keyed: bool
    shows_details: bool
    min_confidence: float


@dataclass(frozen=True)
class MemoryApi:
    """Our own endpoints.

    Args:
        store, working, recall, rehearsal, remember, importer, retelling: The parts they hand requests to.
        end: Ends a session because its user says so.
        drain: Waits until what was said so far is written.
        failure: Returns the account of a call that could not be journalled, by its owner and id.
        policies: Returns the live policy set.
        refused: Returns why the newest policy files are not in force.
        knowledge: For an owner, what policy conditions may ask of their memories.
        clock: Returns now, aware UTC.
        metrics: Knows where recalls were answered.
        threads: Where the parts, which wait, run.
        gate: Tells who asks, and whose memories are meant.
        access: Who sees what.
    """

    store: Store
    working: WorkingMemory
    recall: Recall
    rehearsal: Rehearsal
    remember: Remember
    importer: Importer
    retelling: Retelling
    end: Callable[[Scope], bool]
    drain: Callable[[], Awaitable[None]]
    failure: Callable[[Scope, str], Failure | None]
    policies: Callable[[], PolicySet]
    refused: Callable[[], str | None]
    knowledge: Callable[[Scope], Knowledge]
    clock: Callable[[], datetime]
    metrics: Metrics
    threads: ThreadPoolExecutor
    gate: Gate
    access: Access

    def routes(self) -> list[web.RouteDef]:
        """Every route, and those that a later version brings."""
        entrance = Entrance(self.gate, self.store, self.threads)
        opened = self._doors(entrance)
        described = OpenApiDoor([*(route.operation for route in opened), *ELSEWHERE]).routes()
        return [*(entrance.open(route) for route in [*opened, *described]), *self._later()]

    def _doors(self, entrance: Entrance) -> list[Route]:
        store, access, idempotency = self.store, self.access, Idempotency(self.store, self.clock)
        records = RecordsDoor(entrance, store, self.working, self.remember, self.policies, self.clock, idempotency)
        review = ReviewDoor(entrance, store, self.remember, access.min_confidence)
        search = SearchDoor(entrance, self.recall, self.policies, self.clock, self.rehearsal)
        transfer = TransferDoor(entrance, store, self.importer, idempotency)
        turns = TurnsDoor(entrance, self.retelling)
        calls = CallsDoor(entrance, store, self.failure)
        sessions = SessionsDoor(entrance, store, self.working, self.end, self.drain)
        policies = PoliciesDoor(entrance, self.policies, self.refused, self.knowledge, self.clock, access.shows_details)
        house = HouseDoor(entrance, store, self._recalls, access.debug, access.keyed)
        doors = (records, review, search, transfer, turns, calls, sessions, policies, house)
        return [route for door in doors for route in door.routes()]

    def _recalls(self, scope: Scope) -> dict[str, int]:
        return self.metrics.recall_counts(scope.owner)

    def _later(self) -> list[web.RouteDef]:
        async def later(request: web.Request) -> web.StreamResponse:
            self.gate.enter(request, None)
            raise not_supported_yet(f"{request.method} {request.path}")

        return [web.route(method, path, later) for method, path in _LATER]
