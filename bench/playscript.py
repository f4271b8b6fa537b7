"""Plays as data files: `bench/replay/*.txt`, lines that begin with a sign.

In: files. Out: a `Play`, its scenes in the order of time. Pure but for reading the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import get_args
from zoneinfo import ZoneInfo

from bench.screenplay import Again, Call, Mark, Named, Play, Reply, Scene, Turn, Wanted

PLAYS = Path(__file__).parent / "replay"
ZONE = ZoneInfo("Asia/Shanghai")
"""Where all of them live: dates in the plays are local."""

_SIGNS: dict[str, Wanted] = {"+ ": "remembered", "^ ": "known_once", "~ ": "allowed", "- ": "absent"}
_INDENT = "    "
_END = "## the end"


def plays(paths: Iterable[Path] | None = None) -> Play:
    """Read plays.

    Args:
        paths: Files; by default all of this folder.

    Raises:
        ValueError: A line makes no sense; the message names it.
    """
    scenes: list[Scene] = []
    marks: list[Mark] = []
    for path in sorted(PLAYS.glob("*.txt")) if paths is None else paths:
        reader = _Reader(path)
        reader.read()
        scenes += reader.scenes
        marks += reader.marks
    return Play(tuple(sorted(scenes, key=lambda scene: scene.at)), tuple(marks))


@dataclass
class _Turn:
    said: str
    replies: list[Reply] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    again: Again | None = None
    instead: str = ""
    background: tuple[str, str] | None = None

    def close_calls(self) -> None:
        if self.asked:
            if len(self.asked) != len(self.results):
                raise ValueError(f"{len(self.asked)} calls have {len(self.results)} results")
            calls = zip(self.asked, self.results, strict=True)
            self.replies.append(Reply(calls=tuple(Call(name, args, result) for (name, args), result in calls)))
            self.asked, self.results = [], []

    def finished(self) -> Turn:
        if not self.replies or self.replies[-1].calls:
            raise ValueError(f"nothing answers {self.said[:40]!r}")
        return Turn(self.said, tuple(self.replies), self.again, self.instead, self.background)


class _Reader:
    r"""One file, line by line.

    ``## id user= agent= session= at=`` begins a scene; ``U:`` the user, ``A:`` the assistant, ``C:`` a tool call,
    ``R:`` its result (``\n`` is a line end), four spaces go on with the message before; ``@system``, ``@retry``,
    ``@race``, ``@regenerate TEXT``, ``@background PROMPT`` (answered by the next ``A:``); marks: ``+`` must be
    remembered, ``^`` must have been, ``~`` may be, ``-`` must not be. In a mark's words ``_`` is a space, ``/`` stands
    between alternatives, and ``!`` before what must not stand there.
    """

    def __init__(self, path: Path) -> None:
        self.scenes: list[Scene] = []
        self.marks: list[Mark] = []
        self._path = path
        self._head: dict[str, str] = {}
        self._system = ""
        self._systems: dict[str, str] = {}
        self._turns: list[_Turn] = []
        self._prompt: str | None = None

    def read(self) -> None:
        """Read all of it."""
        lines = self._path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate([*lines, _END], 1):
            place = f"{self._path.name}:{number}"
            try:
                self._line(line, place)
            except (ValueError, KeyError, IndexError) as error:
                raise ValueError(f"{place}: {error}") from error

    def _line(self, line: str, place: str) -> None:
        if line == _END:
            self._close()
        elif line.startswith("## "):
            self._close()
            self._open(line[3:].split())
        elif line.startswith("@"):
            self._direction(*line[1:].partition(" ")[::2])
        elif line[:2] in _SIGNS:
            self.marks.append(_mark(self._head["user"], line, place, self._turns[-1].said))
        elif line.startswith(_INDENT):
            self._turns[-1].said += f"\n{line.removeprefix(_INDENT)}"
        elif line.strip():
            self._spoken(line[:2], line[2:].strip())

    def _spoken(self, sign: str, text: str) -> None:
        if sign == "U:":
            self._turns.append(_Turn(text))
            return
        turn = self._turns[-1]
        match sign:
            case "A:" if self._prompt is not None:
                turn.background, self._prompt = (self._prompt, text), None
            case "A:":
                turn.close_calls()
                turn.replies.append(Reply(text))
            case "C:":
                if turn.results:
                    turn.close_calls()
                name, _, arguments = text.partition(" ")
                json.loads(arguments)
                turn.asked.append((name, arguments))
            case "R:":
                turn.results.append(text.replace("\\n", "\n"))
            case _:
                raise ValueError(f"{sign!r} begins no line of a play")

    def _direction(self, name: str, text: str) -> None:
        match name:
            case "system":
                self._system = text
            case "background":
                self._prompt = text.replace("\\n", "\n")
            case "retry" | "race":
                self._turns[-1].again = "retry" if name == "retry" else "race"
            case "regenerate":
                self._turns[-1].again, self._turns[-1].instead = "regenerate", text
            case _:
                raise ValueError(f"there is no direction @{name}")

    def _open(self, head: Sequence[str]) -> None:
        self._head = {"id": head[0], **dict(part.split("=", 1) for part in head[1:])}
        # A resumed conversation goes on under its own system prompt.
        self._system = self._systems.get(head[0], "")

    def _close(self) -> None:
        if not self._turns:
            return
        head = self._head
        if head["session"] not in get_args(Named):
            raise ValueError(f"session={head['session']}: one of {', '.join(get_args(Named))}")
        self._systems[head["id"]] = self._system
        named: Named = next(one for one in get_args(Named) if one == head["session"])
        at = datetime.fromisoformat(head["at"]).replace(tzinfo=ZONE)
        turns = tuple(turn.finished() for turn in self._turns)
        self.scenes.append(Scene(head["id"], head["user"], head.get("agent"), named, at, self._system, turns))
        self._turns = []


def _mark(user: str, line: str, place: str, said: str) -> Mark:
    words = [word.replace("_", " ") for word in line[2:].split()]
    return Mark(
        user,
        _SIGNS[line[:2]],
        tuple(tuple(word.split("/")) for word in words if not word.startswith("!")),
        tuple(word[1:] for word in words if word.startswith("!")),
        place,
        said,
    )
