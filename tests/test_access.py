"""Under which names and from which pages our own endpoints may be called."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from proxy.errors import RequestError
from proxy.http.access import check_host_and_origin, is_allowed, origin_is_allowed

LOOPBACK = [
    "localhost",
    "LOCALHOST",
    "localhost:8080",
    "127.0.0.1",
    "127.0.0.1:8080",
    "127.8.9.10:1",
    "[::1]",
    "[::1]:8080",
    "[0:0:0:0:0:0:0:1]:8080",
]
FOREIGN = [
    "",
    ":8080",
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1.nip.io:8080",
    "evil.localhost",
    "xlocalhost",
    "localhost.",
    "127.0.0.1.",
    "localhost@evil.example",
    "evil.example@localhost",
    "user:pass@127.0.0.1:8080",
    "localhost:8080@evil.example",
    "evil.example#@localhost",
    "evil.example\\@localhost",
    "localhost/evil.example",
    "localhost?evil.example",
    "localhost#evil.example",
    "localhost\\evil.example",
    "localhost evil.example",
    "local\thost",
    "localhost,evil.example",
    "0.0.0.0",
    "10.0.0.5",
    "192.168.1.5:8080",
    "169.254.169.254",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "[::]",
    "[fe80::1]",
    "[::1",
    "::1",
    "[::1%25lo]",
    "[localhost]",
    "[2001:db8::1]:8080",
    "ｌｏｃａｌｈｏｓｔ",
    "localhos\u0442",
    "%6cocalhost",
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_names_are_allowed(host: str) -> None:
    assert is_allowed(f"//{host}", ())
    assert is_allowed(f"http://{host}", ())
    assert is_allowed(f"https://{host}", ())


@pytest.mark.parametrize("host", FOREIGN)
def test_every_other_name_is_refused(host: str) -> None:
    assert not is_allowed(f"//{host}", ())
    assert not is_allowed(f"http://{host}", ())


@pytest.mark.parametrize(
    "origin",
    ["null", "", "localhost", "file://", "http://", "javascript:localhost", "data:,localhost", "http:localhost"],
)
def test_an_origin_that_names_no_host_is_refused(origin: str) -> None:
    assert not is_allowed(origin, ["null", ""])


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("mem.local", True),
        ("MEM.local:8080", True),
        ("10.0.0.5:80", True),
        ("[fd00::1]:80", True),
        ("[fd00::2]", True),
        ("localhost", True),
        ("x.mem.local", False),
        ("mem.local.evil.example", False),
        ("mem.local@evil.example", False),
        ("mem.local.", False),
    ],
)
def test_configured_hosts_are_allowed_besides(host: str, allowed: bool) -> None:
    assert is_allowed(f"//{host}", ["Mem.Local", "10.0.0.5", "fd00::1", "[fd00::2]"]) == allowed


# ── requests ───────────────────────────────────────────────────────────────────────────────────────────────────────
def checked(*headers: tuple[str, str]) -> RequestError | None:
    """The refusal, if there is one."""
    try:
        check_host_and_origin(make_mocked_request("GET", "/memory/records", CIMultiDict(headers)), ["mem.local"])
    except RequestError as error:
        return error
    return None


def code(*headers: tuple[str, str]) -> str | None:
    refusal = checked(*headers)
    return None if refusal is None else refusal.code


def test_a_request_under_our_name_and_from_no_page_may_pass() -> None:
    assert code(("Host", "127.0.0.1:8080")) is None
    assert code(("Host", "mem.local")) is None


def test_a_request_from_a_page_of_ours_may_pass() -> None:
    assert code(("Host", "localhost:8080"), ("Origin", "http://localhost:8080")) is None


def test_dns_rebinding_is_refused_by_host() -> None:
    assert code(("Host", "rebound.evil.example:8080")) == "forbidden_host"
    assert code(("Host", "rebound.evil.example"), ("Origin", "http://rebound.evil.example")) == "forbidden_host"


def test_a_request_without_a_host_is_refused() -> None:
    assert code() == "forbidden_host"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://evil.example@localhost"])
def test_a_foreign_page_is_refused_by_origin(origin: str) -> None:
    assert code(("Host", "localhost:8080"), ("Origin", origin)) == "forbidden_origin"


def test_every_origin_header_counts() -> None:
    origins = [("Origin", "http://localhost"), ("Origin", "http://evil.example")]
    assert code(("Host", "localhost"), *origins) == "forbidden_origin"
    assert not origin_is_allowed(make_mocked_request("GET", "/", CIMultiDict(origins)), ())


def test_a_refusal_names_the_header_and_the_setting() -> None:
    refusal = checked(("Host", "evil.example"))
    assert refusal is not None
    assert (refusal.status, refusal.param, refusal.type) == (403, "Host", "permission_error")
    assert "'evil.example'" in str(refusal)
    assert "server.allowed_hosts" in str(refusal)
