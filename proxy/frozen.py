"""`inject.placement: session`: a block frozen at a session's first turn, and small pieces behind later user messages.

Once sent, bytes stay: later requests of the session repeat them, and the provider's prefix cache holds. In: what the
session has so far (`Store.pieces`), what was recalled. Out: the piece to keep for this request, and where each goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b

from proxy.inject import Block, Item
from proxy.observe import Conversation
from proxy.plugs import FROZEN, Piece, Store
from proxy.recall import Hit, Recalled
from proxy.scope import Scope
from proxy.types import Memory, Slot

SNAPSHOT_SHARE = 0.5
"""How much of the budget the frozen block may use: the rest is for what is learnt later."""
_RELEVANT_DENSE = 0.25
"""Least cosine, without a common word, of what is added later: it stays in every request to come."""
_SHARE_OF_BEST = 0.5
"""Least score, of the best hit's, of what is added later: with the answer there, what comes far behind it is not."""
NEWS_SHARE = 0.25
"""How much of the budget only what was learnt after the session's beginning may use."""
_MOST_SUCCESSORS = 20


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a request's pieces go.

    Args:
        system: The frozen block; empty when there is none.
        tails: By the message's index, what goes behind its text.
        block: All of it together, for headers and ledger.
    """

    system: str = ""
    tails: Mapping[int, str] = field(default_factory=dict)
    block: Block = field(default_factory=Block)


def missing(pieces: Mapping[str, Piece], talk: Conversation) -> tuple[str, ...]:
    """What this request has to keep a piece for: the chains that have none yet, the one that recall fills first.

    At a session's first turn that is the block; nothing then goes behind the message, whenever it is sent again. In a
    tool loop nothing new is said.
    """
    newest = talk.newest_user
    chain = newest.chain if newest is not None and not talk.in_tool_loop else None
    if FROZEN not in pieces:
        return (FROZEN,) if chain is None else (FROZEN, chain)
    return () if chain is None or chain in pieces else (chain,)


def standing(pieces: Mapping[str, Piece], talk: Conversation) -> list[Piece]:
    """The pieces that this request holds already, the block first."""
    chains = [FROZEN, *(message.chain for message in talk.messages if message.role == "user")]
    # Forgetting may take one away meanwhile.
    return [piece for chain in dict.fromkeys(chains) if (piece := pieces.get(chain)) is not None]


def present(held: Sequence[Piece]) -> frozenset[str]:
    """Ids of everything that stands in these pieces."""
    return frozenset(item for piece in held for item in (*piece.items, *piece.mentions))


def additions(recalled: Recalled, known: frozenset[str], in_request: frozenset[str], *, first: bool) -> list[Hit]:
    """The hits that are new to the session and worth staying in it.

    Args:
        recalled: What was recalled.
        known: What stands in the session already.
        in_request: Hashes of the request's messages.
        first: Whether they are for the frozen block.
    """
    best = max((hit.score for hit in recalled.hits), default=0.0)
    return [
        hit
        for hit in recalled.hits
        if hit.left_out is None
        and hit.memory.id not in known
        and hit.memory.source.message_hash not in in_request
        and (first or (_bears(hit) and hit.score >= _SHARE_OF_BEST * best))
    ]


def learnt_since(hits: Sequence[Hit], moment: datetime | None) -> set[str]:
    """Ids of the hits that are younger than a session; none where it is not known when that began."""
    return {hit.memory.id for hit in hits if moment is not None and hit.memory.created_at > moment}


def _bears(hit: Hit) -> bool:
    dense = hit.parts.get("dense")
    return bool(hit.parts.get("lexical")) or (dense is not None and dense >= _RELEVANT_DENSE)


def slot_items(
    slots: Mapping[str, Slot], held: Sequence[Piece], in_request: frozenset[str], shown: Sequence[Item]
) -> list[tuple[Item, str]]:
    """Slots whose source has left the messages, and whose value is not the last that the session was told.

    Args:
        slots: Of the session.
        held: The pieces of the request.
        in_request: Hashes of the request's messages.
        shown: The same slots as items, in the order wanted.

    Returns:
        Each item with the mark of its value.
    """
    marks = (mark for piece in held for mark in piece.mentions if mark.startswith("slot:"))
    told = {mark.rpartition("#")[0]: mark for mark in marks}
    found = []
    for item in shown:
        slot = slots[item.id.removeprefix("slot:")]
        mark = f"{item.id}#{blake2b(item.text.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"
        if told.get(item.id) != mark and slot.message_hash not in in_request:
            found.append((item, mark))
    return found


def corrections(store: Store, scope: Scope, held: Sequence[Piece]) -> list[tuple[Memory, Memory]]:
    """What stands in the session and holds no more, each with what has replaced it.

    Of several that the same one has replaced, the one that was told last.

    Args:
        store: Long-term layer.
        scope: Whose.
        held: The pieces of the request.
    """
    ids = [item for piece in held for item in piece.items if not item.startswith("slot:")]
    if not ids:
        return []
    known, found = present(held), dict[str, tuple[Memory, Memory]]()
    states, told = store.states(scope, ids), _told_versions(held)
    for old_id in dict.fromkeys(ids):
        state, successor, version = states.get(old_id, ("forgotten", None, 0))
        if state == "active" and version > told.get(old_id, version):
            found |= _rewritten(store, scope, old_id, told[old_id])
        if state != "superseded" or successor is None:
            continue
        newest = _newest(store, scope, successor)
        old = store.get(scope, old_id)
        if newest is not None and old is not None and newest.id not in known:
            found[newest.id] = old, newest
    return list(found.values())


def version_mark(memory: Memory) -> str:
    """Says among a piece's mentions which version of a memory was told."""
    return f"version:{memory.id}@{memory.version}"


