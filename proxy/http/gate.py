"""The gate that every door asks: principal, permission, and for our own endpoints Host, Origin and owner."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from proxy.auth import Doorkeeper, Permission, Principal
from proxy.errors import RequestError
from proxy.http.access import check_host_and_origin, origin_is_allowed
from proxy.identity import identify_owner
from proxy.scope import Scope


@dataclass(frozen=True)
class Gate:
    """What the doors share.

    Args:
        doorkeeper: Tells principals.
        allowed_hosts: `server.allowed_hosts`.
        default_user: The user of requests that name none; None for none.
    """

    doorkeeper: Doorkeeper
    allowed_hosts: Collection[str]
    default_user: str | None

    def admit(self, request: web.Request, permission: Permission) -> Principal:
        """The principal of a proxied call that needs a permission.

        Raises:
            RequestError: 401 for no or an unknown key, 403 for a key without the permission.
        """
        principal = self.doorkeeper.admit(request.headers)
        principal.require(permission)
        return principal

    def is_own_page(self, request: web.Request) -> bool:
        """Whether the request comes from no web page, or from one of an allowed host."""
        return origin_is_allowed(request, self.allowed_hosts)

    def enter(self, request: web.Request, permission: Permission | None) -> Principal:
        """The principal of a call to our own endpoints, told before anything of the call is read.

        Args:
            request: The call.
            permission: What it needs; None lets every key in.

        Raises:
            RequestError: 401 for no or an unknown key; 403 for a foreign host or page, or a key without the permission.
        """
        check_host_and_origin(request, self.allowed_hosts)
        principal = self.doorkeeper.admit(request.headers)
        if permission is not None:
            principal.require(permission)
        if principal.tenant is None:
            raise _no_tenant()
        return principal

    def owner(self, request: web.Request, principal: Principal, fields: Mapping[str, Any] | None = None) -> Scope:
        """The owner of a call to our own endpoints.

        Args:
            request: The call.
            principal: Who asks, as `enter` told.
            fields: `user_id`, `agent_id`, `session_id` as the body has them; what is not in it, the query may name.

        Raises:
            RequestError: 403 for a foreign user or agent, or for no user; 400 for a part named twice in the query.
        """
        in_query = {name: _one(request, name) for name in ("user_id", "agent_id")}
        scope = identify_owner(
            request.headers,
            {**in_query, **(fields or {})},
            tenant=principal.tenant or "",
            default_user=principal.user_id or self.default_user,
            default_agent=principal.agent_id,
        )
        if scope is None:
            raise _no_identity()
        principal.check_bounds(scope.user_id, scope.agent_id)
        return scope


def _one(request: web.Request, name: str) -> str | None:
    values = set(request.query.getall(name, ()))
    if len(values) > 1:
        raise RequestError(f"{name} stands in the query with different values", code="invalid_field", param=name)
    return values.pop() if values else None


def _no_tenant() -> RequestError:
    return RequestError(
        "whose memories? With auth.tenant: api_key the provider key tells; send it, and no other, as a bearer token",
        status=401,
        code="invalid_api_key",
        type_="authentication_error",
    )


def _no_identity() -> RequestError:
    return RequestError(
        "whose memories? Name the user in X-Memory-User (not blank, at most 256 characters)",
        status=403,
        code="no_identity",
        param="X-Memory-User",
        type_="permission_error",
    )
