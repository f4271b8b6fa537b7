"""The command line: help that teaches, mistakes that end in a sentence, the policy commands, the demo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from proxy import __version__
from proxy.cli import main
from proxy.cli.commands import cli
from tests.running import ROOT, Running, running
from tests.scripted import ScriptedUpstream

RULE = """
version: 1
triggers:
  - id: collects
    why: What the user collects.
    when: user_message
    if: {match: 'I collect (?P<what>\\w+)'}
    extract: {template: The user collects $what}
    write: {memory_type: semantic, kind: preference}
    examples: [{user: I collect stamps, expect: [{content: The user collects EXPECTED}]}]
"""


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit status, and what it printed."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command as `sidemirror` would, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in [name for name in os.environ if name.startswith(("SIDEMIRROR__", "FORCE_COLOR"))]:
        monkeypatch.delenv(name)

    def ran(*args: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["sidemirror", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, printed.out, printed.err)

    return ran


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its path, the groups included."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = list(commands(typer.main.get_command(cli)))
LATER = [path for path, command in ALL if command.hidden]


# ── help ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=lambda path: " ".join(path) or "sidemirror")
def test_every_command_has_help_that_teaches(run: Run, path: tuple[str, ...]) -> None:
    shown = run(*path, "--help")
    assert shown == run(*path, "-h")
    assert (shown.status, shown.err) == (0, "")
    # What it does, in a sentence, stands between the usage and the options.
    assert re.search(r"Usage:[^\n]*\n\s*\n\s*[A-Z][^\n]{20,}", shown.out)


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*one, id=" ".join(one[0])) for one in ALL if not one[1].hidden]
)
def test_every_option_and_argument_says_what_it_is_for(run: Run, path: tuple[str, ...], command: Any) -> None:
    shown = " ".join(re.sub("[│╭╮╰╯─]", " ", run(*path, "--help").out).split())
    for option in command.params:
        assert option.help, option.opts
        # Square brackets would be taken for colours, and vanish.
        assert " ".join(option.help.split()) in shown


def test_help_leaves_out_what_cannot_be_done_yet(run: Run) -> None:
    shown = run("--help").out
    assert "serve" in shown
    assert "demo" in shown
    for path in LATER:
        if len(path) == 1:
            assert not re.search(rf"^│ {path[0]} ", shown, re.MULTILINE)


def test_no_command_at_all_shows_the_help(run: Run) -> None:
    shown = run()
    assert "Commands" in shown.out + shown.err
    assert "OPENAI_BASE_URL" in shown.out + shown.err


def test_the_version_is_told(run: Run) -> None:
    assert run("--version") == Ran(0, f"sidemirror {__version__}\n", "")


def test_the_module_is_the_command() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "proxy", "--version"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout == f"sidemirror {__version__}\n"


# ── mistakes ───────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("path", LATER, ids=" ".join)
def test_what_a_later_version_brings_is_refused_with_a_sentence(run: Run, path: tuple[str, ...]) -> None:
    for more in ([], ["some", "--thing", "x"]):
        refused = run(*path, *more)
        assert refused == Ran(2, "", f"sidemirror: 'sidemirror {' '.join(path)}' is not supported yet\n")


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("serv",), "serve"),
        (("policy", "chek"), "check"),
        (("serve", "--prot", "1"), "--prot"),
        (("serve", "--port", "many"), "--port"),
        (("serve", "--port", "70000"), "--port"),
        (("serve", "--config", "nowhere.yaml"), "nowhere.yaml"),
        (("policy", "check", "nowhere"), "nowhere"),
        (("policy", "explain"), "text"),
        (("policy", "explain", "x", "--as", "cat"), "cat"),
        (("policy", "explain", "x", "--policies", "nowhere"), "nowhere"),
    ],
    ids=" ".join,
)
def test_a_mistake_ends_in_a_sentence_that_names_it(run: Run, args: tuple[str, ...], named: str) -> None:
    refused = run(*args)
    assert refused.status in (1, 2)
    assert refused.out == ""
    assert named in refused.err
    assert "Traceback" not in refused.err


def test_a_wrong_setting_is_told_with_its_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("server: {port: 8080}\nsevrer: {host: x}\n", encoding="utf-8")
    for args in (("serve",), ("policy", "check")):
        refused = run(*args)
        assert refused.status == 2
        assert "config.yaml:2:1: sevrer" in refused.err
        assert "server" in refused.err


# ── policies ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_check_passes_the_shipped_policies(run: Run) -> None:
    checked = run("policy", "check")
    assert (checked.status, checked.err) == (0, "")
    assert re.fullmatch(r"\d+ file\(s\), \d+ rule\(s\), all examples hold; hash \w+\n", checked.out)


def test_check_tells_every_mistake_with_its_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.yaml").write_text(RULE.replace("EXPECTED", "coins"), encoding="utf-8")
    (tmp_path / "policies" / "b.yaml").write_text("version: 1\ntrigers: []\n", encoding="utf-8")
    for args in ((), ("policies",), ("policies/a.yaml",)):
        checked = run("policy", "check", *args)
        assert (checked.status, checked.out) == (1, "")
        assert re.search(r"a\.yaml:10:\d+: ", checked.err) or "b.yaml:2:1" in checked.err
    everything = run("policy", "check", "policies").err
    assert "b.yaml:2:1" in everything
    assert everything.splitlines()[-1].endswith("problem(s)")


def test_check_passes_a_mended_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RULE.replace("EXPECTED", "stamps"), encoding="utf-8")
    checked = run("policy", "check", "a.yaml")
    assert checked.status == 0
    assert checked.out.startswith("1 file(s), 1 rule(s), all examples hold")


@pytest.mark.parametrize(
    ("said", "rule", "kept"),
    [
        ("我更喜欢深色模式。", "preference-theme", "用户喜欢深色模式"),
        ("I prefer dark mode.", "preference-theme", "The user prefers dark mode"),
    ],
)
def test_explain_shows_the_rule_and_what_it_would_write(run: Run, said: str, rule: str, kept: str) -> None:
    shown = run("policy", "explain", said)
    assert shown.status == 0
    assert rule in shown.out
    assert kept in shown.out
    assert "✓" in shown.out
    explained = json.loads(run("policy", "explain", said, "--json").out)
    (matched,) = [one for one in explained if one["rule_id"] == rule]
    assert matched["outcome"] == "matched"
    assert [draft["content"] for draft in matched["drafts"]] == [kept]


def test_explain_with_all_shows_why_rules_did_not_match(run: Run) -> None:
    said = "Do I prefer dark mode?"
    assert "preference-theme" not in run("policy", "explain", said).out
    everything = run("policy", "explain", said, "--all").out
    assert "preference-theme" in everything
    assert "✗" in everything


def test_explain_prints_brackets_as_they_are(run: Run, tmp_path: Path) -> None:
    rule = RULE.replace("(?P<what>\\w+)", "(?P<what>.+)").replace("EXPECTED", "stamps")
    (tmp_path / "a.yaml").write_text(rule, encoding="utf-8")
    shown = run("policy", "explain", "I collect [red] and [/bold] things", "--policies", "a.yaml")
    assert "The user collects [red] and [/bold] things" in shown.out


def test_explain_takes_what_a_tool_or_the_assistant_said(run: Run, tmp_path: Path) -> None:
    rule = RULE.replace("user_message", "tool_result").replace(
        "{user: I collect stamps", "{tool: {name: t, content: I collect stamps}"
    )
    (tmp_path / "a.yaml").write_text(rule.replace("EXPECTED", "stamps"), encoding="utf-8")
    shown = run("policy", "explain", "I collect coins", "--as", "tool", "--tool", "t", "--policies", "a.yaml")
    assert "The user collects coins" in shown.out
    assert "no rule matches" in run("policy", "explain", "I collect coins", "--policies", "a.yaml").out


def test_schema_is_the_shipped_one(run: Run) -> None:
    printed = run("policy", "schema")
    assert json.loads(printed.out) == json.loads((ROOT / "policies" / "schema.json").read_text(encoding="utf-8"))


# ── demo ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def demo(tmp_path: Path, *args: str) -> str:
    """Play the demo in a process of its own, offline; what it showed."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SIDEMIRROR__", "OPENAI_"))}
    played = subprocess.run(
        [sys.executable, "-m", "proxy", "demo", *args],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert played.returncode == 0, played.stderr
    assert "Traceback" not in played.stderr
    return played.stdout


def sessions(shown: str) -> dict[str, list[str]]:
    """The demo's panels and tables by session, in order."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"(?=╭─ session )", shown)[1:]:
        name = re.match(r"╭─ session (\w+), memory (\w+)", part)
        assert name is not None
        found.setdefault(f"{name[1]} {name[2]}", []).append(part)
    return found


def test_the_demo_compares_with_and_without_memory_offline(tmp_path: Path) -> None:
    shown = sessions(demo(tmp_path, "--compare"))
    assert set(shown) == {"first on", "second on", "third off"}
    chinese, english = shown["second on"]
    assert "用户喜欢深色模式" in chinese
    assert "5433" in english
    for part in (chinese, english):
        assert re.search(r"recalled +│ .*injected", part)
        assert re.search(r": ok, [1-9]\d* injected, [1-9]\d* tokens", part)
    assert any(
        re.search(r"written +│ 用户喜欢深色模式 +│ created by preference-theme", part) for part in shown["first on"]
    )
    for part in shown["third off"]:
        assert "0 injected, 0 tokens" in part
        assert "用户喜欢深色模式" not in part
        assert "5433" not in part
    assert [path.name for path in tmp_path.iterdir()] == []


def test_the_demo_plays_against_a_running_proxy(product: Running, tmp_path: Path) -> None:
    shown = sessions(demo(tmp_path, "--url", product.address))
    assert set(shown) == {"first on", "second on"}
    assert "用户喜欢深色模式" in shown["second on"][0]


def test_the_demo_plays_against_a_proxy_where_each_key_is_a_tenant(provider: ScriptedUpstream, tmp_path: Path) -> None:
    (folder := tmp_path / "proxy").mkdir()
    config = {"upstream": {"base_url": provider.url}, "auth": {"tenant": "api_key"}, "recall": {"deadline_ms": 5_000}}
    with running(folder, config=config) as product:
        shown = sessions(demo(tmp_path, "--url", product.address))
    assert "用户喜欢深色模式" in shown["second on"][0]
