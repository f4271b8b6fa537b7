"""`python -m bench.fit_value`: fit the value classifier on sentences of our own, print how well it does, write it.

In: ``bench/value/sentences.tsv`` (label, language, reason, text). Out: ``proxy/policy/value_weights.json``. The same
sentences and embedder give the same weights.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
import typer

from proxy.conflict import normal
from proxy.embed import BUILTIN_MODEL, StaticEmbedder
from proxy.plugs import Embedder
from proxy.surface import MARKS, Look, look
from proxy.types import Vector
from proxy.value import WEIGHTS, Linear, ValueModel

SENTENCES: Final = Path(__file__).parent / "value" / "sentences.tsv"
FOLDS: Final = 5
THRESHOLDS: Final = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
PRECISION_WANTED: Final = 0.95

# Chosen by cross-validation. A vector's 256 parts are about 1/16 each, so they need larger weights than the marks;
# terms are many and each is seen in few sentences, so theirs are held small.
_MARK_PENALTY: Final = 1.0
_TERM_PENALTY: Final = 5.0
_MEANING_PENALTY: Final = 0.5
_TERM_SENTENCES: Final = 4
_STEPS: Final = 25
_CLOSE_ENOUGH: Final = 1e-6
_DECIMALS: Final = 3
_WORST_SHOWN: Final = 15

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One labelled sentence.

    Args:
        keep: Whether it says something worth keeping.
        language: ``zh`` or ``en``: the half of the set it was written for.
        reason: What kind of thing it says, e.g. ``habit`` or ``question``.
        text: As a user would type it.
    """

    keep: bool
    language: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Figures:
    """How well probabilities tell kept sentences from ignored ones.

    Args:
        accuracy: At 0.5.
        auroc: Share of pairs (kept, ignored) in the right order.
        precision_recall: Both at each of `THRESHOLDS`.
        threshold: The lowest with `PRECISION_WANTED`.
        recall: At that threshold.
    """

    accuracy: float
    auroc: float
    precision_recall: Mapping[float, tuple[float, float]]
    threshold: float
    recall: float


def read_sentences(path: Path = SENTENCES) -> list[Sentence]:
    """All sentences, in the file's order.

    Args:
        path: A TSV file with a header.

    Raises:
        ValueError: A line is malformed, two texts are the same but for case and outer punctuation, or the labels are
            not balanced.
    """
    lines_of: dict[str, int] = {}
    sentences: list[Sentence] = []
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            if number == 1:
                continue
            if len(row) != 4 or row[0] not in ("keep", "ignore") or row[1] not in ("zh", "en") or not row[3].strip():
                raise ValueError(f"{path}:{number}: not label, language, reason and text")
            if (first := lines_of.setdefault(normal(row[3]), number)) != number:
                raise ValueError(f"{path}:{number}: the same text as in line {first}; leave one out")
            sentences.append(Sentence(row[0] == "keep", *row[1:]))
    kept = sum(one.keep for one in sentences)
    if abs(2 * kept - len(sentences)) > len(sentences) // 50:
        raise ValueError(f"{path}: {kept} of {len(sentences)} are to be kept; write as many of either label")
    return sentences


