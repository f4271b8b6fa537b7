"""Paths into JSON results: `$`, `$.items[0].name`, `$.items[*].id`. In: parsed JSON, a path. Out: the value. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from proxy.shelf import compiled

_STEP = compiled(r"\.(?P<key>[\p{L}_][\w-]*)|\['(?P<quoted>[^']+)'\]|\[(?P<index>-?\d+)\]|(?P<all>\[\*\])")
MAX_STEPS = 16


def steps(path: str) -> list[str | int | None]:
    """The steps of a path; None stands for ``[*]``.

    Raises:
        ValueError: Not a path.

    >>> steps("$.items[0].name"), steps("$"), steps("$.a['b c'][*]")
    (['items', 0, 'name'], [], ['a', 'b c', None])
    """
    if not path.startswith("$"):
        raise ValueError(f"{path!r} is no JSON path; it starts with $")
    found: list[str | int | None] = []
    position = 1
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None or len(found) >= MAX_STEPS:
            raise ValueError(f"broken JSON path {path!r} at character {position + 1}; write it like $.items[0].name")
        index = step["index"]
        found.append(int(index) if index is not None else step["key"] or step["quoted"])
        position = step.end()
    return found


def lookup(data: Any, path: str) -> Any:
    """The value at a path, None where there is none.

    >>> lookup({"items": [{"name": "a"}, {"name": "b"}]}, "$.items[1].name")
    'b'
    >>> lookup({"items": [{"name": "a"}, {"x": 1}]}, "$.items[*].name"), lookup([], "$[0]"), lookup({"a": 1}, "$")
    (['a'], None, {'a': 1})
    """
    return _walk(data, steps(path))


def _walk(data: Any, rest: list[str | int | None]) -> Any:
    for number, step in enumerate(rest):
        if step is None:
            if not isinstance(data, list):
                return None
            found = [_walk(item, rest[number + 1 :]) for item in data]
            return [value for value in found if value is not None]
        if isinstance(step, int):
            if not isinstance(data, list) or not -len(data) <= step < len(data):
                return None
            data = data[step]
        elif isinstance(data, Mapping) and step in data:
            data = data[step]
        else:
            return None
    return data


def shortened(data: Any, max_chars: int = 2_000) -> Any:
    """A JSON value cut to a size that fits a slot: long lists keep their first items, long texts their beginning.

    >>> shortened({"a": 1}), len(json.dumps(shortened(["x" * 900] * 50))) <= 2000, shortened({"k": "y" * 9})
    ({'a': 1}, True, {'k': 'yyyyyyyyy'})
    """
    for items, chars in ((None, None), (20, 300), (8, 160), (3, 80), (1, 40)):
        cut = data if items is None else _cut(data, items, chars or 0)
        text = json.dumps(cut, ensure_ascii=False, default=str)
        if len(text) <= max_chars:
            return cut
    return text[: max_chars - 1] + "…"


def _cut(data: Any, items: int, chars: int) -> Any:
    if isinstance(data, str):
        return data if len(data) <= chars else data[: chars - 1] + "…"
    if isinstance(data, list):
        return [_cut(item, items, chars) for item in data[:items]]
    if isinstance(data, Mapping):
        return {key: _cut(value, items, chars) for key, value in list(data.items())[: items * 4]}
    return data
