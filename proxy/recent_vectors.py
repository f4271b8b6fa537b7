"""The vectors of the last few texts, which a turn asks for more than once: what a rule weighs is then stored as it is.

In: an embedder. Out: another one that answers the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from proxy.plugs import Embedder
from proxy.types import Vector

_KEPT = 64


class RecentVectors:
    """An embedder that remembers single texts. Thread-safe.

    Args:
        embedder: Asked for what is new.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._document = lru_cache(maxsize=_KEPT)(self._embedded)

    @property
    def fingerprint(self) -> str:
        """Of the embedder's model."""
        return self._embedder.fingerprint

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._embedder.dimension

    def documents(self, texts: Sequence[str]) -> list[Vector | None]:
        """Vectors of stored text, in order; as the embedder's own."""
        return [self._document(texts[0])] if len(texts) == 1 else list(self._embedder.documents(texts))

    def query(self, text: str) -> Vector | None:
        """Vector of a question; as the embedder's own."""
        return self._embedder.query(text)

    def _embedded(self, text: str) -> Vector | None:
        # What fails is not kept: it raises.
        return self._embedder.documents([text])[0]
