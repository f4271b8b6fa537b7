"""Memories of mem0: what its API and its export write, as JSON or as JSON lines.

In: the parsed JSON, or lines. Out: `Imported`. Its graph of relations is left out: the memories say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from proxy.errors import Problem
from proxy.importing.imported import Imported, Statement, moment

_LISTS = ("results", "memories", "data")
_TEXTS = ("memory", "text", "content", "data")
_KINDS = {
    "preference": "preference",
    "instruction": "instruction",
    "decision": "decision",
    "feedback": "feedback",
    "task": "task",
}
_TYPES = {"semantic_memory": "semantic", "episodic_memory": "episodic", "semantic": "semantic", "episodic": "episodic"}


def is_mem0(data: Any) -> bool:
    """Whether parsed JSON, or the first line parsed, holds memories of mem0."""
    entries = _entries(data)
    return bool(entries) and isinstance(entries[0], Mapping) and "memory" in entries[0]


def read(data: Any, file: str) -> Imported:
    """Read memories.

    Args:
        data: The parsed JSON.
        file: Its name, for problems.
    """
    return _imported(((f"{file}: memory {number}", one) for number, one in enumerate(_entries(data), 1)), file)


def read_lines(lines: Iterable[str], file: str) -> Imported:
    """Read memories that stand one on each line."""
    return _imported(
        ((f"{file}:{number}", _parsed(line)) for number, line in enumerate(lines, 1) if line.strip()), file
    )


def _parsed(line: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _entries(data: Any) -> list[Any]:
    if isinstance(data, Mapping):
        listed = next((data[name] for name in _LISTS if isinstance(data.get(name), list)), None)
        return [data] if listed is None else list(listed)
    return data if isinstance(data, list) else []


def _imported(entries: Iterator[tuple[str, Any]], file: str) -> Imported:
    found: list[Statement] = []
    problems: list[Problem] = []
    for place, entry in entries:
        text = _text(entry)
        if text:
            found.append(_statement(entry, text, place))
        else:
            where = place.removeprefix(file).lstrip(": ")
            problems.append(Problem(file, None, None, where, "no memory: expected an object with its text in 'memory'"))
    return Imported("mem0", statements=tuple(found), problems=tuple(problems))


def _text(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        return ""
    return next((entry[name].strip() for name in _TEXTS if isinstance(entry.get(name), str)), "")


def _statement(entry: Mapping[str, Any], text: str, place: str) -> Statement:
    metadata = entry["metadata"] if isinstance(entry.get("metadata"), Mapping) else {}
    listed = entry.get("categories") or metadata.get("categories") or metadata.get("category") or ()
    categories = [str(one) for one in (listed if isinstance(listed, list) else [listed]) if one]
    return Statement(
        place,
        text,
        id=_name(entry, "id"),
        at=moment(entry.get("created_at")),
        changed_at=moment(entry.get("updated_at")),
        user_id=_name(entry, "user_id"),
        agent_id=_name(entry, "agent_id"),
        session_id=_name(entry, "run_id"),
        kind=next((kind for word, kind in _KINDS.items() if any(word in one.casefold() for one in categories)), None),
        memory_type=_TYPES.get(str(metadata.get("memory_type") or entry.get("memory_type"))),
        tags=tuple(dict.fromkeys(categories)),
    )


def _name(entry: Mapping[str, Any], key: str) -> str | None:
    return str(entry[key]) if entry.get(key) not in (None, "") else None
