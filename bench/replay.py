"""What is left in memory after days of mixed talk: junk, precision, recall, and the same again when all is resent.

The plays in `bench/replay/` go through `POST /v1/chat/completions` of the real product, then all of them once more, as
clients do that import old threads. `python -m bench.replay` prints every miss with its place.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import fmean, median

from bench.judging import Verdict, census, judge
from bench.playing import Kept, Stage
from bench.playscript import plays
from bench.report import Figure, Section
from bench.run import Run
from bench.screenplay import Play
from proxy import log
from proxy.policy import load as loader

JUNK_GOAL, PRECISION_GOAL, RECALL_GOAL = 0.05, 0.95, 0.85
TURN_CPU_GOAL_MS = 1.5
_SHIPPED = Path(__file__).parent.parent / "policies"
_LATER = timedelta(days=1)
_TOLD = 12
"""Misses and wrong records named in the results."""
_SHOWN_CHARS = 90


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is played.

    Args:
        users: Whose dialogues; none for everybody's.
    """

    users: tuple[str, ...] = ()

    @property
    def play(self) -> Play:
        """What is played."""
        return part(self.users) if self.users else plays()

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar: every turn is played twice."""
        return 2 * self.play.user_turns


FULL = Amounts()
QUICK = Amounts(("kai", "rosa"))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a replay ended.

    Args:
        verdict: After everything was said once.
        changed: Records that are more, fewer or others after everything was said again.
        turn_cpu_ms: CPU of each turn's write-back, the first time, on its own thread.
    """

    verdict: Verdict
    changed: tuple[str, ...]
    turn_cpu_ms: tuple[float, ...]

    @property
    def mean_cpu_ms(self) -> float:
        """CPU of a turn's write-back, on average."""
        return fmean(self.turn_cpu_ms)


def part(users: Collection[str]) -> Play:
    """The plays of some users."""
    return plays().only(lambda scene: scene.user in users)


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Play, judge, play again, compare."""
    play = amounts.play
    return _section(play, asyncio.run(replay(play, run)))


async def replay(play: Play, run: Run) -> Ended:
    """Play everything twice, and judge what is kept after the first time.

    Args:
        play: What is said.
        run: Where, and with which settings.
    """
    policies = [Path(path) for path in run.settings.get("policies", [_SHIPPED])]
    retention = loader.load(policies).retention
    async with Stage(run.folder, run.settings) as stage:
        first = await _performed(stage, play, run)
        verdict = judge(play, first, stage.clock(), retention)
        turn_cpu_ms = tuple(1000 * one for one in stage.backstage.turn_cpu_s)
        second = await _performed(stage, play, run)
    return Ended(verdict, _changes(first, second), turn_cpu_ms)


async def _performed(stage: Stage, play: Play, run: Run) -> Mapping[str, Kept]:
    """What is kept when all was said, every session is over and the night's sweeps have run."""
    await stage.perform(play, run.step)
    await stage.reach(stage.clock() + _LATER)
    return {user: await stage.kept(user) for user in play.users}


def _changes(first: Mapping[str, Kept], second: Mapping[str, Kept]) -> tuple[str, ...]:
    before, after = census(first), census(second)
    return tuple(
        [f"new: {one}" for one in (after - before).elements()] + [f"gone: {one}" for one in (before - after).elements()]
    )


def _section(play: Play, ended: Ended) -> Section:
    verdict = ended.verdict
    figures = [
        Figure("junk among records (turns apart)", "%", 100 * verdict.junk_share, goal=100 * JUNK_GOAL),
        Figure("claims about the user that are wrong", "%", 100 * (1 - verdict.precision), goal=5),
        Figure("planted truths that were missed", "%", 100 * (1 - verdict.recall), goal=15),
        Figure("duplicates", "", verdict.faults("duplicate"), goal=0),
        Figure("records with a secret, in any state", "", len(verdict.leaks), goal=0),
        Figure("records that differ when all is said again", "", len(ended.changed), goal=0),
        Figure("CPU of handling one turn, mean", "ms", ended.mean_cpu_ms, goal=TURN_CPU_GOAL_MS),
        Figure("CPU of handling one turn, median", "ms", median(ended.turn_cpu_ms)),
    ]
    how = (
        f"{play.user_turns} user turns in {play.conversations} conversations of {len(play.users)} users over six days, "
        f"zh and en, the whole history resent each turn, then everything once more; {verdict.planted} planted truths, "
        f"{verdict.claims} claims."
    )
    return Section("Replay", how, figures, [line for lines in _misses(ended).values() for line in lines[:_TOLD]])


def _misses(ended: Ended) -> dict[str, list[str]]:
    """Everything that went wrong, by what it is."""
    verdict = ended.verdict
    junk = {
        name: [
            f"junk, {name}: {example.content!r} ({example.reason})"
            for report in verdict.audits.values()
            for example in report.faults[name].examples
        ]
        for name in ("duplicate", "question", "assistant_authored", "recall_echo", "secret", "stale")
    }
    return {
        "missed": [
            f"missed: {' '.join('/'.join(either) for either in mark.words)} in {_short(mark.said)!r} ({mark.place})"
            for mark in verdict.missed
        ],
        "wrong": [f"wrong: {one}" for one in verdict.wrong],
        "leaks": [f"leak: record {memory.id} ({memory.kind}, {memory.state})" for memory in verdict.leaks],
        "changed": [f"changed: {one}" for one in ended.changed],
        **junk,
    }


def _short(text: str) -> str:
    first = text.partition("\n")[0]
    return first if len(first) <= _SHOWN_CHARS else f"{first[:_SHOWN_CHARS]}…"


def main(users: Collection[str]) -> None:
    """Replay, and print every miss."""
    log.configure("error")
    play = part(users) if users else plays()
    with tempfile.TemporaryDirectory(prefix="sidemirror-replay-") as folder:
        ended = asyncio.run(replay(play, Run(Path(folder))))
    verdict = ended.verdict
    for lines in _misses(ended).values():
        sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.write(
        f"junk {verdict.junk_share:.1%}, precision {verdict.precision:.1%} of {verdict.claims}, "
        f"recall {verdict.recall:.1%} of {verdict.planted}, duplicates {verdict.faults('duplicate')}, "
        f"leaks {len(verdict.leaks)}, changed by a second replay {len(ended.changed)}\n"
        f"CPU of a turn's write-back: {ended.mean_cpu_ms:.2f} ms on average, {median(ended.turn_cpu_ms):.2f} ms in the "
        f"middle, of {len(ended.turn_cpu_ms)} turns\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
