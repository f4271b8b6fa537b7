"""`/debug/memories` from outside: one tenant's records, for its administrator, and only where the house is open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from proxy.auth import hashed, new_key
from tests.calls import Memories, answered, refused
from tests.running import Running, running

HOME, ABROAD = "home-the-tenant", "abroad-the-tenant"
ROLES: dict[str, dict[str, Any]] = {
    "admin": {"permissions": ["admin"], "tenant": HOME},
    "abroad-admin": {"permissions": ["admin"], "tenant": ABROAD},
    "bound-admin": {"permissions": ["admin"], "tenant": HOME, "user": "ada"},
    "everyday": {"permissions": ["chat", "memory:read", "memory:write", "shared:write"], "tenant": HOME},
}
KEYS = {name: new_key() for name in ROLES}


@pytest.fixture(scope="module")
def open_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With `debug: true`, for whoever is on this machine."""
    with running(tmp_path_factory.mktemp("debug"), config={"debug": True}) as product:
        for name, count in (("ada", 3), ("ben", 2)):
            with product.http(name) as http:
                for number in range(count):
                    Memories(http).create(f"Number {number} of {name} is {number * 7919}")
                Memories(http).create("For another agent", agent_id="helper", scope="agent", kind="note")
        yield product


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With `debug: true`, and keys."""
    keys = [{"name": name, "hash": hashed(KEYS[name]), **role} for name, role in ROLES.items()]
    config = {"debug": True, "auth": {"mode": "keys", "keys": keys}}
    with running(tmp_path_factory.mktemp("keyed"), config=config) as product:
        for role, user in (("admin", "ada"), ("admin", "ben"), ("abroad-admin", "ada")):
            headers = {"Authorization": f"Bearer {KEYS[role]}", "X-Memory-User": user}
            body = {"content": f"{user} of {ROLES[role]['tenant']}"}
            httpx.post(f"{product.address}/memory/records", json=body, headers=headers).raise_for_status()
        yield product


def listed(product: Running, **params: Any) -> list[dict[str, Any]]:
    with product.http() as http:
        data: list[dict[str, Any]] = answered(http.get("/debug/memories", params=params), 200)["data"]
        return data


def shown(product: Running, role: str, **params: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {KEYS[role]}"}
    return httpx.get(f"{product.address}/debug/memories", headers=headers, params=params)


def test_it_is_closed_unless_it_is_opened(product: Running, user: str) -> None:
    with product.http(user) as http:
        error = refused(http.get("/debug/memories"), 404)
    assert (error["code"], "debug: true" in error["message"]) == ("not_found", True)


def test_it_shows_all_users_the_newest_first(open_house: Running) -> None:
    records = listed(open_house)
    assert {record["user_id"] for record in records} == {"ada", "ben"}
    assert len(records) == 7
    times = [record["created_at"] for record in records]
    assert times == sorted(times, reverse=True)


def test_it_is_paged(open_house: Running) -> None:
    pages, cursor = [], None
    with open_house.http() as http:
        for _ in range(3):
            params = {"limit": 3, **({"cursor": cursor} if cursor else {})}
            page = answered(http.get("/debug/memories", params=params), 200)
            pages.append([record["id"] for record in page["data"]])
            cursor = page["next_cursor"]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert cursor is None
    assert [one for page in pages for one in page] == [record["id"] for record in listed(open_house)]


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"user_id": "ada"}, 4),
        ({"user_id": "nobody"}, 0),
        ({"agent_id": "helper"}, 2),
        ({"agent_id": "*"}, 7),
        ({"kind": "note"}, 2),
        ({"text": "7919"}, 2),
        ({"state": "pending"}, 0),
    ],
    ids=str,
)
def test_it_is_narrowed(open_house: Running, params: dict[str, str], count: int) -> None:
    assert len(listed(open_house, **params)) == count


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "cursor=nonsense", "cursor=", "state=gone", "nonsense=1"])
def test_a_wrong_parameter_is_named(open_house: Running, query: str) -> None:
    with open_house.http() as http:
        assert refused(http.get(f"/debug/memories?{query}"), 400)["param"] == query.partition("=")[0]


def test_it_shows_every_state(open_house: Running) -> None:
    with open_house.http("cyd") as http:
        memories = Memories(http)
        memories.change(memories.create("The dog is Bruno")["id"], state="archived")
    assert [record["state"] for record in listed(open_house, user_id="cyd")] == ["archived"]


def test_where_keys_are_on_it_takes_an_admin_key_of_the_tenant(keyed: Running) -> None:
    assert refused(shown(keyed, "everyday"), 403)["code"] == "permission_denied"
    assert refused(httpx.get(f"{keyed.address}/debug/memories"), 401)["code"] == "invalid_api_key"
    contents = {
        role: [record["content"] for record in answered(shown(keyed, role), 200)["data"]]
        for role in ("admin", "abroad-admin", "bound-admin")
    }
    assert contents == {
        "admin": [f"ben of {HOME}", f"ada of {HOME}"],
        "abroad-admin": [f"ada of {ABROAD}"],
        "bound-admin": [f"ada of {HOME}"],
    }


def test_a_bound_key_cannot_ask_for_another_user(keyed: Running) -> None:
    assert refused(shown(keyed, "bound-admin", user_id="ben"), 403)["code"] == "foreign_scope"
