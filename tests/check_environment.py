"""Refuses an environment that could run what nobody asked for.

In: the running interpreter's site-packages. Out: exit status 1 and a line for each compromised release and for each
start-up file (`.pth`, sitecustomize) that neither we nor a locked package put there. Standard library only, since it
runs before anything else is trusted.
"""

from __future__ import annotations

import site
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path

COMPROMISED = {"litellm": ("1.82.7", "1.82.8", "1.107.")}
"""Releases never to be installed; one that ends in a dot stands for all that begin so."""

KNOWN_PTH = {
    "distutils-precedence.pth": (
        "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; "
        "enabled and __import__('_distutils_hack').add_shim();"
    ),
    "_virtualenv.pth": "import _virtualenv",
}
"""Files that setuptools and virtualenv bring, with all that may stand in them."""


EDITABLE_PTH = "_editable_impl_sidemirror.pth"
"""The editable install's own file: it may name a folder, and run nothing."""


def compromised(installed: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Name the releases that must not be here.

    Args:
        installed: Pairs of name and version.

    Yields:
        One line for each.
    """
    for name, version in installed:
        for bad in COMPROMISED.get(name.lower(), ()):
            if version == bad or (bad.endswith(".") and version.startswith(bad)):
                yield f"{name} {version} is a compromised release: run `make clean`, then `make install`"


def unexpected_start_files(folder: Path) -> Iterator[str]:
    """Name the files that Python would run by itself at each start and that do not belong here.

    Args:
        folder: A site-packages folder.

    Yields:
        One line for each.
    """
    for path in sorted(folder.glob("*.pth")):
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        if path.name in KNOWN_PTH:
            if text != KNOWN_PTH[path.name]:
                yield f"{path}: its content is not the known one: look who changed it"
        elif not _only_paths(text):
            yield f"{path}: this file runs code at every start of Python: look who put it there, then remove it"
        elif path.name != EDITABLE_PTH:
            yield f"{path}: this file adds to Python's search path: look who put it there, then remove it"
    for name in ("sitecustomize", "usercustomize"):
        for path in (folder / f"{name}.py", folder / name):
            if path.exists():
                yield f"{path}: this module runs at every start of Python: look who put it there, then remove it"


def _only_paths(text: str) -> bool:
    return all(not line.startswith(("import ", "import\t")) for line in text.splitlines())


def main() -> int:
    """Check the running interpreter's environment; 0 when all is well."""
    installed = [(each.metadata["Name"] or "", each.version) for each in distributions()]
    problems = list(compromised(installed))
    for folder in site.getsitepackages():
        problems += unexpected_start_files(Path(folder))
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
