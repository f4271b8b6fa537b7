"""How likely each candidate of a search answers the question: a weighted sum of what speaks for it and against it.

Pure. In: the search's `Context`, the candidates' traits, the question. Out: a relevance for each, 0–1, and what went
into it. Both legs are in it as the policies weigh them; beside them what stands around a memory in its conversation,
whose words it is, and whether it is of the kind that is asked for. The weights are data (``ranker_weights.json``),
fitted by ``bench/fit_rank.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from proxy.plugs import AROUND, Context, Glances
from proxy.traits import Asked, Day
from proxy.types import Memory

WEIGHTS: Final = Path(__file__).with_name("ranker_weights.json")
FEATURES: Final = (
    "legs", "before", "after", "near", "words_before", "answers", "session", "speaker", "other_speaker", "times",
    "dated", "asks", "assistant", "standing", "preference",
)  # fmt: skip
"""What is weighed. legs: both legs of the question, or of the part of it that the memory fits best. before, after,
near, words_before: the neighbours' legs. answers: what stands before it is a question that fits. session: how much in
its conversation fits. speaker, other_speaker: the question names who says it, or somebody else. times: it says when,
and that is asked. dated: it is of the day asked for. asks: it is a question itself. assistant: whose it is. standing:
an instruction for all time. preference: a preference, where advice is asked."""
TELLING: Final = ("top", "covered", "apart")
"""What tells whether there is an answer: see `Relevance`, and `answerable`."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "around": ("before", "after", "near", "words_before", "answers", "session"),
    "speaking": ("speaker", "other_speaker"),
    "asked_for": ("times", "dated", "standing", "preference"),
    "form": ("asks", "assistant"),
}
"""Features that are explained together."""
_MEMBERS: Final = np.array([[float(name in members) for members in GROUPS.values()] for name in FEATURES])
_OF_NEIGHBOURS: Final = np.array(
    [FEATURES.index(name) for name in ("before", "after", "near", "words_before", "answers")]
)
_OF_SESSION: Final = np.array([FEATURES.index("session")])
_SPEAKER, _OTHER_SPEAKER = FEATURES.index("speaker"), FEATURES.index("other_speaker")
_OWN: Final = AROUND.index(0)
_NEIGHBOURS: Final = [place for place in range(len(AROUND)) if place != _OWN]
_LEAST = 1e-6
_BEST_OF_SESSION = 3
_SAME_MONTH, _SAME_DAYS, _LATE_MONTH = 0.6, 1.0, 0.5
_TOLD_WITHIN_DAYS = 7
_MONTHS_END = 24
_TYPICAL = 0.4
_CONTENDERS = 6
_HARDLY_BETTER = 3.5
_ABOVE = 1.0 + 1e-6
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weights:
    """What each feature counts.

    Args:
        of: By feature, float64, in the order of `FEATURES`.
        bias: Added to the sum, so that it is above zero, and the relevance above a half, for one in ten of the best.
        spread: The sum is divided by it: how far apart the good and the bad are.
        answerable: What tells whether memory holds an answer at all, float64, in the order of `TELLING`.
        answerable_bias: Added to that sum.
    """

    of: Floats
    bias: float
    spread: float
    answerable: Floats
    answerable_bias: float

    @classmethod
    @lru_cache(maxsize=4)
    def load(cls, path: Path = WEIGHTS) -> Weights:
        """Weights from their file."""
        data = json.loads(path.read_text(encoding="utf-8"))
        answerable = data["answerable"]
        return cls(
            np.array([data["weights"][name] for name in FEATURES]),
            data["bias"],
            data["spread"],
            np.array([answerable["weights"][name] for name in TELLING]),
            answerable["bias"],
        )


@dataclass(frozen=True, slots=True)
class Relevance:
    """What the ranker says.

    Args:
        values: float64 (n,), 0–1.
        fused: float64 (n,), both legs of the whole question as the policies weigh them, 0–1.
        table: The features, float64 (n, len(FEATURES)).
        top: The highest of the sums, without bias.
        apart: How much better both legs of what the named speaker says fit than those of what others say, −1–1; 0
            where the question names nobody who speaks.
    """

    values: Floats
    fused: Floats
    table: Floats
    top: float
    apart: float


