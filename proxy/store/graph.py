"""usearch's file of vectors, and all that we let it do: be built in one piece, and be searched where it lies.

In: vectors by position. Out: the file's bytes; from them, the positions near a vector. Vectors are kept as int8, each
scaled to its own largest component, so that the order is rough: whoever asks compares the true vectors afterwards.
All of them are compared (`exact`), by usearch's own kernels, 28 ns each. Following the graph's links is faster beyond
some ten thousand vectors, but loses its way among memories that differ in a word: of 200,000 such it missed a fifth of
the nearest ten (32 links, 400 visited), where comparing all misses none. So the links are as few as usearch permits.
The buffer must be one that usearch wrote (see `index_file`): it goes wherever the offsets lead.
"""

import threading

import numpy as np
import numpy.typing as npt
import usearch
from usearch.compiled import MetricKind, ScalarKind
from usearch.index import Index

from proxy.types import Vector

# No `from __future__ import annotations` here: usearch compares the annotations of the callback with the types.

USEARCH_VERSION: str = usearch.__version__
VIEWS = 2
"""usearch takes one search at a time per view, and a second one that waits inside it slows the first."""

Buffer = memoryview | bytearray | bytes
Positions = npt.NDArray[np.int64]


class GraphBuilder:
    """Builds one graph, on one core. The interpreter is free while it works.

    Args:
        dimension: Vector length.
    """

    def __init__(self, dimension: int) -> None:
        self._index = _empty(dimension)

    def add(self, positions: Positions, matrix: npt.NDArray[np.float32]) -> None:
        """Add vectors.

        Args:
            positions: One for each vector, none of them added before.
            matrix: Shape (n, dimension); finite, no row all zero.
        """
        self._index.add(positions.astype(np.uint64), _quantized(matrix), threads=1)

    def dump(self) -> Buffer:
        """The whole graph as `Graph` reads it."""
        # usearch holds the interpreter's lock while it copies; our callback is where other threads get it.
        dumped = self._index.save(progress=_go_on)
        assert dumped is not None
        return dumped


class Graph:
    """A graph that lies in a buffer, and stays there. Safe to use from any thread.

    Args:
        buffer: What `GraphBuilder.dump` gave.
        dimension: Vector length it must have.
        count: How many vectors it must have.

    Raises:
        ValueError: It is a graph of another kind, or none.
    """

    def __init__(self, buffer: Buffer, dimension: int, count: int) -> None:
        expected = {
            "dimensions": dimension,
            "kind_metric": MetricKind.Cos,
            "kind_scalar": ScalarKind.I8,
            "count_present": count,
            "count_deleted": 0,
            "version": USEARCH_VERSION,
        }
        try:
            found = Index.metadata(buffer) or {}
            if wrong := [name for name, value in expected.items() if found.get(name) != value]:
                raise ValueError(f"the graph's {', '.join(wrong)} cannot be used here")
            self._views = [_View(buffer, dimension) for _ in range(VIEWS)]
        except RuntimeError as error:
            raise ValueError(f"usearch cannot read the graph: {error}") from error
        self.count = count

    def near(self, vector: Vector, count: int) -> Positions:
        """The positions of the nearest vectors, nearest first; roughly, for their int8 form.

        Args:
            vector: Query: finite, not all zero.
            count: How many, ≥ 1.
        """
        quantized = _quantized(vector[None, :])[0]
        view = next((one for one in self._views if not one.lock.locked()), self._views[0])
        with view.lock:
            found = view.index.search(quantized, min(count, self.count), threads=1, exact=True)
        positions: Positions = found.keys.astype(np.int64)
        return positions


class _View:
    """One of usearch's views of a buffer, which it points into without holding it."""

    __slots__ = ("buffer", "index", "lock")

    def __init__(self, buffer: Buffer, dimension: int) -> None:
        self.lock = threading.Lock()
        self.index = _empty(dimension)
        self.buffer = buffer
        self.index.view(buffer)


def _empty(dimension: int) -> Index:
    return Index(
        ndim=dimension,
        metric=MetricKind.Cos,
        dtype=ScalarKind.I8,
        connectivity=2,
        expansion_add=1,
        expansion_search=1,
        enable_key_lookups=False,  # a hash table of all keys; we never look a key up
    )


def _quantized(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """Cosine knows no length: each vector may use the whole range of int8."""
    scaled: npt.NDArray[np.float32] = np.rint(matrix * (127.0 / np.abs(matrix).max(axis=1, keepdims=True)))
    return scaled.astype(np.int8)


def _go_on(done: int, total: int) -> bool:
    return True
