"""Why a memory did not get into a request: each reason in the ledger, and in `memory search --explain` what can be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.calls import Memories, answered, ask, tell
from tests.commands import Commands
from tests.running import Running, eventually, running
from tests.scripted import Lane, ScriptedUpstream

LEGS_AND_FACTORS = {"dense", "lexical", "fused", "relevance", "decay", "confidence", "strength", "bonus"}
LONG = (
    "The greenhouse has a wooden door. It creaks in the wind, and in autumn leaves pile up in front of it. Behind it "
    "stand forty pots of basil, a rusty watering can from 1962, and the ladder that nobody may climb. Spiders live "
    "under the bench; they are left alone. When frost is near, straw goes over the seedlings, and two candles burn "
    "until morning. Visitors leave their boots outside. The cat sleeps on the warm pipe, whatever the season, and "
    "wakes for tuna alone."
)


@pytest.fixture(scope="module")
def small(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A product in which little gets into a request."""
    config = {
        "upstream": {"base_url": provider.url},
        "recall": {"deadline_ms": 5_000, "quotas": {"semantic": 2, "episodic": 2}, "cache_s": 0},
        "inject": {"budget_tokens": 220},
    }
    with running(tmp_path_factory.mktemp("small"), config=config) as started:
        with started.http("somebody") as http:
            for sort in ("red", "yellow"):
                Memories(http).create(f"The greenhouse has {sort} tomatoes")
        lane, sessions = provider.lane("sk-probe"), itertools.count()

        def both_fit() -> bool:
            found = recalled(started, lane, "somebody", "Which tomatoes are in the greenhouse?", f"s{next(sessions)}")
            return {one["left_out"] for one in found.values()} == {None}

        eventually(both_fit)  # until the tokenizer is loaded tokens are over-estimated, and two do not fit
        yield started


@pytest.fixture
def memories(small: Running, user: str) -> Iterator[Memories]:
    with small.http(user) as http:
        yield Memories(http)


def recalled(small: Running, lane: Lane, user: str, question: Any, session: str = "only") -> dict[str, dict[str, Any]]:
    """The ledger's candidates by id."""
    return {one["id"]: one for one in tell(small, lane, question, user=user, session=session)["recalled"]}


def explained(memories: Memories, query: str, **fields: Any) -> dict[str, dict[str, Any]]:
    """A search's candidates by id, those left out too."""
    body = {"query": query, "explain": True, **fields}
    found = answered(memories.http.post("/memory/search", json=body), 200)
    return {one["id"]: one for one in [*found["data"], *found["left_out"]]}


def test_quota(small: Running, lane: Lane, user: str, memories: Memories) -> None:
    made = [memories.create(f"The greenhouse has {sort} tomatoes")["id"] for sort in ("red", "yellow", "striped")]
    ledger = recalled(small, lane, user, "Which tomatoes are in the greenhouse?")
    assert sorted(str(ledger[one]["left_out"]) for one in made) == ["None", "None", "quota"]
    assert all(set(ledger[one]["parts"]) >= LEGS_AND_FACTORS for one in made)
    told = explained(memories, "Which tomatoes are in the greenhouse?")
    assert sorted(told[one]["call"] for one in made) == ["injected", "injected", "quota"]
    top = explained(memories, "Which tomatoes are in the greenhouse?", top_k=1)
    assert [one["reason"] for one in top.values() if "reason" in one] == ["quota: not among the best top_k"] * 2


def test_threshold(small: Running, lane: Lane, user: str, memories: Memories) -> None:
    unsure = memories.create("The greenhouse has a cat", confidence=0.1)["id"]
    strange = memories.create("四月去爬山")["id"]
    question = "What is in the greenhouse?"
    ledger, told = recalled(small, lane, user, question), explained(memories, question)
    assert ledger[unsure]["left_out"] == told[unsure]["call"] == "threshold: confidence below recall.min_confidence"
    assert ledger[strange]["left_out"] == told[strange]["call"] == "threshold: not related enough"
    assert told[unsure]["reason"] == "threshold: confidence below recall.min_confidence"


def test_threshold_of_what_is_added_to_a_session(small: Running, lane: Lane, user: str, memories: Memories) -> None:
    first = [{"role": "user", "content": "Good morning, are you there?"}]
    tell(small, lane, first, user=user, session="s")
    best = memories.create("The greenhouse key hangs behind the blue barn door")["id"]
    behind = memories.create("Rhubarb grows beside a door")["id"]
    more = [*first, {"role": "assistant", "content": "OK"}]
    question = {"role": "user", "content": "Where does the greenhouse key hang, behind the blue barn door?"}
    ledger = recalled(small, lane, user, [*more, question], session="s")
    assert ledger[best]["left_out"] is None
    assert ledger[behind]["left_out"] == "threshold: too far behind the best to stay in the session"


def test_duplicate(small: Running, lane: Lane, user: str, memories: Memories) -> None:
    line = b'{"content": "The greenhouse faces south"}\n'
    answered(memories.http.post("/memory/import", content=line * 2), 200)
    question = "Which way does the greenhouse face?"
    ledger, told = recalled(small, lane, user, question), explained(memories, question)
    assert sorted(str(one["left_out"]) for one in ledger.values()) == ["None", "duplicate: of a better hit"]
    assert sorted(one["call"] for one in told.values()) == ["duplicate: of a better hit", "injected"]


