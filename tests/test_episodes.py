"""What a user lived through in a while, as the event that schedule rules see."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from proxy.episodes import episodes
from proxy.plugs import Survey, Surveyed
from proxy.scope import Scope
from proxy.types import Event, Memory
from tests.store_samples import ALICE, ALICES_CODER, START, memory

NOW = START + timedelta(days=1)


def episode(content: str, owner: Scope = ALICE, *, minutes: float = 60, **fields: Any) -> Memory:
    """Something that happened so many minutes after the start."""
    at = START + timedelta(minutes=minutes)
    return memory(content, owner, at, **{"memory_type": "episodic", "language": "en", **fields})


def found(*memories: Memory) -> dict[str, Event]:
    """The events, by agent."""
    survey = Survey(ALICE, tuple(Surveyed(one, None, "created") for one in memories), ())
    events = list(episodes(survey, START, NOW))
    assert all((scope.tenant, scope.user_id, scope.session_id) == ("acme", "alice", None) for scope, _ in events)
    by_agent = {scope.agent_id: event for scope, event in events}
    assert len(by_agent) == len(events)
    return by_agent


def test_the_event_tells_the_episodes_of_the_while_oldest_first_each_once() -> None:
    event = found(
        episode("deployed the shop", minutes=30),
        episode("deployed the blog", minutes=20),
        episode("deployed  the shop", minutes=40),
    )["default"]
    assert event.text == "deployed the blog\ndeployed the shop"
    assert (event.type, event.role, event.language, event.at) == ("schedule", "user", "en", NOW)
    assert (event.user_id, event.agent_id, event.message_hash) == ("alice", "default", None)


def test_only_what_lies_after_the_last_run_and_not_in_the_future_counts() -> None:
    event = found(
        episode("before", minutes=-1),
        episode("at the very last run", minutes=0),
        episode("after", minutes=1),
        episode("now", minutes=24 * 60),
        episode("to come", minutes=24 * 60 + 1),
    )["default"]
    assert event.text == "after\nnow"


def test_only_active_episodes_count() -> None:
    assert not found(
        episode("a fact", memory_type="semantic"),
        episode("a lesson", memory_type="reflective"),
        episode("put away", state="archived"),
        episode("waiting", state="pending"),
        episode("no longer so", state="superseded"),
    )


def test_each_agent_has_an_event_of_its_own() -> None:
    events = found(episode("for all", scope="user"), episode("wrote a test", ALICES_CODER))
    assert {agent: event.text for agent, event in events.items()} == {"default": "for all", "coder": "wrote a test"}
    assert events["coder"].agent_id == "coder"


def test_the_language_is_that_of_most_episodes() -> None:
    event = found(
        episode("部署了服务", language="zh"),
        episode("deployed it", minutes=61),
        episode("又部署了", language="zh", minutes=62),
    )["default"]
    assert event.language == "zh"


def test_a_long_while_is_cut_short() -> None:
    event = found(*(episode(f"episode {number} " + "x" * 100, minutes=number + 1) for number in range(200)))["default"]
    assert len(event.text) == 8_000
    assert event.text.startswith("episode 0 ")


def test_where_nothing_happened_there_is_no_event() -> None:
    assert found() == {}
