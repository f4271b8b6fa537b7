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
        """The principal of a request that needs a permission.

        Raises:
            RequestError: 401 for no or an unknown key, 403 for a key without the permission.
        """
        principal = self.doorkeeper.admit(request.headers)
        principal.require(permission)
        return principal

    def is_own_page(self, request: web.Request) -> bool:
        """Whether the request comes from no web page, or from one of an allowed host."""
        return origin_is_allowed(request, self.allowed_hosts)

    def owner(
        self, request: web.Request, permission: Permission, fields: Mapping[str, Any] | None = None
    ) -> tuple[Principal, Scope]:
        """The principal and the owner of a call to our own endpoints.

        Args:
            request: The call.
            permission: What it needs.
            fields: `user_id`, `agent_id`, `session_id` as the body or query has them; the query's by default.

        Raises:
            RequestError: 401, or 403 for a foreign host, page, user or agent, a missing permission, or no user.
        """
        check_host_and_origin(request, self.allowed_hosts)
        principal = self.admit(request, permission)
        named = fields if fields is not None else {key: request.query.get(key) for key in ("user_id", "agent_id")}
        scope = identify_owner(
            request.headers,
            named,
            tenant=principal.tenant or "",
            default_user=principal.user_id or self.default_user,
            default_agent=principal.agent_id,
        )
        if scope is None:
            raise _no_identity(principal)
        principal.check_bounds(scope.user_id, scope.agent_id)
        return principal, scope


def _no_identity(principal: Principal) -> RequestError:
    if principal.tenant is None:
        return RequestError(
            "whose memories? With auth.tenant: api_key the provider key tells; send it as a bearer token",
            status=401,
            code="invalid_api_key",
            type_="authentication_error",
        )
    return RequestError(
        "whose memories? Name the user in X-Memory-User (not blank, at most 256 characters)",
        status=403,
        code="no_identity",
        param="X-Memory-User",
        type_="permission_error",
    )
