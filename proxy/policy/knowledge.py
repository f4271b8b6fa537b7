"""What conditions may ask of the memories already stored, and of the value classifier: one small protocol.

In: the text a rule looks at. Out: yes or no, or a figure. `evaluate` itself stays pure; who calls it brings this along.
"""

from __future__ import annotations

from typing import Final, Protocol

from proxy.types import Language


class Knowledge(Protocol):
    """Answers for `known`, `similar_to_existing` and `value`. One answer per event and text is asked for."""

    def known(self, text: str) -> bool:
        """Whether a stored memory of this owner is about the name `text`."""

    def similar(self, text: str, kind: str | None) -> float:
        """Cosine of the stored memory that is closest to `text`, among those of one kind or of any; 0–1."""

    def value(self, text: str, language: Language) -> float:
        """How likely it is that `text` says something worth keeping; 0–1."""


class _Nothing:
    """No store and no classifier: nothing is known, nothing is similar, and every text is let through.

    So `known: false` holds, `known: true` does not; `similar_to_existing` holds only for `at_least: 0`; `value` holds
    whatever it asks for, since a check that nobody can make must not lose what a user said.
    """

    def known(self, text: str) -> bool:
        return False

    def similar(self, text: str, kind: str | None) -> float:
        return 0.0

    def value(self, text: str, language: Language) -> float:
        return 1.0


NOTHING_KNOWN: Final[Knowledge] = _Nothing()
"""For callers without a store."""
