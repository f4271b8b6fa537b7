"""`sidemirror policy replay`: how a replay is run with a bar, and how it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.app import utc_now
from proxy.cli.progress import bars
from proxy.clip import one_line
from proxy.errors import SidemirrorError
from proxy.policy.rules import PolicySet
from proxy.replay.compare import Change, compare, paired
from proxy.replay.play import Proposal, Replay, Step, Value, proposal_data
from proxy.replay.transcript import Turn, read

_STYLES = {"+": "green", "-": "red", "~": "yellow", "=": "dim", " ": ""}
_WORDS = {"+": "new", "-": "gone", "~": "changed", "=": "the same"}
_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class Shown:
    """One event, and what is done about it; a change's mark is a space where nothing is compared."""

    step: Step
    changes: tuple[Change, ...]


def turns_of(path: Path, zone: tzinfo) -> list[Turn]:
    """The turns of a transcript file.

    Raises:
        SidemirrorError: It cannot be read, or some lines are wrong; the message names each with its place.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SidemirrorError(f"{path} cannot be read: {error}") from error
    found = read(text.splitlines(), str(path), now=utc_now(), zone=zone)
    if found.problems:
        raise SidemirrorError("\n".join(str(problem) for problem in found.problems))
    if not found.turns:
        raise SidemirrorError(f"{path} holds no turn; expected JSON lines of messages, or of conversations")
    return found.turns


def played(
    turns: Sequence[Turn], live: PolicySet | None, new: PolicySet, zone: tzinfo, value: Value, console: Console
) -> list[Shown]:
    """Put turns before one policy set, or before two and compare; a bar shows how far it is."""
    sides = [Replay(new, zone, value)] if live is None else [Replay(live, zone, value), Replay(new, zone, value)]
    last = {turn.conversation: turn for turn in turns}
    shown: list[Shown] = []
    with bars(console) as told:
        for done, turn in enumerate(turns, 1):
            steps = [side.turn(turn) for side in sides]
            if turn is last[turn.conversation]:
                for side, made in zip(sides, steps, strict=True):
                    made += side.end(turn)
            shown += _shown(steps)
            told("replaying", done, len(turns))
    return shown


def _shown(steps: Sequence[list[Step]]) -> Iterator[Shown]:
    if len(steps) == 1:
        for step in steps[0]:
            yield Shown(step, tuple(Change("=", proposal) for proposal in step.proposals))
        return
    for live, new in paired(*steps):
        either = new or live
        if either is not None:
            yield Shown(either, tuple(compare(live, new)))


def as_data(shown: Sequence[Shown], *, compared: bool) -> dict[str, Any]:
    """A replay as JSON-ready data."""
    events = []
    for one in shown:
        step = one.step
        events.append(
            {
                "line": step.line,
                "conversation": step.conversation,
                "turn": step.turn,
                "event": step.event,
                "text": step.text,
                "proposals": [_change_data(change, compared=compared) for change in one.changes],
                "dropped_by": step.dropped_by,
                "shadow": list(step.shadow),
                "timed_out": [one.pattern for one in step.timed_out],
            }
        )
    return {"events": events, "totals": dict(_totals(shown, compared=compared))}


def _change_data(change: Change, *, compared: bool) -> dict[str, Any]:
    data = proposal_data(change.proposal)
    if compared:
        data["mark"] = change.mark
    if change.before is not None:
        data["before"] = proposal_data(change.before)
    return data


def _totals(shown: Sequence[Shown], *, compared: bool) -> Counter[str]:
    totals: Counter[str] = Counter(events=len(shown))
    for one in shown:
        totals["dropped"] += one.step.dropped_by is not None
        totals["shadow"] += len(one.step.shadow)
        for change in one.changes:
            totals["proposals"] += change.mark != "-"
            if compared:
                totals[_WORDS[change.mark].replace("the same", "same")] += 1
    return totals


def show(shown: Sequence[Shown], console: Console, *, compared: bool, only_changes: bool) -> None:
    """Print a replay as a table, one row for each thing that would be done, and what it all came to."""
    table = Table("line", "", "rule", "what", "would write", "from")
    for one in shown:
        for row in _rows(one, compared=compared, only_changes=only_changes):
            table.add_row(*row)
    if table.rows:
        console.print(table)
    totals = _totals(shown, compared=compared)
    dropped, shadow = totals["dropped"], totals["shadow"]
    console.print(
        f"{totals['events']} events, {totals['proposals']} things to write, {dropped} events dropped,"
        f" {shadow} matches in shadow"
    )
    if compared:
        counts = (f"{totals[name]} {name}" for name in ("new", "gone", "changed", "same"))
        console.print(f"against the live set: {', '.join(counts)}")


def _rows(one: Shown, *, compared: bool, only_changes: bool) -> Iterator[tuple[str, ...]]:
    step = one.step
    said = escape(one_line(step.text, _SHOWN_CHARS) if step.event != "session_end" else "the end of the conversation")
    for change in one.changes:
        if only_changes and change.mark == "=":
            continue
        mark = change.mark if compared else " "
        style = _STYLES[mark]
        cells = (mark, escape(change.proposal.rule_id), _what(change.proposal), _would(change))
        yield (str(step.line), *(f"[{style}]{cell}[/]" if style else cell for cell in cells), said)
    if only_changes:
        return
    if step.dropped_by is not None:
        yield str(step.line), "", escape(step.dropped_by), "dropped", "", said
    for rule_id in step.shadow:
        yield str(step.line), "", escape(rule_id), "shadow: writes nothing", "", said
    for rule_id, pattern in step.timed_out:
        yield str(step.line), "", escape(rule_id), "ran out of time", escape(one_line(pattern, _SHOWN_CHARS)), said


def _what(proposal: Proposal) -> str:
    if proposal.sort != "memory":
        return proposal.sort
    asked = f", or what {proposal.model} answers" if proposal.model else ""
    return escape(f"{proposal.memory_type} {proposal.kind}, {proposal.scope}, {proposal.confidence}{asked}")


def _would(change: Change) -> str:
    text = _content(change.proposal)
    if change.before is None:
        return escape(text)
    before = _content(change.before)
    # The same words: then what differs is the rest.
    was = before if before != text else f"{change.before.rule_id}: {_what(change.before)}"
    return escape(f"{text}\nwas: {was}")


def _content(proposal: Proposal) -> str:
    if proposal.sort == "slot":
        return f"{proposal.name} = {one_line(proposal.content, _SHOWN_CHARS)}"
    key = f" (key {proposal.name})" if proposal.name else ""
    return f"{proposal.content or 'what was said last'}{key}"
