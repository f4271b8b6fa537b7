"""`/healthz`, `/readyz`, `/metrics`: is it alive, can it relay, how is it doing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from aiohttp import web

from proxy.http.answers import json_answer
from proxy.metrics import Metrics


@dataclass(frozen=True)
class HealthDoor:
    """The doors for machines that watch over us.

    Args:
        degraded: Returns what does not work now, as short names with a sentence each; may wait.
        relaying: Returns whether calls can be relayed.
        metrics: What `/metrics` shows.
        threads: Where `degraded` runs.
        shows_details: Whether `/readyz` tells the sentences too: they name files, which is no business of strangers.
    """

    degraded: Callable[[], Sequence[tuple[str, str]]]
    relaying: Callable[[], bool]
    metrics: Metrics
    threads: ThreadPoolExecutor
    shows_details: bool

    def routes(self) -> list[web.RouteDef]:
        """The three routes."""
        return [
            web.get("/healthz", self.healthz),
            web.get("/readyz", self.readyz),
            web.get("/metrics", self.prometheus),
        ]

    async def healthz(self, request: web.Request) -> web.Response:
        """The process is alive."""
        return json_answer({"status": "ok"})

    async def readyz(self, request: web.Request) -> web.Response:
        """503 only while calls cannot be relayed; memory that is out of order is named, and answers 200."""
        if not self.relaying():
            return json_answer({"status": "stopping", "degraded": []}, status=503)
        found = await asyncio.get_running_loop().run_in_executor(self.threads, self.degraded)
        body = {"status": "ready", "degraded": [name for name, _ in found]}
        return json_answer({**body, "details": dict(found)} if self.shows_details else body)

    async def prometheus(self, request: web.Request) -> web.Response:
        """Prometheus text format."""
        return web.Response(body=self.metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4"})
