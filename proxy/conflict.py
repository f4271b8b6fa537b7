"""What a new memory means for those there are: the same, a correction, or something beside them.

Pure. In: the new memory, the memories near it with their cosines, and the text it was said in. Out: a `Decision`.
No cosine separates "the same in other words" from "the opposite" (the embedder's card), so merging asks for the same
content words (names, numbers and negation among them) in the same order, and superseding for a key, a correction or a
change marker.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.types import Memory, OnConflict

Action = Literal["create", "merge", "supersede", "version"]
_RELATED = {"zh": 0.60, "en": 0.65, "other": 0.65}
"""Cosine from which two memories speak of related things (the card's figures, document mode)."""
_SOURCE_RANK = {"tool": 0, "assistant": 1, "user": 2, "api": 2}
_CHANGED = re.compile(
    r"现在|其实|应该是|纠正|不对|不再|不是.{1,20}(?:而?是)"
    r"|改[成为用到叫]|换[成到了]|搬[到去]|变[成为]|(?:迁移|升级|调整|更新|切换)[到为成]"
    r"|\b(?:now|no longer|not any ?more|anymore|switched|changed|moved|migrated|upgraded|renamed|instead|actually"
    r"|correction|rather than|I meant)\b",
    re.IGNORECASE,
)
_IDEOGRAPH = r"\u3400-\u9fff"
# An ideograph, a word of any other script ("-5" and "node.js" are one each), or a sign ("+", "€", an emoji).
_WORDS = re.compile(
    rf"[{_IDEOGRAPH}]"
    rf"|(?:(?<!\S)[-.])?[^\W_{_IDEOGRAPH}]+(?:[-_.:][^\W_{_IDEOGRAPH}]+)*"
    r"|[^\w\s.,;:!?。，；：！？、…'’‘\"“”()（）\[\]【】《》<>_-]"
)
_OWNER = re.compile(r"用户的?|用戶的?|\busers?(?:['’]s?)?\b|(?<=\w)['’]s\b", re.IGNORECASE)
"""Whose memory it is goes without saying."""
# Words that change nothing: no negation, pronoun, direction or tense is among them.
_FUNCTION = frozenset("的了着是在用使来和与及也都就很会请里") | frozenset(
    ("the", "a", "an", "is", "are", "am", "be", "to", "of", "in", "on", "at", "for", "with", "and", "really", "very")
)


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
    new: Memory, near: Sequence[Near], *, on_conflict: OnConflict, said: str, dedupe_at: float = 0.95
) -> Decision:
    """Choose between creating, merging, superseding and standing beside.

    Args:
        new: The memory about to be written.
        near: Active memories of its partition: those in its key's slot and those close by cosine or words.
        on_conflict: What its rule says to do with a conflict.
        said: The sentence it was made from (change markers are looked for there).
        dedupe_at: Cosine from which texts with the same content words are one.

    Returns:
        The decision.
    """
    in_slot = [one.memory for one in near if new.key is not None and one.memory.key == new.key]
    same = [one.memory for one in near if _comparable(new, one.memory) and _same_text(new, one.memory)]
    if in_slot and not any(memory in same for memory in in_slot):
        newest = max(in_slot, key=lambda memory: memory.valid_from)
        return _settle(new, newest, on_conflict, "the same key")
    if same:
        return _unite(new, max(same, key=lambda memory: memory.key == new.key), "the same text")
    if new.kind == "turn":
        return Decision("create", None, "new")
    ordered = sorted((one for one in near if one.cosine is not None), key=lambda one: -(one.cosine or 0.0))
    for one in ordered:
        old, cosine = one.memory, one.cosine or 0.0
        alike = cosine >= dedupe_at and old.kind == new.kind and _comparable(new, old)
        if alike and agree(new.content, old.content):
            return _unite(new, old, f"the same in other words (cosine {cosine:.2f})")
    if on_conflict == "supersede" and (new.kind == "correction" or _CHANGED.search(said)):
        related = [one for one in ordered if _may_replace(new, one)]
        if related:
            return _settle(new, related[0].memory, on_conflict, f"a stated change (cosine {related[0].cosine:.2f})")
    return Decision("create", None, "new")


def _may_replace(new: Memory, one: Near) -> bool:
    old = one.memory
    kinds = old.kind == new.kind or (new.kind == "correction" and old.memory_type == "semantic")
    return kinds and _comparable(new, old) and (one.cosine or 0.0) >= _RELATED[new.language]


def _comparable(new: Memory, old: Memory) -> bool:
    """The raw trace of a turn is no substitute for what was made of it, nor one slot for another."""
    return (new.kind == "turn") == (old.kind == "turn") and (new.key is None or old.key in (None, new.key))


def _unite(new: Memory, old: Memory, reason: str) -> Decision:
    # Without its key a memory would not be found when its value changes.
    if new.key is not None and old.key is None and _rank(new) >= _rank(old):
        return Decision("supersede", old, f"{reason}, now under the key '{new.key}'")
    return Decision("merge", old, reason)


def _settle(new: Memory, old: Memory, on_conflict: OnConflict, reason: str) -> Decision:
    if on_conflict == "merge" and agree(new.content, old.content):
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
    words = _content_words(one)
    return bool(words) and words == _content_words(other)


def _content_words(text: str) -> tuple[str, ...]:
    words = _WORDS.findall(_OWNER.sub(" ", unicodedata.normalize("NFKC", text)))
    return tuple(_stem(word) for word in words if word.casefold() not in _FUNCTION)


def _stem(word: str) -> str:
    # Names are written with capitals, and "Adams" is not "Adam".
    return word.removesuffix("s") if word.islower() else word.casefold()


def normal(text: str) -> str:
    """A text as compared for being the same: width, case, white space and outer punctuation do not count.

    >>> normal("用户喜欢　ＡＢＣ。") == normal("用户喜欢 abc")
    True
    """
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return folded.strip(" .。!！?？,，;；、…")


def _same_text(one: Memory, other: Memory) -> bool:
    return normal(one.content) == normal(other.content)
