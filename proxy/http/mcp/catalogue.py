"""The four tools as data: name, words, permission, arguments and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from proxy.auth import Permission
from proxy.http.mcp import words
from proxy.http.mcp.arguments import Arguments, ForgetArguments, SearchArguments, UpdateArguments, WriteArguments
from proxy.http.mcp.told import Changed, Erased, Found, Stored

MAX_FORGOTTEN: Final = 100
"""By one filter: a model that errs must not be able to erase everything at once."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Args:
        name: As models call it.
        title: As people see it.
        description: When to use it.
        permission: What it takes.
        arguments: What it is sent.
        result: What it answers.
        reads_only: It changes nothing.
        destroys: What it does cannot be undone.
        repeatable: Doing it again changes nothing more.
    """

    name: str
    title: str
    description: str
    permission: Permission
    arguments: type[Arguments]
    result: type[BaseModel]
    reads_only: bool = False
    destroys: bool = False
    repeatable: bool = True


TOOLS: Final = (
    Tool("memory_search", "Search memory", words.SEARCH, "memory:read", SearchArguments, Found, reads_only=True),
    Tool("memory_write", "Remember", words.WRITE, "memory:write", WriteArguments, Stored),
    Tool("memory_update", "Correct a memory", words.UPDATE, "memory:write", UpdateArguments, Changed),
    Tool(
        "memory_forget",
        "Forget for good",
        words.FORGET.format(limit=MAX_FORGOTTEN),
        "memory:write",
        ForgetArguments,
        Erased,
        destroys=True,
    ),
)
