"""Policy files that need no second look: those shipped, as long as nobody changed them.

Whether patterns are fast and examples hold does not depend on the machine, and finding it out takes seconds. It was
found out when the files were shipped (`python -m proxy.policy.vetted policies` writes the list, a test holds it to the
files); a file with one byte changed is checked in full.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

LIST = Path(__file__).with_name("vetted.txt")


@cache
def digests() -> frozenset[str]:
    """The digests of the shipped files; none when the list is missing."""
    try:
        return frozenset(line.split()[0] for line in LIST.read_text(encoding="utf-8").splitlines() if line.strip())
    except OSError:
        return frozenset()


def digest(content: bytes) -> str:
    """What a file's content is known by; how it breaks its lines does not count."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def listing(files: Iterable[Path]) -> str:
    """The list of some files, one a line: digest and name."""
    return "".join(f"{digest(file.read_bytes())}  {file.name}\n" for file in sorted(files))


if __name__ == "__main__":
    LIST.write_text(listing(Path(sys.argv[1]).glob("*.yaml")), encoding="utf-8")
