"""Extraction by a model: what is to be asked, and what an answer makes. Pure; `proxy.extractor` does the asking.

In: a rule that matched (through `extract.py`), later the model's JSON answer. Out: an `LlmTask`, then `Draft`s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from proxy.language import detect
from proxy.shelf import compiled
from proxy.types import Draft, MemoryType

MAX_MEMORIES: Final = 20
MAX_CONTENT_CHARS: Final = 2_000
MAX_TAGS: Final = 10
_MAX_WORD_CHARS: Final = 120
_KIND: Final = compiled(r"[a-z][a-z0-9_]{0,39}")
_LASTING: Final[Mapping[str, MemoryType]] = {name: name for name in get_args(MemoryType) if name != "working"}

ANSWER_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "memories": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string"},
                    "kind": {"type": "string"},
                    "key": {"type": "string"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                },
                "required": ["content"],
            },
        }
    },
    "required": ["memories"],
}
"""The form of an answer where a rule gives no `schema` of its own."""


@dataclass(frozen=True, slots=True)
class LlmTask:
    """One question for a model.

    Args:
        rule_id: Trigger id.
        policy_hash: Hash of the policy set.
        model: Name under `models:` in config.yaml.
        prompt: With the rule's captures and text filled in.
        schema: JSON Schema of the answer.
        timeout_s: How long the answer may take.
        daily_tokens: Tokens a tenant may spend on this rule a day; None is no limit.
        draft: What a memory of the answer is like; its content is still empty.
        fallback: What is written when there is no answer.
        kinds: Kinds that the answer may choose; None is any.
    """

    rule_id: str
    policy_hash: str
    model: str
    prompt: str
    schema: Mapping[str, Any]
    timeout_s: float
    daily_tokens: int | None
    draft: Draft
    fallback: tuple[Draft, ...] = ()
    kinds: tuple[str, ...] | None = None


def answered(task: LlmTask, answer: Any) -> tuple[Draft, ...]:
    """The drafts that an answer makes; what it says beyond the rule's bounds is left out.

    Args:
        task: What was asked.
        answer: Parsed JSON: ``{"memories": [...]}``, a list, or one item. An item is a text, or an object with
            `content` and perhaps kind, key, tags, confidence, memory_type. Confidence never exceeds the rule's.

    Returns:
        At most 20 drafts, none empty, none twice; nothing when the answer has another form.

    >>> rule = Draft("r", "h", "", "semantic", "fact", "user", 0.7, "other")
    >>> task = LlmTask("r", "h", "m", "p", {}, 20.0, None, rule)
    >>> said = {"memories": ["Likes tea", {"content": "x", "confidence": 1}]}
    >>> [(draft.content, draft.confidence) for draft in answered(task, said)]
    [('Likes tea', 0.7), ('x', 0.7)]
    >>> answered(task, {"memories": None}), answered(task, 3), answered(task, [])
    ((), (), ())
    """
    found: dict[str, Draft] = {}
    for item in _items(answer):
        draft = _draft(task, item)
        if draft is not None and len(found) < MAX_MEMORIES:
            found.setdefault(draft.content, draft)
    return tuple(found.values())


def _items(answer: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(answer, Mapping) and "memories" in answer:
        answer = answer["memories"]
    for item in answer if isinstance(answer, list) else [answer]:
        if isinstance(item, str):
            yield {"content": item}
        elif isinstance(item, Mapping):
            yield item


def _draft(task: LlmTask, item: Mapping[str, Any]) -> Draft | None:
    content = _line(item.get("content"), MAX_CONTENT_CHARS)
    if not content:
        return None
    rule = task.draft
    return replace(
        rule,
        content=content,
        language=detect(content),
        kind=_kind(item.get("kind"), task),
        key=_line(item.get("key"), _MAX_WORD_CHARS) or rule.key,
        tags=tuple(dict.fromkeys((*rule.tags, *_tags(item.get("tags"))))),
        confidence=_confidence(item.get("confidence"), rule.confidence),
        memory_type=_LASTING.get(str(item.get("memory_type")), rule.memory_type),
    )


def _kind(value: Any, task: LlmTask) -> str:
    if isinstance(value, str) and _KIND.fullmatch(value) and (task.kinds is None or value in task.kinds):
        return value
    return task.draft.kind


def _confidence(value: Any, most: float) -> float:
    stated = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return min(float(value), most) if stated else most


def _tags(value: Any) -> list[str]:
    tags = [_line(tag, _MAX_WORD_CHARS) for tag in value] if isinstance(value, list) else []
    return [tag for tag in tags if tag][:MAX_TAGS]


def _line(value: Any, max_chars: int) -> str:
    return " ".join(value.split())[:max_chars] if isinstance(value, str) else ""
