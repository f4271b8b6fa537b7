"""Durations, the arithmetic of forgetting by disuse, and the retrieval section's figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.durations import seconds, shown
from proxy.policy.patterns import ByLanguage
from proxy.policy.retention import Retention, RetentionSection, retained
from proxy.policy.retrieval import Intent, Retrieval, RetrievalSection

DAY_S = 86_400.0
SECTION = RetentionSection.model_validate(
    {
        "types": {
            "working": {"ttl": "2h", "max_items": 5},
            "episodic": {"half_life": "30d", "archive_below": 0.1, "archive_after": "90d", "dedupe_at": 0.95},
            "semantic": {"half_life": "never"},
        },
        "kinds": {"turn": {"half_life": "14d", "archive_below": 0.05}},
    }
)
RETENTION = Retention.of(SECTION)


@pytest.mark.parametrize("bad", [30, "30", 1.5, "3 weeks", "", "-1d", True, None, "1h30m"])
def test_what_is_no_duration_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"unit|no duration"):
        seconds(bad)


@given(st.integers(1, 10_000), st.sampled_from("smhd"))
def test_durations_are_shown_as_they_are_read(count: int, unit: str) -> None:
    assert seconds(shown(seconds(f"{count}{unit}"))) == seconds(f"{count}{unit}")


def test_retained_halves_with_each_half_life() -> None:
    assert retained(1.0, 1.0, 60 * DAY_S, 30 * DAY_S) == pytest.approx(0.25)
    assert retained(0.6, 2.0, 30 * DAY_S, 30 * DAY_S) == pytest.approx(0.6)
    assert retained(0.8, 1.0, 1e12, None) == 0.8


def _state(memory_type: str, kind: str, unused_days: float, age_days: float, confidence: float = 1.0) -> str:
    return RETENTION.state_after(
        memory_type,  # type: ignore[arg-type]
        kind,
        confidence=confidence,
        strength=1.0,
        unused_s=unused_days * DAY_S,
        age_s=age_days * DAY_S,
    )


def test_archived_only_when_faded_and_old_enough() -> None:
    assert _state("episodic", "fact", 60, 100) == "active"
    assert _state("episodic", "fact", 110, 110) == "archived"
    assert _state("episodic", "fact", 80, 80, confidence=0.3) == "active"  # faded, but younger than 90 days
    assert _state("semantic", "fact", 5_000, 5_000) == "active"


def test_a_kind_overrides_only_what_it_names() -> None:
    rule = RETENTION.rule("episodic", "turn")
    assert (rule.half_life, rule.archive_below) == (14 * DAY_S, 0.05)
    assert (rule.archive_after, rule.dedupe_at) == (90 * DAY_S, 0.95)


def test_working_memory_limits_have_defaults() -> None:
    assert (RETENTION.working_ttl_s, RETENTION.working_max_items) == (7_200.0, 5)
    assert (Retention().working_ttl_s, Retention().working_max_items) == (3_600.0, 60)


def test_compress_promote_and_the_likeness_of_duplicates_are_as_written() -> None:
    section = RetentionSection.model_validate(
        {
            "compress": {"episodic": {"older_than": "30d", "at_least": 8}},
            "promote": {"same_fact_in_sessions": 3, "to": "semantic"},
            "types": {"semantic": {"dedupe_at": 0.9}},
            "delete_archived_after": "1w",
        }
    )
    keep = Retention.of(section)
    assert (keep.compress["episodic"].older_than, keep.compress["episodic"].at_least) == (30 * DAY_S, 8)
    assert keep.promote is not None
    assert keep.promote.same_fact_in_sessions == 3
    assert keep.delete_archived_after_s == 7 * DAY_S
    assert (keep.dedupe_at("semantic", "fact"), keep.dedupe_at("episodic", "turn")) == (0.9, 0.95)
    assert (Retention().compress, Retention().promote) == ({}, None)


@given(st.floats(0, 1), st.floats(0, 2), st.floats(0, 1e9), st.floats(0, 1e9))
def test_disuse_never_strengthens(confidence: float, strength: float, unused: float, more: float) -> None:
    assert retained(confidence, strength, unused + more, DAY_S) <= retained(confidence, strength, unused, DAY_S)


RETRIEVAL = Retrieval.of(
    RetrievalSection.model_validate(
        {
            "weights": {"dense": {"zh": 0.8, "other": 0.5}},
            "decay": {"turn": "14d", "episodic": "60d", "semantic": "never"},
            "intents": [
                {"id": "how", "match": {"zh": "怎么", "en": "(?i)how did"}, "bonus": {"episodic": 1.3}},
                {"id": "last", "match": "上次|last time", "bonus": {"episodic": 1.5, "semantic": 1.1}},
            ],
        }
    )
)


def test_dense_share_by_language_falls_back_to_other() -> None:
    assert [RETRIEVAL.weights(language) for language in ("zh", "en", "other")] == [0.8, 0.5, 0.5]
    assert Retrieval().weights("zh") == 0.5


def test_half_life_of_a_kind_wins_over_its_types() -> None:
    assert RETRIEVAL.decay("episodic", "turn") == 14 * DAY_S
    assert RETRIEVAL.decay("episodic", "task") == 60 * DAY_S
    assert RETRIEVAL.decay("semantic", "fact") is None
    assert RETRIEVAL.decay("reflective", "lesson") is None


def test_bonus_is_the_highest_of_all_intents_that_match() -> None:
    assert RETRIEVAL.bonus("上次怎么解决的", "zh") == {"episodic": 1.5, "semantic": 1.1}
    assert RETRIEVAL.bonus("How did we fix it", "en") == {"episodic": 1.3}
    assert RETRIEVAL.bonus("hello", "en") == {}


def test_patterns_of_a_language_are_not_tried_on_another() -> None:
    intent = Intent(id="x", match=ByLanguage(zh=("docker",)), bonus={"semantic": 1.2})
    only_zh = Retrieval.of(RetrievalSection(intents=(intent,)))
    assert only_zh.bonus("docker ports", "en") == {}
    assert only_zh.bonus("docker 端口", "zh") == {"semantic": 1.2}
