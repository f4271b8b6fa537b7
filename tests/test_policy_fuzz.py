"""Whatever stands in a policy file, loading ends in a set or in a `PolicyError` that names the file; no crash."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from proxy.errors import PolicyError
from proxy.policy.load import load

RULES: list[dict[str, Any]] = [
    {
        "id": "a",
        "when": "user_message",
        "if": {"match": {"zh": "我喜欢(?P<x>.)", "en": "like (?P<x>\\w+)"}, "known": False, "value": {"at_least": 0.5}},
        "extract": {"llm": {"model": "extractor", "prompt": "$text", "otherwise": "template"}, "template": "likes $x"},
        "write": {"memory_type": "semantic", "kind": "fact", "key": "k.$x", "ttl": "3d", "tags": ["t"]},
        "examples": [{"user": "like tea", "expect": [{"content": "likes tea"}]}, {"user": "no", "expect": "ignored"}],
    },
    {"id": "b", "when": {"schedule": "weekly mon 03:00"}, "sweep": ["expire", "reflect"]},
    {"id": "c", "when": "user_message", "if": {"match": "forget"}, "forget": True},
    {
        "id": "d",
        "when": {"turn_end": {"every": 2}},
        "if": {"any": [{"has": ["url"]}, {"not": {"language": "zh"}}]},
        "extract": {"slots": {"s": "$.a[0]"}},
        "write": {"memory_type": "working"},
    },
]
FILE: dict[str, Any] = {
    "version": 1,
    "triggers": RULES,
    "retention": {"types": {"episodic": {"half_life": "30d", "archive_below": 0.1}}, "kinds": {"turn": {"ttl": "1d"}}},
    "retrieval": {"decay": {"turn": "14d"}, "intents": [{"id": "i", "match": "how", "bonus": {"episodic": 1.2}}]},
    "guard": {"secrets": "redact", "rate": {"writes_per_minute": 3}},
}
WORDS = st.sampled_from(
    [
        "",
        "x",
        "$x",
        "$",
        "(",
        "(?P<x>a)",
        "\\",
        "daily 03:00",
        "user_message",
        "30d",
        "never",
        "zh",
        "ignored",
        "\x00",
        "吗",
    ]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.floats(allow_nan=True), WORDS, st.text(max_size=8))
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                WORDS, st.sampled_from(["match", "when", "write", "extract", "llm", "template", "not", "any", "id"])
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)


def places(node: Any, here: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield here
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, child in items:
        yield from places(child, (*here, step))


def changed(node: Any, place: tuple[str | int, ...], value: Any) -> Any:
    if not place:
        return value
    copy: Any = dict(node) if isinstance(node, dict) else list(node)
    copy[place[0]] = changed(node[place[0]], place[1:], value)
    return copy


def loads_or_explains(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load([path])
    except PolicyError as error:
        problems = error.problems
    else:
        return
    assert problems
    assert all(problem.file == str(path) and problem.message for problem in problems)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "rules.yaml"


def test_the_seed_of_the_fuzzing_loads(path: Path) -> None:
    path.write_text(json.dumps(FILE), "utf-8")
    assert len(load([path]).triggers) == len(RULES)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(list(places(FILE))[1:]), TREES)
def test_any_value_at_any_place(path: Path, place: tuple[str | int, ...], value: Any) -> None:
    loads_or_explains(path, json.dumps(changed(FILE, place, value), ensure_ascii=True))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TREES)
def test_any_tree(path: Path, tree: Any) -> None:
    loads_or_explains(path, json.dumps(tree, ensure_ascii=True))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2_000), st.integers(0, 12), st.text(max_size=6))
def test_any_damage_to_the_text(path: Path, at: int, cut: int, put: str) -> None:
    text = _yaml_text()
    loads_or_explains(path, text[:at] + put + text[at + cut :])


def _yaml_text() -> str:
    lines = ["version: 1", "triggers:"]
    for rule in RULES:
        lines += [f"  - id: {rule['id']}"]
        lines += [f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in rule.items() if key != "id"]
    text = "\n".join(lines) + "\n"
    assert YAML(typ="safe").load(text)["triggers"][0]["id"] == "a"
    return text
