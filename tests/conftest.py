"""Fixtures: one scripted provider and one running product for the whole session; every test is a user of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from proxy.policy import matcher
from tests.running import Running, running
from tests.scripted import Lane, ScriptedUpstream

# Examples are not timed: the machine may be busy with something else. CI tries the same ones each time, so that what it
# finds is in the change; elsewhere every run tries others.
settings.register_profile("sidemirror", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("sidemirror")


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands run in this process set up logging; the next test gets it as it was."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def slow_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns that backtrack are let in, and soon run out of time."""
    monkeypatch.setattr("proxy.policy.check.too_slow", lambda pattern, lines: False)
    monkeypatch.setattr(matcher, "RUN_TIMEOUT_S", 0.01)


@pytest.fixture(scope="session")
def provider() -> Iterator[ScriptedUpstream]:
    """The scripted model provider."""
    with ScriptedUpstream().running() as upstream:
        yield upstream


@pytest.fixture(scope="session")
def product(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The product as shipped, with the scripted provider upstream."""
    # A busy test machine must not turn recalls into deadlines; what a deadline does has tests of its own.
    config = {"upstream": {"base_url": provider.url}, "recall": {"deadline_ms": 5_000}}
    with running(tmp_path_factory.mktemp("product"), config=config) as started:
        yield started


@pytest.fixture
def lane(provider: ScriptedUpstream) -> Lane:
    """This test's side of the provider."""
    return provider.lane(f"sk-{secrets.token_hex(8)}")


@pytest.fixture
def user() -> str:
    """A user nobody else is."""
    return f"user-{secrets.token_hex(6)}"
