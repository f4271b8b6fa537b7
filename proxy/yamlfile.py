"""Hand-written YAML with positions: every mistake is reported as file:line:column, all at once.

In: a path. Out: its data with the place of each value (`Located`, which `yamlcheck` checks), or the list of `Problem`s.
Strict YAML 1.2: duplicate keys are errors, and bare yes/no/on/off, which YAML 1.1 tools read as booleans, are refused
with a hint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scalarbool import ScalarBoolean

from proxy.errors import Problem

Where = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)
_YAML_1_1_BOOLEANS = {"yes", "no", "on", "off"}


@dataclass(frozen=True, slots=True)
class Located:
    """One YAML file's plain data, with the place of each key and item.

    Args:
        file: Path as shown in messages.
        data: Plain dicts, lists, scalars; an empty file is ``{}``.
        positions: Path inside the file → (line, column), both 1-based; a key's own place, not its value's.
    """

    file: str
    data: Any
    positions: Mapping[Where, tuple[int, int]] = field(default_factory=dict)

    def problem(self, where: Where, message: str) -> Problem:
        """A problem at `where`, or at its nearest known parent."""
        at = where
        while at and at not in self.positions:
            at = at[:-1]
        line, column = self.positions.get(at, (1, 1))
        return Problem(self.file, line, column, self.dotted(where), message)

    def inside(self, loc: tuple[str | int, ...]) -> Where:
        """The part of a validator's location that stands in the file: names of union members and the like fall out."""
        node = self.data
        steps: list[str | int] = []
        for step in loc:
            if isinstance(node, Mapping) and str(step) in node:
                node = node[str(step)]
                steps.append(str(step))
            elif isinstance(node, list) and isinstance(step, int) and step < len(node):
                node = node[step]
                steps.append(step)
        return tuple(steps)

    def dotted(self, where: Where) -> str:
        """``('triggers', 3, 'write')`` → ``triggers[preference-stated].write``: items by their id if any."""
        text, node = "", self.data
        for step in where:
            if isinstance(step, int):
                item = node[step] if isinstance(node, list) and step < len(node) else None
                label = item.get("id", step) if isinstance(item, dict) else step
                text, node = f"{text}[{label}]", item
            else:
                text = f"{text}.{step}" if text else step
                node = node.get(step) if isinstance(node, dict) else None
        return text


def read(path: Path, shown: str | None = None) -> tuple[Located | None, list[Problem]]:
    """Read one YAML file.

    Args:
        path: The file.
        shown: How messages name it; the path itself by default.

    Returns:
        The data with its positions, and the problems found; the data is None when the file cannot be parsed.
    """
    name = shown or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None, [Problem(name, None, None, "", "the file does not exist; check the path")]
    except (OSError, UnicodeDecodeError) as error:
        return None, [Problem(name, None, None, "", f"cannot be read as UTF-8 text: {error}")]
    return parse(text, name)


def read_known(path: Path) -> Located:
    """Read a file that is known to be sound: fast, and its places are found only when somebody asks.

    Args:
        path: A file that `read` takes without a problem.

    Raises:
        OSError, ValueError: It is not sound after all.
    """
    text = path.read_text(encoding="utf-8")
    try:
        data = yaml.load(text, Loader=_Words)  # noqa: S506 - a safe loader: it makes words, numbers, maps and lists
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    return Located(str(path), data if data is not None else {}, _LatePositions(text, str(path)))


class _LatePositions(Mapping[Where, tuple[int, int]]):
    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name

    @cached_property
    def _found(self) -> Mapping[Where, tuple[int, int]]:
        located, _ = parse(self._text, self._name)
        return {} if located is None else located.positions

    def __getitem__(self, where: Where) -> tuple[int, int]:
        return self._found[where]

    def __iter__(self) -> Iterator[Where]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _words_loader() -> type:
    """A loader on libyaml, where it is there, with YAML 1.2's scalars: words, true, false, null and plain numbers."""

    class Words(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    for tag, pattern, first in (
        ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
        ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
        ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
        ("float", r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$", "-+0123456789."),
    ):
        Words.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))
    return Words


_Words = _words_loader()


def parse(text: str, name: str) -> tuple[Located | None, list[Problem]]:
    """Like `read`, for text already in hand."""
    reading = YAML(typ="rt")
    reading.allow_duplicate_keys = False
    reading.preserve_quotes = True  # tells a quoted word from a bare one
    try:
        tree = reading.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return None, [Problem(name, line, column, "", _parse_message(error))]
    except ReaderError as error:
        line, column = _line_and_column(text, error.position)
        message = f"the control character U+{int(error.character):04X} cannot stand in YAML; write its escape"
        return None, [Problem(name, line, column, "", message)]
    except (YAMLError, ValueError, RecursionError) as error:
        return None, [Problem(name, 1, 1, "", f"not valid YAML: {(str(error).splitlines() or ['?'])[0]}")]
    reader = _Reader()
    data = reader.plain(tree, ()) if tree is not None else {}
    located = Located(name, data, reader.positions)
    return located, [located.problem(where, _bare_boolean(word)) for where, word in reader.bare_booleans]


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - (text.rfind("\n", 0, position) + 1) + 1


def _bare_boolean(word: str) -> str:
    return f"'{word}' is a boolean in YAML 1.1 and a word in YAML 1.2; write true or false, or quote the word"


def _parse_message(error: MarkedYAMLError) -> str:
    problem = (error.problem or "not valid YAML").strip()
    duplicate = re.search(r'found duplicate key "(.*?)"', problem)
    if duplicate:
        return f"the key '{duplicate.group(1)}' stands twice in one map; keep one of them"
    if "escape" in problem or "double-quoted" in (error.context or ""):
        return f"{problem}; write patterns in single quotes, where a backslash stays a backslash"
    return f"not valid YAML: {problem}"


class _Reader:
    """Turns ruamel's tree into plain data, noting places and bare YAML 1.1 booleans on the way."""

    def __init__(self) -> None:
        self.positions: dict[Where, tuple[int, int]] = {}
        self.bare_booleans: list[tuple[Where, str]] = []

    def plain(self, node: Any, where: Where) -> Any:
        if isinstance(node, CommentedMap):
            return {str(key): self._child(node, key, value, (*where, str(key))) for key, value in node.items()}
        if isinstance(node, CommentedSeq):
            return [self._child(node, index, value, (*where, index)) for index, value in enumerate(node)]
        if isinstance(node, bool) or node is None:
            return node
        if isinstance(node, ScalarBoolean):  # a boolean with an anchor
            return bool(node)
        for kind in (str, int, float):
            if isinstance(node, kind):
                return kind(node)
        return str(node)

    def _child(self, parent: CommentedMap | CommentedSeq, step: Any, value: Any, place: Where) -> Any:
        try:
            line, column = parent.lc.key(step) if isinstance(parent, CommentedMap) else parent.lc.item(step)
        except (KeyError, TypeError):  # came in by a merge key (<<): it has no place of its own here
            line, column = parent.lc.line, parent.lc.col
        self.positions[place] = (line + 1, column + 1)
        for word in (step, value):
            if type(word) is str and word.lower() in _YAML_1_1_BOOLEANS:  # a quoted one is a subclass
                self.bare_booleans.append((place, word))
        return self.plain(value, place)
