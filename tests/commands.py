"""Commands, run in this process as `sidemirror` would, in a folder of their own."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit status, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as data."""
        return json.loads(self.out)


class Commands:
    """Runs commands.

    Args:
        monkeypatch, capsys: Of the test.
        folder: Where they run.
        always: Arguments that every one gets after its own.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        folder: Path,
        always: tuple[str, ...] = (),
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self._always = always
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "240")
        monkeypatch.setenv("NO_COLOR", "1")
        for name in [name for name in os.environ if name.startswith(("SIDEMIRROR_", "FORCE_COLOR"))]:
            monkeypatch.delenv(name)

    def __call__(self, *args: str) -> Ran:
        """Run one."""
        self._monkeypatch.setattr(sys, "argv", ["sidemirror", *args, *self._always])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self._capsys.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, printed.out, printed.err)
