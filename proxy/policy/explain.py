"""An evaluation as plain data, the same for the endpoint and the command line. In: an `Evaluation` with its traces."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from proxy.policy.durations import shown
from proxy.policy.evaluation import Evaluation, ForgetRequest, RuleTrace
from proxy.policy.llm import LlmTask
from proxy.types import Draft, SlotWrite


def draft_data(draft: Draft) -> dict[str, Any]:
    """A draft as JSON-ready data."""
    data = asdict(draft)
    data["tags"] = list(draft.tags)
    data["ttl"] = None if draft.ttl_s is None else shown(draft.ttl_s)
    del data["ttl_s"], data["policy_hash"]
    return data


def slot_data(slot: SlotWrite) -> dict[str, Any]:
    """A slot as JSON-ready data."""
    ttl = None if slot.ttl_s is None else shown(slot.ttl_s)
    return {"rule_id": slot.rule_id, "slot": slot.name, "value": slot.value, "ttl": ttl}


def forget_data(request: ForgetRequest) -> dict[str, Any]:
    """A request to forget, or to take that back, as JSON-ready data."""
    return {"rule_id": request.rule_id, "action": "restore" if request.restore else "forget", "about": request.about}


def llm_data(task: LlmTask) -> dict[str, Any]:
    """A question for a model as JSON-ready data."""
    fallback = [draft_data(draft) for draft in task.fallback]
    return {"rule_id": task.rule_id, "model": task.model, "prompt": task.prompt, "fallback": fallback}


def explain(evaluation: Evaluation, *, only_tried: bool = False) -> list[dict[str, Any]]:
    """One entry per rule: its outcome, and every condition with what it asks for and what was there.

    Args:
        evaluation: Made with ``trace=True``.
        only_tried: Leave out rules that wait for another event or are disabled.
    """
    return [_rule(trace) for trace in evaluation.traces if trace.conditions or not only_tried or trace.text]


def _rule(trace: RuleTrace) -> dict[str, Any]:
    return {
        "rule_id": trace.rule_id,
        "file": trace.file,
        "mode": trace.mode,
        "outcome": trace.outcome,
        "text": trace.text,
        "conditions": [asdict(seen) for seen in trace.conditions],
        "drafts": [draft_data(draft) for draft in trace.drafts],
        "slots": [slot_data(slot) for slot in trace.slots],
        "forgets": [forget_data(request) for request in trace.forgets],
        "llm": [llm_data(task) for task in trace.llm],
        "timed_out": list(trace.timed_out),
    }
