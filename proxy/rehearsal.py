"""What a call would do with the memories that a search found, for `--explain`: quotas, thresholds, duplicates, budget.

In: a question and the hits of a search on purpose. Out: for each, that it would be injected, or why not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from proxy import inject
from proxy.frozen import SNAPSHOT_SHARE
from proxy.inject import Item
from proxy.language import detect
from proxy.leftout import BUDGET, FAR_DOWN, INJECTED, SUPERSEDED
from proxy.recall import Hit, Question, Recall
from proxy.retrieve import KEPT
from proxy.scope import Scope
from proxy.settings import Inject


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Plays the first call of a session, up to the block.

    Args:
        recall: Selects.
        settings: Budget and placement.
        count: Tokens of a text.
    """

    recall: Recall
    settings: Inject
    count: Callable[[str], int]

    def of(self, scope: Scope, text: str, hits: Sequence[Hit], now: datetime) -> Mapping[str, str]:
        """What would become of each hit.

        Args:
            scope: Whose.
            text: What the call asks.
            hits: From `Recall.considered`, best first.
            now: The present time.

        Returns:
            By memory id ``injected``, or the reason.

        Raises:
            StoreError: The store cannot be read.
        """
        found = [hit._replace(left_out=None) for hit in hits if hit.left_out != SUPERSEDED]
        judged = self.recall.selected(scope, found[:KEPT], Question(text, now))
        told = {hit.memory.id: hit.left_out or INJECTED for hit in judged}
        share = SNAPSHOT_SHARE if self.settings.placement == "session" else 1.0
        block = inject.build(
            [Item.of(hit.memory) for hit in judged if hit.left_out is None],
            budget_tokens=int(share * self.settings.budget_tokens),
            count=self.count,
            language=detect(text),
            max_item_chars=self.settings.max_item_chars,
        )
        told |= dict.fromkeys(block.left_out, BUDGET)
        return {hit.memory.id: told.get(hit.memory.id, hit.left_out or FAR_DOWN) for hit in hits}
