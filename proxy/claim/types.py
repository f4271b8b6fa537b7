"""The noun: what a short memory sentence claims, taken apart so that two of them can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Valued = Literal["one", "rival", "many"]
"""How many values a predicate has at a time: one; one as a rule (a second one is doubtful); any number."""

Relation = Literal["same", "flip", "replaces", "rivals", "another", "apart"]
"""What a claim is to an earlier one: the same; its opposite; another value where there is room for one; where there is
as a rule room for one; where there is room for many; or about something else."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement.

    Args:
        subject: Whom or what it is about; ``user`` for the user.
        predicate: What is said of it, whatever the word used: ``live`` for "resides in" and for 住在.
        value: The words that answer the predicate, in order.
        frame: What must be equal for two values to compete: purpose, object, time, place, environment.
        valued: How many values the predicate has at a time.
        positive: False for a negated one.
    """

    subject: tuple[str, ...]
    predicate: str
    value: tuple[str, ...]
    frame: tuple[tuple[str, tuple[str, ...]], ...] = ()
    valued: Valued = "rival"
    positive: bool = True


@dataclass(frozen=True, slots=True)
class Claims:
    """All that a text claims.

    Args:
        stated: The claims, in order; empty where none could be read.
        replaced: Words of what it says to hold no longer ("from Jenkins to Actions": Jenkins).
        changed: It says that something has changed.
        added: It says that it comes on top ("also", 还).
    """

    stated: tuple[Claim, ...] = ()
    replaced: tuple[tuple[str, ...], ...] = ()
    changed: bool = False
    added: bool = False