def test_budget(small: Running, lane: Lane, user: str, memories: Memories) -> None:
    made = [memories.create(f"{n}. {LONG}", on_conflict="version")["id"] for n in range(2)]
    question = "What about the wooden door of the greenhouse?"
    account = tell(small, lane, question, user=user)
    ledger, told = {one["id"]: one for one in account["recalled"]}, explained(memories, question)
    assert {ledger[one]["left_out"] for one in made} == {"budget"}
    assert {told[one]["call"] for one in made} == {"budget"}
    assert [one["reason"] for one in account["injected"]["left_out"]] == ["budget"] * 2


def test_superseded(small: Running, lane: Lane, user: str, memories: Memories) -> None:
    old = memories.create("The greenhouse is heated to 15 degrees", key="heat")["id"]
    new = memories.create("The greenhouse is heated to 18 degrees", key="heat")["id"]
    question = "To how many degrees is the greenhouse heated?"
    ledger, told = recalled(small, lane, user, question), explained(memories, question)
    assert (ledger[old]["left_out"], ledger[new]["left_out"]) == ("superseded", None)
    assert (told[old]["reason"], told[old]["call"]) == ("superseded", "superseded")
    assert told[old]["parts"]["superseded_by"] == ledger[old]["parts"]["superseded_by"] == new
    assert "reason" not in told[new]


def test_already_in_the_messages(small: Running, lane: Lane, user: str, memories: Memories) -> None:
    said = [{"role": "user", "content": "I prefer dark mode."}]
    tell(small, lane, said, user=user, session="one")
    (made,) = (one["id"] for one in memories.get("records")["data"] if one["kind"] == "preference")
    more = [*said, {"role": "assistant", "content": "OK"}, {"role": "user", "content": "Which theme do I prefer?"}]
    here = recalled(small, lane, user, more, session="one")
    assert here[made]["left_out"] == "already in the messages: it was made from one of them"
    first = [{"role": "user", "content": "Which theme do I prefer?"}]
    assert recalled(small, lane, user, first, session="two")[made]["left_out"] is None
    again = [*first, {"role": "assistant", "content": "OK"}, {"role": "user", "content": "Is it dark mode I prefer?"}]
    there = recalled(small, lane, user, again, session="two")
    assert there[made]["left_out"] == "already in the messages: the session was told before"


def test_deadline(provider: ScriptedUpstream, lane: Lane, user: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    config = {"upstream": {"base_url": provider.url}, "recall": {"deadline_ms": 1, "cache_s": 0}}
    with running(tmp_path_factory.mktemp("hasty"), config=config) as hasty, hasty.http(user) as http:
        memories = Memories(http)
        made = {memories.create(f"The greenhouse has {n} windows", kind="lesson")["id"] for n in range(3, 40)}

        def late() -> str | None:
            response = ask(hasty, lane, "How many windows has the greenhouse?", user=user)
            is_late = "deadline" in response.headers["X-Memory-Status"] and response.headers["X-Memory-Injected"] == "0"
            return response.headers["X-Memory-Request-Id"] if is_late else None

        account = hasty.ledger(eventually(late) or "", user)
        reasons = {one["left_out"] for one in account["recalled"] if one["id"] in made}
        assert "deadline" in reasons
        assert None not in reasons


def test_a_short_form_that_stood_in_is_told_in_every_call_that_holds_it(
    product: Running, lane: Lane, user: str
) -> None:
    with product.http(user) as http:
        made = Memories(http).create(LONG)
    assert made["short"].startswith("The greenhouse has a wooden door.")
    first = [{"role": "user", "content": "What about the wooden door of the greenhouse?"}]
    account = tell(product, lane, first, user=user, session="s")
    assert (account["injected"]["items"], account["injected"]["short"]) == ([made["id"]], [made["id"]])
    assert made["short"] in lane.last.json["messages"][0]["content"]
    assert LONG not in lane.last.json["messages"][0]["content"]
    later = [*first, {"role": "assistant", "content": "OK"}, {"role": "user", "content": "Thank you, and goodbye."}]
    account = tell(product, lane, later, user=user, session="s")
    assert account["injected"]["short"] == [made["id"]]


def test_the_command_shows_reasons_legs_and_factors(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    small: Running,
    user: str,
    memories: Memories,
) -> None:
    memories.create("The greenhouse is heated to 15 degrees", key="heat")
    memories.create("The greenhouse is heated to 18 degrees", key="heat")
    run = Commands(monkeypatch, capsys, tmp_path, ("--url", small.address, "--user", user))
    told = run("memory", "search", "greenhouse degrees", "--explain", "--json").json
    assert {one["reason"] for one in told["left_out"]} == {"superseded"}
    shown = run("memory", "search", "greenhouse degrees", "--explain").out
    assert "superseded" in shown
    assert "injected" in shown
    assert all(name in shown for name in ("dense", "lexical", "decay", "confidence"))
