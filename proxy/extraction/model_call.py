"""One question to one model through litellm, asked from a plain thread and answered on the event loop.

In: a `Route` and a `Question`. Out: a `Reply`, or `Unanswered` with a constant reason. litellm's clients belong to the
loop that uses them, so its calls run on the loop of the doors; only there can a call be given up on time, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Final, Literal

from proxy.arguments import arguments
from proxy.errors import SidemirrorError
from proxy.extraction.prompt import Question
from proxy.library import Library
from proxy.metrics import usage_tokens
from proxy.refusal import Refused, chain, explain
from proxy.routes import Route
from proxy.tokens import count_for
from proxy.translate import key_for

MAX_ANSWER_TOKENS: Final = 4_000
"""Room for the thoughts of a reasoning model, which count as its answer."""
_WARM_UP_S: Final = 60.0
"""litellm's import, which may stand before the first call, is not the model's delay."""
_FIELDS_REFUSED: Final = frozenset({400, 422})

Reason = Literal[
    "absent",  # no entry of that name under `models:`
    "capped",  # the day's tokens are spent
    "failed",  # litellm could not make the call
    "http_error",  # the provider answered with an error status
    "invalid",  # no fitting JSON, twice
    "rate_limited",  # 429
    "refused",  # the model said nothing
    "resting",  # it failed a moment ago
    "stopped",  # the proxy is going down
    "timeout",
    "uncounted",  # the count of tokens cannot be kept
    "unreachable",  # no connection, or it broke
]
"""Why there is no answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered.

    Args:
        text: Its words; empty when it gave none.
        input_tokens, output_tokens: As the provider counted, or estimated where it did not.
        cost_usd: By litellm's price list; None where that does not know the model.
    """

    text: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


class Unanswered(SidemirrorError):
    """A question got no answer that can be used.

    Args:
        reason: One of a short fixed list.
        error_type: Name of the exception behind it, for the log.
        status: The provider's HTTP status, if there was one.
    """

    def __init__(self, reason: Reason, *, error_type: str | None = None, status: int | None = None) -> None:
        super().__init__(f"no answer from the model: {reason}")
        self.reason: Reason = reason
        self.error_type = error_type
        self.status = status

    @property
    def is_outage(self) -> bool:
        """Whether the next question would fare no better: the trouble lies with the model's server, key or name."""
        errors = self.reason == "http_error" and self.status not in _FIELDS_REFUSED
        return errors or self.reason in ("failed", "rate_limited", "timeout", "unreachable")


