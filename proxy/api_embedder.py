"""Vectors from an embedding API, through litellm: asked in batches, remembered for a while, given up on time.

In: `embedding:` of config.yaml, then texts. Out: unit vectors, or `EmbedderError` while the API does not answer.
litellm is called in threads of ours, since its asynchronous calls bear no second event loop beside the doors'; so a
call that takes too long is no longer waited for, and ends by itself. Questions do not stand in line behind writes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from types import ModuleType
from typing import Any, Final

import numpy as np
import structlog

from proxy.errors import EmbedderError, TextRefused
from proxy.lane import Lane
from proxy.library import load
from proxy.refusal import Refused, explain
from proxy.routes import Route
from proxy.settings import Embedding, Model
from proxy.store.breaker import Breaker
from proxy.traits import asked
from proxy.translate import key_for
from proxy.ttl_cache import TTLCache
from proxy.types import Vector

log = structlog.get_logger(__name__)
BATCH: Final = 64
"""Texts per call, at most: what every API takes."""
WRITE_S: Final = 10.0
"""After this a record is stored without a vector, and embedded later."""
_PER_TEXT_S: Final = 1.0
"""More for each further text of a batch: a server on slow cores takes its time, and nobody's call waits for batches."""
_RETRY_S: Final = 2.0
_MAX_CHARS: Final = 6_000
"""APIs refuse what is longer than their window, commonly 8,192 tokens; static models look at less."""
_QUERIES, _DOCUMENTS, _CACHE_S = 512, 512, 600.0
_REFUSED: Final = frozenset({400, 413, 422})
_WIDTH: Final = 4


class ApiEmbedder:
    """Any embedding model that litellm knows. Safe to call from any thread.

    Args:
        settings: `embedding:` of config.yaml.
        query_s: How long a question may take, seconds.
        dimension: Length of its vectors, where it is known from an earlier start; `settings.dimensions` wins. Unknown,
            the API is asked at once.

    Raises:
        EmbedderError: The dimension is unknown, and the API does not answer.
    """

    def __init__(self, settings: Embedding, *, query_s: float, dimension: int | None = None) -> None:
        self._settings = settings
        self._query_s = query_s
        self._breaker = Breaker(_RETRY_S)
        self._queries: TTLCache[str, Vector] = TTLCache(_CACHE_S, _QUERIES)
        # What is written is asked for more than once: to judge it, to find its like, to store it.
        self._documents: TTLCache[str, Vector] = TTLCache(_CACHE_S, _DOCUMENTS)
        self._asking = Lane("embed-query", _WIDTH)
        self._writing = Lane("embed-write", _WIDTH)
        self._library = _Import()
        self._dimension = settings.dimensions or dimension or 0
        if not self._dimension:
            try:
                self._dimension = self._probed()
            except EmbedderError as error:
                self.close()
                raise EmbedderError(
                    f"{error}; its vectors' length is not known yet, so it must answer at the first start: see that it "
                    "does, or set embedding.dimensions"
                ) from error

    @property
    def fingerprint(self) -> str:
        """Provider, model, dimension."""
        return f"{space(self._settings)}{self._dimension}"

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._dimension

    def documents(self, texts: Sequence[str]) -> list[Vector | None]:
        """Vectors of stored text, in order; None where a text has no letter or digit.

        Raises:
            TextRefused: The API takes one of these texts not, whenever it is asked.
            EmbedderError: It does not answer, or not as it should.
        """
        return self._vectors(texts, self._documents, WRITE_S, self._writing)

    def query(self, text: str) -> Vector | None:
        """Vector of a question. With it the vectors of its parts are asked for, which are wanted next.

        Raises:
            EmbedderError: As for `documents`, and when it takes longer than a question may.
        """
        return self._vectors([text, *asked(text).parts], self._queries, self._query_s, self._asking)[0]

    def trouble(self) -> str | None:
        """What the last call failed of; None when it did not."""
        return self._breaker.reason or None

    def close(self) -> None:
        """Wait for nothing any more."""
        self._asking.close()
        self._writing.close()

    def _vectors(
        self, texts: Sequence[str], cache: TTLCache[str, Vector], within_s: float, lane: Lane
    ) -> list[Vector | None]:
        clean = [text[:_MAX_CHARS].encode("utf-8", "replace").decode("utf-8") for text in texts]
        wanted = [text for text in dict.fromkeys(clean) if any(map(str.isalnum, text))]
        found = {text: vector for text in wanted if (vector := cache.get(text)) is not None}
        missing = [text for text in wanted if text not in found]
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            more_s = _PER_TEXT_S * (len(batch) - 1) if lane is self._writing else 0.0
            for text, vector in zip(batch, self._answered(batch, within_s + more_s, lane), strict=True):
                if vector is not None:
                    found[text] = vector
                    cache.put(text, vector)
        return [found.get(text) for text in clean]

    def _answered(self, texts: Sequence[str], within_s: float, lane: Lane) -> list[Vector | None]:
        if not self._library.is_there(within_s):
            raise EmbedderError(f"litellm, which calls {self._settings.model}, is still being imported")
        if not self._breaker.admits():
            raise EmbedderError(self._breaker.reason)
        try:
            vectors = _vectors_of(self._call(texts, within_s, lane), len(texts), self._settings.model)
            self._check(vectors)
        except TextRefused:
            self._breaker.succeeded()
            raise
        except EmbedderError as error:
            if self.trouble() is None:
                log.warning("embedding_api_failed", error_type=type(error.__cause__ or error).__name__, hint=str(error))
            self._breaker.failed(str(error))
            raise
        self._breaker.succeeded()
        return vectors

    def _check(self, vectors: Sequence[Vector | None]) -> None:
        lengths = {len(vector) for vector in vectors if vector is not None}
        if self._dimension and lengths - {self._dimension}:
            raise EmbedderError(
                f"{self._settings.model} gives vectors of length {max(lengths - {self._dimension})}, not "
                f"{self._dimension}: set embedding.dimensions to what it gives, and everything is embedded anew"
            )
        if len(lengths) > 1:
            raise EmbedderError(f"{self._settings.model} gives vectors of different lengths: {sorted(lengths)}")

    def _probed(self) -> int:
        (vector,) = self._answered(["dimension"], WRITE_S, self._writing)
        if vector is None:
            raise EmbedderError(f"{self._settings.model} gives no direction to a plain word")
        return len(vector)

    def _call(self, texts: Sequence[str], within_s: float, lane: Lane) -> Any:
        settings = self._settings

        def call() -> Any:
            litellm: Any = self._library.module()
            return litellm.embedding(
                model=settings.model,
                input=list(texts),
                api_base=settings.api_base,
                api_key=_key(settings),
                timeout=within_s,
                max_retries=0,
                num_retries=0,
                **_dimensions(settings),
            )

        try:
            return lane.call(call, within_s)
        except TimeoutError as error:
            raise EmbedderError(f"{settings.model} did not answer within {within_s * 1000:.0f} ms") from error
        except Exception as error:
            raise _explained(error, settings.model) from error


