"""The one tree of exceptions; a class is split off only where someone catches it.

    SidemirrorError
    ├── ConfigError            config.yaml or its environment variables are wrong (all problems at once)
    ├── PolicyError            policy files are wrong (all problems at once)
    ├── RequestError           a request to one of our own endpoints, or its body, is wrong
    ├── StoreError             the long-term store refused an operation
    │   ├── StoreUnavailable   damaged, locked, or its disk is full
    │   ├── VersionConflict    the record changed since it was read
    │   └── Forgotten          a tombstone covers what was to be stored
    ├── WorkingMemoryUnavailable
    └── EmbedderError

Messages say what, where, and what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class SidemirrorError(Exception):
    """Something Sidemirror could not do."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file people write by hand.

    Args:
        file: Path as the user gave it, or the environment variable's name.
        line: 1-based; None where there is no line (an environment variable).
        column: 1-based; None likewise.
        where: Dotted path inside the file, e.g. ``triggers[preference-stated].write.kind``.
        message: What is wrong and what to do.
    """

    file: str
    line: int | None
    column: int | None
    where: str
    message: str

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place}: {self.where}: {self.message}" if self.where else f"{place}: {self.message}"


class _ProblemsError(SidemirrorError):
    """Several mistakes in hand-written files, reported together."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConfigError(_ProblemsError):
    """config.yaml or its environment variables are wrong."""


class PolicyError(_ProblemsError):
    """Policy files are wrong."""


class RequestError(SidemirrorError):
    """A request is wrong; answered in OpenAI's error shape.

    Args:
        message: What is wrong, where, and what to do next.
        status: HTTP status, 400–599.
        code: Short constant name, e.g. ``invalid_json``.
        param: The field or header at fault.
        type_: OpenAI's error type.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str = "invalid_request",
        param: str | None = None,
        type_: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.type = type_


class StoreError(SidemirrorError):
    """The long-term store refused an operation."""


class StoreUnavailable(StoreError):
    """The long-term store cannot be used now: damaged, locked, or its disk is full."""


class VersionConflict(StoreError):
    """The record changed since it was read: read it again, then repeat the change."""


class Forgotten(StoreError):
    """This was forgotten, and is not stored again; only an explicit write brings it back."""


class WorkingMemoryUnavailable(SidemirrorError):
    """Redis does not answer; working memory is left out until it does."""


class EmbedderError(SidemirrorError):
    """The embedder could not turn text into vectors."""


class TextRefused(EmbedderError):
    """The embedder works, but does not take one of the texts: asking again gives no other answer."""
