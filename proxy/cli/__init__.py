"""The command `sidemirror`: thin commands over the house."""

from __future__ import annotations

import sys

from rich.console import Console

from proxy.cli.commands import cli
from proxy.errors import SidemirrorError

__all__ = ["main"]


def main() -> None:
    """Run the command line; mistakes people make end in one clear message, not in a trace."""
    try:
        cli()
    except SidemirrorError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"sidemirror: {error}", markup=False)
        sys.exit(2)
