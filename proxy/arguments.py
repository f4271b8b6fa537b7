"""A chat body as arguments for `litellm.acompletion`: what a client may say to the model, nothing that steers the call.

Only fields on the list below become arguments of litellm's. Every other one goes into the body that litellm sends, or
is left out: a client can neither redirect a call, nor choose its credentials, nor have it mocked. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from proxy.errors import RequestError
from proxy.routes import SAME_WIRE, Route

FIELDS = frozenset(
    {
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "modalities",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream_options",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
        "web_search_options",
    }
)
"""Fields of a chat request that litellm takes as arguments."""
_NOT_A_MODELS = frozenset({"model", "messages", "stream", "metadata"})
_HINTS = frozenset({"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "user"})
"""Fields that change no answer: left out where the provider knows nothing like them."""
_DEFAULTS: Mapping[str, Any] = {
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "modalities": ["text"],
    "n": 1,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "top_logprobs": 0,
    "verbosity": "medium",
}
"""A field that says what holds anyway may be left out."""
_STEERING = re.compile(
    r"_.*|(?:aws|azure|vertex|gemini|watsonx|sagemaker|oci|gigachat|databricks|snowflake|mock|litellm)_.*"
    r"|api_.*|.*_(?:key|token|secret|password|credentials|url|base|endpoint)|organization|project|session_id"
)
_OWN_BODY = frozenset({"anthropic", "anthropic_text", "bedrock", "sagemaker", "sagemaker_chat", "demo"})
"""Providers for which litellm builds the body alone, without `extra_body`."""
_NATIVE = frozenset({"cache_control", "top_k"})
"""Their own fields, which clients of theirs send; litellm puts them where they belong."""
_CHAT_TOO = frozenset({"azure", "azure_ai", "mistral", "moonshot", "openrouter"})


def arguments(litellm: ModuleType, route: Route, body: Mapping[str, Any]) -> dict[str, Any]:
    """What to call `acompletion` with, besides address and key.

    Args:
        litellm: The module.
        route: Where the call goes.
        body: The client's request.

    Returns:
        Keyword arguments.

    Raises:
        RequestError: `messages` is missing or no list of objects.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise RequestError("messages must be a list of objects", param="messages")
    api: Any = litellm
    named: dict[str, Any] = {"model": route.model, "messages": messages, "stream": body.get("stream") is True}
    extra: dict[str, Any] = {}
    speaks_chat = route.provider in SAME_WIRE | _CHAT_TOO or route.provider in api.openai_compatible_providers
    supported = _supported(api, route)
    for name, value in body.items():
        if name in _NOT_A_MODELS or value is None:
            continue
        if name in FIELDS:
            if name in supported:
                named[name] = value
            elif speaks_chat:
                extra[name] = value
            elif name not in _HINTS and not (name in _DEFAULTS and value == _DEFAULTS[name]):
                named[name] = value  # litellm refuses it, and says so
        elif not steers(api, name):
            if route.provider not in _OWN_BODY:
                extra[name] = value
            elif name in _NATIVE:
                named[name] = value
    _add_metadata(body.get("metadata"), named, extra, speaks_chat=speaks_chat)
    if extra:
        named["extra_body"] = extra
    return named


def steers(litellm: Any, name: str) -> bool:
    """Whether a field's name means something to litellm itself: an address, a credential, a way to route or to mock."""
    return name in litellm.types.utils.all_litellm_params or name in _SIGNATURE or bool(_STEERING.fullmatch(name))


_SIGNATURE = frozenset(
    {
        "additional_drop_params",
        "base_url",
        "deployment_id",
        "drop_params",
        "extra_body",
        "extra_headers",
        "extra_query",
        "include_server_side_tool_invocations",
        "timeout",
    }
)


def _supported(api: Any, route: Route) -> frozenset[str]:
    model, provider, _, _ = api.get_llm_provider(route.model, api_base=route.entry.api_base)
    listed = api.get_supported_openai_params(model=model, custom_llm_provider=provider)
    # litellm answers these itself.
    return frozenset(listed or ()) | {"stream_options"}


def _add_metadata(metadata: Any, named: dict[str, Any], extra: dict[str, Any], *, speaks_chat: bool) -> None:
    if metadata is None:
        return
    if speaks_chat:
        extra["metadata"] = metadata
    elif isinstance(metadata, dict) and isinstance(metadata.get("user_id"), str):
        # Anthropic takes this one; as an argument, `metadata` steers litellm, so nothing else of it goes there.
        named["metadata"] = {"user_id": metadata["user_id"]}
