"""litellm itself: imported once, in a thread, and shut off from what its surroundings would tell it.

It takes seconds and 150 MB to import, so nothing of it is on the start-up path; whoever needs it awaits `warm`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

from proxy import log
from proxy.echo import MODEL, PROVIDER, reply

_SURROUNDINGS = {
    # Else the import asks the network for a newer price list.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    # Else it reads a .env file of the working directory.
    "LITELLM_MODE": "PRODUCTION",
}
_ADDRESS = re.compile(r"(?!SIDEMIRROR__)[A-Z0-9_]+_(?:API_BASE|BASE_URL|ENDPOINT)")
"""Variables that would move a provider. Agents have OPENAI_BASE_URL set to this very proxy, which would call itself."""


class Library:
    """litellm, once somebody needs it."""

    def __init__(self) -> None:
        self._module: ModuleType | None = None
        self._warming = asyncio.Lock()

    async def warm(self) -> ModuleType:
        """Import litellm, once, off the event loop. Whoever comes meanwhile waits for the same import."""
        if self._module is None:
            async with self._warming:
                if self._module is None:
                    self._module = await asyncio.to_thread(load)
        return self._module


def load() -> ModuleType:
    """Import litellm in this thread: offline, without its own log handlers, with addresses from config.yaml alone."""
    os.environ.update(_SURROUNDINGS)
    for name in [name for name in os.environ if _ADDRESS.fullmatch(name)]:
        del os.environ[name]
    litellm = importlib.import_module("litellm")
    settings: Any = litellm
    settings.suppress_debug_info = True
    settings.drop_params = False
    # At a stream's end it would count what the provider did not: on the event loop, with tokenizers from a hub.
    settings.disable_token_counter = True
    settings.disable_hf_tokenizer_download = True
    settings.custom_provider_map = [{"provider": PROVIDER, "custom_handler": _echo(litellm)}]
    # The first call imports more, for half a second: here it does so before anybody waits, and off the event loop.
    litellm.completion(model="openai/gpt-4o", messages=[{"role": "user", "content": "-"}], mock_response="-")
    log.adopt()
    return litellm


def _echo(litellm: ModuleType) -> Any:
    """`demo/echo` as a custom provider; its class can only be made once litellm is there."""

    async def acompletion(self: Any, *args: Any, **named: Any) -> Any:
        text = reply(named["messages"])
        answer = named["model_response"]
        answer.choices[0].message.content = text
        answer.choices[0].finish_reason = "stop"
        answer.model = MODEL
        return answer

    async def astreaming(self: Any, *args: Any, **named: Any) -> AsyncIterator[dict[str, Any]]:
        for piece in reply(named["messages"]).splitlines(keepends=True):
            yield _chunk(piece, finished=False)
        yield _chunk("", finished=True)

    made = type("Echo", (litellm.CustomLLM,), {"acompletion": acompletion, "astreaming": astreaming})
    return made()


def _chunk(text: str, *, finished: bool) -> dict[str, Any]:
    return {
        "text": text,
        "is_finished": finished,
        "finish_reason": "stop" if finished else None,
        "index": 0,
        "tool_use": None,
        "usage": None,
    }
