"""The embedder: a contract, held by `tests/test_embed.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from proxy.types import Vector


class Embedder(Protocol):
    """Text to vectors."""

    @property
    def fingerprint(self) -> str:
        """Names the vector space: model, its bytes' hash, dimension."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def documents(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        """Vectors of stored text; None where no content token remains (the dense leg is then skipped).

        Raises:
            EmbedderError: The model cannot be used.
        """

    def query(self, text: str) -> Vector | None:
        """Vector of a question (own token weights); None as above."""
