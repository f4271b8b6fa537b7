"""The documentation works: policies load, commands exist, links lead somewhere, the reference is the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from proxy import reference
from proxy.cli.commands import cli
from proxy.policy.load import load
from tests.running import ROOT

PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "README.zh-CN.md"])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_configuration_reference_is_what_the_settings_say() -> None:
    # When this fails: `make format` writes it anew.
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == reference.markdown()


@pytest.mark.parametrize("number", range(3))
def test_the_policies_shown_load_beside_the_shipped_ones(tmp_path: Path, number: int) -> None:
    shown = blocks(ROOT / "docs" / "policies.md", "yaml")
    assert len(shown) == 3
    local = tmp_path / "local"
    local.mkdir()
    (local / "own.yaml").write_text(shown[number], encoding="utf-8")
    rules = load([ROOT / "policies", local / "own.yaml"])
    assert str(local / "own.yaml") in {rule.file for rule in rules.triggers}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_shown_exists_with_its_options(page: Path) -> None:
    for line in re.findall(
        r"^(?:\$ )?(?:\.venv/bin/)?sidemirror ([^#|`\n]*)", "\n".join(blocks(page, "sh")), re.MULTILINE
    ):
        command, words = get_command(cli), line.split()
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, f"{page.name}: sidemirror {line}"
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= known, f"{page.name}: sidemirror {line}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_to_a_file_or_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = page if not path else page.parent / path
        assert found.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page.name}: {target}"
