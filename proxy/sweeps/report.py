"""What a sweep tells of itself: counts, times and ids per step, never text."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did.

    Args:
        step: Its name.
        looked_at: Records.
        changed: Changes made.
        skipped: Changes not made: a record changed meanwhile, or what was to be written had been forgotten.
        failed: Changes that could not be written, and users that could not be looked at.
        duration_ms: Wall time.
        examples: Ids of a few records concerned.
    """

    step: str
    looked_at: int
    changed: int
    skipped: int
    failed: int
    duration_ms: float
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a sweep did.

    Args:
        at: The time it went by.
        owners: Users looked at.
        steps: In the order they ran.
        complete: False when it was told to stop before the end.
    """

    at: datetime
    owners: int
    steps: tuple[StepReport, ...]
    complete: bool = True


@dataclass(slots=True)
class Tally:
    """Counts of one step while it runs."""

    looked_at: int = 0
    changed: int = 0
    skipped: int = 0
    failed: int = 0
    duration_s: float = 0.0
    examples: list[str] = field(default_factory=list)

    def report(self, step: str) -> StepReport:
        """What is told of the step."""
        took_ms = round(self.duration_s * 1_000, 1)
        counts = (self.looked_at, self.changed, self.skipped, self.failed)
        return StepReport(step, *counts, took_ms, tuple(self.examples[:EXAMPLES]))
