"""Re-embedding: records that the present model was not asked about get its vectors, beside all other work.

In: a store and an embedder. Out: vectors in the store, and how many records still wait. What is left to do stands in
the rows themselves, so that a run takes up where another ended, however it ended.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import structlog

from proxy.errors import EmbedderError, SidemirrorError, TextRefused
from proxy.plugs import Embedder, Store
from proxy.store.upkeep import least_pressing
from proxy.types import Vector

log = structlog.get_logger(__name__)
BATCH: Final = 64
LOOK_S: Final = 5.0
_TOLD_S: Final = 10.0
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 60.0
_LONGEST_REST_S: Final = 1.0

Told = Callable[[int, int], None]
"""Told how many records were just embedded, and how many wait."""


def embed_some(store: Store, embedder: Embedder) -> int:
    """Embed the next records that wait.

    Returns:
        How many were given what the model made of their text; 0 when none waits, or all have just changed.

    Raises:
        EmbedderError: The model cannot be used now.
        StoreError: The store cannot.
    """
    batch = store.unembedded(BATCH)
    if not batch:
        return 0
    vectors = _vectors(embedder, [one.content for one in batch])
    return store.embed(list(zip(batch, vectors, strict=True))).result()


def _vectors(embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector | None]:
    try:
        return embedder.documents(texts)
    except TextRefused:
        return [_alone(embedder, text) for text in texts]


def _alone(embedder: Embedder, text: str) -> Vector | None:
    """The vector of one text; None for one that the model takes never."""
    try:
        return embedder.documents([text])[0]
    except TextRefused as refusal:
        try:
            # Not one that was embedded before: what an embedder remembers says nothing of how it does now.
            embedder.documents([f"A plain sentence, number {secrets.token_hex(4)}."])
        except TextRefused:
            raise EmbedderError(f"no text is taken: {refusal}") from refusal
        log.warning("text_refused_by_embedder", hint=str(refusal))
        return None


class Reembedding:
    """Does it in the background, a batch at a time, resting as long as it works.

    Args:
        store: Long-term layer.
        embedder: The present model.
        told: Told of progress.
        look_s: Seconds between two looks while nothing waits.
    """

    def __init__(self, store: Store, embedder: Embedder, told: Told, *, look_s: float = LOOK_S) -> None:
        self._store = store
        self._embedder = embedder
        self._told = told
        self._look_s = look_s
        self._waiting = self._done = 0
        self._tidy = self._begun = False
        self._failed: str | None = None
        self._retry_s = _FIRST_RETRY_S
        self._started_at = self._told_at = 0.0

    def trouble(self) -> str | None:
        """How many records are found by their words only, and why, in one sentence; None when hardly any is."""
        waiting = self._waiting
        if not waiting or (waiting <= BATCH and self._failed is None):
            return None
        why = f"; it rests after a failure: {self._failed}" if self._failed is not None else ""
        return f"{waiting} records are found by their words only until they are embedded{why}"

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set."""
        loop = asyncio.get_running_loop()
        # Not waited for at the end: a batch that an API is busy with ends when the embedder closes.
        threads = ThreadPoolExecutor(1, thread_name_prefix="reembed", initializer=least_pressing)
        try:
            while not stop.is_set():
                pause_s = await loop.run_in_executor(threads, self.step)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause_s)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def step(self) -> float:
        """Embed one batch. Top of the loop: what fails is told, and tried again later.

        Returns:
            Seconds until the next.
        """
        started = time.monotonic()
        try:
            self._look(started)
            done = embed_some(self._store, self._embedder) if self._waiting else 0
        except Exception as error:  # noqa: BLE001
            return self._rest(error)
        self._failed, self._retry_s = None, _FIRST_RETRY_S
        self._advanced(done)
        return min(time.monotonic() - started, _LONGEST_REST_S) if done else self._look_s

    def _look(self, now: float) -> None:
        """Count what waits: at each look while nothing does, and then and now while something does."""
        if self._waiting and now - self._told_at < _TOLD_S:
            return
        self._told_at = now
        self._waiting = self._store.unembedded_count()
        self._told(0, self._waiting)
        if self._waiting and self._begun:
            log.info("reembedding_progressed", count=self._done, waiting=self._waiting)
        elif self._waiting > BATCH:
            self._begun, self._done, self._started_at = True, 0, now
            log.info("reembedding_started", waiting=self._waiting, model=self._embedder.fingerprint)

    def _advanced(self, done: int) -> None:
        self._done += done
        # What is written meanwhile is not in the count, which the next look corrects.
        self._waiting = max(self._waiting - done, 0) if done else 0
        self._told(done, self._waiting)
        if done:
            self._tidy = False
        if self._waiting or self._tidy:
            return
        self._waiting = self._store.unembedded_count()
        if not self._waiting:
            self._finished()

    def _finished(self) -> None:
        self._store.drop_foreign_index()
        self._tidy = True
        if self._begun:
            duration_ms = round(1000 * (time.monotonic() - self._started_at))
            log.info("reembedding_finished", count=self._done, duration_ms=duration_ms)
            self._begun = False

    def _rest(self, error: Exception) -> float:
        if self._failed is None:
            unexpected = None if isinstance(error, SidemirrorError) else error
            log.warning(
                "reembedding_paused",
                waiting=self._waiting,
                error_type=type(error).__name__,
                hint=str(error),
                exc_info=unexpected,
            )
        self._failed = str(error)
        pause_s, self._retry_s = self._retry_s, min(2 * self._retry_s, _LONGEST_RETRY_S)
        return pause_s
