"""What is counted, under which names, and that label values stay bounded."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.metrics import MAX_CHILDREN, Metrics, usage_tokens


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((f"sidemirror_{name}", frozenset(labels.items())))


def test_every_event_is_counted_under_its_documented_name() -> None:
    metrics = Metrics()
    metrics.request("/v1/chat/completions", 200)
    metrics.memory_status("skipped:no-identity")
    metrics.recalls("exact")
    metrics.recall_seconds(0.004)
    metrics.injected(120)
    metrics.written("created", "preference")
    metrics.written("slot")
    metrics.write_failed("StoreUnavailable")
    metrics.policies_reloaded("refused")
    metrics.backed_up("failed")
    metrics.policy_timed_out("preference-stated")
    metrics.upstream_seconds(0.7)
    assert value(metrics, "requests_total", path="/v1/chat/completions", status="200") == 1
    assert value(metrics, "memory_status_total", status="skipped:no-identity") == 1
    assert value(metrics, "recall_total", source="exact") == 1
    assert value(metrics, "recall_seconds_count") == 1
    assert value(metrics, "recall_seconds_bucket", le="0.005") == 1
    assert value(metrics, "recall_seconds_bucket", le="0.003") == 0
    assert value(metrics, "injected_tokens_total") == 120
    assert value(metrics, "written_total", action="created", kind="preference") == 1
    assert value(metrics, "written_total", action="slot", kind="") == 1
    assert value(metrics, "write_failures_total", reason="StoreUnavailable") == 1
    assert value(metrics, "policy_reloads_total", result="refused") == 1
    assert value(metrics, "backups_total", result="failed") == 1
    assert value(metrics, "policy_timeouts_total", pattern="preference-stated") == 1
    assert value(metrics, "upstream_seconds_sum") == 0.7


def test_what_healed_is_no_longer_degraded() -> None:
    metrics = Metrics()
    metrics.degraded(["store", "working-memory"])
    metrics.degraded(["store"])
    assert value(metrics, "degraded", reason="store") == 1
    assert value(metrics, "degraded", reason="working-memory") == 0
    metrics.degraded([])
    assert value(metrics, "degraded", reason="store") == 0


def test_recalls_are_told_by_owner_and_source() -> None:
    metrics = Metrics()
    for source in ("exact", "cache", "exact"):
        metrics.recalls(source, "alice")
    metrics.recalls("index", "bob")
    assert metrics.recall_counts("alice") == {"exact": 2, "index": 0, "cache": 1}
    assert metrics.recall_counts("bob") == {"exact": 0, "index": 1, "cache": 0}
    assert metrics.recall_counts("carol") == {"exact": 0, "index": 0, "cache": 0}
    assert value(metrics, "recall_total", source="exact") == 2
    assert "alice" not in metrics.render().decode()


def test_owners_are_counted_for_as_long_as_they_are_among_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.metrics.MAX_OWNERS", 2)
    metrics = Metrics()
    for owner in ("alice", "bob", "alice", "carol"):
        metrics.recalls("exact", owner)
    assert [metrics.recall_counts(owner)["exact"] for owner in ("alice", "bob", "carol")] == [2, 0, 1]


def test_tokens_are_counted_with_memory_on_and_off() -> None:
    metrics = Metrics()
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64}}
    metrics.usage(usage, memory=True)
    metrics.usage(usage, memory=True)
    metrics.usage({"input_tokens": 7}, memory=False)
    metrics.usage(None, memory=False)
    assert value(metrics, "usage_tokens_total", kind="cached", memory="on") == 128
    assert value(metrics, "usage_tokens_total", kind="input", memory="off") == 7


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 2}, {"input": 3, "output": 4, "cached": 2}),
        ({"input_tokens": 3, "input_tokens_details": {"cached_tokens": 1}}, {"input": 3, "cached": 1}),
        ({"prompt_tokens": None, "completion_tokens": "4", "prompt_tokens_details": []}, {}),
        ({"prompt_tokens": -1, "completion_tokens": True}, {}),
    ],
)
def test_usage_of_every_dialect_is_understood(usage: dict[str, object], expected: dict[str, int]) -> None:
    assert usage_tokens(usage) == expected


def test_label_values_past_the_limit_are_counted_together() -> None:
    metrics = Metrics()
    for number in range(MAX_CHILDREN + 50):
        metrics.policy_timed_out(f"rule-{number}")
    names = [labels for name, labels in samples(metrics) if name == "sidemirror_policy_timeouts_total"]
    assert len(names) == MAX_CHILDREN + 1
    assert value(metrics, "policy_timeouts_total", pattern="other") == 50


def test_two_values_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.injected(5)
    assert value(second, "injected_tokens_total") == 0


def test_a_number_of_tokens_that_is_none_counts_nothing() -> None:
    assert usage_tokens({"prompt_tokens": 10**309, "completion_tokens": -1}) == {}
    Metrics().usage({"prompt_tokens": 10**309}, memory=True)
