"""Groups of records that speak of the same thing: by cosine to the first of the group.

Pure. In: records with vectors, oldest first. Out: lists of them. The same records give the same groups, and taking a
whole group away changes no other: that is what makes the steps that use it idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from proxy.plugs import Surveyed
from proxy.types import Language

RELATED: Mapping[Language, float] = {"zh": 0.60, "en": 0.65, "other": 0.65}
"""Cosine from which two memories speak of related things, by language (the embedder's card)."""
LOOSELY: Mapping[Language, float] = {"zh": 0.47, "en": 0.51, "other": 0.51}
"""Cosine that 99 % of unrelated pairs stay below: enough where shared words are asked for as well."""
_BLOCK = 512


def clusters(
    records: Sequence[Surveyed], at_least: int, *, least: Mapping[Language, float] = RELATED
) -> Iterator[list[Surveyed]]:
    """Group records of one language; each is in one group at most, and one without a vector in none.

    Args:
        records: Oldest first.
        at_least: Smaller groups are left out.
        least: Cosine to the first of a group from which a record is in it, by language.
    """
    held = [(one, one.vector) for one in records if one.vector is not None]
    if len(held) < at_least:
        return
    likeness = least[held[0][0].memory.language]
    matrix = np.stack([vector for _, vector in held])
    free = np.ones(len(held), bool)
    for start in range(0, len(held), _BLOCK):
        if not free[start : start + _BLOCK].any():
            continue
        cosines = matrix[start : start + _BLOCK] @ matrix.T
        for place, row in enumerate(cosines, start):
            if not free[place]:
                continue
            members = np.flatnonzero((row >= likeness) & free)
            # The leader is of its own group, whatever its length rounds to.
            members = np.union1d(members, [place])
            free[members] = False
            if len(members) >= at_least:
                yield [held[at][0] for at in members]