class _Import:
    """litellm, whose import takes seconds: begun at once, so that no call has to wait for all of them."""

    def __init__(self) -> None:
        self._done: Future[ModuleType] = Future()
        threading.Thread(target=self._load, name="embed-import", daemon=True).start()

    def is_there(self, within_s: float) -> bool:
        """Wait for it, at most so many seconds; whether that is over."""
        return not wait([self._done], within_s).not_done

    def module(self) -> ModuleType:
        """It; whatever kept it from being imported is raised."""
        return self._done.result()

    def _load(self) -> None:
        try:
            litellm: Any = load()
            # Its embedding calls take `max_retries=0` for "as usual"; when to ask again is for our breaker to say.
            litellm.DEFAULT_MAX_RETRIES = 0
            self._done.set_result(litellm)
        except Exception as error:  # noqa: BLE001 - told by whoever needs it
            self._done.set_exception(error)


def space(settings: Embedding) -> str:
    """What the fingerprint of an API's vectors begins with; their length follows."""
    return f"litellm-{settings.model}-"


def _dimensions(settings: Embedding) -> Mapping[str, Any]:
    # litellm lets only models of OpenAI's that it knows have this; others' servers judge for themselves.
    return {"dimensions": settings.dimensions, "allowed_openai_params": ["dimensions"]} if settings.dimensions else {}


def _key(settings: Embedding) -> str | None:
    entry = Model(name="embedding", litellm=settings.model, api_base=settings.api_base, api_key=settings.api_key)
    return key_for(Route(entry, settings.model), None)


def _explained(error: Exception, model: str) -> EmbedderError:
    found = explain(error, model)
    if isinstance(found, Refused):
        kind = TextRefused if found.status in _REFUSED else EmbedderError
        return kind(f"{model} answers {found.status}; check embedding.model, embedding.api_key and the API's log")
    return EmbedderError(str(found))


def _vectors_of(answer: Any, count: int, model: str) -> list[Vector | None]:
    """The unit vectors of an answer, in the order of the texts; None for one without direction.

    Raises:
        EmbedderError: It is not what was asked for.
    """
    try:
        data = sorted((dict(one) for one in answer.data), key=lambda one: int(one.get("index") or 0))
        vectors = [_unit(one["embedding"]) for one in data]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EmbedderError(f"{model} answers with something else than vectors ({type(error).__name__})") from error
    if len(vectors) != count:
        raise EmbedderError(f"{model} answers {count} texts with {len(vectors)} vectors")
    return vectors


def _unit(values: Sequence[float]) -> Vector | None:
    raw = np.array(values, np.float32)
    if raw.ndim != 1 or not len(raw) or not np.isfinite(raw).all():
        raise ValueError("not a vector")
    length = float(np.linalg.norm(raw.astype(np.float64)))
    if not length:
        return None
    unit: Vector = (raw / length).astype(np.float32)
    return unit
