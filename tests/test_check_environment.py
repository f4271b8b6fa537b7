"""The environment check, and what the lock files promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.check_environment import EDITABLE_PTH, KNOWN_PTH, compromised, main, unexpected_start_files

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ["requirements.lock", "requirements-dev.lock"]


@pytest.mark.parametrize("version", ["1.82.7", "1.82.8", "1.107.0", "1.107.3.post1"])
def test_compromised_releases_are_named(version: str) -> None:
    (line,) = compromised([("LiteLLM", version), ("openai", version)])
    assert version in line


@pytest.mark.parametrize("version", ["1.82.9", "1.82.70", "1.106.9", "1.110.2"])
def test_other_releases_pass(version: str) -> None:
    assert list(compromised([("litellm", version)])) == []


def test_what_belongs_there_passes(tmp_path: Path) -> None:
    for name, text in KNOWN_PTH.items():
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / EDITABLE_PTH).write_text("/somewhere/sidemirror\n")
    assert list(unexpected_start_files(tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("litellm_init.pth", "import os; os.system('true')"),
        ("harmless.pth", "/another/path"),
        (EDITABLE_PTH, "/somewhere/sidemirror\nimport os"),
        ("distutils-precedence.pth", KNOWN_PTH["distutils-precedence.pth"] + " import os"),
        ("sitecustomize.py", ""),
    ],
)
def test_a_planted_start_file_is_caught(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (line,) = unexpected_start_files(tmp_path)
    assert name in line


def test_the_check_fails_when_one_is_planted_in_the_running_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    assert main() == 0
    (tmp_path / "x.pth").write_text("import os")
    assert main() == 1
    assert "x.pth" in capsys.readouterr().err


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_line_has_hashes_and_no_place(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"(?m)^ *#.*\n", "", text))
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert not re.search(r"://|--index|--find-links|--extra|(?m:^-)", text)


def test_both_locks_name_the_same_versions_and_no_compromised_one() -> None:
    runtime, dev = (
        set(re.findall(r"(?m)^([a-z0-9._-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8"))) for name in LOCKS
    )
    assert runtime < dev
    assert list(compromised(dev)) == []


def test_the_requirements_exclude_compromised_releases() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "!=1.82.7,!=1.82.8,!=1.107.*" in text


def test_the_check_runs_as_a_script_of_the_standard_library_alone() -> None:
    script = ROOT / "tests" / "check_environment.py"
    code = f"import runpy; runpy.run_path({str(script)!r})"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
