"""What a matching rule makes of a passage: drafts of memories, or working-memory slots.

In: a rule and the passage it matched, with its captures. Out: `Draft`s and `SlotWrite`s. Pure.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from functools import lru_cache

import regex

from proxy.language import detect, sentences
from proxy.policy.jsonpath import lookup, shortened
from proxy.policy.model import Verbatim, Write
from proxy.policy.passage import Passage, Whole
from proxy.policy.patterns import SESSION_NAMES
from proxy.policy.rules import Rule, names_in
from proxy.shelf import compiled
from proxy.types import Draft, Event, Language, SlotWrite

ASKED_CHARS = 120
TEXT_CHARS = 300
ASSISTANT_KINDS = ("decision", "task", "summary")
"""What memories of the assistant's words may be."""
_EDGES = " \t\r\n，。！？,.!?;；:：、~～…"
_FINAL_PARTICLE = compiled(r"(?<=\p{Han}|\w)[啊哦呀啦喔噢呢哈嘛]+$")
_PAIRS = {"“": "”", '"': '"', "「": "」", "(": ")", "（": "）", "[": "]", "《": "》", "`": "`"}
_FAILED = compiled(
    r"^\W*(?:error|exception|traceback|failed|failure|fatal|panic|错误|失败|异常|报错)\b|^\W*(?:错误|失败|异常|报错)"
    r"|\b(?:\w+(?:Error|Exception)): "
    r"|\b(?:command not found|permission denied|no such file|connection refused|timed out)\b"
    r"|\bexit(?:ed with)? (?:code|status) [1-9]",
    regex.IGNORECASE | regex.M,
)


def trimmed(capture: str) -> str:
    """A capture without what clings to it: spaces, punctuation, a final particle, an unpaired or enclosing quote.

    >>> trimmed(" 深色模式啊。"), trimmed("“Bob”"), trimmed("--port=2222,"), trimmed("tea (green)")
    ('深色模式', 'Bob', '--port=2222', 'tea (green)')
    """
    text = capture.strip(_EDGES)
    text = _FINAL_PARTICLE.sub("", text).strip(_EDGES)
    for opening, closing in _PAIRS.items():
        if text.startswith(opening) and text.endswith(closing) and len(text) > 1:
            text = text[1:-1]
        elif opening != closing and text.endswith(closing) and opening not in text:
            text = text[:-1]
        elif text.startswith(opening) and closing not in text[1:]:
            text = text[1:]
    return text.strip(_EDGES)


def slug(text: str) -> str:
    """A capture as part of a key.

    >>> slug("Staging DB"), slug("测试 库")
    ('staging-db', '测试-库')
    """
    return regex.sub(r"[^\w.]+", "-", text.strip().lower()).strip("-")


def error_text(event: Event) -> str:
    """The telling line of a failed result: the JSON error's message, else the first line that names an error."""
    found = event.data
    for name in ("error", "errors", "message", "detail", "stderr"):
        if isinstance(found, Mapping) and found.get(name):
            found = found[name]
            if isinstance(found, list):
                found = found[0]
    if isinstance(found, str):
        return found[:TEXT_CHARS]
    lines = [line.strip() for line in event.text.splitlines() if line.strip()]
    telling = [line for line in lines if _FAILED.search(line)]
    return (telling or lines or [""])[-1 if "Traceback" in event.text else 0][:TEXT_CHARS]


def built_in(name: str, passage: Passage) -> str | None:
    """What a name stands for that no pattern has to capture; None where there is no such name, or nothing to say."""
    event = passage.whole.event
    if name == "text":
        return shortest(passage.text, TEXT_CHARS)
    if name == "asked":
        return shortest(event.user_text, ASKED_CHARS)
    if name == "error":
        return error_text(event)
    if name == "tool":
        return event.tool or ""
    if name == "arguments":
        return (event.arguments or "")[:TEXT_CHARS]
    return _of_session(name, passage.whole) if name in SESSION_NAMES else None


def _of_session(name: str, whole: Whole) -> str | None:
    data = whole.event.data if isinstance(whole.event.data, Mapping) else {}
    found = data.get("session_id" if name == "session" else name)
    if isinstance(found, list | tuple):
        found = ("；" if whole.asked_language == "zh" else "; ").join(trimmed(str(one)) for one in found)
    return str(found) if found else None  # a memory of nothing is none


def shortest(text: str, max_chars: int) -> str:
    """A text cut at a sentence's end where one is near, else at the limit.

    >>> shortest("One. Two is longer.", 8), shortest("abcdefgh", 5)
    ('One.', 'abcd…')
    """
    text = " ".join(text.split())
    if len(text) <= max_chars:
        return text
    kept = ""
    for sentence in sentences(text):
        if len(kept) + len(sentence) + 1 > max_chars:
            break
        kept = f"{kept} {sentence}".strip()
    return kept or text[: max_chars - 1] + "…"


