"""What a block shows of a record, and what that costs: found out once, when the record is written.

In: a record about to be stored. Out: the same with its short form and its counts. Every write passes here, on the
writer's thread, so none can go without; reading tokenises nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy import inject
from proxy.settings import Inject
from proxy.store.records import whole_characters
from proxy.tokens import estimate
from proxy.types import Memory

_DEFAULT_CHARS = Inject().max_item_chars


@dataclass(frozen=True, slots=True)
class Showing:
    """Gives records their short form.

    Args:
        count: Tokens of a text.
        max_item_chars: `inject.max_item_chars`.
    """

    count: Callable[[str], int] = estimate
    max_item_chars: int = _DEFAULT_CHARS

    def __call__(self, memory: Memory) -> Memory:
        """A record as it is stored.

        >>> from datetime import UTC, datetime
        >>> at = datetime(2026, 11, 2, tzinfo=UTC)
        >>> tea = Memory("1", "t", "u", "a", "agent", "semantic", "fact", "The user likes tea", at, at, at)
        >>> Showing()(tea).short, Showing()(tea).line_tokens, Showing(max_item_chars=12)(tea).short
        (None, 7, 'The user…')
        """
        content = whole_characters(memory.content)
        short = inject.stored_short(content, self.max_item_chars)
        in_full = len(content) <= self.max_item_chars
        return replace(
            memory,
            short=short,
            line_tokens=inject.text_tokens(content, self.count) if in_full else None,
            short_tokens=None if short is None else inject.text_tokens(short, self.count),
        )
