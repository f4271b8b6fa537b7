"""A run's figures: how much of what answers a question was found, early enough, and within a budget of tokens.

Pure. In: cases, and what was ranked for each of their questions. Out: `Figures` by category, and what changed between
two runs. R@k: mean share of the relevant among the first k. B@n: share of the relevant inside n tokens, filled in
rank order; what does not fit is skipped. stale-err: share of the questions where something superseded stands above
everything relevant. AUROC: how well the top score tells questions that memory can answer from those it cannot.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxy.evaluation.cases import Case, CaseQuery

DEPTHS = (5, 10, 20)
BUDGETS = (500, 1000, 2000)
OVERALL = "OVERALL"
_SAMPLES = 1_000
_LOW, _HIGH = 25, 974
"""Of a thousand samples in order, the borders of the middle 95 %."""
_NOTICED = 0.005


@dataclass(frozen=True, slots=True)
class Ranked:
    """What was found for one question.

    Args:
        id: The question's.
        ranked: Memory ids, best first; several where one memory was made of them.
        scores: Of each.
        tokens: What each costs when it is injected.
    """

    id: str
    ranked: tuple[tuple[str, ...], ...] = ()
    scores: tuple[float, ...] = ()
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a whole run.

    Args:
        rows: Category → column → share, 0–1; the last one is `OVERALL`. A column that means nothing for a category
            is missing from it.
        counts: Category → answerable questions.
        interval: 95 % of R@10, by bootstrap.
        auroc: 0–1; None where one sort of question is missing.
        answerable: How many questions have an answer.
        unanswerable: How many have none.
    """

    rows: Mapping[str, Mapping[str, float]]
    counts: Mapping[str, int]
    interval: tuple[float, float]
    auroc: float | None
    answerable: int
    unanswerable: int


@dataclass(frozen=True, slots=True)
class Change:
    """A question that went better or worse than in another run.

    Args:
        query: Which.
        before, after: nDCG@10 then and now, 0–1; less one where something stale stood above the answer.
    """

    query: CaseQuery
    before: float
    after: float


def score(cases: Sequence[Case], run: Iterable[Ranked]) -> Figures:
    """The figures of a run; a question that is missing from it counts as one that found nothing."""
    found = {one.id: one for one in run}
    by_category: dict[str, list[dict[str, float]]] = {}
    tops: tuple[list[float], list[float]] = ([], [])
    for query in (query for case in cases for query in case.queries):
        ranked = found.get(query.id, Ranked(query.id))
        if ranked.scores:
            tops[not query.relevant].append(ranked.scores[0])
        if query.relevant:
            by_category.setdefault(query.category, []).append(columns(query, ranked))
    ordered = {name: by_category[name] for name in sorted(by_category)}
    everything = [row for rows in ordered.values() for row in rows]
    rows = {name: _means(some) for name, some in {**ordered, OVERALL: everything}.items()}
    counts = {name: len(some) for name, some in {**ordered, OVERALL: everything}.items()}
    interval = _interval([row["R@10"] for row in everything])
    return Figures(rows, counts, interval, auroc(*tops), len(tops[0]), len(tops[1]))


def compare(cases: Sequence[Case], before: Iterable[Ranked], after: Iterable[Ranked]) -> list[Change]:
    """The questions that went better or worse, the worst change first; those only one run has are left out."""
    then, now = ({one.id: one for one in run} for run in (before, after))
    changes = []
    for query in (query for case in cases for query in case.queries if query.relevant):
        if query.id in then and query.id in now:
            change = Change(query, _worth(query, then[query.id]), _worth(query, now[query.id]))
            if abs(change.after - change.before) > _NOTICED:
                changes.append(change)
    return sorted(changes, key=lambda change: change.after - change.before)


def columns(query: CaseQuery, ranked: Ranked) -> dict[str, float]:
    """The figures of one answerable question."""
    wanted = set(query.relevant)
    gains, seen = [], set[str]()
    for ids in ranked.ranked:
        new = (wanted & set(ids)) - seen
        seen |= new
        gains.append(len(new))
    row = {f"R@{depth}": sum(gains[:depth]) / len(wanted) for depth in DEPTHS}
    row["hit@10"] = float(row["R@10"] > 0)
    row["nDCG@10"] = _ndcg(gains, len(wanted))
    row |= {f"B@{budget}": _within(budget, wanted, ranked) for budget in BUDGETS if ranked.tokens or not ranked.ranked}
    if query.stale:
        row["stale-err"] = float(_first(set(query.stale), ranked) < _first(wanted, ranked))
    return row


def auroc(answerable: Sequence[float], unanswerable: Sequence[float]) -> float | None:
    """How often the top score of an answerable question is above that of an unanswerable one; a tie counts half.

    >>> auroc([0.9, 0.4], [0.4, 0.1])
    0.875
    """
    if not answerable or not unanswerable:
        return None
    merged = sorted([(value, 1) for value in answerable] + [(value, 0) for value in unanswerable])
    total, start = 0.0, 0
    while start < len(merged):
        end = start
        while end < len(merged) and merged[end][0] == merged[start][0]:
            end += 1
        total += sum(label for _, label in merged[start:end]) * (start + end + 1) / 2
        start = end
    positive = len(answerable)
    return (total - positive * (positive + 1) / 2) / (positive * len(unanswerable))


def _ndcg(gains: Sequence[int], wanted: int) -> float:
    ideal = sum(1 / math.log2(place + 2) for place in range(min(10, wanted)))
    return min(1.0, sum(min(1, gain) / math.log2(place + 2) for place, gain in enumerate(gains[:10])) / ideal)


def _within(budget: int, wanted: set[str], ranked: Ranked) -> float:
    used, got = 0, set[str]()
    for ids, cost in zip(ranked.ranked, ranked.tokens, strict=True):
        if used + cost <= budget:
            used += cost
            got |= wanted & set(ids)
    return len(got) / len(wanted)


def _first(ids: set[str], ranked: Ranked) -> float:
    return next((place for place, one in enumerate(ranked.ranked) if ids & set(one)), math.inf)


def _worth(query: CaseQuery, ranked: Ranked) -> float:
    row = columns(query, ranked)
    return row["nDCG@10"] - row.get("stale-err", 0.0)


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [row[name] for row in rows if name in row] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items()}


def _interval(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 0.0
    # The same seed as ever: the same run always has the same interval.
    drawn = random.Random(0)  # noqa: S311 - statistics, no secret
    means = sorted(sum(drawn.choices(values, k=len(values))) / len(values) for _ in range(_SAMPLES))
    return means[_LOW], means[_HIGH]