@lru_cache(maxsize=1_024)
def parsed_template(text: str) -> tuple[string.Template, tuple[str, ...]]:
    """A template and the names in it; both are kept, since the same few come again and again."""
    return string.Template(text), tuple(names_in(text))


def fill(template: str, passage: Passage, *, as_key: bool = False) -> str | None:
    """A template with its names replaced; None when one of them was not captured, or only punctuation was."""
    ready, names = parsed_template(template)
    captures = passage.found.captures if passage.found else {}
    values: dict[str, str] = {}
    for name in names:
        raw = captures[name] if name in captures else built_in(name, passage)
        if as_key and name == "session" and raw:
            value = raw  # two sessions must not share a slot because their ids look alike
        else:
            value = slug(trimmed(raw or "")) if as_key else trimmed(raw or "")
        if not value and raw != "":  # a group that is meant to match nothing may stay empty
            return None
        values[name] = value
    return ready.substitute(values)


def drafts(
    rule: Rule, passage: Passage, policy_hash: str, tool_confidence: float
) -> Draft | tuple[SlotWrite, ...] | None:
    """What the rule makes of the passage.

    Args:
        rule: A rule that matched.
        passage: With the match in it.
        policy_hash: For the record's source.
        tool_confidence: Ceiling for what tools say.

    Returns:
        A draft, or slots, or None when nothing is left to store.
    """
    extract, write = rule.trigger.extract, rule.trigger.write
    assert extract is not None, "a rule that does not drop extracts; checked when loading"
    assert write is not None, "a rule that does not drop writes; checked when loading"
    if extract.slots is not None:
        return _slots(rule, extract.slots, write, passage)
    kept = content_of(rule, passage)
    if not kept:
        return None
    if write.slot is not None:
        name = fill(write.slot, passage, as_key=True)
        return (SlotWrite(rule.id, name, kept, write.ttl),) if name else None
    return draft_of(rule, write, kept, passage, policy_hash, tool_confidence)


def content_of(rule: Rule, passage: Passage) -> str | None:
    """The sentence that a rule makes without a model, by its template or of the words themselves; None when empty."""
    extract = rule.trigger.extract
    if extract is None:
        return None
    otherwise = extract.llm.otherwise if extract.llm is not None else None
    verbatim = extract.verbatim or (Verbatim() if otherwise == "verbatim" else None)
    if verbatim is not None:
        return shortest(passage.text, verbatim.max_chars)
    template = extract.template.for_language(language_of(passage)) if extract.template else None
    return fill(template, passage) if template else None


def draft_of(
    rule: Rule, write: Write, content: str, passage: Passage, policy_hash: str, tool_confidence: float
) -> Draft:
    """A memory as a rule's `write` says, with this content."""
    key = fill(write.key, passage, as_key=True) if write.key else None
    tags = (fill(tag, passage) for tag in write.tags)
    confidence = write.confidence
    if rule.event == "tool_result":
        confidence = min(confidence, tool_confidence)
    return Draft(
        rule_id=rule.id,
        policy_hash=policy_hash,
        content=content,
        memory_type=write.memory_type,
        kind=write.kind,
        scope=write.scope,
        confidence=confidence,
        language=passage.languages[0] if content == passage.text else detect(content),
        key=key,
        tags=tuple(tag for tag in tags if tag),
        ttl_s=write.ttl,
        on_conflict=write.on_conflict,
        link_parent=write.link == "parent",
        as_said=bool(content) and _keeps_words(rule),
    )


def _keeps_words(rule: Rule) -> bool:
    """Whether the words are to stay as they were said."""
    extract = rule.trigger.extract
    if extract is None or extract.template is not None:
        return False
    return extract.verbatim is None or not extract.verbatim.stand_alone


def language_of(passage: Passage) -> Language:
    """The language that a rule writes in about a passage."""
    # Notes about a tool or an answer are for the user: in the language that was asked in.
    if passage.whole.event.type in ("tool_result", "turn_end", "session_end", "schedule"):
        return passage.whole.asked_language
    return passage.found.language if passage.found else passage.languages[0]


def _slots(rule: Rule, sources: Mapping[str, str], write: Write, passage: Passage) -> tuple[SlotWrite, ...]:
    found = []
    for name_template, source in sources.items():
        name = fill(name_template, passage, as_key=True) if "$" in name_template else name_template
        is_path = source == "$" or source.startswith(("$.", "$["))
        value = shortened(lookup(passage.whole.event.data, source)) if is_path else fill(source, passage)
        if name and value not in (None, "", [], {}):
            found.append(SlotWrite(rule.id, name, value, write.ttl))
    return tuple(found)