def folds(sentences: Sequence[Sentence]) -> npt.NDArray[np.intp]:
    """Which fold each sentence is held out in: consecutive fifths of each reason's sentences.

    Consecutive, because sentences on one matter stand close together, and the two languages' sections run alike: what
    one fold is judged on should not stand in the others in other words.
    """
    sizes: dict[tuple[bool, str, str], int] = {}
    places: list[int] = []
    for one in sentences:
        group = (one.keep, one.language, one.reason)
        places.append(sizes.get(group, 0))
        sizes[group] = places[-1] + 1
    totals = [sizes[one.keep, one.language, one.reason] for one in sentences]
    return np.array([place * FOLDS // total for place, total in zip(places, totals, strict=True)], dtype=np.intp)


def fit(sentences: Sequence[Sentence], vectors: Sequence[Vector | None]) -> ValueModel:
    """Two regressions: over surface and vector, and over the surface alone for text without a vector.

    Args:
        sentences: With both labels among them.
        vectors: Document vectors in the same order; sentences without one count for the second regression only.
    """
    looks = [look(one.text) for one in sentences]
    labels = np.array([one.keep for one in sentences], dtype=np.float64)
    terms = _terms(looks)
    shown = _shown(looks, terms)
    alone = _regress(shown, labels, _penalties(len(terms), 0))
    meanings = np.array([vector for vector in vectors if vector is not None], dtype=np.float64)
    if not len(meanings):
        return ValueModel(_linear(alone, terms), _linear(alone, terms), np.zeros(0, dtype=np.float32))
    known = np.array([vector is not None for vector in vectors])
    both = _regress(np.hstack([shown[known], meanings]), labels[known], _penalties(len(terms), meanings.shape[1]))
    meaning = np.round(both[-meanings.shape[1] :], _DECIMALS).astype(np.float32)
    return ValueModel(_linear(both, terms), _linear(alone, terms), meaning)


def _terms(looks: Sequence[Look]) -> list[str]:
    counts = Counter(term for one in looks for term in one.terms)
    return sorted(term for term, count in counts.items() if count >= _TERM_SENTENCES)


def _shown(looks: Sequence[Look], terms: Sequence[str]) -> Floats:
    """One row a sentence: its marks, then 1 for each of the terms in it."""
    places = {term: place for place, term in enumerate(terms, len(MARKS))}
    rows = np.zeros((len(looks), len(MARKS) + len(terms)))
    for row, one in zip(rows, looks, strict=True):
        row[: len(MARKS)] = one.marks
        row[[places[term] for term in one.terms if term in places]] = 1.0
    return rows


def _penalties(terms: int, dimension: int) -> Floats:
    sizes = ((0.0, 1), (_MARK_PENALTY, len(MARKS)), (_TERM_PENALTY, terms), (_MEANING_PENALTY, dimension))
    return np.concatenate([np.full(size, penalty) for penalty, size in sizes])


def _linear(weights: Floats, terms: Sequence[str]) -> Linear:
    bias, *rest = (float(weight) for weight in np.round(weights, _DECIMALS))
    marks = tuple(rest[: len(MARKS)])
    return Linear(
        bias, marks, {term: weight for term, weight in zip(terms, rest[len(MARKS) :], strict=False) if weight}
    )


def _regress(inputs: Floats, labels: Floats, penalties: Floats) -> Floats:
    """L2-regularised logistic regression by Newton's method; the first weight is the bias."""
    design = np.hstack([np.ones((len(inputs), 1)), inputs])
    weights = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -40.0, 40.0)))
        gradient = design.T @ (chances - labels) + penalties * weights
        curvature = (design * (chances * (1.0 - chances))[:, None]).T @ design + np.diag(penalties)
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if float(np.abs(step).max()) < _CLOSE_ENOUGH:
            break
    return weights


def held_out(sentences: Sequence[Sentence], vectors: Sequence[Vector | None], *, fold: int | None = None) -> Floats:
    """The probability of each sentence by a model that was fitted without its fold.

    Args:
        sentences: All of them.
        vectors: In the same order.
        fold: Only this one; the others' sentences get NaN. None does all.
    """
    fold_of = folds(sentences)
    found = np.full(len(sentences), np.nan)
    for held in range(FOLDS) if fold is None else (fold,):
        rest = [place for place, own in enumerate(fold_of) if own != held]
        model = fit([sentences[place] for place in rest], [vectors[place] for place in rest])
        for place in np.flatnonzero(fold_of == held).tolist():
            found[place] = model.score(sentences[place].text, vectors[place])
    return found


def figures(labels: npt.NDArray[np.bool_], chances: Floats) -> Figures:
    """What the probabilities are worth.

    Args:
        labels: Whether each is to be kept; both labels must be there.
        chances: Probabilities in the same order.
    """
    at = {threshold: _precision_recall(labels, chances >= threshold) for threshold in THRESHOLDS}
    candidates = np.unique(np.round(chances, 2))
    good = [float(t) for t in candidates if _precision_recall(labels, chances >= t)[0] >= PRECISION_WANTED]
    threshold = min(good, default=1.0)
    kept, ignored = chances[labels][:, None], chances[~labels][None, :]
    auroc = float(np.mean((kept > ignored) + 0.5 * (kept == ignored)))
    accuracy = float(np.mean((chances >= 0.5) == labels))
    return Figures(accuracy, auroc, at, threshold, _precision_recall(labels, chances >= threshold)[1])


