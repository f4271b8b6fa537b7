"""JSON lines on stderr: our own events and the libraries' warnings, through one renderer.

In: events with constant names in the past tense (`log.info("turn_written", count=2)`) and stdlib log records. Out: one
JSON object a line. Below the debug level no line holds memory text: fields named for text are withheld, exceptions
are shown by type and place without their message, and libraries that handle texts only say where they warned.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, Processor

LEVELS = ("debug", "info", "warning", "error")
TEXT_FIELDS = frozenset(
    {"api_key", "authorization", "body", "content", "message", "messages", "memory", "prompt", "query", "text", "value"}
)
"""Fields that may hold what people said, or a key: withheld below the debug level."""

TEXT_LIBRARIES = ("LiteLLM", "litellm", "openai", "anthropic", "httpx", "httpx2")
"""Loggers of libraries that see prompts and quote them."""

MAX_FRAMES = 12


class _Lines(structlog.WriteLogger):
    """Writes lines, and knows the name that `structlog.get_logger(__name__)` gave."""

    def __init__(self, file: TextIO, name: str) -> None:
        super().__init__(file)
        self.name = name


class _Forgiving:
    """A stream that drops what cannot be written: a full disk must not fail the call that is being logged."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Set up logging for the process; called once by the composition root, before anything logs.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``. ``debug`` shows texts.
        stream: Where lines go; stderr by default.

    Raises:
        ValueError: There is no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"{level!r} is not a log level; one of {', '.join(LEVELS)}")
    target = cast(TextIO, _Forgiving(stream or sys.stderr))
    open_texts = level == "debug"
    shared = _shared(open_texts)
    structlog.configure(
        processors=[*shared, _render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *names: _Lines(target, names[0] if names else "proxy"),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    foreign: list[Processor] = [_Foreign(open_texts), *shared]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=foreign,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    adopt()


def adopt() -> None:
    """Route loggers that brought handlers of their own through ours; call it again after a library's late import."""
    for name in list(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        if logger.handlers:
            logger.handlers.clear()
            logger.propagate = True


def _shared(open_texts: bool) -> list[Processor]:
    return [
        _name,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(_Exceptions(open_texts)),
        *([] if open_texts else [_withhold]),
    ]


def _name(logger: Any, _method: str, event: EventDict) -> EventDict:
    record: logging.LogRecord | None = event.get("_record")
    event["logger"] = record.name if record else getattr(logger, "name", "proxy")
    return event


def _withhold(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for field in TEXT_FIELDS.intersection(event):
        event[field] = "(withheld)"
    return event


class _Exceptions:
    """An exception as type and places, innermost last; its message only where texts may be shown."""

    def __init__(self, open_texts: bool) -> None:
        self._open_texts = open_texts

    def __call__(self, exc_info: ExcInfo) -> Mapping[str, Any]:
        kind, error, trace = exc_info
        shown: dict[str, Any] = {"error_type": kind.__name__, "frames": _frames(trace)[-MAX_FRAMES:]}
        cause = error.__cause__ or error.__context__
        if cause is not None:
            shown["cause_type"] = type(cause).__name__
        if self._open_texts:
            shown["error_message"] = str(error)
        return shown


def _frames(trace: TracebackType | None) -> list[str]:
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return frames


class _Foreign:
    """A library's record as an event of ours: a constant name, the logger's name, and its words where they are safe."""

    def __init__(self, open_texts: bool) -> None:
        self._open_texts = open_texts

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        record: logging.LogRecord = event["_record"]
        words = event.pop("event", "")
        event["event"] = "library_warned"
        event["place"] = f"{Path(record.pathname).name}:{record.lineno}"
        if self._open_texts or not record.name.startswith(TEXT_LIBRARIES):
            event["words"] = str(words)
        return event


def _render(_logger: Any, _method: str, event: EventDict) -> str:
    try:
        return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # a lone surrogate, or a number past 64 bits
        return json.dumps(event, default=repr)
