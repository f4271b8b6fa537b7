"""A model's answer read: text → JSON that fits the schema → drafts within the rule's bounds. Pure.

Models wrap JSON in fences, thoughts and courtesies, whatever they are told; what is inside counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema
import orjson
import referencing
from jsonschema.exceptions import best_match

from proxy.errors import SidemirrorError
from proxy.policy.llm import LlmTask, answered
from proxy.types import Draft

MAX_CONTENT_CHARS: Final = 1_000
"""A longer "memory" is the conversation copied out, and is refused."""
KINDS: Final = frozenset(
    {"correction", "decision", "entity", "fact", "feedback", "instruction", "lesson", "preference", "summary", "task"}
)
"""Kinds that a model may choose where its rule names none; a rule's own kind goes without saying."""
_MAX_ANSWER_CHARS: Final = 100_000
_THOUGHTS: Final = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_FENCED: Final = re.compile(r"```[a-zA-Z]*(.*?)```", re.DOTALL)
_BRACKETS: Final = ("{}", "[]")
_NOWHERE: Final = referencing.Registry[Any]()
"""A `$ref` leads nowhere outside its schema: the library would fetch it from the network."""


class Unfit(SidemirrorError):
    """The answer is not the JSON that was asked for; the message says why, and may quote it."""


class SchemaUnusable(Unfit):
    """No answer could be held against the schema: asking again is of no use."""


def read(text: str, schema: Mapping[str, Any]) -> Any:
    """The JSON in an answer.

    Args:
        text: What the model said.
        schema: What it must fit.

    Returns:
        The parsed JSON.

    Raises:
        Unfit: There is none, or it does not fit.
        SchemaUnusable: The schema is at fault.

    >>> read('Sure! ```json\\n{"memories": ["Likes tea"]}\\n```', {"type": "object"})
    {'memories': ['Likes tea']}
    >>> read('[1]', {"type": "object"})
    Traceback (most recent call last):
    proxy.extraction.answer.Unfit: [1] is not of type 'object'
    """
    if len(text) > _MAX_ANSWER_CHARS:
        raise Unfit("it is too long")
    answer = _parsed(text)
    _check(answer, schema)
    return answer


def drafts(task: LlmTask, answer: Any) -> tuple[Draft, ...]:
    """The memories of an answer.

    Args:
        task: What was asked.
        answer: From `read`.

    Returns:
        Drafts within the rule's bounds; those of an unknown kind and overlong ones are left out.
    """
    allowed = {task.draft.kind, *(KINDS if task.kinds is None else task.kinds)}
    return tuple(
        draft for draft in answered(task, answer) if draft.kind in allowed and len(draft.content) <= MAX_CONTENT_CHARS
    )


def _parsed(text: str) -> Any:
    for candidate in _candidates(text):
        try:
            return orjson.loads(candidate)
        except orjson.JSONDecodeError:
            continue
    raise Unfit("it is no JSON")


def _candidates(text: str) -> Iterator[str]:
    plain = _THOUGHTS.sub("", text).strip("\ufeff \t\r\n")
    yield plain
    yield from _FENCED.findall(plain)
    for opening, closing in _BRACKETS:
        yield plain[max(0, plain.find(opening)) : plain.rfind(closing) + 1]


def _check(answer: Any, schema: Mapping[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema, registry=_NOWHERE)
    try:
        error = best_match(validator.iter_errors(answer))
    except (
        jsonschema.exceptions.UnknownType,
        referencing.exceptions.Unresolvable,
        TypeError,
        re.error,
        RecursionError,
    ) as broken:
        raise SchemaUnusable(f"the rule's schema cannot be used ({type(broken).__name__})") from broken
    if error is not None:
        raise Unfit(error.message)
