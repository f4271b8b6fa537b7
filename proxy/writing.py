"""Plans carried out: memories in the store, within one transaction, and read back afterwards.

In: `Plan`s. Out: `Written`: the record that now holds what was planned, and what became of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from proxy.conflict import Decision
from proxy.errors import Forgotten
from proxy.plan import Plan, outcome_of
from proxy.plugs import Store, Transaction
from proxy.scope import Scope
from proxy.types import Memory, Outcome, Source

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one draft.

    Args:
        memory: The record that now holds it; None when it was dropped.
        outcome: For the ledger.
    """

    memory: Memory | None
    outcome: Outcome


def apply(tx: Transaction, plans: Sequence[Plan], now: datetime) -> list[Plan]:
    """Write the plans; those whose text was forgotten are left out, and the others go on.

    Args:
        tx: The transaction.
        plans: In the order in which they were made: a later one may rest on an earlier one.
        now: The present time.

    Returns:
        What was written or merged.
    """
    kept: list[Plan] = []
    refused: set[str] = set()
    for plan in plans:
        target = plan.decision.target
        # What would join or replace a memory of this very turn that was refused stands alone, or goes with it.
        alone = target is not None and target.id in refused
        try:
            if plan.decision.action == "supersede" and target is not None and not alone:
                tx.supersede(target, plan.memory, plan.vector)
            elif plan.decision.action != "merge" or target is None or (alone := alone or not _stands(tx, target)):
                # A sweep may have put the target away since it was looked at.
                tx.insert(plan.memory, plan.vector)
            else:
                # Said again in another session it counts for more; said again in the same one it does not.
                tx.witness(target, plan.memory.source, now)
        except Forgotten:
            refused.add(plan.memory.id)
            continue
        kept.append(replace(plan, decision=Decision("create", None, "new")) if alone else plan)
    return kept


def _stands(tx: Transaction, target: Memory) -> bool:
    present = tx.get(Scope(target.tenant, target.user_id, target.agent_id), target.id)
    return present is not None and present.state == "active"


def read_back(store: Store, scope: Scope, rule_id: str, plan: Plan) -> Written:
    """A write counts when it can be read (trap 36)."""
    wanted = plan.decision.target if plan.decision.action == "merge" else plan.memory
    stored = store.get(scope, wanted.id) if wanted else None
    if stored is None or (plan.decision.action != "merge" and stored.content != plan.memory.content):
        log.error("write_not_read_back", rule_id=rule_id)
        return Written(None, Outcome(rule_id, "failed", None, "the record could not be read back"))
    return Written(stored, replace(outcome_of(plan), rule_id=rule_id))


def forgotten(source: Source) -> Outcome:
    """What becomes of a draft that a tombstone covers."""
    return Outcome(source.rule or "", "dropped", None, "it was forgotten")
