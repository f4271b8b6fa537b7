"""Named SQL: the blocks of a ``.sql`` file that begin with ``-- name: something``.

In: a file's name. Out: its blocks. All of the store's SQL lives in such files, none in Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def load(name: str) -> Mapping[str, str]:
    """The named blocks of ``<name>.sql`` beside this module.

    Args:
        name: File name without its ending.

    Returns:
        SQL by block name, without the final semicolon.

    Raises:
        ValueError: A name stands twice.
    """
    _, *parts = _NAME.split(Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8"))
    blocks = {title: sql.strip().rstrip(";") for title, sql in zip(parts[::2], parts[1::2], strict=True)}
    if len(blocks) != len(parts) // 2:
        raise ValueError(f"{name}.sql: a block name stands twice")
    return blocks
