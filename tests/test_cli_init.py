"""`sidemirror init`: a project of one's own that checks, starts, and differs by preset in policies only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from proxy.cli.init import PRESETS
from proxy.config import load
from proxy.policy import load as loader
from proxy.policy.load import policy_files
from tests.commands import Commands
from tests.running import ROOT

SHIPPED = ROOT / "policies"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Commands:
    """Run a command in an empty folder."""
    return Commands(monkeypatch, capsys, tmp_path)


def written(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_project_is_the_shipped_settings_and_policies(run: Commands, tmp_path: Path) -> None:
    ran = run("init")
    assert (ran.status, ran.err) == (0, "")
    files = written(tmp_path)
    assert files["config.yaml"] == (ROOT / "config.yaml").read_bytes()
    shipped = {f"policies/{path.name}": path.read_bytes() for path in SHIPPED.iterdir() if path.is_file()}
    assert files == shipped | {name: files[name] for name in ("config.yaml", "docker-compose.yml")}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_adds_one_file_of_policies_and_nothing_else(run: Commands, tmp_path: Path, preset: str) -> None:
    assert run("init", "plain").status == 0
    ran = run("init", "mine", "--preset", preset, "--json")
    assert ran.json["preset"] == preset
    plain, mine = written(tmp_path / "plain"), written(tmp_path / "mine")
    assert sorted(ran.json["written"]) == sorted(mine)
    assert [name for name in mine if mine[name] != plain.get(name)] == [f"policies/17-{preset}.yaml"]
    assert b"$schema=./schema.json" in mine[f"policies/17-{preset}.yaml"]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_checks_among_the_shipped_policies(run: Commands, tmp_path: Path, preset: str) -> None:
    assert run("init", "--preset", preset).status == 0
    found = loader.load([tmp_path / "policies"])
    added = [rule for rule in found.triggers if rule.file.endswith(f"17-{preset}.yaml")]
    assert len(added) >= 4
    assert all(rule.trigger.why for rule in added)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_rule_of_a_preset_has_examples_in_both_languages(preset: str) -> None:
    rules = YAML(typ="safe").load(SHIPPED / "presets" / f"{preset}.yaml")["triggers"]
    for rule in rules:
        texts = [str(one.get("user") or one.get("tool")) for one in rule["examples"]]
        assert any(re.search(r"[一-鿿]", text) for text in texts), rule["id"]
        assert any(not re.search(r"[一-鿿]", text) for text in texts), rule["id"]
        assert any(one["expect"] == "ignored" for one in rule["examples"]), rule["id"]


def test_presets_are_not_loaded_by_themselves() -> None:
    assert not [path for path, _ in policy_files([SHIPPED]) if path.parent.name == "presets"]


def test_the_written_settings_are_read_with_the_written_policies(run: Commands, tmp_path: Path) -> None:
    assert run("init", "mine").status == 0
    config = load(tmp_path / "mine" / "config.yaml", {})
    assert config.policies == (tmp_path / "mine" / "policies",)
    assert config.data_dir == tmp_path / "mine" / "data"


def test_the_compose_file_is_for_this_folder(run: Commands, tmp_path: Path) -> None:
    assert run("init").status == 0
    services = YAML(typ="safe").load(tmp_path / "docker-compose.yml")["services"]
    mounted = {str(one).split(":")[0] for one in services["sidemirror"]["volumes"]}
    assert {"./config.yaml", "./policies"} <= mounted
    assert services["sidemirror"]["ports"] == ["127.0.0.1:8080:8080"]
    # What it sets must be settings, and start in the image, which listens beyond this machine.
    environment = {**services["sidemirror"]["environment"], "SIDEMIRROR__SERVER__HOST": "0.0.0.0"}
    load(tmp_path / "config.yaml", environment)


def test_nothing_is_written_over_unless_that_is_said(run: Commands, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("debug: true\n")
    ran = run("init")
    assert (ran.status, ran.out) == (2, "")
    assert "config.yaml" in ran.err
    assert "--force" in ran.err
    assert written(tmp_path) == {"config.yaml": b"debug: true\n"}
    assert run("init", "--force").status == 0
    assert written(tmp_path)["config.yaml"] == (ROOT / "config.yaml").read_bytes()


def test_an_unknown_preset_and_a_folder_that_cannot_be_are_told(run: Commands, tmp_path: Path) -> None:
    assert "support, recommend, task" in run("init", "--preset", "chess").err
    (tmp_path / "file").write_text("")
    ran = run("init", "file/inside")
    assert (ran.status, ran.out) == (2, "")
    assert "cannot be written" in ran.err
