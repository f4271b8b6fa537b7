"""`python -m bench.fit_rank CASES.jsonl…`: fit the ranker's weights on recall cases, show how well it does, write them.

In: case files (design §10). Out: ``proxy/ranker_weights.json``. Softmax regression over each question's candidates, as
the store finds them: the relevant ones are to come first; then logistic regression on whether there is
an answer at all. Figures: on the cases themselves, and for each scope with weights fitted without it (folds by scope).
Each file counts the same, however many questions it has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
import typer

from proxy.config import Config, load
from proxy.evaluation.cases import Case, CaseQuery, read
from proxy.evaluation.run import DEPTH, Player, Told, player
from proxy.evaluation.score import auroc
from proxy.glance import gathered, glance
from proxy.language import detect
from proxy.policy.load import load as load_policies
from proxy.policy.rules import PolicySet
from proxy.ranker import FEATURES, TELLING, WEIGHTS, apart, features
from proxy.retrieve import Query
from proxy.store.lexical import query_terms, terms
from proxy.traits import asked

FOLDS: Final = 5
SPREAD: Final = 2.0
"""The larger, the more the policies' decay and bonus weigh against the ranker."""
_PENALTY: Final = 1e-3
_ENOUGH: Final = 50
"""Fewer questions without an answer than that in one set tell nothing."""
_STEPS: Final = 20
_CLOSE_ENOUGH: Final = 1e-7
_DECIMALS: Final = 3
_AT: Final = 10
_TOP: Final = 0.9
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Asking:
    """One question with its candidates.

    Args:
        file: Of which case file.
        fold: Which fold its scope is in.
        table: float64 (n, features).
        factor: float64 (n,), logarithm of what the policies multiply the relevance by.
        wanted: float64 (n,), 1 for what answers it.
        relevant: How many answer it, found or not.
        stale: float64 (n,), 1 for what was superseded.
        fused: float64 (n,), both legs.
        terms: The question's terms.
        held: Those of each candidate.
    """

    file: str
    fold: int
    table: Floats
    factor: Floats
    wanted: Floats
    relevant: int
    stale: Floats
    fused: Floats
    terms: frozenset[str]
    held: Sequence[frozenset[str]]

    def signs(self, weights: Floats) -> list[float]:
        """What tells whether it has an answer, in the order of `TELLING`."""
        sums = self.table @ weights
        best = int(np.argmax(sums + SPREAD * self.factor))
        covered = len(self.terms & self.held[best]) / len(self.terms) if self.terms else 0.0
        return [float(sums.max()), covered, apart(self.table, self.fused)]


def main(
    files: Annotated[list[Path], typer.Argument(help="Case files.")],
    out: Annotated[Path, typer.Option(help="Where the weights go.")] = WEIGHTS,
    try_only: Annotated[bool, typer.Option("--try", help="Print, and write nothing.")] = False,
    without: Annotated[list[str] | None, typer.Option(help="Features to leave out.")] = None,
) -> None:
    """Fit, show, write."""
    config = load(None, {}, [])
    asking = collect(config, files)
    kept = np.array([name not in (without or []) for name in FEATURES])
    weights = fit(asking, kept)
    crossed = {fold: fit([one for one in asking if one.fold != fold], kept) for fold in range(FOLDS)}
    told = {fold: fit_answerable(asking, weights, but=fold) for fold in range(FOLDS)}
    for file in dict.fromkeys(one.file for one in asking):
        here = [one for one in asking if one.file == file]
        own, cross = recall(here, dict.fromkeys(range(FOLDS), weights)), recall(here, crossed)
        sure = abstain(here, weights, told)
        figures = f"R@{_AT} {100 * own:.1f}, cross-validated {100 * cross:.1f}; AUROC cross-validated {sure}"
        typer.echo(f"{file}: {figures}; stale-err before news is put first {stale(here, weights)}")
    typer.echo(" ".join(f"{name} {weight:.2f}" for name, weight in zip(FEATURES, weights, strict=True)))
    if not try_only:
        data = _data(weights, bias(asking, weights), asking) | {"answerable": _told(fit_answerable(asking, weights))}
        out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def collect(config: Config, files: Sequence[Path]) -> list[Asking]:
    """Every question of some files with the candidates that the store finds."""
    policies = load_policies(config.policies)
    asking = []
    for file in files:
        with player(config, policies, datetime.now(UTC)) as playing:
            for number, case in enumerate(read(file)):
                told = playing.remember(number, case)
                asking += [
                    _asking(file.name, number % FOLDS, playing, told, case, one, policies) for one in case.queries
                ]
    return asking