def _precision_recall(labels: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_]) -> tuple[float, float]:
    hits = int(np.sum(labels & chosen))
    return hits / max(int(chosen.sum()), 1), hits / max(int(labels.sum()), 1)


def by_language(sentences: Sequence[Sentence], chances: Floats) -> dict[str, Figures]:
    """Figures of each language, and of ``all``; sentences without a probability are left out."""
    labels = np.array([one.keep for one in sentences])
    languages = np.array([one.language for one in sentences])
    known = ~np.isnan(chances)
    chosen = {"zh": languages == "zh", "en": languages == "en", "all": np.ones(len(sentences), dtype=bool)}
    return {name: figures(labels[some & known], chances[some & known]) for name, some in chosen.items()}


def as_json(model: ValueModel, fingerprint: str, sentences: Sequence[Sentence], found: Mapping[str, Figures]) -> str:
    """The weights file: one key a line, so that a new fit shows as few changed lines."""
    content: dict[str, Any] = {
        "note": "How likely a sentence is worth keeping: L2-regularised logistic regression over its document vector, "
        f"its terms and marks of how it is said; fitted by bench/fit_value.py on {len(sentences)} sentences of our own "
        "(bench/value/sentences.tsv), half Chinese, half English, half to be kept. Figures: 5-fold cross-validation.",
        "embedder": fingerprint,
        "penalties": {"marks": _MARK_PENALTY, "terms": _TERM_PENALTY, "meaning": _MEANING_PENALTY},
        "thresholds": {name: {"precision_0.95": round(one.threshold, 2)} for name, one in found.items()},
        "cross_validation": {
            name: {"accuracy": round(one.accuracy, 3), "auroc": round(one.auroc, 3), "recall": round(one.recall, 3)}
            for name, one in found.items()
        },
        "with_vector": _content(model.with_vector),
        "alone": _content(model.alone),
        "meaning": [round(float(weight), _DECIMALS) for weight in model.meaning],
    }
    lines = (f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _content(linear: Linear) -> dict[str, Any]:
    return {"bias": linear.bias, "marks": dict(zip(MARKS, linear.marks, strict=True)), "terms": dict(linear.terms)}


def _show(name: str, one: Figures) -> None:
    print(f"{name}: accuracy {one.accuracy:.3f}, AUROC {one.auroc:.3f}")
    for threshold, (precision, recall) in one.precision_recall.items():
        print(f"  at {threshold:.1f}: precision {precision:.3f}, recall {recall:.3f}")
    print(f"  precision of {PRECISION_WANTED:.2f} from {one.threshold:.2f} on, recall {one.recall:.3f}")


def _show_worst(sentences: Sequence[Sentence], chances: Floats) -> None:
    wrong = np.abs(np.array([one.keep for one in sentences]) - chances)
    for place in np.argsort(-wrong, kind="stable")[:_WORST_SHOWN].tolist():
        one = sentences[place]
        print(f"  {chances[place]:.2f}  {'keep' if one.keep else 'ignore'} {one.reason}: {one.text}")


def main(
    output: Annotated[Path, typer.Option(help="Where the weights go.")] = WEIGHTS,
    check: Annotated[bool, typer.Option(help="Only print figures, write nothing.")] = False,
) -> None:
    """Fit the value classifier, print cross-validated figures and the worst mistakes, write the weights."""
    embedder: Embedder = StaticEmbedder(BUILTIN_MODEL)
    sentences = read_sentences()
    vectors = embedder.documents([one.text for one in sentences])
    chances = held_out(sentences, vectors)
    found = by_language(sentences, chances)
    for name, one in found.items():
        _show(name, one)
    without = by_language(sentences, held_out(sentences, [None] * len(sentences)))
    print("without vectors: " + ", ".join(f"{name} accuracy {one.accuracy:.3f}" for name, one in without.items()))
    print("worst mistakes:")
    _show_worst(sentences, chances)
    if not check:
        output.write_text(as_json(fit(sentences, vectors), embedder.fingerprint, sentences, found), encoding="utf-8")
        print(f"written: {output}")


if __name__ == "__main__":
    typer.run(main)
