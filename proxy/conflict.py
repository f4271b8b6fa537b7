"""What a new memory means for those there are: the same, a correction, or something beside them.

Pure. In: the new memory, the memories near it with their cosines, and the text it was said in. Out: a `Decision`.
No cosine separates "the same in other words" from "the opposite" (the embedder's card), so merging asks for the same
words or the same claims, and superseding for the same subject and predicate with another value (`claim`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.claim import (
    MAX_CHARS,
    Claims,
    Relation,
    answers,
    claims,
    content_words,
    relate,
    says_addition,
    says_change,
    sharing,
)
from proxy.claim.likeness import (
    only_a_measure_differs,
    only_the_denial_differs,
    only_the_end_differs,
    same_but_for_light_words,
    same_signs,
    same_words,
)
from proxy.language import sentences
from proxy.types import Memory, OnConflict

Action = Literal["create", "merge", "supersede", "version"]
Verdict = Literal["same", "replaces", "beside", "unsure"]
Judge = Callable[[str, str], Verdict]
"""Asked with the earlier text and the new one."""
_RELATED = {"zh": 0.60, "en": 0.65, "other": 0.65}
"""Cosine from which two memories speak of related things (the card's figures, document mode)."""
_ALIKE = {"zh": 0.68, "en": 0.70, "other": 0.70}
"""Cosine from which two values that may both hold are of a kind: tea and coffee, not tea and jazz."""
_CLOSE = 0.75
"""Cosine from which a pair that the rules leave open is worth a judge's time."""
_WORDS_COUNT = 0.30
"""The same words, or the same claims, prove more than a cosine: this much less of it is asked for."""
_SOURCE_RANK = {"tool": 0, "assistant": 1, "user": 2, "api": 2}
_GRAVITY: dict[Relation, int] = {"replaces": 0, "flip": 0, "rivals": 1, "another": 2}
_ONE_FAMILY = frozenset(("preference", "fact", "instruction", "habit", "constraint", "entity", "correction"))
"""Kinds that one thing may be filed under, depending on the words it was said in."""


@dataclass(frozen=True, slots=True)
class Near:
    """A memory near the new one; `cosine` is None when it was found by its key or its words alone."""

    memory: Memory
    cosine: float | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the new memory.

    Args:
        action: ``create``; ``merge`` into `target`; ``supersede`` it; ``version`` stands beside it, both active.
        target: The memory concerned; None with ``create``.
        reason: Why, for the ledger.
    """

    action: Action
    target: Memory | None
    reason: str


def decide(
    new: Memory,
    near: Sequence[Near],
    *,
    on_conflict: OnConflict,
    said: str,
    dedupe_at: float = 0.95,
    judge: Judge | None = None,
) -> Decision:
    """Choose between creating, merging, superseding and standing beside.

    Args:
        new: The memory about to be written.
        near: Active memories of its partition: those in its key's slot and those close by cosine or words.
        on_conflict: What its rule says to do with a conflict.
        said: The sentence it was made from (change markers are looked for there).
        dedupe_at: Cosine from which texts that say the same are one; 0.3 less is asked of texts with the same content
            words in the same order, or with the same claims, numbers, names and negations.
        judge: Asked about the nearest pair that the rules leave open, at most once; its "same" counts only where
            numbers, names and negations are equal.

    Returns:
        The decision.
    """
    in_slot = [one.memory for one in near if new.key is not None and one.memory.key == new.key]
    text = normal(new.content)
    same = [one.memory for one in near if _comparable(new, one.memory) and normal(one.memory.content) == text]
    if in_slot and not any(memory in same for memory in in_slot):
        return _replaced_in_slot(new, in_slot, on_conflict)
    if same:
        return _unite(new, max(same, key=lambda memory: memory.key == new.key), "the same text")
    if new.kind == "turn":
        return Decision("create", None, "new")
    ordered = sorted((one for one in near if _comparable(new, one.memory)), key=lambda one: -(one.cosine or -1.0))
    for one in ordered:
        if _says_the_same(new, one, dedupe_at):
            return _unite(new, one.memory, f"the same in other words (cosine {one.cosine:.2f})")
    found = _by_claims(new, ordered, on_conflict, said)
    if judge is not None and (found is None or found.action == "version"):
        found = _judged(new, ordered, on_conflict, judge) or found
    return found or Decision("create", None, "new")


def _replaced_in_slot(new: Memory, in_slot: Sequence[Memory], on_conflict: OnConflict) -> Decision:
    newest = max(in_slot, key=lambda memory: memory.valid_from)
    if same_words(new.content, newest.content):
        return Decision("merge", newest, "the same key and words")
    if new.valid_from < newest.valid_from:  # told late: what was said since stands
        return Decision("version", newest, "the same key, but the other is the later one")
    return _settle(new, newest, on_conflict, "the same key")


def _says_the_same(new: Memory, one: Near, dedupe_at: float) -> bool:
    text, other = new.content, one.memory.content
    if one.cosine is None or one.memory.kind != new.kind or one.cosine < dedupe_at - _WORDS_COUNT:
        return False
    if same_words(text, other):
        return True
    return relate(claims(text), claims(other)) == "same" and same_but_for_light_words(text, other)


def _by_claims(new: Memory, ordered: Sequence[Near], on_conflict: OnConflict, said: str) -> Decision | None:
    """Find the memory that cannot stand as it does beside the new one, and settle it."""
    stated = claims(new.content)
    changed = new.kind == "correction" or stated.changed or _said_to_change(new, stated, said)
    gravest: tuple[int, Near, Relation, bool] | None = None
    for one in ordered:
        if not _of_one_family(new, one.memory):
            continue
        relation, whole = _relation(new, stated, one)
        if relation == "another" and not (changed and on_conflict == "supersede" and _of_a_kind(new, stated, one)):
            continue
        rank = _GRAVITY.get(relation, 9)
        if rank < 9 and (gravest is None or rank < gravest[0]):
            gravest = (rank, one, relation, whole)
    if gravest is None:
        return None
    _, one, relation, whole = gravest
    reason = {"flip": "the opposite", "another": "a stated change", "rivals": "another value"}.get(
        relation, "another value where there is one"
    )
    reason += "" if one.cosine is None else f" (cosine {one.cosine:.2f})"
    if relation == "rivals" and not changed:
        return Decision("version", one.memory, reason)
    if not whole:
        return Decision("version", one.memory, f"{reason}, in a part of it")
    if new.valid_from < one.memory.valid_from:
        return Decision("version", one.memory, f"{reason}, but the other is the later one")
    return _settle(new, one.memory, on_conflict, reason, may_merge=False)


def _relation(new: Memory, stated: Claims, one: Near) -> tuple[Relation, bool]:
    """What the new memory is to an earlier one, and whether it speaks to all that the earlier one says."""
    earlier = claims(one.memory.content)
    relation = relate(stated, earlier)
    if relation in ("apart", "another") and _names_as_replaced(stated, earlier):
        return "replaces", len(earlier.stated) < 2
    same_talk = new.session_id is not None and new.session_id == one.memory.session_id
    if relation == "apart" and new.kind == "correction" and (same_talk or not earlier.stated):
        # What was said in the same talk is corrected by naming its words: "it is Durham, not Sheffield".
        said = set(content_words(one.memory.content))
        if any(said.issuperset(old) for old in stated.replaced):
            return "replaces", True
    if relation == "apart" and not stated.added:
        relation = _by_wording(new.content, one.memory.content, read=bool(stated.stated and earlier.stated))
        return relation, relation != "rivals" or len(earlier.stated) < 2
    return relation, answers(stated, earlier)


def _by_wording(new: str, old: str, *, read: bool) -> Relation:
    """What two texts are to each other by their words alone; doubtful, but for a plain denial."""
    if max(len(new), len(old)) > MAX_CHARS:
        return "apart"
    if only_the_denial_differs(new, old):
        return "flip"
    if only_a_measure_differs(new, old) or (not read and only_the_end_differs(new, old)):
        return "rivals"
    return "apart"


def _names_as_replaced(stated: Claims, earlier: Claims) -> bool:
    """Whether the new text says of the earlier one's value that it holds no longer: "from Jenkins to Actions"."""
    subjects = {claim.subject for claim in stated.stated} | {("user",)}
    return any(
        claim.positive and claim.value == old and (claim.subject in subjects or not stated.stated)
        for claim in earlier.stated
        for old in stated.replaced
    )


def _of_a_kind(new: Memory, stated: Claims, one: Near) -> bool:
    """Whether a stated change can mean this value, where there is room for both."""
    return not stated.added and (one.cosine or 0.0) >= _ALIKE[new.language]


def _said_to_change(new: Memory, stated: Claims, said: str) -> bool:
    """Whether the sentence that the new memory was made from says that something has changed."""
    if said == new.content or not said:
        return False
    values = {word for claim in stated.stated for word in claim.value}
    telling = [sentence for sentence in sentences(said) if sharing(sentence, values)] or [said]
    return any(says_change(sentence) and not says_addition(sentence) for sentence in telling)


def _judged(new: Memory, ordered: Sequence[Near], on_conflict: OnConflict, judge: Judge) -> Decision | None:
    close = (one.memory for one in ordered if (one.cosine or 0.0) >= _CLOSE and _is_open(new, one.memory))
    old = next(close, None)
    if old is None:
        return None
    verdict = judge(old.content, new.content)
    if verdict == "same" and old.kind == new.kind and same_signs(new.content, old.content):
        return _unite(new, old, "judged to be the same")
    if verdict == "replaces":
        return _settle(new, old, on_conflict, "judged to take its place", may_merge=False)
    return Decision("create", None, "judged to stand beside") if verdict == "beside" else None


def _is_open(new: Memory, old: Memory) -> bool:
    """Whether the rules leave a doubt; where the same is said of two others than the user, they leave none."""
    said, before = ({(claim.predicate, claim.subject) for claim in claims(one.content).stated} for one in (new, old))
    of_two = any(
        predicate == other and subject != whose and ("user",) not in (subject, whose)
        for predicate, subject in said
        for other, whose in before
    )
    return _of_one_family(new, old) and not of_two


def _of_one_family(new: Memory, old: Memory) -> bool:
    """Whether one can take the other's place: what happened stays as it was, whatever happens later."""
    if new.memory_type != "semantic" or old.memory_type != "semantic":
        return False
    return new.kind == "correction" or old.kind == new.kind or {old.kind, new.kind} <= _ONE_FAMILY


def _comparable(new: Memory, old: Memory) -> bool:
    """The raw trace of a turn is no substitute for what was made of it, nor one slot for another."""
    return (new.kind == "turn") == (old.kind == "turn") and (new.key is None or old.key in (None, new.key))


def _unite(new: Memory, old: Memory, reason: str) -> Decision:
    # Without its key a memory would not be found when its value changes.
    if new.key is not None and old.key is None and _rank(new) >= _rank(old):
        return Decision("supersede", old, f"{reason}, now under the key '{new.key}'")
    return Decision("merge", old, reason)


def _settle(new: Memory, old: Memory, on_conflict: OnConflict, reason: str, *, may_merge: bool = True) -> Decision:
    if on_conflict == "merge" and may_merge and agree(new.content, old.content):
        return Decision("merge", old, reason)
    if on_conflict != "supersede":  # a merge would lose what is said otherwise now
        return Decision("version", old, reason)
    if _rank(new) < _rank(old):
        said_by = f"{new.source.role} does not overrule {old.source.role or 'user'}"
        return Decision("version", old, f"{reason}, but {said_by}")
    return Decision("supersede", old, reason)


def _rank(memory: Memory) -> int:
    return _SOURCE_RANK.get(memory.source.role or "user", 0)


def agree(one: str, other: str) -> bool:
    """Whether two near texts say the same: the same content words in the same order.

    >>> agree("用户偏好用 pnpm 管理前端依赖", "用户偏好使用 pnpm 来管理前端依赖。")
    True
    >>> agree("The port is 8080", "The port is 8081")
    False
    >>> agree("用户对花生过敏", "用户对花生不过敏")
    False
    """
    return same_words(one, other)


def normal(text: str) -> str:
    """A text as compared for being the same: width, case, white space and outer punctuation do not count.

    >>> normal("用户喜欢　ＡＢＣ。") == normal("用户喜欢 abc")
    True
    """
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return folded.strip(" .。!！?？,，;；、…")
