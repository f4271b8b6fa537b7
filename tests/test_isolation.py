"""Nobody sees what is another's: random users, agents and sessions on every endpoint, against the running product."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.calls import answered
from tests.running import Running, eventually
from tests.scripted import Lane

NAMES = [
    "a", "A", "b", "a/b", "a%2Fb", "a%252Fb", "%61", "{a}", "a}{b", "a:b", "a b", "a+b", "a*", "?", "a?x=1#y", "a,b",
    "..", "a\\b", "'a", '"a"', "default", "local", "a/default", "shared", "null", "0", "a_session_b", "a;b", "a=b&c",
]  # fmt: skip
"""May stand in a header."""
LETTERS = ["á", "a\u0301", "ａ", "北京", "用户/一", "é{b}", "🦀", " a", "a ", "İ", "i̇"]
names = st.sampled_from(NAMES) | st.text("ab/%{}:. ", min_size=1, max_size=6).filter(str.strip)
all_names = names | st.sampled_from(LETTERS)


@dataclass(frozen=True)
class Owner:
    """One user's agent in one session, and how its requests say so."""

    user: str
    agent: str
    session: str
    by_header: bool

    @property
    def headers(self) -> dict[str, str]:
        if not self.by_header:
            return {}
        return {"X-Memory-User": self.user, "X-Memory-Agent": self.agent, "X-Memory-Session": self.session}

    @property
    def fields(self) -> dict[str, str]:
        return {} if self.by_header else {"user_id": self.user, "agent_id": self.agent}

    @property
    def metadata(self) -> dict[str, str]:
        return {} if self.by_header else {**self.fields, "session_id": self.session}


@dataclass
class Left:
    """What an owner has left behind: words nobody else uses, and the ids of what holds them."""

    owner: Owner
    of_user: str
    of_agent: str
    records: list[str]
    requests: list[str]

    def hidden_from(self, other: Owner) -> list[str]:
        """The words that another must not see."""
        if other.user != self.owner.user:
            return [self.of_user, self.of_agent]
        return [self.of_agent] if other.agent != self.owner.agent else []


class Everywhere:
    """Every endpoint, as one owner calls it; keeps all that was answered and forwarded."""

    def __init__(self, http: httpx.Client, lane: Lane, owner: Owner) -> None:
        self.http = http
        self.lane = lane
        self.owner = owner
        self.seen: list[str] = []

    def call(self, method: str, path: str, **body: Any) -> httpx.Response:
        """One request to the memory API."""
        has_body = method == "POST"
        response = self.http.request(
            method,
            f"/memory/{path}",
            headers=self.owner.headers,
            params=None if has_body else {**self.owner.fields, **body.pop("params", {})},
            json={**self.owner.fields, **body} if has_body else body or None,
        )
        assert response.status_code < 500, response.text
        # Escapes must not hide what was leaked.
        self.seen.append(f"{dict(response.headers)}{json.dumps(response.json(), ensure_ascii=False)}")
        return response

    def chat(self, text: str, mode: str = "on") -> str:
        """One chat call; returns its request id."""
        response = self.http.post(
            "/v1/chat/completions",
            json={
                "model": "m",
                "metadata": self.owner.metadata,
                "messages": [{"role": "user", "content": text}],
            },
            headers={"Authorization": f"Bearer {self.lane.key}", "X-Memory-Mode": mode, **self.owner.headers},
        )
        assert response.headers["X-Memory-Status"] == "ok"
        self.seen.append(f"{dict(response.headers)}{response.text}{self.lane.last.json}{self.lane.last.headers}")
        return response.headers["X-Memory-Request-Id"]

    def written(self, request_id: str) -> bool:
        """Whether a call's memories are written."""
        response = self.call("GET", f"requests/{request_id}")
        return response.status_code == 200 and response.json()["written"]["status"] == "done"

    def leave(self) -> Left:
        """Say and write things with words of one's own."""
        of_user, of_agent = (f"Z{kind}{secrets.token_hex(5)}" for kind in "ua")
        requests = [self.chat(f"I prefer {of_user} tea."), self.chat(f"Book a flight to {of_agent} for 2 people.")]
        for request_id in requests:
            eventually(lambda request_id=request_id: self.written(request_id))  # type: ignore[misc]
        agents = self.call("POST", "records", content=f"The agent found {of_agent}", tags=[of_agent], key=of_agent)
        users = self.call("POST", "records", content=f"The user plays {of_user}", scope="user")
        ids = [answered(response, 201)["id"] for response in (agents, users)]
        return Left(self.owner, of_user, of_agent, ids, requests)

    def probe(self, others: list[Left]) -> None:
        """Ask every endpoint for what others have left."""
        self.seen.clear()
        self.call("GET", "records", params={"state": "all", "limit": 500})
        self.call("GET", "stats")
        for left in others:
            foreign = left.hidden_from(self.owner)
            for word in foreign:
                self.call("POST", "search", query=word, top_k=100, explain=True)
                self.call("GET", "records", params={"text": word})
            self.call("GET", f"sessions/{quote(left.owner.session, safe='').replace('.', '%2E')}")
            for request_id in left.requests:
                status = self.call("GET", f"requests/{request_id}").status_code
                assert status == (200 if left.owner.user == self.owner.user else 404)
            for memory_id in left.records if len(foreign) == 2 else left.records[: len(foreign)]:
                path = f"records/{memory_id}"
                assert self.call("GET", path).status_code == 404
                assert self.call("GET", f"{path}/history").status_code == 404
                assert self.call("PATCH", path, content="taken over").status_code == 404
                assert self.call("DELETE", path).status_code == 404
        self.chat("Which tea do I prefer, what did the agent find, what do I play, and where do I fly to?", "read")

    def all_agents(self) -> str:
        """The listing that shows what all of the user's agents know."""
        return self.call("GET", "records", params={"state": "all", "limit": 500, "agent_id": "*"}).text

    def saw(self, word: str) -> bool:
        """Whether a word stood in anything that was answered or forwarded."""
        return any(word in text for text in self.seen)