def relevance(context: Context, seen: Glances, asked: Asked, share: float, weights: Weights) -> Relevance:
    """Weigh the candidates of a search.

    Args:
        context: Of the search, one line per candidate.
        seen: The candidates.
        asked: The question.
        share: The dense leg's weight, 0–1.
        weights: What each feature counts.

    Returns:
        For each candidate, in the same order.
    """
    fused, table = features(context, seen, asked, share)
    sums = table @ weights.of
    values = _logistic((sums + weights.bias) / weights.spread)
    return Relevance(values, fused, table, float(sums.max(initial=0.0)), apart(table, fused))


def answerable(found: Relevance, covered: float, weights: Weights) -> float:
    """How likely it is that memory holds an answer at all: the same for all candidates of a question, whose order it
    leaves as it is. Words that occur nowhere, and a matter that only somebody else has spoken of, tell of none.

    Args:
        found: The candidates weighed.
        covered: The share of the question's terms that the best candidate holds, 0–1.
        weights: What each sign counts.

    Returns:
        0–1.
    """
    return float(_logistic(np.array([found.top, covered, found.apart]) @ weights.answerable + weights.answerable_bias))


def _logistic(sums: Floats) -> Floats:
    shares: Floats = 1.0 / (1.0 + np.exp(-np.clip(sums, -30.0, 30.0)))
    return shares


def apart(table: Floats, fused: Floats) -> float:
    """See `Relevance`.

    Args:
        table: The features.
        fused: Both legs.
    """
    spoken, others = table[:, _SPEAKER] > 0, table[:, _OTHER_SPEAKER] > 0
    return float(fused[spoken].max() - fused[others].max(initial=0.0)) if spoken.any() else 0.0


def groups(found: Relevance, places: Sequence[int], weights: Weights) -> dict[str, Floats]:
    """What `GROUPS` added to the sums of some candidates, by name: float64, one value per place."""
    weighed = (found.table[places] * weights.of) @ _MEMBERS
    return dict(zip(GROUPS, weighed.T, strict=True))


def later_first(scores: Sequence[float], memories: Sequence[Memory], changed: Sequence[float]) -> list[float]:
    """Factors that put news above what it outdates, for a question about how things are now.

    Of the best six, one that says that something changed is put above any earlier one that answers hardly better: it is
    most often the same matter. What superseded what at the time of writing needs no such guess.

    Args:
        scores: Of the candidates, ≥ 0.
        memories: The candidates.
        changed: Whether each says that something is not as it was.

    Returns:
        A factor for each score, 1 for nearly all.
    """
    best = sorted(range(len(scores)), key=lambda place: -scores[place])[:_CONTENDERS]
    told = {place: (memories[place].valid_from, memories[place].id) for place in best}
    factors = [1.0] * len(scores)
    for new in best:
        if not changed[new] or memories[new].source.role == "assistant" or scores[new] <= 0:
            continue
        outdated = [
            scores[old] / scores[new] for old in best if told[old] < told[new] and scores[old] >= scores[new] > 0
        ]
        factors[new] = max((one * _ABOVE for one in outdated if one <= _HARDLY_BETTER), default=1.0)
    return factors


