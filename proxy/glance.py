"""What ranking must know of a memory, as numbers: worked out once for each, gathered for all candidates of a search.

Pure. In: a memory. Out: `Glance`, and `Glances` with a line for each of many. A search has a hundred candidates, and
looking each record over again for every question would take longer than everything else that recall does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from proxy.plugs import GLANCED, Glances
from proxy.traits import traits
from proxy.types import Memory, MemoryType

_LINE: Final = struct.Struct(f"<{len(GLANCED)}d")
_GONE: Final = _LINE.pack(*[float("nan")] * len(GLANCED))


class Glance(NamedTuple):
    """Of one memory.

    Args:
        line: Float64 by `plugs.GLANCED`, packed.
        speaker: From `traits`.
        sort: Type and kind.
    """

    line: bytes
    speaker: str
    sort: tuple[MemoryType, str]


GONE: Final = Glance(_GONE, "", ("episodic", ""))
"""Of a record that is not there any more."""


def glance(memory: Memory) -> Glance:
    """What ranking must know of a memory."""
    seen = traits(memory.content)
    line = _LINE.pack(
        memory.confidence,
        memory.strength,
        memory.valid_from.timestamp(),
        memory.source.role == "assistant",
        seen.asks,
        seen.times,
        seen.standing,
        seen.preference,
        seen.changed,
    )
    return Glance(line, seen.speaker, (memory.memory_type, memory.kind))


def gathered(glances: Iterable[Glance]) -> Glances:
    """Many at once, in their order.

    >>> gathered([GONE]).alive.tolist(), gathered([]).table.shape
    ([False], (0, 9))
    """
    lines, speakers, sorts = _columns(glances)
    table: npt.NDArray[np.float64] = np.frombuffer(b"".join(lines), "<f8").reshape(-1, len(GLANCED))
    return Glances(table, speakers, sorts)


def _columns(
    glances: Iterable[Glance],
) -> tuple[Sequence[bytes], Sequence[str], Sequence[tuple[MemoryType, str]]]:
    columns = tuple(zip(*glances, strict=True))
    return columns if columns else ((), (), ())  # type: ignore[return-value]
