"""Recall cases: what is remembered in a scope, what is asked, and which memories answer it (design §10).

In: JSON lines, one per scope. Out: `Case`s. All mistakes of a file are told at once, each with its line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from proxy.errors import SidemirrorError

Text = Annotated[str, Field(min_length=1)]


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class _Line(BaseModel):
    # Files may carry fields of their own.
    model_config = ConfigDict(extra="ignore", frozen=True)


class CaseMemory(_Line):
    """One memory of a case, stored as it is."""

    id: Text
    content: Text
    role: Literal["user", "assistant", "tool", "system"] = "user"
    speaker: str | None = None
    session_id: Text | None = None
    memory_type: Literal["episodic", "semantic", "reflective"] = "semantic"
    created_at: Annotated[datetime, AfterValidator(_aware)] | None = None


class CaseQuery(_Line):
    """One question; an empty `relevant` marks one that memory cannot answer."""

    id: Text
    query: Text
    category: Text = "all"
    relevant: tuple[str, ...]
    stale: tuple[str, ...] = ()


class Case(_Line):
    """One scope."""

    scope: Text
    memories: tuple[CaseMemory, ...]
    queries: tuple[CaseQuery, ...]

    @property
    def now(self) -> datetime | None:
        """The newest `created_at`; None when no memory has one."""
        return max((one.created_at for one in self.memories if one.created_at is not None), default=None)


def read(path: Path) -> list[Case]:
    """The cases of a file.

    Args:
        path: JSON lines; empty ones are passed over.

    Raises:
        SidemirrorError: It cannot be read, or some lines are wrong; the message names each.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SidemirrorError(f"{path} cannot be read: {error}") from error
    cases: list[Case] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            case = Case.model_validate_json(line)
        except ValidationError as error:
            problems += [f"{path}:{number}: {_place(one['loc'])}{one['msg']}" for one in error.errors()]
            continue
        cases.append(case)
        problems += [f"{path}:{number}: {text}" for text in _mistakes(case)]
    problems += [f"{path}: the query id {name!r} stands {count} times" for name, count in _repeated(cases)]
    if problems:
        raise SidemirrorError("\n".join(problems))
    if not cases:
        raise SidemirrorError(f"{path} holds no case; expected one JSON object per scope")
    return cases


def _place(loc: tuple[int | str, ...]) -> str:
    return f"{'.'.join(map(str, loc))}: " if loc else ""


def _mistakes(case: Case) -> Iterator[str]:
    known = Counter(one.id for one in case.memories)
    for name, count in known.items():
        if count > 1:
            yield f"the memory id {name!r} stands {count} times"
    for query in case.queries:
        for name in {*query.relevant, *query.stale} - known.keys():
            yield f"query {query.id!r} names the memory {name!r}, which this scope does not have"


def _repeated(cases: list[Case]) -> Iterator[tuple[str, int]]:
    for name, count in Counter(query.id for case in cases for query in case.queries).items():
        if count > 1:
            yield name, count
