"""Building a partition's index file: from the store, in chunks, on one core.

In: a partition. Out: its vectors as usearch keeps them, with the rows and the marks of the vectors it was built from.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from proxy.store.contents import Contents
from proxy.store.index_file import Built
from proxy.store.marks import marks_of
from proxy.store.usearch_file import UsearchBuilder


def build(contents: Contents, partition: str, dimension: int, go_on: Callable[[], bool]) -> Built | None:
    """Build what goes into a partition's file.

    Args:
        contents: Of the store.
        partition: Which.
        dimension: Its vectors' length.
        go_on: Asked often; False ends the work.

    Returns:
        None when told to end, or where there is no vector. Records that change meanwhile are in it as they were read.

    Raises:
        StoreUnavailable: The store cannot be read.
    """
    file = UsearchBuilder(dimension)
    rows, marks, count = [], [], 0
    for chunk in contents.of_rows(partition, contents.rows(partition)):
        packed = [vector for *_, vector, _ in chunk]
        rows.append(np.array([row for row, *_ in chunk], np.int64))
        marks.append(marks_of(packed, dimension))
        positions = count + np.flatnonzero(marks[-1])
        count += len(chunk)
        vectors = np.frombuffer(b"".join(vector for vector in packed if vector is not None), "<f2")
        matrix = vectors.reshape(-1, dimension).astype(np.float32)
        if not go_on():
            return None
        if len(positions):
            file.add(positions, matrix)
    if not any(one.any() for one in marks):
        return None
    return Built(file.dump(), np.concatenate(rows), np.concatenate(marks))
