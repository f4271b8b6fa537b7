"""Which of the memories that were put into a request its answer drew on: those gain strength.

Pure. In: the answer, what was asked, the memories. Out: ids. Only words that the user had not just said tell anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from proxy.store.lexical import terms
from proxy.types import Memory

_SHARE = 0.5
"""So much of a memory's own words in an answer show that it was used; measured on no data, on the safe side."""
_TELLING_CHARS = 3
_NOT_ITS_OWN = frozenset(("user", "users", "用户", "用", "户", "的用"))


def used(answer: str, asked: str, memories: Sequence[Memory]) -> list[str]:
    """The memories whose own words an answer repeats.

    Args:
        answer: What the model said.
        asked: The user's message before it: what stands there says nothing about memory.
        memories: Those in the request.

    Returns:
        Their ids, in order.

    >>> from datetime import UTC, datetime
    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> owner = ("t", "u", "a", "user", "semantic", "fact")
    >>> port = Memory("1", *owner, "The staging database listens on port 5433", at, at, at)
    >>> tea = Memory("2", *owner, "The user likes tea", at, at, at)
    >>> used("Connect to port 5433 of the staging host.", "How do I reach staging?", [port, tea])
    ['1']
    """
    if not answer or not memories:
        return []
    said = set(terms(answer)) - set(terms(asked))
    return [memory.id for memory in memories if _drawn_on(_own_words(memory.content), said)]


def _drawn_on(words: frozenset[str], said: set[str]) -> bool:
    shared = words & said
    if not shared:
        return False
    # A number or a name with digits is no coincidence.
    if any(len(word) >= _TELLING_CHARS and any(map(str.isdigit, word)) for word in shared):
        return True
    return len(shared) >= 2 and len(shared) >= _SHARE * len(words)


@lru_cache(maxsize=8_192)
def _own_words(content: str) -> frozenset[str]:
    """The words of a memory that tell it from others: single ideographs do not."""
    return frozenset(word for word in terms(content) if word not in _NOT_ITS_OWN and (word.isascii() or len(word) > 1))
