"""Who knocks: a request's key → a `Principal` with a tenant, permissions and bounds. Pure; fails closed.

In passthrough mode the key is the provider's and goes upstream; in keys mode it must be one of ours and never does.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from proxy.errors import RequestError
from proxy.identity import Headers
from proxy.settings import Auth

Permission = Literal["chat", "memory:read", "memory:write", "shared:write", "admin"]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
PASSTHROUGH: frozenset[Permission] = frozenset({"chat", "memory:read", "memory:write"})
SINGLE_TENANT = "default"
"""The tenant of `auth.tenant: single`, and of keys that name none."""
KEY_PREFIX = "sm-"
_HASH_PREFIX = "sha256:"
_SECRET_HEADERS = ("Authorization", "x-api-key", "api-key")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, as their key tells.

    Args:
        tenant: Whose memories there are at all; None when the key names no tenant: no memory then.
        permissions: What the key may do; in passthrough mode all but what reaches other users.
        user_id: The only user it may act for; None for any.
        agent_id: The only agent it may act as; None for any.
        name: The key's name in config.yaml, for logs; None in passthrough mode.
    """

    tenant: str | None
    permissions: frozenset[Permission] = PASSTHROUGH
    user_id: str | None = None
    agent_id: str | None = None
    name: str | None = None

    def may(self, permission: Permission) -> bool:
        """Whether the key has a permission; `admin` has all."""
        return permission in self.permissions or "admin" in self.permissions

    def require(self, permission: Permission) -> None:
        """Refuse a request that the key may not make.

        Raises:
            RequestError: 403, naming the permission.
        """
        if not self.may(permission):
            raise RequestError(
                f"this key lacks the permission {permission!r}; give it to the key in config.yaml, or use another key",
                status=403,
                code="permission_denied",
                type_="permission_error",
            )

    def check_bounds(self, user_id: str, agent_id: str) -> None:
        """Refuse a request for somebody the key is not bound to: its bounds always win.

        Raises:
            RequestError: 403, naming the part at fault.
        """
        for part, bound, asked in (("user", self.user_id, user_id), ("agent", self.agent_id, agent_id)):
            if bound is not None and bound != asked:
                raise RequestError(
                    f"this key is bound to another {part}; leave the {part} out, or use a key of that {part}",
                    status=403,
                    code="foreign_scope",
                    param=f"X-Memory-{part.title()}",
                    type_="permission_error",
                )


@dataclass(frozen=True, slots=True)
class _Known:
    digest: bytes
    principal: Principal


class Doorkeeper:
    """Tells requests' principals.

    Args:
        auth: The `auth:` section.
        secret: This installation's secret, for tenants made from provider keys.
    """

    def __init__(self, auth: Auth, secret: bytes) -> None:
        self._mode = auth.mode
        self._by_provider_key = auth.tenant == "api_key"
        self._aliases = _followed({alias.tenant: alias.keeps for alias in auth.aliases})
        self._secret = secret
        self._keys = tuple(
            _Known(
                bytes.fromhex(key.hash.removeprefix(_HASH_PREFIX)),
                Principal(key.tenant, frozenset(key.permissions), key.user, key.agent, key.name),
            )
            for key in auth.keys
        )

    def admit(self, headers: Headers) -> Principal:
        """The principal of a request.

        Args:
            headers: The request's.

        Returns:
            Who asks.

        Raises:
            RequestError: 401 in keys mode, for a key that is missing, unknown, or named twice with different values.
        """
        found = presented_keys(headers)
        if self._mode == "keys":
            return self._ours(found)
        if not self._by_provider_key:
            return Principal(SINGLE_TENANT)
        return Principal(self.tenant_of(found.pop()) if len(found) == 1 else None)

    def tenant_of(self, provider_key: str) -> str:
        """The tenant that a provider's key is, as `auth.tenant: api_key` has it; an alias keeps a rotated key's."""
        digest = hmac.new(self._secret, provider_key.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        tenant = f"key-{digest[:24]}"
        return self._aliases.get(tenant, tenant)

    def _ours(self, found: set[str]) -> Principal:
        if len(found) != 1:
            what = "no key" if not found else "more than one key"
            raise _unauthorised(f"the request carries {what}; send one of this server's keys as a bearer token")
        digest = hashlib.sha256(found.pop().encode("utf-8", "surrogatepass")).digest()
        known = None
        for key in self._keys:  # all of them, each in constant time: how long it takes tells nothing
            if hmac.compare_digest(key.digest, digest):
                known = key.principal
        if known is None:
            raise _unauthorised("the key is not one of this server's; make one with 'sidemirror key create'")
        return known


def presented_keys(headers: Headers) -> set[str]:
    """The different keys that a request carries, in the headers that OpenAI's and Anthropic's clients use."""
    found = set()
    for name in _SECRET_HEADERS:
        for value in headers.getall(name, ()):
            scheme, *rest = value.split(maxsplit=1) or [""]
            key = "".join(rest).strip() if scheme.lower() == "bearer" else value.strip()
            if key:
                found.add(key)
    return found


def _followed(aliases: Mapping[str, str]) -> dict[str, str]:
    """Each alias's last tenant: a key that was rotated twice keeps what its first one had.

    >>> _followed({"key-2": "key-1", "key-3": "key-2"})
    {'key-2': 'key-1', 'key-3': 'key-1'}
    """
    followed = {}
    for tenant, keeps in aliases.items():
        met = {tenant}
        while keeps in aliases and keeps not in met:
            met.add(keeps)
            keeps = aliases[keeps]
        followed[tenant] = keeps
    return followed


def new_key() -> str:
    """A new key: 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hashed(key: str) -> str:
    """A key as config.yaml holds it. Keys are random, so one round of SHA-256 is enough and costs nothing per call.

    >>> hashed("sm-x")[:11]
    'sha256:e404'
    """
    return _HASH_PREFIX + hashlib.sha256(key.encode()).hexdigest()


def _unauthorised(message: str) -> RequestError:
    return RequestError(message, status=401, code="invalid_api_key", type_="authentication_error")