def features(context: Context, seen: Glances, asked: Asked, share: float) -> tuple[Floats, Floats]:
    """Both legs fused, (n,), and the features, (n, len(FEATURES))."""
    around = _fused(context.cosines, context.words, share)
    fused = legs = around[:, _OWN]
    if context.part_cosines.shape[1]:
        legs = _fused(context.part_cosines, context.part_words, share, each=True).max(axis=1)
    spoken = np.array([asked.names(one) if one else False for one in seen.speakers], np.float64)
    table = np.zeros((len(seen), len(FEATURES)))
    columns = {name: table[:, number] for number, name in enumerate(FEATURES)}
    columns["legs"][:] = legs
    columns["before"][:] = around[:, _OWN - 1]
    columns["after"][:] = around[:, _OWN + 1]
    columns["near"][:] = around[:, _NEIGHBOURS].max(axis=1)
    columns["words_before"][:] = _shares(context.words)[:, _OWN - 1]
    for name in ("asks", "assistant", "standing"):
        columns[name][:] = seen.of(name)
    columns["answers"][:] = around[:, _OWN - 1] * np.where(context.before >= 0, seen.of("asks")[context.before], 0.0)
    columns["session"][:] = _sessions(context.threads, fused)
    columns["speaker"][:] = spoken
    if spoken.any():
        columns["other_speaker"][:] = np.array([one != "" for one in seen.speakers]) * (1.0 - spoken)
    if asked.when:
        columns["times"][:] = seen.of("times")
    if asked.advice:
        columns["preference"][:] = seen.of("preference")
    if asked.days:
        columns["dated"][:] = [_dated(asked.days, datetime.fromtimestamp(at, UTC)) for at in seen.of("at").tolist()]
    _even_out(table, context)
    return fused, table


def _even_out(table: Floats, context: Context) -> None:
    """What stands alone has no neighbours to speak for it: it is taken to have such as the others have on average."""
    alone = np.isnan(context.cosines[:, _NEIGHBOURS]).all(axis=1)
    alone &= (context.words[:, _NEIGHBOURS] == 0).all(axis=1)
    _fill(table, alone, _OF_NEIGHBOURS)
    _fill(table, context.threads <= 0, _OF_SESSION)


def _fill(table: Floats, missing: npt.NDArray[np.bool_], columns: npt.NDArray[np.int64]) -> None:
    if missing.all():
        table[:, columns] = _TYPICAL
    elif missing.any():
        table[np.ix_(missing, columns)] = table[np.ix_(~missing, columns)].mean(axis=0)


def _shares(values: Floats, *, each: bool = False) -> Floats:
    """Values as shares of the best one of all, or of each column's best."""
    known = np.fmax(values, 0.0)  # of a number and NaN, the number
    best = known.max(axis=0) if each else known.max(initial=0.0)
    shares: Floats = known / np.maximum(best, _LEAST)
    return shares


def _fused(cosines: Floats, words: Floats, share: float, *, each: bool = False) -> Floats:
    """The convex sum of both legs, as `rank.fuse`: what has no vector counts by its words alone."""
    worded = _shares(words, each=each)
    meant = np.where(np.isnan(cosines) & (worded > 0), worded, _shares(cosines, each=each))
    both: Floats = share * meant + (1.0 - share) * worded
    return both


def _sessions(threads: npt.NDArray[np.int64], fused: Floats) -> Floats:
    """How much fits in each candidate's conversation: its best three together, as a share of the best one's."""
    found = np.zeros(len(threads))
    told = np.flatnonzero(threads > 0)
    if not len(told):
        return found
    told = told[np.lexsort((-fused[told], threads[told]))]
    of = threads[told]
    starts = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
    sizes = np.diff(starts, append=len(of))
    place = np.arange(len(of)) - np.repeat(starts, sizes)
    sums = np.add.reduceat(np.where(place < _BEST_OF_SESSION, fused[told], 0.0), starts)
    found[told] = np.repeat(sums, sizes)
    return found / max(float(sums.max()), _LEAST)


def _dated(days: Sequence[Day], at: datetime) -> float:
    """How well a memory's day fits the dates asked for; what is told is mostly told within a week."""
    best = 0.0
    for one in days:
        if one.year is not None and one.year != at.year:
            continue
        if one.month == at.month:
            told = one.day is not None and 0 <= at.day - one.day <= _TOLD_WITHIN_DAYS
            best = max(best, _SAME_DAYS if told else _SAME_MONTH)
        elif at.month == one.month % 12 + 1 and at.day < _TOLD_WITHIN_DAYS and (one.day or 0) > _MONTHS_END:
            best = max(best, _LATE_MONTH)
    return best
