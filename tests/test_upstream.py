"""Which headers travel between client and provider, and what an unreachable provider looks like."""

from __future__ import annotations

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from proxy.upstream import Upstream, UpstreamUnreachable, answered, forwarded, named_by_connection

Pairs = list[tuple[str, str]]
HOP_BY_HOP = [
    "Connection",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
]


def proxied(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def sent(*pairs: tuple[str, str], api_key: str | None = None, side_copy: bool = False, streamed: bool = False) -> Pairs:
    return list(forwarded(proxied(*pairs), api_key=api_key, side_copy=side_copy, streamed=streamed).items())


# ── requests ───────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", [*HOP_BY_HOP, "Host", "Content-Length", "Expect"])
def test_headers_of_one_connection_stay_behind(name: str) -> None:
    for spelled in (name, name.lower(), name.upper()):
        assert sent((spelled, "x"), ("Accept", "*/*")) == [("Accept", "*/*")]


def test_headers_named_by_connection_stay_behind() -> None:
    headers = [("Connection", "close, X-Hop ,, x-other"), ("connection", "X-Third"), ("x-hop", "1"), ("X-OTHER", "2")]
    assert sent(*headers, ("X-Third", "3"), ("X-Kept", "4")) == [("X-Kept", "4")]
    assert named_by_connection(proxied(*headers)) == {"close", "x-hop", "x-other", "x-third"}


@pytest.mark.parametrize("name", ["X-Memory-User", "x-memory-session", "X-MEMORY-BUDGET", "X-Memory-Anything"])
def test_our_own_headers_are_never_forwarded(name: str) -> None:
    assert sent((name, "ada"), ("X-Memorable", "yes")) == [("X-Memorable", "yes")]


NAMES = st.sampled_from(
    ["Accept", "accept", "Authorization", "OpenAI-Organization", "Cookie", "Host", "X-Memory-User", "Connection", "TE"]
)


@given(st.lists(st.tuples(NAMES, st.sampled_from(["a", "b", "cookie", "x-nothing"])), max_size=8))
def test_all_other_headers_keep_their_spelling_order_and_number(pairs: Pairs) -> None:
    gone = {"host", "x-memory-user", "connection", "te", *named_by_connection(proxied(*pairs))}
    assert sent(*pairs) == [(name, value) for name, value in pairs if name.lower() not in gone]


@pytest.mark.parametrize(
    ("asked", "narrowed"),
    [
        ("gzip, deflate, br, zstd", "gzip, deflate"),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", "gzip;q=0.8"),
        ("GZIP", "GZIP"),
        ("identity", "identity"),
        ("br", "identity"),
        ("*", "identity"),
        ("", "identity"),
        ("gzipped, x-gzip-2", "identity"),
    ],
)
def test_encodings_are_narrowed_only_where_we_read_along(asked: str, narrowed: str) -> None:
    assert sent(("Accept-Encoding", asked), side_copy=True) == [("Accept-Encoding", narrowed)]
    assert sent(("Accept-Encoding", asked)) == [("Accept-Encoding", asked)]


def test_a_client_that_names_no_encoding_gets_none() -> None:
    assert sent(side_copy=True) == [("Accept-Encoding", "identity")]
    assert sent() == []


@pytest.mark.parametrize("name", ["Authorization", "authorization", "x-api-key", "X-Api-Key", "api-key"])
def test_a_configured_key_takes_the_place_of_the_clients(name: str) -> None:
    clients = [(name, "Bearer client"), ("Authorization", "Bearer client"), ("x-api-key", "client")]
    assert sent(*clients, api_key="ours") == [("Authorization", "Bearer ours")]
    assert sent(*clients) == clients


def test_a_streamed_body_keeps_the_length_that_the_client_gave() -> None:
    assert sent(("content-length", "12"), streamed=True) == [("Content-Length", "12")]
    assert sent(("Transfer-Encoding", "chunked"), streamed=True) == []


# ── responses ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_response_headers_come_back_as_they_are_less_those_of_the_connection() -> None:
    kept = [
        ("Content-Type", "text/event-stream"),
        ("Content-Encoding", "gzip"),
        ("Content-Length", "12"),
        ("retry-after", "7"),
        ("x-ratelimit-remaining-requests", "0"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
    ]
    hops = [(name, "x") for name in HOP_BY_HOP if name != "Connection"]
    found = answered(proxied(("Connection", "X-Hop"), ("X-Hop", "1"), *hops, *kept))
    assert list(found.items()) == kept


# ── the connection ─────────────────────────────────────────────────────────────────────────────────────────────────
async def test_an_unreachable_provider_is_named_with_what_to_check(unused_tcp_port: int) -> None:
    async with Upstream(f"http://127.0.0.1:{unused_tcp_port}/v1", None) as upstream:
        with pytest.raises(UpstreamUnreachable, match=f"127.0.0.1:{unused_tcp_port} .*check upstream.base_url"):
            await upstream.open("GET", "/models", proxied(), None, side_copy=False)


async def test_a_closed_upstream_reaches_nobody() -> None:
    with pytest.raises(UpstreamUnreachable, match="closed"):
        await Upstream("http://127.0.0.1:1/v1", None).open("GET", "/models", proxied(), None, side_copy=False)


async def test_a_request_arrives_as_it_was_sent() -> None:
    received: list[tuple[str, str, Pairs, bytes]] = []

    async def keep(request: web.Request) -> web.Response:
        received.append((request.method, request.raw_path, list(request.headers.items()), await request.read()))
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", keep)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        async with Upstream(f"http://{host}:{port}/v1/", "ours") as upstream:
            response = await upstream.open(
                "POST",
                "/chat/completions?a=%2F&b=%E5%8C%97",
                proxied(("X-Memory-User", "ada"), ("Authorization", "Bearer client"), ("Content-Type", "x/y")),
                b'{"a": 1}',
                side_copy=True,
            )
            assert response.status == 302  # not followed: the client decides
            response.close()
    finally:
        await runner.cleanup()
    method, path, headers, body = received[0]
    assert (method, path, body) == ("POST", "/v1/chat/completions?a=%2F&b=%E5%8C%97", b'{"a": 1}')
    assert {name.lower(): value for name, value in headers} == {
        "host": f"{host}:{port}",
        "authorization": "Bearer ours",
        "content-type": "x/y",
        "accept-encoding": "identity",
        "content-length": "8",
    }
