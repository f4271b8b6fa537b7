"""Whose request is this: headers and body → a `Caller`. Pure; fails closed.

Order for each part: header, body, default (design §3). A part that is named but cannot be read (blank, too long, named
twice, not text) never falls through to the next source: the owner is then unknown, and nothing is read or written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from multidict import CIMultiDict, CIMultiDictProxy

from proxy.scope import Scope, check_part

Mode = Literal["on", "read", "write", "off"]
Headers = CIMultiDict[str] | CIMultiDictProxy[str]

USER, AGENT, SESSION = "X-Memory-User", "X-Memory-Agent", "X-Memory-Session"
MODE, BUDGET = "X-Memory-Mode", "X-Memory-Budget"
PREFIX = "x-memory-"
_CLIENTS_SESSION_HEADERS = ("x-claude-code-session-id",)
# What follows must look like an id: "bob_session_notes" and "bob_session_tests" are two users of somebody's own naming.
_USER_WITH_SESSION = re.compile(r"(?P<user>.+?)_session_(?P<session>(?=[^0-9]*[0-9])[0-9A-Za-z-]{8,})")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what memory may do for the call.

    Args:
        scope: None when the owner is unknown. Its session is set only where the request names one.
        mode: As asked; ``off`` when memory must stay out.
        budget_tokens: A lower budget asked for; None otherwise.
        refusal: Why memory stays out, for ``X-Memory-Status: skipped:<reason>``; None when it does not.
    """

    scope: Scope | None
    mode: Mode = "on"
    budget_tokens: int | None = None
    refusal: str | None = None

    @property
    def reads(self) -> bool:
        """Whether memories may be recalled for this call."""
        return self.scope is not None and self.refusal is None and self.mode in ("on", "read")

    @property
    def writes(self) -> bool:
        """Whether memories may be written from this call."""
        return self.scope is not None and self.refusal is None and self.mode in ("on", "write")


class _Unreadable(ValueError):
    """A part is named but cannot be read; the message is the refusal's reason."""


def identify(
    headers: Headers,
    body: Mapping[str, Any],
    *,
    tenant: str,
    default_user: str | None,
    default_agent: str | None = None,
) -> Caller:
    """Work out the owner of a proxied request.

    Args:
        headers: The request's.
        body: The request's JSON object.
        tenant: The tenant its key belongs to.
        default_user: The user when none is named: the one that the key is bound to, or `identity.default_user`.
        default_agent: The agent when none is named: the one that the key is bound to.

    Returns:
        The caller; with a refusal when the owner is unknown or one of our headers makes no sense.
    """
    try:
        mode = _mode(headers)
        if mode == "off":
            return Caller(None, mode="off")
        budget = _budget(headers)
        metadata = body.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        user, session_in_user = _user(headers, body, metadata, default_user)
        session = _first("session", _sessions(headers, metadata, session_in_user))
        agent = _first("agent", _agents(headers, metadata))
        if user is None:
            return Caller(None, mode, budget, refusal="no-identity")
        scope = Scope(tenant, user, agent or default_agent or "default", session)
    except _Unreadable as error:
        return Caller(None, refusal=str(error))
    except ValueError:
        return Caller(None, refusal="no-identity")
    return Caller(scope, mode, budget)


def identify_owner(
    headers: Headers,
    fields: Mapping[str, Any],
    *,
    tenant: str,
    default_user: str | None,
    default_agent: str | None = None,
) -> Scope | None:
    """Work out the owner of a call to our own endpoints.

    Args:
        headers: The request's.
        fields: Body or query fields `user_id`, `agent_id`, `session_id`, after the headers.
        tenant: The tenant its key belongs to.
        default_user, default_agent: As for `identify`.

    Returns:
        The scope; None when the owner is unknown.
    """
    try:
        user = _first("user", _owners(headers, fields, default_user))
        session = _first("session", _sessions(headers, fields, None))
        agent = _first("agent", _agents(headers, fields))
        return None if user is None else Scope(tenant, user, agent or default_agent or "default", session)
    except ValueError:
        return None


def _mode(headers: Headers) -> Mode:
    value = _header(headers, MODE)
    if value is None:
        return "on"
    lowered = value.strip().lower()
    if lowered not in get_args(Mode):
        raise _Unreadable("invalid-mode")
    return lowered  # type: ignore[return-value]


def _budget(headers: Headers) -> int | None:
    value = _header(headers, BUDGET)
    if value is None:
        return None
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
        raise _Unreadable("invalid-budget")
    return int(value)


# Sources are asked one after the other: what a better one has named, a worse one cannot spoil.


def _user(
    headers: Headers, body: Mapping[str, Any], metadata: Mapping[str, Any], default: str | None
) -> tuple[str | None, str | None]:
    in_header = _header(headers, USER)
    if in_header is not None:
        return in_header, None
    for value in (metadata.get("user_id"), body.get("safety_identifier"), body.get("user")):
        named = _text(value, "user")
        if named is not None:
            return _split_session(named)
    return default, None


def _owners(headers: Headers, fields: Mapping[str, Any], default: str | None) -> Iterator[str | None]:
    yield _header(headers, USER)
    yield _text(fields.get("user_id"), "user")
    yield default


def _sessions(headers: Headers, fields: Mapping[str, Any], in_user: str | None) -> Iterator[str | None]:
    yield _header(headers, SESSION)
    yield _text(fields.get("session_id"), "session")
    for name in _CLIENTS_SESSION_HEADERS:
        yield _header(headers, name)
    yield in_user


def _agents(headers: Headers, fields: Mapping[str, Any]) -> Iterator[str | None]:
    yield _header(headers, AGENT)
    yield _text(fields.get("agent_id"), "agent")


def _first(part: str, sources: Iterator[str | None]) -> str | None:
    named = next((value for value in sources if value is not None), None)
    try:
        return named if named is None else check_part(part, named)
    except ValueError as error:
        raise _unreadable(part) from error


def _split_session(user: str) -> tuple[str, str | None]:
    """Some clients put a session id into the user id; left there, each session would be a new user."""
    parts = _json_object(user)
    if parts is not None:
        # The parts that a client does not know, it leaves blank.
        texts = {key: _text(parts.get(key), "user") for key in ("user_id", "account_uuid", "device_id")}
        name = next((text for text in texts.values() if text), None)
        session = _text(parts.get("session_id"), "session")
        if name is not None:
            return name, session or None
        if session is not None:
            raise _unreadable("user")
    match = _USER_WITH_SESSION.fullmatch(user)
    return (match["user"], match["session"]) if match else (user, None)


def _json_object(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parts if isinstance(parts, dict) else None


def _header(headers: Headers, name: str) -> str | None:
    values = headers.getall(name, ())
    if not values:
        return None
    if any(value != values[0] for value in values):
        raise _Unreadable("ambiguous-header")
    return values[0]


def _text(value: Any, part: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise _unreadable(part)
    return value


def _unreadable(part: str) -> _Unreadable:
    return _Unreadable("no-identity" if part == "user" else f"invalid-{part}")
