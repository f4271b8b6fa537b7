"""The journal of turns and the ledger of calls.

In: `JournalTurn`, `Answer`, `Ledger`, a connection inside a transaction or the readers. Out: rows, and the same values
again. A turn's text stays until its memories are written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import orjson

from proxy.plugs import JournalTurn, Ledger
from proxy.scope import Scope
from proxy.store import conversations, queries, records
from proxy.store.readers import Readers
from proxy.types import Answer, JournalStatus, Message, Outcome, ToolCall

KEPT = timedelta(days=30)
"""How long the ledger and the hashes of finished turns are kept."""

_SQL = queries.load("journal")
_OPEN = "open"
"""The `written_status` of a call that shares its turn with another and has no answer yet; told as ``queued``."""


# ── writing ────────────────────────────────────────────────────────────────────────────────────────────────────────
def open_turn(connection: sqlite3.Connection, turn: JournalTurn, ledger: Ledger, boot: str) -> JournalTurn:
    """See `Store.journal_open`.

    Args:
        boot: Names this process: an open turn of another one is never answered.
    """
    known = connection.execute(_SQL["known"], {"seen_scope": turn.seen_scope, "chain": turn.chain}).fetchone()
    text = {"boot": boot, "header": _header(turn), "body": _body(turn)}
    if known is None:
        conversations.know_owner(connection, turn.scope)
        keys = {
            "id": turn.id,
            "owner": turn.scope.partition("user"),
            "seen_scope": turn.seen_scope,
            "chain": turn.chain,
        }
        connection.execute(_SQL["open"], {**keys, **text, "at": turn.at.timestamp(), "replaces": turn.replaces})
        result = turn
    else:
        known_id, status, answer_hash, replaces = known
        connection.execute(_SQL["join"], {"id": known_id, **text})
        if status == "open":
            connection.execute(_SQL["ledger_share"], {"turn": known_id})
        result = replace(turn, id=known_id, replaces=answer_hash or replaces)
        ledger = replace(ledger, written_status=_OPEN)
    _put_ledger(connection, "ledger_open", ledger, result.id)
    return result


def answer_turn(
    connection: sqlite3.Connection,
    turn_id: str,
    call_id: str,
    answer: Answer,
    answer_hash: str,
    links: Sequence[tuple[Scope, str]],
    now: datetime,
) -> bool:
    """See `Store.journal_answer`; an unknown turn (it was forgotten meanwhile) only gets its links."""
    found = connection.execute(_SQL["by_id"], {"id": turn_id}).fetchone()
    started_at, turns = now, 0
    by_scope: dict[Scope, list[str]] = {}
    if found is not None:
        status, at, header, calls = found
        if calls > 1 or call_id != turn_id:
            connection.execute(_SQL["ledger_answered"], {"call": call_id})
        connection.execute(_SQL["answer"], {"id": turn_id, "answer": records.dumps(answer), "answer_hash": answer_hash})
        started_at, turns = records.moment(at), int(status == "open")
        scope = Scope(*orjson.loads(header)["scope"])
        if scope.session_id is not None:
            by_scope[scope] = []
    for linked, link in links:
        by_scope.setdefault(linked, []).append(link)
    counted = next(iter(by_scope), None)
    for linked, its_links in by_scope.items():
        conversations.link_session(
            connection,
            linked,
            its_links,
            now,
            head=True,
            started_at=started_at,
            turns=turns if linked == counted else 0,
        )
    return found is not None


def void_turn(connection: sqlite3.Connection, turn_id: str, call_id: str, reason: str) -> None:
    """See `Store.journal_void`; a turn that was answered before keeps what it has."""
    for step in ("leave", "drop_left", "drop_text"):
        connection.execute(_SQL[step], {"id": turn_id})
    connection.execute(_SQL["ledger_void"], {"call": call_id, "outcomes": _failure(reason)})


def close(
    connection: sqlite3.Connection,
    turn_id: str,
    status: JournalStatus,
    outcomes: Sequence[Outcome],
    worked_on: str | None,
) -> None:
    """See `Transaction.journal_done`: the text of a done turn is dropped, that of a failed one kept."""
    keys = {"id": turn_id, "status": status, "worked_on": worked_on}
    if connection.execute(_SQL["close"], keys).rowcount:
        told = {"written_status": "failed" if status == "failed" else "done", "outcomes": records.dumps(outcomes)}
        connection.execute(_SQL["ledger_close"], {"turn": turn_id, **told})


def _failure(reason: str) -> str:
    return records.dumps([Outcome("", "failed", None, reason)])


def put_ledger(connection: sqlite3.Connection, ledger: Ledger) -> None:
    """See `Store.ledger_put`."""
    _put_ledger(connection, "ledger_put", ledger, None)


def take_up(connection: sqlite3.Connection, now: datetime) -> None:
    """At a start: drop ledger entries and finished turns older than 30 days, and close what calls of the run before
    left unfinished beside an answer that they shared."""
    connection.execute(_SQL["drop_unfinished_text"])
    connection.execute(_SQL["ledger_unfinished"], {"outcomes": _failure("the process ended before the answer")})
    before = {"before": (now - KEPT).timestamp()}
    (seq,) = connection.execute(_SQL["kept_from"], before).fetchone()
    connection.execute(_SQL["prune_recalls"], {"seq": seq})
    connection.execute(_SQL["prune_ledger"], {"seq": seq})
    connection.execute(_SQL["prune_journal"], before)


def _header(turn: JournalTurn) -> str:
    named = {"injected": turn.injected, "model": turn.model, "implicit": turn.implicit}
    return records.dumps({"scope": _whose(turn.scope), **named})


def _whose(scope: Scope) -> list[str | None]:
    return [scope.tenant, scope.user_id, scope.agent_id, scope.session_id]


def _body(turn: JournalTurn) -> str:
    said = {"new": turn.new, "backfill": turn.backfill, "context": turn.context, "user_text": turn.user_text}
    return records.dumps({**said, "previous": turn.previous, "in_play": turn.in_play})


def _put_ledger(connection: sqlite3.Connection, query: str, ledger: Ledger, turn: str | None) -> None:
    row = {
        "id": ledger.id,
        "turn": turn,
        "owner": ledger.scope.partition("user"),
        "at": ledger.at.timestamp(),
        "scope": records.dumps(_whose(ledger.scope)),
        "status": ledger.status,
        "written_status": ledger.written_status,
        "outcomes": records.dumps(ledger.outcomes),
    }
    stored = connection.execute(_SQL[query], row).fetchone()
    if stored is not None:
        bulk = {"recalled": records.dumps(ledger.recalled), "injected": records.dumps(ledger.injected)}
        connection.execute(_SQL["recall_put"], {"seq": stored[0], **bulk})


# ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────────
def waiting(readers: Readers, boot: str) -> Iterator[JournalTurn]:
    """See `Store.journal_waiting`; each turn is read when it is its time, so that a closed one is not given out."""
    for (seq,) in readers.all(_SQL["waiting"], {"boot": boot}):
        row = readers.one(_SQL["waiting_turn"], {"boot": boot, "seq": seq})
        if row is not None:
            yield _turn(row)


def _turn(row: tuple[Any, ...]) -> JournalTurn:
    id_, seen_scope, chain, at, status, header_json, body_json, answer, replaces = row
    header, body = orjson.loads(header_json), orjson.loads(body_json)
    return JournalTurn(
        id=id_,
        scope=Scope(*header["scope"]),
        seen_scope=seen_scope,
        chain=chain,
        at=records.moment(at),
        new=tuple(_message(one) for one in body["new"]),
        backfill=tuple(_message(one) for one in body["backfill"]),
        context=None if body["context"] is None else _message(body["context"]),
        injected=tuple(header["injected"]),
        model=header["model"],
        status=status,
        answer=Answer(status="aborted") if status == "open" else _answer(orjson.loads(answer)),
        replaces=replaces,
        user_text=body["user_text"],
        previous=None if body["previous"] is None else _message(body["previous"]),
        implicit=header["implicit"],
        in_play=body.get("in_play", False),  # turns of before this was told have none
    )


def _message(fields: Mapping[str, Any]) -> Message:
    return Message(**{**fields, "tool_calls": _calls(fields)})


def _answer(fields: Mapping[str, Any]) -> Answer:
    return Answer(**{**fields, "tool_calls": _calls(fields)})


def _calls(fields: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(**call) for call in fields["tool_calls"])


def ledger(readers: Readers, scope: Scope, request_id: str) -> Ledger | None:
    """See `Store.ledger`."""
    row = readers.one(_SQL["ledger"], {"id": request_id, "owner": scope.partition("user")})
    if row is None:
        return None
    id_, whose, at, status, recalled, injected, written_status, outcomes = row
    return Ledger(
        id=id_,
        scope=Scope(*orjson.loads(whose)),
        at=records.moment(at),
        status=status,
        recalled=tuple(orjson.loads(recalled)),
        injected=orjson.loads(injected),
        written_status=written_status,
        outcomes=tuple(Outcome(**one) for one in orjson.loads(outcomes)),
    )
