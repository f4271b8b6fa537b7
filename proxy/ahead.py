"""`python -m proxy.ahead`: work out before the first start what every start needs, and keep it beside the byte code."""

from __future__ import annotations

from contextlib import suppress

import proxy.cli  # noqa: F401 - each module compiles its patterns when it is imported
from proxy.config import load
from proxy.errors import SidemirrorError
from proxy.policy.watch import PolicyHolder
from proxy.shelf import SHELF


def main() -> None:
    """Load all modules and the policies that lie here, and keep what that took."""
    with suppress(SidemirrorError):  # a file somebody edits: the start says what is wrong with it
        PolicyHolder(load(None, {}).policies)
    SHELF.save()


if __name__ == "__main__":
    main()
