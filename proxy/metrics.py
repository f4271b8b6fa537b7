"""What happened, counted: one `Metrics` value per process, rendered for Prometheus at /metrics.

In: calls named for what happened. Out: the text format. It has its own registry, so that two proxies in one process
(as in tests) count apart. Label values come from short fixed sets; past a limit they are counted as ``other``.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MetricT = TypeVar("MetricT", Counter, Gauge)
MAX_CHILDREN = 500
MAX_OWNERS = 20_000
RECALL_SOURCES = ("exact", "index", "cache")
_MOST_TOKENS = 10**12
_PATTERN_CHARS = 60
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_RECALL_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0)
_UPSTREAM_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class _Family(Generic[MetricT]):
    """A metric with labels that remembers its children: prometheus_client's own look-up costs microseconds."""

    def __init__(self, metric: MetricT) -> None:
        self._metric: MetricT = metric
        self.children: dict[tuple[str, ...], MetricT] = {}

    def of(self, *labels: str) -> MetricT:
        child = self.children.get(labels)
        if child is None:
            if len(self.children) >= MAX_CHILDREN:
                labels = ("other",) * len(labels)
            child = self.children[labels] = self._metric.labels(*labels)
        return child


class Metrics:
    """Counters of one running proxy. Every method is cheap and safe to call from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._recalls_of: dict[str, dict[str, int]] = {}
        self._requests = self._counter("requests", "Requests answered.", "path", "status")
        self._memory_status = self._counter("memory_status", "Calls by X-Memory-Status.", "status")
        self._recalls = self._counter("recall", "Recalls by what answered them.", "source")
        self._written = self._counter("written", "Drafts by what became of them.", "action", "kind")
        self._write_failures = self._counter("write_failures", "Turns whose memories were not written.", "reason")
        self._reloads = self._counter("policy_reloads", "Reloads of the policy folder.", "result")
        self._backups = self._counter("backups", "Daily backups.", "result")
        self._timeouts = self._counter("policy_timeouts", "Patterns that took too long.", "pattern")
        self._shadowed = self._counter("policy_shadow_matches", "Matches of rules on trial.", "rule")
        self._swept = self._counter("swept", "Changes that sweeps made.", "step", "result")
        self._usage = self._counter("usage_tokens", "Tokens the provider reported.", "kind", "memory")
        self._extractor_calls = self._counter(
            "extractor_calls", "Questions to a model by outcome.", "purpose", "outcome"
        )
        self._extractor_tokens = self._counter("extractor_tokens", "Tokens of those questions.", "kind", "model")
        self._extractor_cost = self._counter("extractor_cost_usd", "Their cost, where the price is known.", "model")
        self._injected = Counter(
            "sidemirror_injected_tokens", "Tokens of memory put into requests.", registry=self.registry
        )
        self._recall_s = Histogram(
            "sidemirror_recall_seconds", "Time recall took.", buckets=_RECALL_BUCKETS_S, registry=self.registry
        )
        self._upstream_s = Histogram(
            "sidemirror_upstream_seconds",
            "Time from forwarding a call to its last byte.",
            buckets=_UPSTREAM_BUCKETS_S,
            registry=self.registry,
        )
        self._reembedded = Counter(
            "sidemirror_reembedded", "Records embedded in the background.", registry=self.registry
        )
        self._unembedded = Gauge(
            "sidemirror_unembedded", "Records without a vector of the present model.", registry=self.registry
        )
        self._degraded = _Family(
            Gauge("sidemirror_degraded", "1 while something works less than fully.", ["reason"], registry=self.registry)
        )

    def _counter(self, name: str, text: str, *labels: str) -> _Family[Counter]:
        return _Family(Counter(f"sidemirror_{name}", text, labels, registry=self.registry))

    def request(self, path: str, status: int) -> None:
        """A request was answered.

        Args:
            path: The route, not the raw path: ``/memory/records/{id}``, or ``/v1/*`` for what is only relayed.
            status: HTTP status.
        """
        self._requests.of(path, str(status)).inc()

    def memory_status(self, status: str) -> None:
        """A call went out with this X-Memory-Status."""
        self._memory_status.of(status).inc()

    def recalls(self, source: str, owner: str = "") -> None:
        """A recall was answered by ``exact`` search, the ``index`` or the ``cache``.

        Args:
            source: Which.
            owner: Whose it was (`Scope.owner`); counted for /memory/stats only, and never shown at /metrics.
        """
        self._recalls.of(source).inc()
        with self._lock:
            counts = self._recalls_of.pop(owner, None) or dict.fromkeys(RECALL_SOURCES, 0)
            counts[source] = counts.get(source, 0) + 1
            self._recalls_of[owner] = counts
            if len(self._recalls_of) > MAX_OWNERS:
                self._recalls_of.pop(next(iter(self._recalls_of)))

    def recall_seconds(self, duration_s: float) -> None:
        """A recall took this many seconds."""
        self._recall_s.observe(duration_s)

    def recall_counts(self, owner: str) -> dict[str, int]:
        """How many of an owner's recalls each source answered since the start, for /memory/stats.

        Of the owners, those whose last recall is the longest ago are dropped past `MAX_OWNERS`: they count anew.
        """
        with self._lock:
            return dict(self._recalls_of.get(owner) or dict.fromkeys(RECALL_SOURCES, 0))

    def injected(self, tokens: int) -> None:
        """Memory of this many tokens was put into a request."""
        self._injected.inc(tokens)

    def written(self, action: str, kind: str = "") -> None:
        """A draft of this kind of memory (empty where there is none) became what `action` says (`Outcome.action`)."""
        self._written.of(action, kind).inc()

    def write_failed(self, reason: str) -> None:
        """A turn's memories could not be written; `reason` is a short constant word or an exception's type."""
        self._write_failures.of(reason).inc()

    def policies_reloaded(self, result: str) -> None:
        """The policy folder was read again: ``ok`` or ``refused``."""
        self._reloads.of(result).inc()

    def backed_up(self, result: str) -> None:
        """A daily backup was tried: ``ok`` or ``failed``."""
        self._backups.of(result).inc()

    def policy_timed_out(self, pattern: str) -> None:
        """A rule's pattern ran into its time limit."""
        self._timeouts.of(pattern[:_PATTERN_CHARS]).inc()

    def shadowed(self, rule_id: str) -> None:
        """A shadow rule matched; live it would have written."""
        self._shadowed.of(rule_id).inc()

    def swept(self, step: str, changed: int, failed: int) -> None:
        """A sweep step ended, with so many changes made and failed."""
        self._swept.of(step, "changed").inc(changed)
        self._swept.of(step, "failed").inc(failed)

    def reembedded(self, done: int, waiting: int) -> None:
        """So many records were embedded in the background, and so many still wait."""
        self._reembedded.inc(done)
        self._unembedded.set(waiting)

    def degraded(self, reasons: Collection[str]) -> None:
        """Say what is degraded now; everything else counts as well again."""
        for reason in reasons:
            self._degraded.of(reason).set(1)
        for (reason,), gauge in list(self._degraded.children.items()):
            if reason not in reasons:
                gauge.set(0)

    def upstream_seconds(self, duration_s: float) -> None:
        """An upstream call ended after this many seconds."""
        self._upstream_s.observe(duration_s)

    def usage(self, usage: Mapping[str, Any] | None, *, memory: bool) -> None:
        """Count the tokens that a provider's usage object reports.

        Args:
            usage: OpenAI's or Anthropic's shape; None and unknown shapes count nothing.
            memory: Whether memory was on for the call.
        """
        for kind, tokens in usage_tokens(usage or {}).items():
            self._usage.of(kind, "on" if memory else "off").inc(tokens)

    def asked(self, purpose: str, outcome: str) -> None:
        """A model was asked about memories (``extract``, ``judge``, ``summary``): ``ok``, or why there is no answer."""
        self._extractor_calls.of(purpose, outcome).inc()

    def extractor_cost(self, model: str, *, input_tokens: int, output_tokens: int, cost_usd: float | None) -> None:
        """Count what an answer about memories cost.

        Args:
            model: Its name in config.yaml.
            input_tokens, output_tokens: As reported, or estimated.
            cost_usd: In US dollars; None where the price is not known.
        """
        self._extractor_tokens.of("input", model).inc(input_tokens)
        self._extractor_tokens.of("output", model).inc(output_tokens)
        if cost_usd is not None:
            self._extractor_cost.of(model).inc(cost_usd)

    def render(self) -> bytes:
        """Everything in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)


def usage_tokens(usage: Mapping[str, Any]) -> dict[str, int]:
    """The input, output and cached tokens of a usage object, as far as it names them.

    Args:
        usage: From chat completions, responses or messages.

    Returns:
        ``input``, ``output`` and ``cached`` tokens; absent where not reported, or no number of tokens.

    >>> usage_tokens({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}})
    {'input': 9, 'output': 2, 'cached': 4}
    """
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else usage.get("cache_read_input_tokens")
    found = {
        "input": usage.get("prompt_tokens", usage.get("input_tokens")),
        "output": usage.get("completion_tokens", usage.get("output_tokens")),
        "cached": cached,
    }
    return {kind: tokens for kind, tokens in found.items() if type(tokens) is int and 0 <= tokens <= _MOST_TOKENS}
