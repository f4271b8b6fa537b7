"""What a rule with `extract.llm` asks a model. In: the rule and the passages it matched. Out: an `LlmTask`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proxy.enclosure import enclose
from proxy.policy.extract import ASSISTANT_KINDS, built_in, draft_of, drafts, language_of, parsed_template
from proxy.policy.llm import LlmTask
from proxy.policy.model import Llm
from proxy.policy.passage import Passage
from proxy.policy.rules import Rule
from proxy.types import Draft

PROMPT_CHARS = 8_000
"""Most that one `$text` or `$message` may add to a prompt."""


def llm_task(rule: Rule, passages: Sequence[Passage], policy_hash: str, tool_confidence: float) -> LlmTask | None:
    """What the rule asks a model about all that it matched in one event.

    Args:
        rule: A rule that extracts by a model.
        passages: At least one, each with the match in it; captures are the first one's.
        policy_hash: For the record's source.
        tool_confidence: Ceiling for what tools say.

    Returns:
        One task; None when the prompt uses a name that was not captured.
    """
    extract, write = rule.trigger.extract, rule.trigger.write
    assert extract is not None, "a rule that asks extracts"
    assert extract.llm is not None, "a rule that asks names a model"
    assert write is not None, "a rule that extracts writes; checked when loading"
    prompt = _prompt(extract.llm, passages)
    if prompt is None:
        return None
    by_rule = (drafts(rule, passage, policy_hash, tool_confidence) for passage in passages)
    fallback = {draft.content: draft for draft in by_rule if isinstance(draft, Draft)}
    like = draft_of(rule, write, "", passages[0], policy_hash, tool_confidence)
    return LlmTask(
        rule_id=rule.id,
        policy_hash=policy_hash,
        model=extract.llm.model,
        prompt=prompt,
        schema=extract.llm.schema_,
        timeout_s=extract.llm.timeout,
        daily_tokens=extract.llm.daily_tokens,
        draft=replace(like, language=language_of(passages[0])),
        fallback=tuple(fallback.values()),
        kinds=ASSISTANT_KINDS if rule.event in ("assistant_message", "turn_end") else None,
    )


def _prompt(llm: Llm, passages: Sequence[Passage]) -> str | None:
    ready, names = parsed_template(llm.prompt)
    first = passages[0]
    captures = first.found.captures if first.found else {}
    values: dict[str, str] = {}
    for name in names:
        if name in captures:
            value: str | None = captures[name]
        elif name == "text":
            value = "\n".join(dict.fromkeys(passage.text for passage in passages))[:PROMPT_CHARS]
        elif name == "message":
            value = (first.whole.own if first.whole.event.role == "user" else first.whole.text)[:PROMPT_CHARS]
        else:
            value = built_in(name, first)
        if value is None:
            return None
        values[name] = enclose(value)
    return ready.substitute(values)
