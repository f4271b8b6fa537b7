"""docs/ says what is so: lists equal the code's, settings shown load, and every loss that is told has its test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from proxy import config
from proxy.routes import SAME_WIRE
from proxy.settings import Model

ROOT = Path(__file__).resolve().parent.parent
PROVIDERS = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text under a heading."""
    return PROVIDERS.partition(f"## {title}\n")[2].partition("\n## ")[0]


def all_tests() -> set[str]:
    """The names of all tests."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").glob("test_*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    found = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in found if name.startswith("test_")}


def test_the_same_wire_list_is_the_codes() -> None:
    (listed,) = re.findall(r"^`baseten`[^.]*$", section("On the same wire").partition("\n\nAny")[0], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", listed)) == SAME_WIRE


def test_every_loss_names_a_test_and_every_loss_test_is_told() -> None:
    losses = re.findall(r"^- (.*?)(?=^- |^$)", section("Translated"), re.MULTILINE | re.DOTALL)
    named = [re.findall(r"`(test_\w+)`", loss) for loss in losses]
    assert len(losses) >= 10
    assert [loss for loss, tests in zip(losses, named, strict=True) if len(tests) != 1] == []
    told = {test for tests in named for test in tests}
    existing = all_tests()
    assert told <= existing
    assert told == {name for name in existing if name.startswith("test_loss_")}


def test_the_models_shown_load(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", PROVIDERS, re.DOTALL)
    path = tmp_path / "config.yaml"
    path.write_text(shown, encoding="utf-8")
    loaded = config.load(path, {"ANTHROPIC_API_KEY": "sk-1", "GEMINI_API_KEY": "sk-2"})
    assert len(loaded.models) == shown.count("name:")


@pytest.mark.parametrize("key", sorted(Model.model_fields))
def test_every_key_of_an_entry_is_explained(key: str) -> None:
    assert f"\n| `{key}` |" in PROVIDERS
