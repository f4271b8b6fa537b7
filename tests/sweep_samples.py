"""A store with the shipped embedder, records with their sessions, and retention rules, for the sweeps' tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from proxy.embed import BUILTIN_MODEL, StaticEmbedder
from proxy.language import detect
from proxy.observe import answer_hash
from proxy.plugs import Store, Surveyed
from proxy.policy.retention import Retention, RetentionSection
from proxy.policy.rules import PolicySet
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.sweep import Sweep
from proxy.sweeps.report import Report, StepReport
from proxy.types import Memory
from tests.store_samples import ALICE, memory, put

ZONE = ZoneInfo("Asia/Shanghai")
NOW = datetime(2026, 11, 30, 3, tzinfo=ZONE).astimezone(UTC)
EMBEDDER = StaticEmbedder(BUILTIN_MODEL)
SECTION: dict[str, Any] = {
    "types": {
        "episodic": {"half_life": "30d", "archive_below": 0.10, "archive_after": "90d", "dedupe_at": 0.95},
        "semantic": {"half_life": "never", "dedupe_at": 0.95},
        "reflective": {"half_life": "90d", "archive_below": 0.15, "archive_after": "90d"},
    },
    "kinds": {"turn": {"half_life": "14d", "archive_below": 0.05, "archive_after": "30d"}},
    "compress": {"episodic": {"older_than": "30d", "at_least": 3}},
    "promote": {"same_fact_in_sessions": 3},
}


def ago(**by: float) -> datetime:
    """A moment before `NOW`, given as days=, hours= …"""
    return NOW - timedelta(**by)


def policies(**changed: Any) -> PolicySet:
    """A policy set with the sweeps' retention rules, some keys replaced."""
    return PolicySet(retention=Retention.of(RetentionSection.model_validate({**SECTION, **changed})))


@contextmanager
def opened(folder: Path) -> Iterator[SqliteStore]:
    """A store that embeds with the shipped model."""
    store = SqliteStore(
        folder / "store.db",
        fingerprint=EMBEDDER.fingerprint,
        dimension=EMBEDDER.dimension,
        answer_hash=answer_hash,
        clock=lambda: NOW,
    )
    try:
        yield store
    finally:
        store.close()


def remember(
    store: Store, text: str, owner: Scope = ALICE, *, at: datetime = NOW, session: str | None = "s1", **fields: Any
) -> Memory:
    """Store one record, embedded, as said in a session."""
    one = memory(text, owner, at=at, language=detect(text), session_id=session, **fields)
    one = replace(one, source=replace(one.source, session=session))
    put(store, one, vectors=[EMBEDDER.documents([text])[0]])
    return one


def swept(store: Store, *steps: str, rules: PolicySet | None = None, now: datetime = NOW, **more: Any) -> StepReport:
    """Run steps; the report of the last."""
    return run(store, *steps, rules=rules, now=now, **more).steps[-1]


def run(store: Store, *steps: str, rules: PolicySet | None = None, now: datetime = NOW, **more: Any) -> Report:
    """Run steps."""
    return Sweep(store, EMBEDDER, lambda: now, ZONE, **more).run(rules or policies(), steps, now=now)


def surveyed(store: Store, owner: Scope = ALICE) -> dict[str, Surveyed]:
    """All of a user's records by their text; of several the newest."""
    return {one.memory.content: one for one in store.survey(owner).records}


def active(store: Store, owner: Scope = ALICE) -> set[str]:
    """Texts of the active records."""
    return {one.memory.content for one in store.survey(owner).records if one.memory.state == "active"}
