"""What policies may ask of the store and of the value classifier: `policy.knowledge.Knowledge` over one owner.

In: a text that a rule looks at. Out: whether it is known, how close the nearest memory is, whether it is worth keeping.
It reads, so it runs where write-back does. What cannot be found out counts as unknown: nobody's words are lost by it.
"""

from __future__ import annotations

from proxy.errors import EmbedderError, StoreError
from proxy.language import detect
from proxy.plugs import Embedder, Filters, Store
from proxy.policy.knowledge import NOTHING_KNOWN, Knowledge
from proxy.scope import Scope
from proxy.store.lexical import terms
from proxy.types import Language, Vector
from proxy.value import ValueModel

_SAME_NAME = 20
_NEAREST = 1


class Knowing(Knowledge):
    """Answers for one owner. For one event, on one thread.

    Args:
        store: Long-term layer.
        embedder: For stored text.
        model: The value classifier; None keeps nothing for its worth alone.
        scope: Whose memories are asked.
    """

    def __init__(self, store: Store, embedder: Embedder, model: ValueModel | None, scope: Scope) -> None:
        self._store = store
        self._embedder = embedder
        self._model = model
        self._scope = scope
        # Several rules ask about the same sentence.
        self._vectors: dict[str, Vector | None] = {}

    def known(self, text: str) -> bool:
        name = text.strip().casefold()
        try:
            found = self._store.holding(self._scope, terms(text), limit=_SAME_NAME)
        except StoreError:
            return NOTHING_KNOWN.known(text)
        # A raw turn only shows that the name was said, perhaps in this very message.
        return any(memory.kind != "turn" and name in memory.content.casefold() for memory in found)

    def similar(self, text: str, kind: str | None) -> float:
        vector = self._vector(text)
        if vector is None:
            return 0.0
        try:
            found = self._store.search(self._scope, vector, [], limit=_NEAREST, filters=Filters(kind=kind))
        except StoreError:
            return NOTHING_KNOWN.similar(text, kind)
        return max((one.dense for one in found.candidates if one.dense is not None), default=0.0)

    def value(self, text: str, language: Language) -> float:
        # It was fitted on these two; what nobody can judge is not kept for its worth alone.
        if self._model is None or language == "other" or detect(text) == "other":
            return 0.0
        return self._model.score(text, self._vector(text))

    def _vector(self, text: str) -> Vector | None:
        if text not in self._vectors:
            try:
                self._vectors[text] = self._embedder.documents([text])[0]
            except EmbedderError:
                self._vectors[text] = None
        return self._vectors[text]
