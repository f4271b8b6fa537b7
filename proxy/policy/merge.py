"""Sections that stand in several files, put together: each value may be set once, and again only in local/.

In: the files' raw sections with their places. Out: one raw section, and the problems met. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proxy.errors import Problem
from proxy.yamlfile import Located, Where

SECTIONS = ("retention", "retrieval", "guard")


@dataclass(frozen=True, slots=True)
class Part:
    """One file's share.

    Args:
        located: The file.
        local: Whether it lies in a local/ folder, and so may set a value again.
    """

    located: Located
    local: bool


def merged(section: str, parts: Iterable[Part]) -> tuple[dict[str, Any], list[Problem]]:
    """Put a section of all files together; examples are left to each file.

    Args:
        section: One of `SECTIONS`.
        parts: The files in loading order.
    """
    state = _Merge(section)
    for part in parts:
        data = part.located.data.get(section) if isinstance(part.located.data, dict) else None
        if isinstance(data, dict):
            state.add(part, data, state.result, (section,))
    return state.result, state.problems


class _Merge:
    def __init__(self, section: str) -> None:
        self.section = section
        self.result: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self._set_by: dict[Where, str] = {}

    def add(self, part: Part, data: dict[str, Any], target: dict[str, Any], where: Where) -> None:
        for key, value in data.items():
            place = (*where, key)
            if place == (self.section, "examples"):
                continue
            if place == ("retrieval", "intents"):
                self._intents(part, value, target.setdefault(key, []))
            elif isinstance(value, dict) and where[-1] != "intents":
                self.add(part, value, target.setdefault(key, {}), place)
            else:
                self._scalar(part, place, value, target)

    def _scalar(self, part: Part, place: Where, value: Any, target: dict[str, Any]) -> None:
        before = self._set_by.get(place)
        if before is not None and not part.local:
            self.problems.append(part.located.problem(place, f"already set in {before}; only local/ may set it again"))
            return
        self._set_by[place] = part.located.file
        target[str(place[-1])] = value

    def _intents(self, part: Part, intents: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
        for index, intent in enumerate(intents):
            place: Where = ("retrieval", "intents", index, "id")
            at = next((i for i, one in enumerate(target) if one["id"] == intent["id"]), None)
            if intent.get("override") and not (part.local and at is not None):
                hint = (
                    "there is no intent with this id to replace" if part.local else "only local/ may replace an intent"
                )
                self.problems.append(part.located.problem(place, hint))
            elif at is None:
                target.append(intent)
            elif intent.get("override"):
                target[at] = intent
            else:
                before = self._set_by.get(("intent", intent["id"]), "this file")
                self.problems.append(part.located.problem(place, f"the id '{intent['id']}' stands already in {before}"))
            self._set_by.setdefault(("intent", intent["id"]), part.located.file)
