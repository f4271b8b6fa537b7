"""JSON lines sent to a running proxy, some at a time, with a bar; what became of all of them.

In: lines, each with the place it came from. Out: `Totals`. The proxy knows what it has taken in, so that whatever was
sent before may be sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.backup.archive import Told
from proxy.cli.client import MemoryClient

_MOST_BYTES = 256 * 1024
_NO_COUNTS = ("dry_run", "errors", "error", "outcomes", "proposals")


@dataclass(frozen=True, slots=True)
class Line:
    """One line to send.

    Args:
        place: Where it came from, as people find it.
        data: Its JSON, without a line feed.
    """

    place: str
    data: bytes


@dataclass(slots=True)
class Totals:
    """What became of the lines.

    Args:
        counts: As the proxy counts, e.g. ``imported`` or ``turns``.
        outcomes: Of conversations: memories by what became of them.
        proposals: Of a dry run: what would be written.
        errors: Lines that did not come in: place and reason.
    """

    counts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    proposals: list[dict[str, Any]] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)

    def add(self, answer: Mapping[str, Any], batch: Sequence[Line]) -> None:
        """Count the answer to a batch."""
        self.counts.update({name: value for name, value in answer.items() if name not in _NO_COUNTS})
        self.outcomes.update(answer.get("outcomes", {}))
        self.proposals += answer.get("proposals", ())
        self.errors += [(batch[one["line"] - 1].place, one["message"]) for one in answer["errors"]]


async def send(
    client: MemoryClient,
    path: str,
    lines: Sequence[Line],
    told: Told,
    totals: Totals,
    *,
    params: Mapping[str, str | int] | None = None,
    at_most: int = 200,
) -> None:
    """Send lines.

    Args:
        client: Sends.
        path: Below ``/memory/``.
        lines: In order.
        told: Told how far it is.
        totals: Counted in place, also of what was sent before something went wrong.
        params: Query.
        at_most: Lines in one request.

    Raises:
        SidemirrorError: The proxy does not answer, or refuses all of it.
    """
    done = 0
    told("importing", done, len(lines))
    for batch in batches(lines, at_most):
        answer = await client.send_lines(path, b"\n".join(one.data for one in batch), params=params)
        totals.add(answer, batch)
        done += len(batch)
        told("importing", done, len(lines))


def batches(lines: Sequence[Line], at_most: int) -> Iterator[list[Line]]:
    """Lines, some at a time: so many, and no more than a request should hold.

    >>> [len(batch) for batch in batches([Line(str(n), b"x") for n in range(5)], 2)]
    [2, 2, 1]
    """
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == at_most or size + len(line.data) > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line.data)
    if batch:
        yield batch
