"""What a short memory sentence claims (subject, predicate, value), in Chinese and English, and how two claims stand.

Pure, and read once per text: the latest few thousand are kept. A sentence that the closed lists do not cover claims
nothing, and is then compared by its wording alone.
"""

from __future__ import annotations

from functools import lru_cache

from proxy.claim import chinese, english
from proxy.claim.marker import replaced, says_addition, says_change, sharing
from proxy.claim.relate import answers, relate
from proxy.claim.types import Claim, Claims, Relation
from proxy.claim.wording import content_words, plain
from proxy.language import detect

__all__ = [
    "MAX_CHARS",
    "Claim",
    "Claims",
    "Relation",
    "answers",
    "claims",
    "content_words",
    "plain",
    "relate",
    "says_addition",
    "says_change",
    "sharing",
]
_CACHED = 4096
MAX_CHARS = 160
"""A longer text is a paragraph: taking it for one claim would replace all of it for a part."""


def claims(text: str) -> Claims:
    """Read a text's claims.

    Args:
        text: A memory's content.

    Returns:
        Its claims; none for text over 160 characters or in other languages.

    >>> claims("用户住在上海").stated == claims("用户现在住在上海。").stated
    True
    """
    return _read(text) if len(text) <= MAX_CHARS else Claims()


@lru_cache(maxsize=_CACHED)
def _read(text: str) -> Claims:
    flat = plain(text)
    read = {"zh": chinese.read, "en": english.read}.get(detect(text))
    return Claims(read(flat) if read else (), replaced(flat), says_change(flat), says_addition(flat))
