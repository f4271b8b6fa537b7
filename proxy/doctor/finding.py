"""What the doctor finds: one line for each thing looked at, and the verdict over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["ok", "warning", "broken"]
Repair = Literal["permissions", "reindex", "restore"]
_WORSE: tuple[Status, ...] = ("ok", "warning", "broken")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Args:
        check: What, in a word or two.
        status: How it is.
        message: What was seen.
        advice: What to do; empty when all is well.
        repair: What `--repair` would do about it.
    """

    check: str
    status: Status
    message: str
    advice: str = ""
    repair: Repair | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one look.

    Args:
        findings: In the order they were made.
        proxy_runs: Whether a proxy lives on the data directory.
    """

    findings: tuple[Finding, ...]
    proxy_runs: bool

    @property
    def status(self) -> Status:
        """The worst of all.

        >>> Report((Finding("a", "ok", ""), Finding("b", "warning", "")), proxy_runs=False).status
        'warning'
        """
        return worst(self.findings)

    def as_json(self) -> Mapping[str, Any]:
        """For machines."""
        return {
            "status": self.status,
            "proxy_runs": self.proxy_runs,
            "findings": [asdict(finding) for finding in self.findings],
        }


def worst(findings: Sequence[Finding]) -> Status:
    """The worst status among them."""
    return max((finding.status for finding in findings), key=_WORSE.index, default="ok")
