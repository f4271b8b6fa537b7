"""What the documents show must work as shown."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from proxy.policy.load import load

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("document", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"])
def test_policies_shown_load_with_their_examples(document: str, tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
    if not shown.startswith("version:"):
        shown = "version: 1\ntriggers:\n" + textwrap.indent(shown, "  ")
    path = tmp_path / "shown.yaml"
    path.write_text(shown, encoding="utf-8")
    assert "expect: ignored" in shown, "an example that must not match is what readers forget"
    assert len(load([path]).triggers) == 1


def test_both_readmes_show_the_same_commands_headers_and_settings() -> None:
    def shown(document: str) -> list[str]:
        text = (ROOT / document).read_text(encoding="utf-8")
        return sorted(set(re.findall(r"`(X-Memory-\w[\w-]*|sidemirror [a-z -]+|[a-z]+\.[a-z_]+|/[a-z]+)", text)))

    assert shown("README.md") == shown("README.zh-CN.md")
    assert len(shown("README.md")) > 15


@pytest.mark.parametrize("document", ["README.md", "README.zh-CN.md"])
def test_readmes_open_with_the_two_commands_then_the_base_url(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    order = ["make run", "make test", 'base_url="http://127.0.0.1:8080/v1"', "curl ", "docker run", "```mermaid"]
    places = [text.index(each) for each in order]
    assert places == sorted(places)


@pytest.mark.parametrize("document", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(document: str) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / document).read_text(encoding="utf-8"))
    assert [target for target in targets if not (ROOT / target).exists()] == []
