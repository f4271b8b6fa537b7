"""`auth.tenant: api_key` from outside: every provider key is a tenant, and the key itself is kept nowhere."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from typer.testing import CliRunner

from proxy.cli.commands import cli
from tests.calls import answered, refused
from tests.running import Running, eventually, running
from tests.scripted import Lane, Received, ScriptedUpstream

SHARED_USER = "ada"


@dataclass(frozen=True)
class House:
    """The product with three provider keys, of which the rotated one keeps the old one's tenant."""

    product: Running
    old: Lane
    rotated: Lane
    other: Lane
    stray: Mapping[str, list[Received]]

    @property
    def address(self) -> str:
        """It listens on every address; this is the one that this machine has for itself."""
        return self.product.address.replace("//0.0.0.0:", "//127.0.0.1:")

    def http(self, *lanes: Lane, name: str = "Authorization", user: str | None = SHARED_USER) -> httpx.Client:
        """A client that presents the lanes' keys, the first one in the header of this name."""
        headers = {} if user is None else {"X-Memory-User": user}
        for lane, header in zip(lanes, (name, "api-key"), strict=False):
            headers[header] = f"Bearer {lane.key}" if header == "Authorization" else lane.key
        return httpx.Client(base_url=self.address, headers=headers, timeout=30)


def say(http: httpx.Client, text: str, **headers: str) -> httpx.Response:
    """One chat call."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
    return http.post("/v1/chat/completions", json=body, headers=headers)


def tell(http: httpx.Client, text: str, **headers: str) -> None:
    """One chat call, its memories written."""
    response = say(http, text, **headers)
    assert (response.status_code, response.headers["X-Memory-Status"]) == (200, "ok")
    path = f"/memory/requests/{response.headers['X-Memory-Request-Id']}"

    def done() -> bool:
        account = http.get(path, headers=headers)
        return account.status_code == 200 and account.json()["written"]["status"] == "done"

    eventually(done)


def contents(http: httpx.Client) -> list[str]:
    """What the records say, turns left out."""
    data = answered(http.get("/memory/records"), 200)["data"]
    return [record["content"] for record in data if record["kind"] != "turn"]


def tenant(folder: Path, key: str) -> str:
    """What `sidemirror key tenant` prints for a provider key."""
    ran = CliRunner().invoke(cli, ["key", "tenant", "--config", str(folder / "config.yaml")], input=f"{key}\n")
    assert ran.exit_code == 0, ran.output
    return ran.output.strip()


@pytest.fixture(scope="module")
def house(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One product for all tests here: it ran before, then a key was rotated."""
    folder = tmp_path_factory.mktemp("tenants")
    old, rotated, other = (provider.lane(f"sk-{name}-{secrets.token_hex(12)}") for name in ("old", "new", "other"))
    config: dict[str, Any] = {
        "server": {"host": "0.0.0.0"},
        "upstream": {"base_url": provider.url},
        "auth": {"tenant": "api_key"},
        "recall": {"deadline_ms": 5_000},
    }
    with running(folder, config=config) as product:
        before = House(product, old, rotated, other, provider.stray)
        with before.http(old, user="long-standing") as http:
            tell(http, "I prefer dark mode.")
    alias = {"tenant": tenant(folder, rotated.key), "keeps": tenant(folder, old.key)}
    with running(folder, config={**config, "auth": {"tenant": "api_key", "aliases": [alias]}}) as product:
        yield House(product, old, rotated, other, provider.stray)


@pytest.fixture
def user() -> str:
    """A user nobody else is."""
    return f"user-{secrets.token_hex(6)}"


def test_it_listens_on_every_address(house: House) -> None:
    # A wildcard address is shown as one that can be called, and the others answer too.
    assert "//127.0.0.1:" in house.product.address
    other = house.product.address.replace("127.0.0.1", "127.0.0.2")
    assert answered(httpx.get(f"{other}/readyz"), 200) == {"status": "ready", "degraded": []}


def test_two_keys_are_two_tenants_of_the_same_user(house: House, user: str) -> None:
    with house.http(house.old, user=user) as one, house.http(house.other, user=user) as two:
        tell(one, "I live in Berlin.")
        tell(two, "I live in Madrid.")
        assert [
            record["tenant"] for http in (one, two) for record in http.get("/memory/records").json()["data"][:1]
        ] == [tenant(house.product.data.parent, lane.key) for lane in (house.old, house.other)]
        for http, lane, own, foreign in ((one, house.old, "Berlin", "Madrid"), (two, house.other, "Madrid", "Berlin")):
            said = "\n".join(contents(http))
            assert (own in said, foreign in said) == (True, False)
            say(http, "In which city do I live?")
            assert (own in lane.last.system, foreign in lane.last.system) == (True, False)


def test_each_call_goes_upstream_with_its_own_key(house: House, user: str) -> None:
    for lane in (house.old, house.rotated, house.other):
        with house.http(lane, user=user) as http:
            assert say(http, "Hello there, how are you?").status_code == 200
            assert lane.last.header("Authorization") == f"Bearer {lane.key}"