def _asking(
    file: str, fold: int, playing: Player, told: Told, case: Case, query: CaseQuery, policies: PolicySet
) -> Asking:
    looked_for = Query.of(query.query, playing.embedder.query)
    found = playing.store.search(
        told.scope, looked_for.vector, query_terms(query.query), limit=DEPTH, parts=looked_for.parts
    )
    records = playing.store.load(told.scope, [one.row for one in found.candidates])
    memories = [records[one.row] for one in found.candidates]
    assert found.context is not None
    language = detect(query.query)
    bonuses = policies.retrieval.bonus(query.query, language)
    fused, table = features(
        found.context,
        gathered(glance(one) for one in memories),
        asked(query.query),
        policies.retrieval.weights(language),
    )
    ids = [set(told.names[one.id]) for one in memories]
    factor = np.log([bonuses.get(one.memory_type, 1.0) for one in memories])
    for place, one in enumerate(memories):
        half_life = policies.retrieval.decay(one.memory_type, one.kind)
        if half_life is not None:
            factor[place] -= np.log(2) * (told.now - one.valid_from).total_seconds() / half_life
    wanted = np.array([bool(one & set(query.relevant)) for one in ids], np.float64)
    stale = np.array([bool(one & set(query.stale)) for one in ids], np.float64)
    held = [frozenset(terms(one.content)) for one in memories]
    asks = frozenset(query_terms(query.query))
    return Asking(file, fold, table, factor, wanted, len(set(query.relevant)), stale, fused, asks, held)


def fit(asking: Sequence[Asking], kept: npt.NDArray[np.bool_]) -> Floats:
    """Weights by feature: Newton's method on the softmax loss, with a ridge; those not kept are 0."""
    used = [one for one in asking if one.wanted.any()]
    table = np.concatenate([one.table[:, kept] for one in used])
    spread = table.std(axis=0)
    spread[spread < _CLOSE_ENOUGH] = 1.0
    table = table / spread
    sizes = [len(one.wanted) for one in used]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    group = np.repeat(np.arange(len(used)), sizes)
    count = {one.file: sum(other.file == one.file for other in used) for one in used}
    share = np.array([1.0 / count[one.file] for one in used]) / len(count)
    wanted = np.concatenate([one.wanted / one.wanted.sum() for one in used])
    factor = SPREAD * np.concatenate([one.factor for one in used])
    weights = np.zeros(table.shape[1])

    def loss(at: Floats) -> tuple[float, Floats]:
        sums = table @ at + factor
        top = np.maximum.reduceat(sums, starts)[group]
        grown = np.exp(sums - top)
        total = np.add.reduceat(grown, starts)[group]
        return float(-(share[group] * wanted * (sums - top - np.log(total))).sum() + _PENALTY * at @ at), grown / total

    value, likely = loss(weights)
    for _ in range(_STEPS):
        slope = -table.T @ (share[group] * (wanted - likely)) + 2 * _PENALTY * weights
        weighed = table * likely[:, None]
        means = np.add.reduceat(weighed, starts, axis=0)
        curve = table.T @ (weighed * share[group][:, None]) - means.T @ (means * share[:, None])
        step = np.linalg.solve(curve + 2 * _PENALTY * np.eye(len(weights)), slope)
        before, size = value, 1.0
        while size > _DECIMALS * 1e-4:
            value, likely = loss(weights - size * step)
            if value < before:
                break
            size /= 2
        weights = weights - size * step
        if before - value < _CLOSE_ENOUGH:
            break
    full = np.zeros(len(kept))
    full[kept] = weights / spread
    return full


