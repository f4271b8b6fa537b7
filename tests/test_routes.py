"""Model names: exact ones, patterns, what a * carries, and what must not pass through one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.routes import SAME_WIRE, Routes
from proxy.settings import Config, Model


def table(*entries: tuple[str, str], **more: Any) -> Routes:
    return Routes([Model(name=name, litellm=litellm, **more) for name, litellm in entries])


def full_name(routes: Routes, name: str) -> str | None:
    found = routes.route(name)
    return None if found is None else found.model


def test_a_name_that_is_not_listed_has_no_route() -> None:
    routes = table(("claude-*", "anthropic/claude-*"), ("fast", "groq/llama-3"))
    assert [full_name(routes, name) for name in ("gpt-4o", "fast-", "Fast", "my-claude-3", "")] == [None] * 5


def test_what_the_star_stands_for_is_carried_over() -> None:
    routes = table(("claude-*", "anthropic/claude-*"), ("my-*-model", "openai/*"), ("all/*", "together_ai/meta-*-x"))
    assert full_name(routes, "claude-sonnet-4-5") == "anthropic/claude-sonnet-4-5"
    assert full_name(routes, "claude-") == "anthropic/claude-"
    assert full_name(routes, "my-gpt-4o-model") == "openai/gpt-4o"
    assert full_name(routes, "all/a/b:c@1") == "together_ai/meta-a/b:c@1-x"


def test_exact_names_win_then_the_first_pattern_in_order() -> None:
    routes = table(("*", "openai/*"), ("gpt-*", "groq/gpt-*"), ("gpt-4o", "xai/grok"))
    assert full_name(routes, "gpt-4o") == "xai/grok"
    assert full_name(routes, "gpt-5") == "openai/gpt-5"


def test_special_characters_of_a_name_mean_themselves() -> None:
    routes = table(("a.b+(c)", "openai/x"), ("a.b*", "openai/*"))
    assert full_name(routes, "a.b+(c)") == "openai/x"
    assert full_name(routes, "aXbc") is None


@pytest.mark.parametrize("evil", ["../../v2/x", "a/../b", "a?key=b", "a#b", "a b", "a%2f", "a\\b", "a\nb", "模型"])
def test_a_star_carries_no_other_path_into_a_url(evil: str) -> None:
    assert table(("gemini-*", "gemini/gemini-*")).route(f"gemini-{evil}") is None


@given(st.text(max_size=40))
def test_any_name_leads_below_its_entrys_provider_or_nowhere(name: str) -> None:
    found = table(("*", "openai/x-*")).route(name)
    assert found is None or (found.provider == "openai" and found.upstream_model == f"x-{name}")


def test_the_parts_of_a_route() -> None:
    found = table(("a", "together_ai/meta-llama/Llama-3"), api_key="sk-1").route("a")
    assert found is not None
    assert (found.provider, found.upstream_model, found.api_key) == ("together_ai", "meta-llama/Llama-3", "sk-1")
    assert "sk-1" not in repr(found)


@pytest.mark.parametrize(
    ("litellm", "wire", "same"),
    [
        ("openai/gpt-4o", "auto", True),
        ("openai/gpt-4o", "litellm", False),
        ("anthropic/claude-3", "auto", False),
        ("bedrock/anthropic.claude-3", "auto", False),
    ],
)
def test_bytes_go_as_they_came_only_to_listed_providers(litellm: str, wire: Any, same: bool) -> None:
    found = table(("a", litellm), wire=wire).route("a")
    assert found is not None
    assert found.is_same_wire is same


def test_providers_that_sign_requests_are_never_on_the_same_wire() -> None:
    assert SAME_WIRE.isdisjoint({"bedrock", "sagemaker", "sagemaker_chat", "vertex_ai", "oci", "azure"})


def test_the_built_in_model_is_there_beside_the_entries_and_may_be_replaced() -> None:
    assert full_name(table(), "demo/echo") == "demo/echo"
    assert full_name(table(("demo/*", "openai/*")), "demo/echo") == "demo/echo"
    assert full_name(table(("demo/echo", "openai/x")), "demo/echo") == "openai/x"


# ── entries ────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "a", "litellm": ""}, "at least 1 character"),
        ({"name": "", "litellm": "openai/a"}, "at least 1 character"),
        ({"name": "a", "litellm": "gpt-4o"}, "names no provider; write provider/model"),
        ({"name": "a", "litellm": "openai/"}, "names no provider"),
        ({"name": "a-*", "litellm": "*/a"}, "names no provider"),
        ({"name": "a-*", "litellm": "openai/a"}, "`litellm` needs one too"),
        ({"name": "a", "litellm": "openai/*"}, "`name` needs one too"),
        ({"name": "*-*", "litellm": "openai/*"}, r"one \* is the most"),
        ({"name": "a", "litellm": "openai/a", "api_base": "localhost:8000"}, "must be an http:// or https:// URL"),
        ({"name": "a", "litellm": "openai/a", "api_key": ""}, "at least 1 item"),
        ({"name": "a", "litellm": "openai/a", "wire": "raw"}, "'auto' or 'litellm'"),
        ({"name": "a", "litellm": "openai/a", "system_role": "user"}, "'system' or 'none'"),
        ({"name": "a", "litellm": "hosted_vllm/a"}, "no address of its own: set api_base"),
        ({"name": "a", "litellm": "openai/a", "base": "x"}, "Extra inputs"),
    ],
)
def test_a_wrong_entry_says_what_to_do(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Config.model_validate({"models": [entry]})


def test_a_name_stands_once() -> None:
    entries = [{"name": "a", "litellm": "openai/a"}, {"name": "b", "litellm": "openai/b"}]
    with pytest.raises(ValidationError, match="the name 'a' stands twice"):
        Config.model_validate({"models": [*entries, {"name": "a", "litellm": "groq/a"}]})
    assert len(Config.model_validate({"models": entries}).models) == 2


def test_an_entrys_defaults() -> None:
    entry = Model(name="a", litellm="openai/a", api_base="http://127.0.0.1:8000/v1/")
    assert (entry.api_base, entry.api_key) == ("http://127.0.0.1:8000/v1", None)
    assert (entry.wire, entry.system_role) == ("auto", "system")
