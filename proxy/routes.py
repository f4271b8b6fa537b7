"""Where a model name leads: `models:` of config.yaml as a table that is asked once a call. Pure.

In: the name as the client sent it. Out: a `Route`, or None for the names that go to `upstream` as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.settings import Model

SAME_WIRE = frozenset(
    {
        "baseten",
        "cerebras",
        "dashscope",
        "deepseek",
        "groq",
        "hosted_vllm",
        "hyperbolic",
        "llamafile",
        "lm_studio",
        "minimax",
        "modelscope",
        "nebius",
        "nvidia_nim",
        "openai",
        "perplexity",
        "sambanova",
        "scaleway",
        "together_ai",
        "volcengine",
        "xai",
        "zai",
    }
)
"""Providers that speak Chat Completions: for each, a test shows that what we send is what litellm would send."""

ECHO = Model(name="demo/echo", litellm="demo/echo", wire="litellm")
"""The built-in model, beside what `models:` names."""

_CARRIED = r"(?!.*\.\.)[A-Za-z0-9_.:/@+-]*"
"""What a * stands for: some providers have the model in their URL, where a client must not choose another path."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where one call goes.

    Args:
        entry: The entry of `models:` that the name fell under.
        model: The full name in litellm's words, the * filled in.
    """

    entry: Model
    model: str

    @property
    def provider(self) -> str:
        """What stands before the first ``/`` of the full name."""
        return self.model.partition("/")[0]

    @property
    def upstream_model(self) -> str:
        """The name as the provider itself knows it."""
        return self.model.partition("/")[2]

    @property
    def is_same_wire(self) -> bool:
        """Whether the client's bytes go to the provider as they came."""
        return self.entry.wire == "auto" and self.provider in SAME_WIRE

    @property
    def api_key(self) -> str | None:
        """The key that config.yaml holds for it; None sends the client's own."""
        return None if self.entry.api_key is None else self.entry.api_key.get_secret_value()


class Routes:
    """The table of model names.

    Args:
        models: The entries in their order.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        known = [*models, ECHO]
        self._exact = {model.name: Route(model, model.litellm) for model in reversed(known) if "*" not in model.name}
        self._globs = [(_pattern(model.name), model) for model in known if "*" in model.name]

    def route(self, name: str) -> Route | None:
        """Where a model's calls go.

        Args:
            name: As the client sent it.

        Returns:
            The route of the entry with this very name, else of the first whose pattern fits; None when there is none.

        >>> Routes([Model(name="claude-*", litellm="anthropic/claude-*")]).route("claude-sonnet-4-5").model
        'anthropic/claude-sonnet-4-5'
        """
        found = self._exact.get(name)
        if found is not None or not name:
            return found
        for pattern, model in self._globs:
            match = pattern.fullmatch(name)
            if match is not None:
                return Route(model, model.litellm.replace("*", match[1]))
        return None


def _pattern(name: str) -> re.Pattern[str]:
    before, _, after = name.partition("*")
    return re.compile(f"{re.escape(before)}({_CARRIED}){re.escape(after)}")