@pytest.mark.parametrize("name", ["x-api-key", "api-key"])
def test_other_key_headers_tell_the_same_tenant_as_a_bearer_token(house: House, user: str, name: str) -> None:
    with house.http(house.old, user=user) as bearer, house.http(house.old, name=name, user=user) as other:
        tell(bearer, "I prefer tea.")
        assert contents(other) == contents(bearer) == ["The user prefers tea"]


def test_an_openai_client_needs_nothing_but_its_key(house: House, user: str) -> None:
    with openai.OpenAI(base_url=f"{house.address}/v1", api_key=house.other.key, max_retries=0) as client:
        client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": "I prefer tea."}], user=user
        )
    with house.http(house.other, user=user) as http:
        eventually(lambda: contents(http) == ["The user prefers tea"])


def test_a_call_without_a_user_is_the_default_user_of_its_tenant(house: House) -> None:
    with house.http(house.other, user=None) as http:
        tell(http, "I prefer jasmine tea.")
        assert answered(http.get("/memory/records"), 200)["data"][0]["user_id"] == "local"
    with house.http(house.old, user=None) as http:
        assert "The user prefers jasmine tea" not in contents(http)


@pytest.mark.parametrize("keys", [(), ("old", "other")], ids=["no key", "two keys"])
def test_without_exactly_one_key_a_call_goes_through_without_memory(
    house: House, user: str, keys: tuple[str, ...]
) -> None:
    lanes = [getattr(house, name) for name in keys]
    with house.http(*lanes, user=user) as http:
        response = say(http, "I prefer dark mode.")
        assert response.headers["X-Memory-Status"] == "skipped:no-identity"
        assert response.headers["X-Memory-Injected"] == "0"
        if keys:
            assert (response.status_code, len(house.old.last.json["messages"])) == (200, 1)
        else:  # what the provider says to that comes back as it was
            assert (response.status_code, response.json()["error"]["message"]) == (401, "bad key")
        for method, path, body in (
            ("GET", "/memory/records", None),
            ("POST", "/memory/records", {"content": "x"}),
            ("POST", "/memory/search", {"query": "x"}),
            ("GET", "/memory/stats", None),
            ("GET", "/memory/sessions/s", None),
            ("GET", "/memory/records/01890000-0000-7000-8000-000000000000", None),
        ):
            error = refused(http.request(method, path, json=body), 401)
            assert (error["code"], "bearer token" in error["message"]) == ("invalid_api_key", True)


def test_a_key_nobody_has_used_sees_an_empty_memory(house: House) -> None:
    headers = {"Authorization": f"Bearer sk-{secrets.token_hex(8)}", "X-Memory-User": SHARED_USER}
    assert answered(httpx.get(f"{house.address}/memory/records", headers=headers), 200)["data"] == []


def test_a_rotated_key_keeps_the_memories_from_before_the_restart(house: House) -> None:
    with house.http(house.rotated, user="long-standing") as http:
        assert contents(http) == ["The user prefers dark mode"]
        say(http, "Which theme do I prefer?")
        assert "dark mode" in house.rotated.last.system
    with house.http(house.old, user="long-standing") as http:
        assert contents(http) == ["The user prefers dark mode"]
    with house.http(house.other, user="long-standing") as http:
        assert contents(http) == []


def test_nobody_shares_a_record_or_reaches_another_users_through_the_api(house: House, user: str) -> None:
    with house.http(house.old, user=user) as http:
        body = {"content": "x", "scope": "shared"}
        assert refused(http.post("/memory/records", json=body), 403)["code"] == "permission_denied"
        made = answered(http.post("/memory/records", json={"content": "The port is 5433"}), 201)
    with house.http(house.other, user=user) as http:
        assert refused(http.get(f"/memory/records/{made['id']}"), 404)["code"] == "not_found"


def test_no_provider_key_is_kept_or_logged(house: House, user: str) -> None:
    lanes = (house.old, house.rotated, house.other)
    for lane in lanes:
        for name in ("Authorization", "x-api-key"):
            with house.http(lane, name=name, user=user) as http:
                tell(http, "帮我订一张去东京的机票，两个人。", **{"X-Memory-Session": "trip"})
        with house.http(lane, user=user) as http:
            http.post("/v1/chat/completions", content=b"{")
            http.get("/v1/models")

    def kept() -> bytes:
        return b"".join(path.read_bytes() for path in house.product.data.rglob("*") if path.is_file())

    # Working memory writes its append-only file once a second.
    eventually(lambda: any(b"session:" in path.read_bytes() for path in (house.product.data / "redis").rglob("*.aof")))
    logged = "".join([*house.product.lines, *house.product.errors])
    for lane in lanes:
        assert lane.key.encode() not in kept()
        assert lane.key not in logged
    assert user.encode() in kept()
