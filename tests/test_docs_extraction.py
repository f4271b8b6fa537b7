"""docs/extraction.md says what is so: its settings and rules load, and its reasons are the code's."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from proxy import config
from proxy.extraction.model_call import Reason
from proxy.extractor import DAILY_TOKENS, DEFAULT_MODEL
from proxy.language import detect
from proxy.policy.load import load
from proxy.policy.match import evaluate
from proxy.types import Event

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "extraction.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SETTINGS = [text for text in SHOWN if text.startswith("models:")]
RULES = [text for text in SHOWN if text.startswith("version:")]


@pytest.mark.parametrize("text", SETTINGS)
def test_the_settings_shown_name_the_extractor(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    loaded = config.load(path, {"OPENAI_API_KEY": "sk-1", "DASHSCOPE_API_KEY": "sk-2"})
    assert [model.name for model in loaded.models] == [DEFAULT_MODEL]


@pytest.mark.parametrize("text", RULES)
def test_the_rules_shown_load(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rule.yaml"
    path.write_text(text, encoding="utf-8")
    assert len(load([path], models=[DEFAULT_MODEL]).triggers) == 1


@pytest.mark.parametrize("text", RULES)
@pytest.mark.parametrize("said", ["I plan to move to Berlin.", "我打算搬去柏林。"])
def test_the_rules_shown_ask_and_have_something_to_fall_back_on(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rule.yaml"
    path.write_text(text, encoding="utf-8")
    happened = Event("user_message", said, detect(said), "user", datetime(2026, 11, 30, tzinfo=UTC))
    found = evaluate(load([path], models=[DEFAULT_MODEL]), happened)
    (task,) = found.llm
    assert found.drafts == ()
    assert (task.model, task.timeout_s, task.daily_tokens) == (DEFAULT_MODEL, 20, 50_000)
    assert said in task.prompt
    assert [draft.content for draft in task.fallback] == [said]


def test_both_languages_show_settings_and_rules() -> None:
    english, _, chinese = PAGE.partition("## 中文")
    for part in (english, chinese):
        assert "```yaml\nmodels:" in part
        assert "```yaml\nversion: 1" in part


def test_the_reasons_told_are_the_codes() -> None:
    told = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## When it does not answer")[2], re.MULTILINE)
    assert sorted(told) == sorted(get_args(Reason))


def test_the_caps_told_are_the_codes() -> None:
    assert PAGE.count(f"{DAILY_TOKENS:,}") == 3
