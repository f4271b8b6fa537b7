"""Scripted dialogues: who says what when, which calls fail or come twice, and what must be remembered. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Named = Literal["header", "metadata", "none"]
"""How requests name their session."""
Wanted = Literal["remembered", "known_once", "allowed", "absent"]
Again = Literal["retry", "race", "regenerate"]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a play says about memory afterwards.

    Args:
        user: Whose.
        wanted: ``remembered``: an active record says it at the end. ``known_once``: one did (it may be superseded).
            ``allowed``: a record may say it. ``absent``: no active record may.
        words: All must stand in one record; each may have alternatives.
        without: None of these may stand in it.
        place: Where the mark stands, for messages.
        said: What was said there.
    """

    user: str
    wanted: Wanted
    words: tuple[tuple[str, ...], ...]
    without: tuple[str, ...]
    place: str
    said: str = ""

    def says(self, content: str) -> bool:
        """Whether a record says it.

        >>> mark = Mark("u", "absent", (("port", "端口"), ("5433",)), ("6543",), "")
        >>> mark.says("Port: 5433"), mark.says("端口 5433 改成 6543"), mark.says("report 5433")
        (True, False, False)
        """
        return all(any(_stands(word, content) for word in either) for either in self.words) and not any(
            _stands(word, content) for word in self.without
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the assistant, and its result."""

    name: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What the assistant answers to one request: a text, or tool calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the user and all that follows from it.

    Args:
        said: The message.
        replies: One per request; all but the last ask for tools.
        again: The last request comes twice: as an SDK's retry, at the same time, or for another answer.
        instead: The other answer.
        background: A prompt that the front end sends afterwards by itself, with its answer; None for none.
    """

    said: str
    replies: tuple[Reply, ...]
    again: Again | None = None
    instead: str = ""
    background: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """One sitting; a conversation that is resumed later has several.

    Args:
        conversation: Its id; the history of all its scenes is resent each turn.
        user, agent: Whose.
        named: How requests name the session.
        at: When it begins, aware.
        system: The system prompt; empty for none.
        turns: In order.
    """

    conversation: str
    user: str
    agent: str | None
    named: Named
    at: datetime
    system: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Play:
    """All scenes, by time, and all marks."""

    scenes: tuple[Scene, ...]
    marks: tuple[Mark, ...]

    @property
    def user_turns(self) -> int:
        """How often a user says something."""
        return sum(len(scene.turns) for scene in self.scenes)

    @property
    def conversations(self) -> int:
        """How many conversations there are."""
        return len({scene.conversation for scene in self.scenes})

    @property
    def users(self) -> list[str]:
        """Everyone who speaks."""
        return sorted({scene.user for scene in self.scenes})

    def only(self, keep: Callable[[Scene], bool]) -> Play:
        """The part with these scenes, and the marks of users all of whose scenes are among them."""
        scenes = tuple(scene for scene in self.scenes if keep(scene))
        left_out = {scene.user for scene in self.scenes if not keep(scene)}
        return Play(scenes, tuple(mark for mark in self.marks if mark.user not in left_out))


def _stands(word: str, content: str) -> bool:
    """Whether a word begins in a text where a word may begin: "port" stands in "ports", and not in "report"."""
    text, sought = content.casefold(), word.casefold()
    at = text.find(sought)
    while at >= 0:
        inside = at > 0 and _latin(text[at - 1]) and _latin(sought[0])
        if not inside:
            return True
        at = text.find(sought, at + 1)
    return False


def _latin(sign: str) -> bool:
    return sign.isascii() and sign.isalnum()
