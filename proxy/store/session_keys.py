"""Names of the working layer's Redis keys: one scope, one key, and back.

In: a `Scope` with its session. Out: `session:{tenant/user/session/agent}` and its like; parts are percent-escaped and
the braces literal, so that all keys of a session lie in one cluster slot. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, unquote

from proxy.scope import Scope

IDLE_KEY = "idle"


def session_key(scope: Scope) -> str:
    """The hash of a session's slots.

    >>> session_key(Scope("default", "alice", session_id="s1"))
    'session:{default/alice/s1/default}'

    Raises:
        ValueError: The scope has no session.
    """
    return "session:" + _tag(scope)


def chain_key(scope: Scope) -> str:
    """The list of a session's task chain, in the same cluster slot as its hash.

    Raises:
        ValueError: The scope has no session.
    """
    return "chain:" + _tag(scope)


def cache_name(scope: Scope, digest: str) -> str:
    """A name for `cache_put` that belongs to this user, so that forgetting clears it.

    >>> cache_name(Scope("default", "a/b", session_id="s1"), "q7-42")
    'default/a%2Fb/s1/default/q7-42'

    Args:
        scope: Whose; a missing session leaves its part empty, which no session's name can be.
        digest: Whatever else the cached value depends on.
    """
    return "/".join((*_parts(scope), quote(digest, safe="")))


def cache_key(name: str) -> str:
    """The Redis key of a cached value."""
    return f"recall:{{{name}}}"


def user_pattern(scope: Scope) -> str:
    """A SCAN pattern for every key of this tenant and user: sessions, chains and cached recalls.

    Escaped parts hold no glob character, so nothing of another user matches.
    """
    return f"*:{{{quote(scope.tenant, safe='')}/{quote(scope.user_id, safe='')}/*"


def tenant_cache_pattern(scope: Scope) -> str:
    """A SCAN pattern for the cached recalls of all users of this tenant."""
    return f"recall:{{{quote(scope.tenant, safe='')}/*"


def named_in(key: str) -> tuple[str, str]:
    """Session and agent of a key of the working layer.

    >>> named_in("chain:{default/alice/s%201/coder}"), named_in("recall:{default/alice/s1/coder/q7}")
    (('s 1', 'coder'), ('s1', 'coder'))
    """
    parts = key[key.index("{") + 1 : -1].split("/")
    return unquote(parts[2]), unquote(parts[3])


def scope_of(key: str) -> Scope | None:
    """The scope that a `session:{…}` key was made from; None for any other text.

    >>> scope_of("session:{default/alice/s1/default}")
    Scope(tenant='default', user_id='alice', agent_id='default', session_id='s1')
    """
    if not (key.startswith("session:{") and key.endswith("}")):
        return None
    parts = key[len("session:{") : -1].split("/")
    if len(parts) != 4:
        return None
    tenant, user, session, agent = (unquote(part) for part in parts)
    try:
        scope = Scope(tenant, user, agent, session)
    except ValueError:
        return None
    return scope if session_key(scope) == key else None


def _tag(scope: Scope) -> str:
    if scope.session_id is None:
        raise ValueError("working memory belongs to a session, and this scope names none")
    return "{" + "/".join(_parts(scope)) + "}"


def _parts(scope: Scope) -> tuple[str, ...]:
    parts = (scope.tenant, scope.user_id, scope.session_id or "", scope.agent_id)
    return tuple(map(_escaped, parts))


@lru_cache(maxsize=16_384)
def _escaped(part: str) -> str:
    return quote(part, safe="")
