"""What every section of the settings is made of."""

from __future__ import annotations

import ipaddress
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

LATER = "not supported yet"
_WITHOUT_ADDRESS = frozenset({"custom_openai", "hosted_vllm", "litellm_proxy", "llamafile", "lm_studio", "openai_like"})
"""Providers that are somebody's own server; litellm would send their keys to OpenAI, or to this very port."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _no_boolean(value: object) -> object:
    # pydantic reads true as 1; `port: true` is a slip, not port 1.
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number")
    return value


Whole = Annotated[int, BeforeValidator(_no_boolean)]
Real = Annotated[float, BeforeValidator(_no_boolean)]


def check_address(provider: str, api_base: str | None) -> None:
    """Refuse a provider of litellm's that is nowhere unless told where.

    Raises:
        ValueError: It needs an `api_base`.
    """
    if api_base is None and provider in _WITHOUT_ADDRESS:
        raise ValueError(f"{provider} has no address of its own: set api_base, e.g. http://127.0.0.1:8000/v1")


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an http:// or https:// URL without query, e.g. https://api.openai.com/v1")
    return url.rstrip("/")


BaseUrl = Annotated[str, AfterValidator(_checked_url)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
