"""Who may call the memory endpoints: Host and Origin, against DNS rebinding and foreign web pages."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

from aiohttp import web

from proxy.errors import RequestError

_HOST_ONLY = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//[^\s/\\?#@%]+", re.IGNORECASE)


def check_host_and_origin(request: web.Request, allowed_hosts: Collection[str]) -> None:
    """Refuse a request that came under a foreign name or from a foreign page.

    Args:
        request: The request.
        allowed_hosts: `server.allowed_hosts`: names besides the loopback ones.

    Raises:
        RequestError: 403, naming the header at fault and the setting that allows it.
    """
    host = request.headers.get("Host", "")
    if not is_allowed(f"//{host}", allowed_hosts):
        raise _forbidden("Host", host)
    if not origin_is_allowed(request, allowed_hosts):
        raise _forbidden("Origin", ", ".join(request.headers.getall("Origin")))


def origin_is_allowed(request: web.Request, allowed_hosts: Collection[str]) -> bool:
    """Whether the request comes from no web page, or from one of an allowed host."""
    return all(is_allowed(origin, allowed_hosts) for origin in request.headers.getall("Origin", ()))


def is_allowed(url: str, allowed_hosts: Collection[str]) -> bool:
    """Whether a URL's host is a loopback name or an allowed one.

    Args:
        url: ``//`` and a Host header, or an Origin: nothing but a scheme, a host and a port is accepted in it.
        allowed_hosts: Names or addresses, in any letter case; IPv6 with or without brackets.

    >>> is_allowed("//localhost:8080", ()), is_allowed("http://[::1]", ()), is_allowed("null", ())
    (True, True, False)
    >>> is_allowed("//127.0.0.1.evil.example", ()), is_allowed("//mem.local:80", ["mem.local"])
    (False, True)
    >>> is_allowed("http://evil.example@localhost", ()), is_allowed("//localhost/..", ())
    (False, False)
    """
    if not _HOST_ONLY.fullmatch(url):
        return False
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    if not host:
        return False
    if host == "localhost" or host in {name.lower().strip("[]") for name in allowed_hosts}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _forbidden(header: str, value: str) -> RequestError:
    return RequestError(
        f"{header} {value!r} is not allowed here; call a loopback name, or add the host to server.allowed_hosts",
        status=403,
        code="forbidden_host" if header == "Host" else "forbidden_origin",
        param=header,
        type_="permission_error",
    )