class ModelCalls:
    """Asks models. Safe to share between threads; never called on the loop itself, which must be free to answer.

    Args:
        library: litellm.
        loop: Where litellm's calls run.
        count_tokens: Tokens of a text, for where the provider does not count.
    """

    def __init__(self, library: Library, loop: asyncio.AbstractEventLoop, count_tokens: Callable[[str], int]) -> None:
        self._library = library
        self._loop = loop
        self._count = count_tokens
        self._without_format: set[str] = set()
        self._running: set[Future[Reply]] = set()
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, route: Route, question: Question, timeout_s: float) -> Reply:
        """Ask, and wait.

        Args:
            route: The model.
            question: What.
            timeout_s: For the whole call, from connecting to the last byte.

        Returns:
            The answer, whatever it says.

        Raises:
            Unanswered: There is none.
        """
        running = self._start(self._ask(route, question, timeout_s))
        try:
            return running.result(timeout_s + _WARM_UP_S)
        except CancelledError as error:
            raise Unanswered("stopped") from error
        except TimeoutError as error:
            running.cancel()
            raise Unanswered("timeout", error_type="TimeoutError") from error
        finally:
            with self._lock:
                self._running.discard(running)

    def estimate(self, route: Route, question: Question) -> int:
        """About how many tokens a question costs, without its answer."""
        text = "\n".join(message["content"] for message in question.messages())
        return count_for(route.model, self._count(text))

    def close(self) -> None:
        """Give up what is running, and start nothing more; whoever waits is told at once."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for future in running:
            future.cancel()

    def _start(self, asking: Any) -> Future[Reply]:
        with self._lock:
            if self._closed or self._loop.is_closed():
                asking.close()
                raise Unanswered("stopped")
            running: Future[Reply] = asyncio.run_coroutine_threadsafe(asking, self._loop)
            self._running.add(running)
        return running

    async def _ask(self, route: Route, question: Question, timeout_s: float) -> Reply:
        litellm: Any = await self._library.warm()
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._completion(litellm, route, question, timeout_s)
        except TimeoutError as error:
            raise Unanswered("timeout", error_type="TimeoutError") from error
        return self._reply(route, question, answer)

    async def _completion(self, litellm: Any, route: Route, question: Question, timeout_s: float) -> Any:
        """Call with the answer's form as a field where the model takes it, else with the words of the prompt alone."""
        if route.model not in self._without_format and _may_take_schema(litellm, route):
            try:
                return await _call(litellm, route, question, timeout_s, formatted=True)
            except Unanswered as error:
                if error.status not in _FIELDS_REFUSED:
                    raise
            answer = await _call(litellm, route, question, timeout_s, formatted=False)
            self._without_format.add(route.model)  # it was the form that was refused
            return answer
        return await _call(litellm, route, question, timeout_s, formatted=False)

    def _reply(self, route: Route, question: Question, answer: Any) -> Reply:
        message = answer.choices[0].message if answer.choices else None
        text = str(getattr(message, "content", None) or "")
        usage = getattr(answer, "usage", None)
        counted = usage_tokens(usage.model_dump() if usage is not None else {})
        # Zero is what litellm makes of a count that is missing.
        input_tokens = counted.get("input") or self.estimate(route, question)
        output_tokens = counted.get("output") or count_for(route.model, self._count(text))
        cost = answer._hidden_params.get("response_cost")
        return Reply(text, input_tokens, output_tokens, cost if isinstance(cost, float) else None)


def _may_take_schema(litellm: Any, route: Route) -> bool:
    """Whether to try: litellm says that the model takes a schema, or does not know it (somebody's own server)."""
    known = route.model in litellm.model_cost or route.upstream_model in litellm.model_cost
    return not known or bool(litellm.supports_response_schema(model=route.model))


async def _call(litellm: Any, route: Route, question: Question, timeout_s: float, *, formatted: bool) -> Any:
    body: dict[str, Any] = {
        "messages": question.messages(takes_system=route.entry.system_role == "system"),
        "max_tokens": MAX_ANSWER_TOKENS,
    }
    if formatted:
        body["response_format"] = _format(question.schema)
    try:
        return await litellm.acompletion(
            **arguments(litellm, route, body),
            api_base=route.entry.api_base,
            api_key=key_for(route, None),
            timeout=timeout_s,
            # Where the address is a Sidemirror's own, a question about memories must not be remembered in turn.
            extra_headers=None if route.entry.api_base is None else {"X-Memory-Mode": "off"},
            max_retries=0,
            num_retries=0,
            _skip_mcp_handler=True,
        )
    except Exception as error:
        raise _unanswered(error, route) from error


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    # Not strict: that takes only schemas which require every property, and the answer is validated anyway.
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema), "strict": False}}


def _unanswered(error: Exception, route: Route) -> Unanswered:
    name = type(error).__name__
    if name == "Timeout" or any(isinstance(cause, TimeoutError) for cause in chain(error)):
        return Unanswered("timeout", error_type=name)
    found = explain(error, route.model)
    if not isinstance(found, Refused):
        return Unanswered("unreachable" if found.unreachable else "failed", error_type=name)
    reason: Reason = "rate_limited" if found.status == 429 else "http_error"
    return Unanswered(reason, error_type=name, status=found.status)