def recall(asking: Sequence[Asking], weights: Mapping[int, Floats]) -> float:
    """Mean share of the relevant among the first ten."""
    shares = []
    for one in asking:
        if one.relevant:
            sums = one.table @ weights[one.fold] + SPREAD * one.factor
            shares.append(one.wanted[np.argsort(-sums, kind="stable")[:_AT]].sum() / one.relevant)
    return float(np.mean(shares))


def stale(asking: Sequence[Asking], weights: Floats) -> str:
    """Share of the questions where something superseded stands first; a dash where nothing is."""
    wrong = []
    for one in asking:
        if one.stale.any():
            sums = one.table @ weights + SPREAD * one.factor
            old = np.max(sums[one.stale > 0])
            wrong.append(float(old > np.max(sums[one.wanted > 0], initial=-np.inf)))
    return f"{100 * np.mean(wrong):.0f}" if wrong else "-"


def fit_answerable(asking: Sequence[Asking], weights: Floats, *, but: int | None = None) -> Floats:
    """Weights by sign, the bias last: logistic regression over the questions of sets with enough that have no answer.

    Args:
        asking: The questions.
        weights: Of the features.
        but: A fold to leave out.
    """
    without = Counter(one.file for one in asking if not one.relevant)
    mixed = {file for file, count in without.items() if count >= _ENOUGH}
    used = [one for one in asking if one.file in mixed and one.fold != but]
    if not used:
        return np.zeros(len(TELLING) + 1)
    signs = np.array([[*one.signs(weights), 1.0] for one in used])
    truth = np.array([one.relevant > 0 for one in used], np.float64)
    penalty = np.diag([*np.ones(len(TELLING)), 0.0])
    found = np.zeros(len(TELLING) + 1)
    for _ in range(_STEPS):
        likely = 1.0 / (1.0 + np.exp(-signs @ found))
        slope = signs.T @ (likely - truth) + penalty @ found
        curve = (signs * (likely * (1.0 - likely))[:, None]).T @ signs + penalty
        found = found - np.linalg.solve(curve, slope)
    return found


def abstain(asking: Sequence[Asking], weights: Floats, told: Mapping[int, Floats]) -> str:
    """AUROC of what tells whether there is an answer; a dash where every question has one.

    Args:
        asking: The questions.
        weights: Of the features.
        told: Weights of the signs, by fold.
    """
    tops = [(one.relevant > 0, float(np.array([*one.signs(weights), 1.0]) @ told[one.fold])) for one in asking]
    found = auroc([top for answerable, top in tops if answerable], [top for answerable, top in tops if not answerable])
    return "-" if found is None else f"{found:.3f}"


def bias(asking: Sequence[Asking], weights: Floats) -> float:
    """What brings one in ten of the best candidates above zero, and their relevance above a half."""
    return -float(np.quantile([float((one.table @ weights).max()) for one in asking if one.relevant], _TOP))


def _data(weights: Floats, shift: float, asking: Sequence[Asking]) -> dict[str, object]:
    counts = {file: sum(one.file == file for one in asking) for file in dict.fromkeys(one.file for one in asking)}
    return {
        "note": "How likely a candidate answers a question: softmax regression over each question's candidates, with a "
        f"ridge of {_PENALTY}; fitted by bench/fit_rank.py on {sum(counts.values())} questions of {len(counts)} "
        "sets of recall cases in English and Chinese, each set counting the same.",
        "bias": round(shift, _DECIMALS),
        "spread": SPREAD,
        "weights": {name: round(float(weight), _DECIMALS) for name, weight in zip(FEATURES, weights, strict=True)},
    }


def _told(found: Floats) -> dict[str, object]:
    named = {name: round(float(weight), _DECIMALS) for name, weight in zip(TELLING, found[:-1], strict=True)}
    return {"bias": round(float(found[-1]), _DECIMALS), "weights": named}


if __name__ == "__main__":
    typer.run(main)
