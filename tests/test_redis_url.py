"""Redis addresses: what is refused, with which words, and what reaches the connection."""

from __future__ import annotations

import pytest

from proxy.store.redis_url import connection_pool, shown


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("http://localhost:6379", "scheme"),
        ("localhost:6379", "scheme"),
        ("", "scheme"),
        ("redis://", "host"),
        ("redis://localhost:port", "port"),
        ("redis://localhost:99999", "range"),
        ("redis://localhost:0", "port is 0"),
        ("redis://localhost/first", "database"),
        ("redis://localhost?decode_responses=true", "decode_responses"),
        ("redis://localhost?db=x", "db"),
        ("unix://relative/path", "absolute"),
        ("unix://", "absolute"),
    ],
)
def test_wrong_url_says_what_is_wrong_and_what_to_write(url: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong) as caught:
        connection_pool(url, 0.03)
    assert "redis.url" in str(caught.value)
    assert "write embedded, redis://" in str(caught.value)


def test_password_is_never_shown() -> None:
    for url in ("http://bob:s3cret@host", "redis://bob:s3cret@host/x", "redis://bob:s3cret@:port", "bob:s3cret@host"):
        with pytest.raises(ValueError) as caught:
            connection_pool(url, 0.03)
        assert "s3cret" not in str(caught.value)
    assert shown("redis://bob:s3cret@host:1/2?password=s3cret") == "redis://host:1/2"


def test_url_reaches_the_connection() -> None:
    tls = connection_pool("rediss://bob:s%2Ft@cache:6380/2?ssl_cert_reqs=none", 0.03).connection_kwargs
    assert (tls["host"], tls["port"], tls["db"], tls["username"], tls["password"]) == ("cache", 6380, 2, "bob", "s/t")
    assert tls["socket_timeout"] == 0.03
    assert tls["socket_connect_timeout"] == 0.25
    assert connection_pool("unix:///run/a%20b.sock?db=3", 0.03).connection_kwargs["path"] == "/run/a b.sock"
