"""How much of what people say the shipped policies keep, and how much they keep that they should not.

Over our own labelled sentences (``bench/value/sentences.tsv``). The half that patterns were never looked at for is
reported apart. A sentence is judged by a value classifier that was fitted without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.fit_value import FOLDS, Sentence, fit, folds, read_sentences
from bench.report import ROOT, Figure, Section
from bench.run import Run
from proxy.embed import BUILTIN_MODEL, StaticEmbedder
from proxy.language import detect
from proxy.plugs import Embedder
from proxy.policy.load import load
from proxy.policy.match import evaluate
from proxy.policy.rules import PolicySet
from proxy.types import Event, Language
from proxy.value import ValueModel

MISSED_AT_MOST: Final = 15.0
"""Per cent of the sentences worth keeping."""
KEPT_AT_MOST: Final = 5.0
"""Per cent of the sentences worth nothing."""
OWN_WORDS: Final = "own-words"
"""The rule that asks the value classifier alone."""
_SAID_AT: Final = datetime(2026, 1, 5, tzinfo=UTC)
_NOT_COUNTED: Final = "turn"  # the raw trace keeps every statement, whatever it is worth


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured.

    Args:
        share: One in so many sentences.
    """

    share: int = 1

    @property
    def steps(self) -> int:
        """Units of work, for the progress bar."""
        return FOLDS


FULL = Amounts()
QUICK = Amounts(share=20)


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one sentence.

    Args:
        sentence: As labelled.
        rules: Rules that made a memory of it.
    """

    sentence: Sentence
    rules: frozenset[str]


class _Classifier:
    """What rules may ask: an empty store, and a value classifier."""

    def __init__(self, model: ValueModel, embedder: Embedder) -> None:
        self._model = model
        self._embedder = embedder

    def known(self, text: str) -> bool:
        return False

    def similar(self, text: str, kind: str | None) -> float:
        return 0.0

    def value(self, text: str, language: Language) -> float:
        return self._model.score(text, self._embedder.documents([text])[0])


def measure(run: Run, amounts: Amounts = FULL) -> Section:
    """Put every sentence before the policies, and count."""
    policies = load([Path(one) for one in run.settings.get("policies", [ROOT / "policies"])])
    judged = judge(policies, amounts, run)
    figures = [figure for language in ("zh", "en") for figure in _figures(judged, language)]
    return Section(
        title="Coverage of the shipped policies",
        how="Our own labelled sentences, one a message. Held out: the half (by hash) that no pattern was written for. "
        "Kept: a rule other than the raw trace makes a memory. Baseline: without the rule that asks the classifier "
        "alone. The value classifier never saw the sentence it judges.",
        figures=figures,
        notes=[_note(judged, language) for language in ("zh", "en")],
    )


def judge(policies: PolicySet, amounts: Amounts, run: Run) -> list[Judged]:
    """What the policies make of each sentence.

    Args:
        policies: In force.
        amounts: Which share of the sentences.
        run: Told of each fold that is done.
    """
    embedder: Embedder = StaticEmbedder(BUILTIN_MODEL)
    sentences = read_sentences()
    vectors = embedder.documents([one.text for one in sentences])
    fold_of = folds(sentences).tolist()
    judged: list[Judged] = []
    for fold in range(FOLDS):
        rest = [place for place, own in enumerate(fold_of) if own != fold]
        model = fit([sentences[place] for place in rest], [vectors[place] for place in rest])
        knowledge = _Classifier(model, embedder)
        own = [one for one, its in zip(sentences, fold_of, strict=True) if its == fold]
        judged += [Judged(one, _rules(policies, one.text, knowledge)) for one in own[:: amounts.share]]
        run.step(1)
    return judged


def _rules(policies: PolicySet, text: str, knowledge: _Classifier) -> frozenset[str]:
    event = Event("user_message", text, detect(text), "user", _SAID_AT)
    drafts = evaluate(policies, event, knowledge=knowledge).drafts
    return frozenset(draft.rule_id for draft in drafts if draft.kind != _NOT_COUNTED)


def held_out(text: str) -> bool:
    """Whether a sentence is in the half that patterns are never looked at for.

    >>> held_out("我喜欢茶"), held_out("I like tea")
    (True, False)
    """
    return hashlib.sha256(text.encode()).digest()[0] % 2 == 1


def _figures(judged: Sequence[Judged], language: str) -> list[Figure]:
    ours = [one for one in judged if one.sentence.language == language and held_out(one.sentence.text)]
    worth = [one for one in ours if one.sentence.keep]
    rest = [one for one in ours if not one.sentence.keep]
    by_rule = [bool(one.rules - {OWN_WORDS}) for one in worth]
    return [
        Figure(
            f"{language}, held out: worth keeping, missed",
            "%",
            _percent([not one.rules for one in worth]),
            _percent([not hit for hit in by_rule]),
            MISSED_AT_MOST,
        ),
        Figure(
            f"{language}, held out: worth nothing, kept", "%", _percent([bool(one.rules) for one in rest]), None,
            KEPT_AT_MOST,
        ),
    ]  # fmt: skip


def _note(judged: Sequence[Judged], language: str) -> str:
    seen = [one for one in judged if one.sentence.language == language and not held_out(one.sentence.text)]
    missed = _percent([not one.rules for one in seen if one.sentence.keep])
    kept = _percent([bool(one.rules) for one in seen if not one.sentence.keep])
    return f"{language}, the half that patterns were written for: {missed:.1f} % missed, {kept:.1f} % kept wrongly."


def _percent(hits: Sequence[bool]) -> float:
    return 100 * sum(hits) / max(len(hits), 1)
