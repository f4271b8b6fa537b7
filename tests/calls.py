"""Calls to the running product, as tests make them: a chat turn, its ledger, a request to the memory API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from tests.running import Running
from tests.scripted import Lane

RULES = r"""
version: 1
triggers:
  - id: collects
    why: What the user collects, for these tests.
    when: user_message
    if: {match: 'I collect (?P<what>\w+)'}
    extract: {template: The user collects $what}
    write: {memory_type: semantic, kind: preference, scope: user, confidence: 0.9}
    examples: [{user: I collect stamps, expect: [{content: The user collects stamps}]}]
  - id: flies
    why: Where the user flies to, for these tests.
    when: user_message
    if: {match: 'I fly to (?P<place>\w+)'}
    extract: {slots: {place: $place}}
    write: {memory_type: working, ttl: 1h}
    examples: [{user: I fly to Lisbon, expect: [{slot: place, value: Lisbon}]}]
"""
"""What a policy folder of the fault tests holds: a preference, and a slot."""

Said = list[dict[str, Any]]


def ask(
    product: Running,
    lane: Lane,
    messages: Said | str,
    *,
    user: str | None = None,
    tools: Said | None = None,
    **headers: str,
) -> httpx.Response:
    """One call through the proxy; a plain text is one user message."""
    body = {
        "model": "scripted",
        "messages": [{"role": "user", "content": messages}] if isinstance(messages, str) else messages,
        **({"tools": tools} if tools else {}),
    }
    named = {f"X-Memory-{name.title()}": value for name, value in headers.items()}
    if user is not None:
        named["X-Memory-User"] = user
    with product.http() as http:
        response = http.post(
            "/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {lane.key}", **named}
        )
    assert response.status_code == 200, response.text
    return response


def tell(
    product: Running, lane: Lane, messages: Said | str, *, user: str, tools: Said | None = None, **headers: str
) -> dict[str, Any]:
    """A call, and its ledger once its memories are written."""
    response = ask(product, lane, messages, user=user, tools=tools, **headers)
    return product.ledger(response.headers["X-Memory-Request-Id"], user)


def contents(product: Running, user: str, **query: str) -> list[str]:
    """What the user's records say, turns left out."""
    return [record["content"] for record in product.records(user, **query) if record["kind"] != "turn"]


class Memories:
    """One user's memory API.

    Args:
        http: A client that names the user.
    """

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def create(self, content: str, **fields: Any) -> dict[str, Any]:
        """Write a record, and return it with its outcome."""
        response = self.http.post("/memory/records", json={"content": content, **fields})
        assert response.status_code in (200, 201), response.text
        return answered(response)

    def change(self, memory_id: str, **fields: Any) -> dict[str, Any]:
        """Change a record, and return it."""
        return answered(self.http.patch(f"/memory/records/{memory_id}", json=fields), 200)

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a path below ``/memory/`` answers."""
        return answered(self.http.get(f"/memory/{path}", params=params), 200)

    def listed(self, **params: Any) -> list[str]:
        """The contents that a listing answers with."""
        return [record["content"] for record in self.get("records", params)["data"]]

    def found(self, query: str, **fields: Any) -> list[str]:
        """The contents that a search answers with."""
        response = self.http.post("/memory/search", json={"query": query, **fields})
        return [hit["content"] for hit in answered(response, 200)["data"]]


def answered(response: httpx.Response, status: int | None = None) -> dict[str, Any]:
    """The JSON object of a response."""
    assert status is None or response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    return body


def refused(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error of a response that must be refused, in OpenAI's shape."""
    error: dict[str, Any] = answered(response, status)["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert error["message"]
    return error
