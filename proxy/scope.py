"""Whose memory: the value that every read and write takes.

In: nothing but plain strings. Out: a `Scope`, and the partitions it may read or write. There is no unscoped query:
stores take a `Scope`, and a `Scope` cannot be made without a tenant and a user.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

from proxy.types import Visibility

MAX_PART_CHARS = 256


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of a request: tenant / user / agent / session.

    Args:
        tenant: Never empty.
        user_id: Never empty.
        agent_id: ``default`` when the request names none.
        session_id: None while unknown (memory API calls have none).

    Raises:
        ValueError: A part is blank, longer than 256 characters, or holds a control character.
    """

    tenant: str
    user_id: str
    agent_id: str = "default"
    session_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("tenant", "user_id", "agent_id"):
            check_part(name, getattr(self, name))
        if self.session_id is not None:
            check_part("session_id", self.session_id)

    def in_session(self, session_id: str | None) -> Scope:
        """The same owner in another session."""
        return replace(self, session_id=session_id)

    def partition(self, visibility: Visibility) -> str:
        """The partition that a record of this visibility, written by this owner, lies in.

        Args:
            visibility: ``agent``, ``user`` or ``shared``. ``session`` records live in working memory and have none.

        Returns:
            ``p`` and 24 hex digits: one FTS token, and one index file's name.
        """
        if visibility == "shared":
            return _partition("shared", self.tenant)
        if visibility == "user":
            return _partition("user", self.tenant, self.user_id)
        if visibility == "agent":
            return _partition("agent", self.tenant, self.user_id, self.agent_id)
        raise ValueError(f"{visibility!r} records live in working memory and have no partition")

    @property
    def readable(self) -> tuple[str, str, str]:
        """The partitions this owner reads: own agent's, own user's, the tenant's shared one."""
        return (self.partition("agent"), self.partition("user"), self.partition("shared"))

    @property
    def owner(self) -> str:
        """Key of tenant, user and agent together: what seen hashes and sessions hang on."""
        return self.partition("agent")


@dataclass(frozen=True, slots=True)
class TenantScope:
    """All users of one tenant: what its administrator may look at, and nobody writes to.

    No ordinary read takes one: it is no `Scope`, and has no partitions.

    Args:
        tenant: Never empty.
        user_id: Only this user; None for all.
        agent_id: Only what this agent wrote; None for all.

    Raises:
        ValueError: As for `Scope`.
    """

    tenant: str
    user_id: str | None = None
    agent_id: str | None = None

    def __post_init__(self) -> None:
        check_part("tenant", self.tenant)
        for name in ("user_id", "agent_id"):
            if (value := getattr(self, name)) is not None:
                check_part(name, value)


def check_part(name: str, value: str) -> str:
    """Refuse a scope part that could not identify anyone.

    Args:
        name: The part's name, for the message.
        value: The part.

    Returns:
        The value itself.

    Raises:
        ValueError: Blank, over 256 characters, or with a control character or lone surrogate.
    """
    if not value.strip():
        raise ValueError(f"{name} is blank")
    if len(value) > MAX_PART_CHARS:
        raise ValueError(f"{name} is longer than {MAX_PART_CHARS} characters")
    if not value.isprintable():
        raise ValueError(f"{name} holds a control character")
    return value


@lru_cache(maxsize=65_536)
def _partition(*parts: str) -> str:
    # NUL cannot stand in a part (check_part), so no two different owners join to the same text.
    return "p" + hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
