"""What ranking must know of a memory, as numbers: worked out once for each, gathered for all candidates of a search.

Pure. In: a memory, or what of it is stored in columns. Out: `Glance`, and `Glances` with a line for each of many. A
search has a hundred candidates, and looking each record over again for every question would take longer than everything
else that recall does.
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

SEEN: Final = GLANCED[3:]
"""The columns that are 0 or 1."""
_FLAGS: Final = tuple(tuple(bits >> place & 1 for place in range(len(SEEN))) for bits in range(1 << len(SEEN)))
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


def seen(content: str, role: str | None) -> tuple[int, str]:
    """What takes long to find out, to be stored with the record.

    Args:
        content: The memory's.
        role: Of its source.

    Returns:
        `SEEN` as bits, the first one lowest, and the speaker.

    >>> seen("Ann: I moved here last year.", "user"), seen("你去哪儿？", "assistant")
    ((4, 'ann'), (3, ''))
    """
    found = traits(content)
    flags = (
        role == "assistant",
        found.asks,
        found.times,
        found.standing,
        found.preference,
        found.changed,
    )
    return sum(flag << place for place, flag in enumerate(flags)), found.speaker


def glance(memory: Memory) -> Glance:
    """What ranking must know of a memory."""
    bits, speaker = seen(memory.content, memory.source.role)
    at = memory.valid_from.timestamp()
    return composed(memory.confidence, memory.strength, at, bits, speaker, memory.memory_type, memory.kind)


def composed(
    confidence: float, strength: float, at: float, bits: int, speaker: str, memory_type: MemoryType, kind: str
) -> Glance:
    """A glance from columns as they are stored; `bits` and `speaker` from `seen`."""
    return Glance(_LINE.pack(confidence, strength, at, *_FLAGS[bits]), speaker, (memory_type, kind))


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
