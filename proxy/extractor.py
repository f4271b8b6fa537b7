"""The optional model that helps the rules: it extracts memories, judges conflicts and writes summaries.

In: an `LlmTask`, two texts, or lines. Out: drafts, a verdict, a summary; and where there is no answer in time, what the
rules say instead. It waits, so it is called from write-back's threads, never on the event loop. Nothing that was said
is ever logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, cast

import structlog

from proxy.clip import clip
from proxy.errors import StoreError
from proxy.extraction import answer, prompt
from proxy.extraction.model_call import Reply, Unanswered
from proxy.extraction.prompt import Question
from proxy.language import detect
from proxy.metrics import Metrics
from proxy.policy.llm import LlmTask
from proxy.routes import Route, Routes
from proxy.scope import Scope
from proxy.store.allowance import Allowance, Reservation
from proxy.store.breaker import Breaker
from proxy.types import Draft, Language

log = structlog.get_logger(__name__)
Verdict = Literal["same", "replaces", "beside", "unsure"]
Purpose = Literal["extract", "judge", "summary"]

DEFAULT_MODEL: Final = "extractor"
"""The model that judges and summarises: an entry of `models:` in config.yaml with this very name."""
DAILY_TOKENS: Final = 100_000
"""A tenant's tokens a day for judging, and as many for summaries; a rule's own cap is its `daily_tokens`."""
MAX_SUMMARY_CHARS: Final = 1_000
_JUDGE_TIMEOUT_S: Final = 8.0
_SUMMARY_TIMEOUT_S: Final = 20.0
_REST_S: Final = 15.0
_ANSWER_TOKENS: Final = 1_000
"""Set aside for an answer before it is known; calls at the same time overshoot a cap by what they answer beyond it."""
_TRIES: Final = 2


class Calls(Protocol):
    """Who makes the calls (`ModelCalls`)."""

    def ask(self, route: Route, question: Question, timeout_s: float) -> Reply:
        """Ask, and wait."""

    def estimate(self, route: Route, question: Question) -> int:
        """About how many tokens a question costs, without its answer."""

    def close(self) -> None:
        """Give up what is running."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What came of a task.

    Args:
        drafts: The model's, or the rule's own where `fell_back` says why.
        fell_back: None, or the reason (`model_call.Reason`) why the rule's own drafts stand here; for the ledger.
    """

    drafts: tuple[Draft, ...]
    fell_back: str | None = None


@dataclass(frozen=True, slots=True)
class _Order:
    """A question with what surrounds it: who pays, from which purse, and until when it is of use."""

    purpose: Purpose
    model: str
    question: Question
    tenant: str
    purse: str
    cap: int | None
    timeout_s: float
    rule_id: str | None = None


class Extractor:
    """Asks the models of config.yaml about memories. Safe to share between threads.

    Args:
        routes: The models; only an entry with a task's very name is asked, never one whose pattern fits.
        calls: Makes the calls.
        allowance: What each tenant may still spend today.
        metrics: Counts calls, tokens and cost.
        monotonic: Seconds, for timeouts and for the rest that a failing model is given.
    """

    def __init__(
        self,
        routes: Routes,
        calls: Calls,
        allowance: Allowance,
        metrics: Metrics,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._routes = routes
        self._calls = calls
        self._allowance = allowance
        self._metrics = metrics
        self._monotonic = monotonic
        self._breakers: dict[str, Breaker] = {}

    @property
    def is_configured(self) -> bool:
        """Whether there is a model that judges and summarises."""
        return self._route(DEFAULT_MODEL) is not None

    def extract(self, task: LlmTask, scope: Scope) -> Sequence[Draft]:
        """The memories that a model finds, or those of the task's fallback.

        Args:
            task: From `Evaluation.llm`.
            scope: Whose; its tenant pays.
        """
        return self.extraction(task, scope).drafts

    def extraction(self, task: LlmTask, scope: Scope) -> Extraction:
        """Like `extract`, and says why where it fell back.

        Args:
            task: From `Evaluation.llm`.
            scope: Whose; its tenant pays.
        """
        question, purse = prompt.extraction(task), f"rule:{task.rule_id}"
        order = _Order(
            "extract", task.model, question, scope.tenant, purse, task.daily_tokens, task.timeout_s, task.rule_id
        )
        try:
            return Extraction(answer.drafts(task, self._answer(order)))
        except Unanswered as error:
            return Extraction(task.fallback, error.reason)

    def judge(self, old: str, new: str, scope: Scope) -> Verdict:
        """What a newer memory means for an older one.

        Args:
            old, new: Their contents.
            scope: Whose; its tenant pays.

        Returns:
            ``same``, ``replaces``, ``beside``; ``unsure`` also where there is no answer.
        """
        try:
            found = self._answer(self._own("judge", prompt.judgement(old, new, detect(new)), scope, _JUDGE_TIMEOUT_S))
        except Unanswered:
            return "unsure"
        return cast(Verdict, found["verdict"])

    def summarise(self, lines: Sequence[str], language: Language, scope: Scope) -> str | None:
        """A few sentences on what was said.

        Args:
            lines: Turns or memories, oldest first.
            language: Theirs.
            scope: Whose; its tenant pays.

        Returns:
            At most 1,000 characters on one line; None where there is no answer, or nothing to summarise.
        """
        if not any(line.strip() for line in lines):
            return None
        try:
            found = self._answer(self._own("summary", prompt.summary(lines, language), scope, _SUMMARY_TIMEOUT_S))
        except Unanswered:
            return None
        return clip(" ".join(found["summary"].split()), MAX_SUMMARY_CHARS) or None

    def close(self) -> None:
        """Give up what is running; whoever waits goes on by the rules."""
        self._calls.close()

    def _own(self, purpose: Purpose, question: Question, scope: Scope, timeout_s: float) -> _Order:
        return _Order(purpose, DEFAULT_MODEL, question, scope.tenant, purpose, DAILY_TOKENS, timeout_s)

    # ── one question, to its answer ────────────────────────────────────────────────────────────────────────────
    def _answer(self, order: _Order) -> Any:
        """The JSON that fits the question's schema.

        Raises:
            Unanswered: There is none; it has been counted and logged.
        """
        started = self._monotonic()
        try:
            found = self._tried(order, started + order.timeout_s)
        except Unanswered as error:
            self._metrics.asked(order.purpose, error.reason)
            log.warning(
                "model_not_used",
                purpose=order.purpose,
                rule_id=order.rule_id,
                model=order.model,
                reason=error.reason,
                status=error.status,
                error_type=error.error_type,
                duration_ms=round(1000 * (self._monotonic() - started)),
            )
            raise
        self._metrics.asked(order.purpose, "ok")
        return found

    def _tried(self, order: _Order, deadline: float) -> Any:
        route = self._route(order.model)
        if route is None:
            raise Unanswered("absent")
        breaker = self._breakers.setdefault(order.model, Breaker(_REST_S, self._monotonic))
        if not breaker.admits():
            raise Unanswered("resting")
        question = order.question
        for _ in range(_TRIES):
            reply = self._paid(order, route, breaker, question, deadline - self._monotonic())
            if not reply.text.strip():
                raise Unanswered("refused")
            try:
                return answer.read(reply.text, question.accepts)
            except answer.SchemaUnusable as error:
                raise Unanswered("invalid", error_type=type(error).__name__) from error
            except answer.Unfit as unfit:
                question = order.question.again(reply.text, str(unfit))
        raise Unanswered("invalid")

    def _paid(self, order: _Order, route: Route, breaker: Breaker, question: Question, left_s: float) -> Reply:
        """Ask once: reserve, call, settle."""
        if left_s <= 0:
            raise Unanswered("timeout")
        asking = self._calls.estimate(route, question)
        reserved = self._reserve(order, asking + _ANSWER_TOKENS)
        try:
            reply = self._calls.ask(route, question, left_s)
        except Unanswered as error:
            if error.is_outage:
                breaker.failed(error.reason)
            # A provider may well bill a question whose answer came too late.
            self._settle(reserved, asking if error.reason in ("timeout", "stopped") else 0)
            raise
        breaker.succeeded()
        self._settle(reserved, reply.input_tokens + reply.output_tokens)
        self._metrics.extractor_cost(
            route.entry.name,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            cost_usd=reply.cost_usd,
        )
        return reply

    def _reserve(self, order: _Order, tokens: int) -> Reservation:
        try:
            reserved = self._allowance.reserve(order.tenant, order.purse, tokens, order.cap)
        except StoreError as error:
            # Without a count there is no cap, and nobody is to find that out from a bill.
            raise Unanswered("uncounted", error_type=type(error).__name__) from error
        if reserved is None:
            raise Unanswered("capped")
        return reserved

    def _settle(self, reserved: Reservation, tokens: int) -> None:
        try:
            self._allowance.settle(reserved, tokens)
        except StoreError as error:
            log.warning("allowance_not_settled", error_type=type(error).__name__)

    def _route(self, model: str) -> Route | None:
        route = self._routes.route(model)
        return route if route is not None and route.entry.name == model else None