def _told_versions(held: Sequence[Piece]) -> dict[str, int]:
    marks = (mark for piece in held for mark in piece.mentions if mark.startswith("version:"))
    parts = (mark.removeprefix("version:").rpartition("@") for mark in marks)
    return {memory_id: int(version) for memory_id, _, version in parts}


def _rewritten(store: Store, scope: Scope, memory_id: str, version: int) -> dict[str, tuple[Memory, Memory]]:
    """A memory that was told and then changed in place, with its words of then; empty where those are the same."""
    now = store.get(scope, memory_id)
    versions = (one.memory for one in store.history(scope, memory_id) if one.memory.id == memory_id)
    then = next((one for one in versions if one.version == version), None)
    if now is None or then is None or now.content == then.content:
        return {}
    return {memory_id: (then, now)}


def _newest(store: Store, scope: Scope, memory_id: str) -> Memory | None:
    """The end of a line of successors; None when it holds no more."""
    for _ in range(_MOST_SUCCESSORS):
        memory = store.get(scope, memory_id)
        if memory is None or memory.superseded_by is None:
            return memory if memory is not None and memory.state == "active" else None
        memory_id = memory.superseded_by
    return None


def placed(pieces: Mapping[str, Piece], talk: Conversation, budget_tokens: int, left_out: tuple[str, ...]) -> Placed:
    """Where the pieces of a request go.

    Args:
        pieces: Of the session, this request's among them.
        talk: The request.
        budget_tokens: For all of them; one that was lowered beats the bytes that were sent before.
        left_out: Ids that found no room, for the ledger.
    """
    used, items, tails, system = 0, dict[str, None](), dict[int, str](), ""
    frozen = pieces.get(FROZEN, Piece())
    if frozen.text and frozen.tokens <= budget_tokens:
        used, system = frozen.tokens, frozen.text
        items.update(dict.fromkeys(frozen.items))
    for index, message in enumerate(talk.messages):
        piece = pieces.get(message.chain) if message.role == "user" else None
        if piece is None or not piece.text or used + piece.tokens > budget_tokens:
            continue
        used += piece.tokens
        tails[index] = piece.text
        items.update(dict.fromkeys(piece.items))
    text = "\n\n".join([*([system] if system else []), *tails.values()])
    return Placed(system, tails, Block(text, used, tuple(items), left_out))
