"""Two policy sets compared on one transcript: what only the new one does, and what only the live one did.

Pure. In: the `Step`s of two replays. Out: marked `Change`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from proxy.replay.play import Proposal, Step

Mark = Literal["+", "-", "=", "~"]


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a comparison.

    Args:
        mark: ``+`` only the new set does it, ``-`` only the live one, ``=`` both, ``~`` both, but not the same way.
        proposal: What the new set does; for ``-`` what the live one did.
        before: For ``~``: what the live one does.
    """

    mark: Mark
    proposal: Proposal
    before: Proposal | None = None


def compare(live: Step | None, new: Step | None) -> list[Change]:
    """How two policy sets differ on one event.

    Args:
        live: What the set in force makes of it; None when it makes nothing.
        new: What the other one does.

    Returns:
        Each thing that the new one does, marked, then what only the live one does. Two are one thing done otherwise
        when they say the same, or come from the same rule.
    """
    rest = list(live.proposals if live else ())
    wanted = list(new.proposals if new else ())
    partners: dict[int, Proposal] = {}
    for alike in (_equal, _say_the_same, _come_from_one_rule):
        for place, proposal in enumerate(wanted):
            found = next((one for one in rest if place not in partners and alike(one, proposal)), None)
            if found is not None:
                partners[place] = found
                rest.remove(found)
    changes = [_change(proposal, partners.get(place)) for place, proposal in enumerate(wanted)]
    return changes + [Change("-", proposal) for proposal in rest]


def _change(proposal: Proposal, before: Proposal | None) -> Change:
    if before is None:
        return Change("+", proposal)
    return Change("=", proposal) if before == proposal else Change("~", proposal, before)


def _equal(one: Proposal, other: Proposal) -> bool:
    return one == other


def _say_the_same(one: Proposal, other: Proposal) -> bool:
    same = one.name == other.name if one.sort == "slot" else one.content == other.content
    # The raw trace of a turn stands beside what was made of it.
    return one.sort == other.sort and same and (one.kind == "turn") == (other.kind == "turn")


def _come_from_one_rule(one: Proposal, other: Proposal) -> bool:
    return one.sort == other.sort and one.rule_id == other.rule_id


def paired(live: Iterable[Step], new: Iterable[Step]) -> Iterator[tuple[Step | None, Step | None]]:
    """The steps of two replays of one turn, event by event; one side is None where only the other has the event."""
    left, right = list(live), list(new)
    while left or right:
        if left and right and _place(left[0]) == _place(right[0]):
            yield left.pop(0), right.pop(0)
        elif left and all(_place(left[0]) != _place(step) for step in right):
            yield left.pop(0), None
        else:
            yield None, right.pop(0)


def _place(step: Step) -> tuple[int, int, int, str, str]:
    return step.conversation, step.turn, step.line, step.event, "" if step.event == "session_end" else step.text
