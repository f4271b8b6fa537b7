"""Providers on the same wire: where litellm would send a call, and the connections there.

In: a `Route`. Out: the `Upstream` that takes the client's bytes. Kept are URLs and header names, never credentials that
came with a call.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any, Self

from proxy.errors import SidemirrorError
from proxy.library import Library
from proxy.routes import Route
from proxy.upstream import Upstream
from proxy.wire import chat

_OPENAI = "https://api.openai.com/v1"
_OPENAI_HOST = "https://api.openai.com/"
_STAND_IN = "the-key"
"""Shows where a key would stand, without one being there."""


class NotSameWire(SidemirrorError):
    """litellm gives no plain address for the provider; set `wire: litellm` in its entry of `models:`."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider takes chat calls.

    Args:
        url: The whole URL.
        key_header: The header that carries the key.
        key_prefix: What stands before the key in it.
    """

    url: str
    key_header: str
    key_prefix: str


def resolve(litellm: ModuleType, route: Route) -> Endpoint:
    """Ask litellm where it would send a call.

    Args:
        litellm: The module.
        route: The call's.

    Returns:
        The endpoint.

    Raises:
        NotSameWire: It knows no address, or would send more than a key.
    """
    api: Any = litellm
    try:
        model, provider, _, base = api.get_llm_provider(
            route.model, api_base=route.entry.api_base or _default(route), api_key=_STAND_IN
        )
        config = api.utils.ProviderConfigManager.get_provider_chat_config(model, api.LlmProviders(provider))
        rest: dict[str, Any] = {"model": model, "optional_params": {}, "litellm_params": {}}
        url = config.get_complete_url(api_base=base, api_key=_STAND_IN, stream=False, **rest)
        headers = config.validate_environment(headers={}, messages=[], api_base=base, api_key=_STAND_IN, **rest)
    except (api.exceptions.BadRequestError, AttributeError, TypeError, ValueError) as error:
        raise NotSameWire(f"litellm knows no address for {route.model!r}: {type(error).__name__}") from error
    headers.pop("Content-Type", None)
    keyed = [(name, value) for name, value in headers.items() if _STAND_IN in str(value)]
    strays = url.startswith(_OPENAI_HOST) and provider != "openai"
    if len(headers) != 1 or len(keyed) != 1 or strays or not url.endswith(chat.PATH):
        raise NotSameWire(
            f"{route.model!r} needs more than a key at an address; set wire: litellm, or an api_base, in models"
        )
    name, value = keyed[0]
    return Endpoint(url, name, str(value).partition(_STAND_IN)[0])


def _default(route: Route) -> str | None:
    # litellm leaves this one to OpenAI's own client.
    return _OPENAI if route.provider == "openai" else None


class Providers:
    """The upstreams of `models:`, opened when a call first needs them.

    Args:
        library: litellm.
        forwards_key: Whether the client's own key goes upstream where an entry has none.
    """

    def __init__(self, library: Library, *, forwards_key: bool) -> None:
        self._library = library
        self._forwards_key = forwards_key
        self._upstreams: dict[str, Upstream] = {}
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def upstream(self, route: Route) -> Upstream:
        """Where a call on the same wire goes.

        Raises:
            NotSameWire: The provider is none of those.
        """
        name = route.entry.name
        if name not in self._upstreams:
            async with self._opening:
                if name not in self._upstreams:
                    self._upstreams[name] = await self._open(route)
        return self._upstreams[name]

    async def _open(self, route: Route) -> Upstream:
        litellm = await self._library.warm()
        endpoint = await asyncio.to_thread(resolve, litellm, route)
        if (endpoint.key_header, endpoint.key_prefix) != ("Authorization", "Bearer "):
            raise NotSameWire(f"{route.provider} takes its key in {endpoint.key_header}; set wire: litellm in models")
        return await self._stack.enter_async_context(
            Upstream(
                endpoint.url.removesuffix(chat.PATH),
                route.api_key,
                forwards_key=self._forwards_key,
                setting=f"models[{route.entry.name}].api_base",
            )
        )
