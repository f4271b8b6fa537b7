"""`POST /memory/import/turns`: conversations as JSON lines, told to the policies of the running product."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.calls import answered, contents, refused
from tests.running import Running

PATH = "/memory/import/turns"
LIKES = [{"role": "user", "content": "I prefer dark mode."}, {"role": "assistant", "content": "Noted."}]
LEARNT = ["The user prefers dark mode"]


def send(product: Running, user: str, *lines: Any, **params: Any) -> httpx.Response:
    """Send lines; what is no text is made JSON."""
    body = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    with product.http(user) as http:
        return http.post(PATH, content=body.encode(), params=params, headers={"Content-Type": "application/x-ndjson"})


def learnt(product: Running, user: str, **query: str) -> list[str]:
    return contents(product, user, kind="preference", **query)


def test_a_conversation_is_told_once_under_its_own_id(product: Running, user: str) -> None:
    talk = {"id": "talk-7", "at": "2025-05-04T09:00:00Z", "messages": LIKES}
    told = answered(send(product, user, talk, "", talk), 200)
    assert (told["conversations"], told["turns"], told["known"], told["failed"]) == (2, 1, 1, 0)
    assert told["outcomes"]["created"] == len(product.records(user))
    assert learnt(product, user) == LEARNT
    [record] = product.records(user, kind="preference")
    assert (record["session_id"], record["valid_from"]) == ("talk-7", "2025-05-04T09:00:00Z")
    assert record["source"]["role"] == "user"
    assert record["source"]["rule"].startswith("preference-")


def test_the_call_that_wrote_a_memory_has_its_ledger(product: Running, user: str) -> None:
    send(product, user, {"messages": LIKES})
    [record] = product.records(user, kind="preference")
    ledger = product.ledger(record["source"]["request"], user)
    assert (ledger["status"], ledger["written"]["status"]) == ("imported", "done")
    assert record["id"] in {one["memory_id"] for one in ledger["written"]["outcomes"]}


def test_two_conversations_that_open_alike_are_two_sessions(product: Running, user: str) -> None:
    hi = {"role": "user", "content": "Hi, can you help me with my project today?"}
    for answer, said in (("Sure.", "I prefer dark mode."), ("Of course!", "我对花生过敏")):
        talk = [hi, {"role": "assistant", "content": answer}, {"role": "user", "content": said}]
        assert answered(send(product, user, {"messages": talk}), 200)["turns"] == 2
    assert len({one["session_id"] for one in product.records(user) if one["kind"] in ("preference", "fact")}) == 2


def test_working_memory_of_a_past_conversation_is_empty(product: Running, user: str) -> None:
    said = "Book a flight to Lisbon on May 3 for 2 people."
    told = answered(send(product, user, {"id": "trip", "messages": [{"role": "user", "content": said}]}), 200)
    assert told["outcomes"]["slot"] == 3
    with product.http(user) as http:
        session = answered(http.get("/memory/sessions/trip"), 200)
    assert (session["slots"], session["turns"]) == ({}, 1)
    assert session["ended_at"] is not None


def test_whose_it_is_is_told_by_headers_or_query(product: Running, user: str) -> None:
    assert answered(send(product, user, {"messages": LIKES}, agent_id="coder"), 200)["turns"] == 1
    turns = [one for one in product.records(user, agent_id="coder") if one["kind"] == "turn"]
    assert [one["agent_id"] for one in turns] == ["coder"]
    assert product.records(f"{user}-b") == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "line"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages.0"),
        ({"messages": LIKES, "title": "x"}, "title"),
        ({"messages": LIKES, "id": " "}, "id"),
        ({"messages": [{"role": "user"}]}, "no content"),
        ({"messages": [{"role": "user", "content": "hi", "at": "soon"}]}, "'soon' is no time"),
        ({"messages": LIKES[1:]}, "nobody but the assistant"),
    ],
)
def test_a_line_that_is_no_conversation_keeps_no_other_out(product: Running, user: str, line: Any, said: str) -> None:
    response = send(product, user, line, {"messages": LIKES})
    error = refused(response, 422)
    assert (error["code"], error["param"]) == ("invalid_lines", "line 1")
    assert said in error["message"]
    assert (response.json()["turns"], response.json()["failed"]) == (1, 1)
    assert learnt(product, user) == LEARNT


def test_compressed_lines_are_refused_before_they_are_read(product: Running, user: str) -> None:
    with product.http(user) as http:
        response = http.post(PATH, content=b"x", headers={"Content-Encoding": "br"})
    assert refused(response, 415)["code"] == "content_encoding"


def test_it_is_described(product: Running) -> None:
    with product.http() as http:
        described = answered(http.get("/openapi.json"), 200)
    operation = described["paths"][PATH]["post"]
    assert set(operation["responses"]) >= {"200", "422"}
    assert "application/x-ndjson" in operation["requestBody"]["content"]
