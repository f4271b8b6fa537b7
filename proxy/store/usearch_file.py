"""usearch's file of vectors: built in one piece, and compared where it lies.

In: vectors by position. Out: the file's bytes; from them, how like a vector each of them is. Vectors are kept as int8,
each scaled to its own largest component, so that likeness is rough: whoever asks compares the true vectors afterwards.
All of them are compared, with the kernels that usearch itself is built on (numkong): following the graph's links is
faster beyond some ten thousand vectors, but loses its way among memories that differ in a word: of 200,000 such it
missed a fifth of the nearest ten (32 links, 400 visited), where comparing all misses none. So the links are as few as
usearch permits. And its own search takes one question after the other, at 48 ns a vector, where the kernels take 33,
and 60 for four questions at once (AVX2; a question that asks for several things has a vector for each).
"""

from collections.abc import Sequence

import numkong
import numpy as np
import numpy.typing as npt
import usearch
from usearch.compiled import MetricKind, ScalarKind
from usearch.index import Index

from proxy.types import Vector

# No `from __future__ import annotations` here: usearch compares the annotations of the callback with the types.

USEARCH_VERSION: str = usearch.__version__
_HEAD_BYTES = 8
"""Before the vectors: how many there are and how long they are, as 32-bit numbers."""
_CHUNK = 8_192

Buffer = memoryview | bytearray | bytes
Positions = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class UsearchBuilder:
    """Builds one file, on one core. The interpreter is free while it works.

    Args:
        dimension: Vector length.
    """

    def __init__(self, dimension: int) -> None:
        self._index = Index(
            ndim=dimension,
            metric=MetricKind.Cos,
            dtype=ScalarKind.I8,
            connectivity=2,
            expansion_add=1,
            expansion_search=1,
            enable_key_lookups=False,  # a hash table of all keys; we never look a key up
        )

    def add(self, positions: Positions, matrix: Floats) -> None:
        """Add vectors.

        Args:
            positions: One for each vector, ascending, above those added before.
            matrix: Shape (n, dimension); finite, no row all zero.
        """
        self._index.add(positions.astype(np.uint64), _quantized(matrix), threads=1)

    def dump(self) -> Buffer:
        """The whole file as `UsearchVectors` reads it."""
        # usearch holds the interpreter's lock while it copies; our callback is where other threads get it.
        dumped = self._index.save(progress=_go_on)
        assert dumped is not None
        return dumped


class UsearchVectors:
    """The vectors of a file that lies in a buffer, and stays there. Safe to use from any thread.

    Args:
        buffer: What `UsearchBuilder.dump` gave.
        dimension: Vector length it must have.
        embedded: For each position, whether the file must have a vector for it.

    Raises:
        ValueError: It is a file of another kind, or none.
    """

    def __init__(self, buffer: Buffer, dimension: int, embedded: npt.NDArray[np.bool_]) -> None:
        count = int(np.count_nonzero(embedded))
        _check(buffer, dimension, count)
        self._matrix = np.frombuffer(buffer, np.int8, count * dimension, _HEAD_BYTES).reshape(count, dimension)
        self._scales = np.concatenate([_scales(self._matrix[at : at + _CHUNK]) for at in range(0, count, _CHUNK)])
        self._embedded = None if embedded.all() else embedded

    def likeness(self, vectors: Sequence[Vector]) -> list[Floats]:
        """Rough cosines.

        Args:
            vectors: Of the questions: finite, not all zero.

        Returns:
            For each question an array by position: up to a factor, and −inf where a position has no vector.
        """
        quantized = _quantized(np.stack(vectors))
        if len(vectors) == 1:
            products = np.asarray(numkong.cdist(quantized, self._matrix, "dot"))
        else:
            packed = numkong.dots_pack(np.concatenate([quantized, quantized[: len(vectors) % 2]]))  # faster when even
            products = np.asarray(numkong.dots_packed(self._matrix, packed)).T[: len(vectors)]
        return [self._placed(one.astype(np.float32) * self._scales) for one in products]

    def _placed(self, likeness: Floats) -> Floats:
        if self._embedded is None:
            return likeness
        placed = np.full(len(self._embedded), -np.inf, np.float32)
        placed[self._embedded] = likeness
        return placed


def _check(buffer: Buffer, dimension: int, count: int) -> None:
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
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"usearch cannot read the file: {error}") from error
    if wrong := [name for name, value in expected.items() if found.get(name) != value]:
        raise ValueError(f"the file's {', '.join(wrong)} cannot be used here")
    if np.frombuffer(buffer, "<u4", 2).tolist() != [count, dimension]:
        raise ValueError("the file does not begin with its vectors")


def _scales(matrix: npt.NDArray[np.int8]) -> Floats:
    """What makes each vector one of unit length."""
    wide = matrix.astype(np.float32)
    scales: Floats = 1.0 / np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return scales


def _quantized(matrix: Floats) -> npt.NDArray[np.int8]:
    """Cosine knows no length: each vector may use the whole range of int8."""
    scaled: Floats = np.rint(matrix * (127.0 / np.abs(matrix).max(axis=1, keepdims=True)))
    return scaled.astype(np.int8)


def _go_on(done: int, total: int) -> bool:
    return True
