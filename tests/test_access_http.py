"""Who may call the memory endpoints of the running product, and where it may listen: fail closed, and say why."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.calls import Memories, answered, ask, refused
from tests.running import Running, refused_start, running
from tests.scripted import Lane, ScriptedUpstream

ENDPOINTS = [
    ("GET", "/memory/records"),
    ("POST", "/memory/records"),
    ("GET", "/memory/records/{id}"),
    ("PATCH", "/memory/records/{id}"),
    ("DELETE", "/memory/records/{id}"),
    ("GET", "/memory/records/{id}/history"),
    ("POST", "/memory/search"),
    ("POST", "/memory/forget"),
    ("GET", "/memory/requests/{id}"),
    ("GET", "/memory/sessions/s"),
    ("DELETE", "/memory/sessions/s"),
    ("GET", "/memory/stats"),
    ("GET", "/memory/policies"),
    ("POST", "/memory/policies/explain"),
    ("GET", "/debug/memories"),
    ("POST", "/mcp"),
    ("GET", "/ui"),
]


@pytest.fixture(scope="module")
def product(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The product with one more name, and a small limit for bodies."""
    config = {
        "upstream": {"base_url": provider.url},
        "server": {"allowed_hosts": ["mem.local"], "max_body_mb": 1},
        "recall": {"deadline_ms": 5_000},
    }
    with running(tmp_path_factory.mktemp("access"), config=config) as started:
        yield started


@pytest.fixture
def memories(product: Running, user: str) -> Iterator[Memories]:
    """This test's user."""
    with product.http(user) as client:
        yield Memories(client)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("Host", "rebound.evil.example:8080", "forbidden_host"),
        ("Host", "localhost.evil.example", "forbidden_host"),
        ("Host", "10.0.0.5:8080", "forbidden_host"),
        ("Origin", "http://evil.example", "forbidden_origin"),
        ("Origin", "null", "forbidden_origin"),
    ],
)
@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_every_memory_endpoint_refuses_a_foreign_name_and_a_foreign_page(
    memories: Memories, method: str, path: str, name: str, value: str, code: str
) -> None:
    record = memories.create("My locker code is 4711")
    # Neither a body that is right nor one that is wrong may get further.
    for content in (b'{"content": "taken over", "query": "locker"}', b"{"):
        body = content if method in ("POST", "PATCH") else None
        response = memories.http.request(method, path.format(id=record["id"]), content=body, headers={name: value})
        error = refused(response, 403)
        assert (error["code"], error["param"]) == (code, name)
        assert "server.allowed_hosts" in error["message"]
        assert "4711" not in response.text
    assert memories.get(f"records/{record['id']}")["version"] == 1


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "mem.local:80"]
)
def test_loopback_names_and_configured_hosts_pass(memories: Memories, host: str) -> None:
    for headers in ({"Host": host}, {"Host": host, "Origin": f"http://{host}"}):
        answered(memories.http.get("/memory/records", headers=headers), 200)


def test_a_request_without_a_host_is_refused(product: Running) -> None:
    connection = http.client.HTTPConnection(urlsplit(product.address).netloc, timeout=10)
    try:
        connection.putrequest("GET", "/memory/stats", skip_host=True)
        connection.endheaders()
        response = connection.getresponse()
        assert response.status in (400, 403)
        assert b"by_kind" not in response.read()
    finally:
        connection.close()


def test_what_watches_over_us_may_ask_under_any_name(product: Running) -> None:
    with product.http() as client:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert client.get(path, headers={"Host": "sidemirror.monitoring.svc"}).status_code == 200


def test_a_foreign_page_writes_nothing_through_a_chat_call(
    product: Running, memories: Memories, lane: Lane, user: str
) -> None:
    with product.http(user) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "I prefer dark mode."}]}
        headers = {"Authorization": f"Bearer {lane.key}", "Origin": "https://evil.example"}
        response = client.post("/v1/chat/completions", json=body, headers=headers)
    assert response.headers["X-Memory-Status"] == "skipped:foreign-origin"
    assert lane.last.json == body
    assert memories.listed(state="all") == []


def test_a_body_that_is_too_large_is_413_and_the_next_call_is_answered(
    product: Running, memories: Memories, lane: Lane
) -> None:
    large = json.dumps({"content": "x" * (2**20 + 1)}).encode()
    error = refused(memories.http.post("/memory/records", content=large), 413)
    assert error["code"] == "body_too_large"
    assert "server.max_body_mb" in error["message"]
    assert ask(product, lane, "hello", user="u").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.7.7", "example.com"])
def test_other_addresses_than_loopback_are_refused_at_start_with_the_reason(tmp_path: Path, host: str) -> None:
    status, said = refused_start(tmp_path, args=("--host", host))
    assert status == 2
    assert f"'{host}' is not a loopback address" in said
    assert "--host" in said
    assert "passthrough" in said
    assert "-p 127.0.0.1:8080:8080" in said
    assert "Traceback" not in said
    assert not (tmp_path / "data").exists()


def test_the_ipv6_loopback_address_can_be_served(tmp_path: Path) -> None:
    with running(tmp_path, args=("--host", "::1")) as started, started.http("u") as client:
        assert started.address.startswith("http://[::1]:")
        answered(client.get("/memory/records"), 200)