@pytest.fixture(scope="module")
def http(product: Running) -> Iterator[httpx.Client]:
    """A client that names nobody."""
    with product.http() as client:
        yield client


@given(st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_anothers_is_in_no_answer_and_no_forwarded_request(
    http: httpx.Client, lane: Lane, data: st.DataObject
) -> None:
    by_header = data.draw(st.booleans(), "by header")
    some = names.map(str.strip) if by_header else all_names
    users = data.draw(st.lists(some, min_size=2, max_size=3, unique=True), "users")
    agents = data.draw(st.lists(some, min_size=1, max_size=2, unique=True), "agents")
    sessions = data.draw(st.lists(some, min_size=1, max_size=2, unique=True), "sessions")
    one_of = st.builds(Owner, *map(st.sampled_from, (users, agents, sessions)), st.just(by_header))
    owners = data.draw(st.lists(one_of, min_size=2, max_size=4, unique=True), "owners")
    callers = [Everywhere(http, lane, owner) for owner in owners]
    left = [caller.leave() for caller in callers]
    for caller, own in zip(callers, left, strict=True):
        caller.probe([one for one in left if one is not own])
        assert caller.saw(own.of_user)
        assert caller.saw(own.of_agent)
        for one in left:
            assert not [word for word in one.hidden_from(caller.owner) if caller.saw(word)]
            if one.owner.user == caller.owner.user:
                assert caller.saw(one.of_user)
        everything = caller.all_agents()
        for one in left:
            mine = one.owner.user == caller.owner.user
            assert [word in everything for word in (one.of_user, one.of_agent)] == [mine, mine]


@pytest.mark.parametrize(
    "lookalike",
    ["a/b", "a%2Fb", "a%2fb", "a/b/", "/a/b", "a//b", "{a/b}", "a∕b", "ａ/b", "A/b", "a/b ", "a/b/default"],
)
def test_users_whose_names_look_alike_share_nothing(http: httpx.Client, lane: Lane, user: str, lookalike: str) -> None:
    one, other = (Owner(f"{user}{name}", "default", "s", by_header=False) for name in ("a/b#", f"{lookalike}#"))
    if one == other:
        other = Owner(f"{user}a/b", "#", "s", by_header=False)
    left = Everywhere(http, lane, one).leave()
    caller = Everywhere(http, lane, other)
    caller.probe([left])
    assert not caller.saw(left.of_user)
    assert not caller.saw(left.of_agent)
    assert caller.call("GET", "stats").json()["memories"]["total"] == 0


def test_slots_stay_in_their_session_and_what_is_said_reaches_the_same_agent(
    http: httpx.Client, lane: Lane, user: str
) -> None:
    one, other = (Everywhere(http, lane, Owner(user, "travel", session, by_header=True)) for session in ("s", "t"))
    left = one.leave()
    slots = one.call("GET", "sessions/s").json()["slots"]
    assert slots["destination"]["value"] == left.of_agent
    other.chat("Good morning, tell me something.", "read")
    assert not [text for text in other.seen if f"destination: {left.of_agent}" in text]
    assert other.call("GET", "sessions/t").json().get("slots", {}) == {}


def test_a_session_id_of_anothers_opens_nothing(http: httpx.Client, lane: Lane, user: str) -> None:
    left = Everywhere(http, lane, Owner(user, "default", "trip", by_header=True)).leave()
    intruder = Everywhere(http, lane, Owner(f"not-{user}", "default", "trip", by_header=True))
    intruder.chat("Where do I fly to, and what tea do I prefer?", "read")
    assert intruder.call("DELETE", "sessions/trip").status_code in (200, 404)
    assert not intruder.saw(left.of_user)
    assert not intruder.saw(left.of_agent)
    mine = Everywhere(http, lane, Owner(user, "default", "trip", by_header=True))
    assert mine.call("GET", "sessions/trip").json()["slots"]["destination"]["value"] == left.of_agent


def test_anothers_answer_does_not_lead_into_their_session(http: httpx.Client, lane: Lane, user: str) -> None:
    owner = Everywhere(http, lane, Owner(user, "default", "trip", by_header=True))
    owner.leave()
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "OK"},
        {"role": "user", "content": "go on"},
    ]
    response = http.post(
        "/v1/chat/completions",
        json={"model": "m", "messages": history},
        headers={"Authorization": f"Bearer {lane.key}", "X-Memory-User": f"not-{user}"},
    )
    assert response.headers["X-Memory-Session"] != "trip"
    assert response.headers["X-Memory-Injected"] == "0"
