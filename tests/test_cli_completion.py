"""Shell completion: the shell asks the command itself, which knows every command and option."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.running import ROOT

AS_INSTALLED = "import sys; sys.argv[0] = 'sidemirror'; from proxy.cli import main; main()"


def run(*args: str, **env: str) -> str:
    """What the command prints, called by its installed name."""
    command = [sys.executable, "-c", AS_INSTALLED, *args]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [("sidemirror mem", {"memory"}), ("sidemirror memory re", {"restore", "reject"}), ("sidemirror imp", {"import"})],
)
def test_commands_are_completed(words: str, offered: set[str]) -> None:
    at = str(len(words.split()) - 1)
    assert set(run(_SIDEMIRROR_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=at).split()) == offered


def test_options_are_completed() -> None:
    offered = run(_SIDEMIRROR_COMPLETE="complete_bash", COMP_WORDS="sidemirror import --to", COMP_CWORD="2").split()
    assert set(offered) == {"--to-user", "--to-agent", "--to-scope"}


def test_the_script_for_the_shell_can_be_shown() -> None:
    shown = run("--show-completion", "bash", SHELL="/bin/bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_SIDEMIRROR_COMPLETE=complete_bash" in shown
