"""One JSON object a line, and never a text at the default level."""

from __future__ import annotations

import errno
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from proxy.log import adopt, configure

SECRET = "北京的秘密 sk-abc"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def configured(level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure(level, stream)
    return stream


def test_an_event_is_one_json_line_with_its_fields() -> None:
    stream = configured()
    structlog.get_logger("proxy.worker").info("turn_written", count=2, request_id="r1")
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "turn_written", "level": "info", "logger": "proxy.worker", "count": 2, "request_id": "r1"}


def test_events_below_the_level_are_left_out() -> None:
    stream = configured("warning")
    structlog.get_logger().info("turn_written")
    structlog.get_logger().warning("reload_refused")
    assert [line["event"] for line in lines(stream)] == ["reload_refused"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="one of debug, info"):
        configure("loud")


def test_text_fields_are_withheld_unless_debugging() -> None:
    stream = configured()
    structlog.get_logger().info("memory_created", content=SECRET, query=SECRET, memory_id="m1")
    assert SECRET not in stream.getvalue()
    assert lines(stream)[0]["memory_id"] == "m1"
    stream = configured("debug")
    structlog.get_logger().debug("memory_created", content=SECRET)
    assert lines(stream)[0]["content"] == SECRET


def test_exceptions_show_type_and_place_but_no_message_unless_debugging() -> None:
    def fail() -> None:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(SECRET) from error

    stream = configured()
    try:
        fail()
    except ValueError:
        structlog.get_logger().exception("recall_failed")
    assert SECRET not in stream.getvalue()
    shown = lines(stream)[0]["exception"]
    assert (shown["error_type"], shown["cause_type"]) == ("ValueError", "KeyError")
    assert shown["frames"][-1].startswith("test_log.py:")
    assert shown["frames"][-1].endswith(" fail")

    stream = configured("debug")
    structlog.get_logger().error("recall_failed", exc_info=ValueError(SECRET))
    assert lines(stream)[0]["exception"]["error_message"] == SECRET


@pytest.mark.parametrize("name", ["aiohttp.server", "redis", "watchfiles.main", "asyncio"])
def test_library_warnings_take_the_same_form(name: str) -> None:
    stream = configured()
    logging.getLogger(name).info("chatter")
    logging.getLogger(name).warning("connection to %s lost", "x")
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["level"]) == ("library_warned", name, "warning")
    assert line["words"] == "connection to x lost"
    assert line["place"].startswith("test_log.py:")


def test_libraries_that_handle_texts_only_say_where() -> None:
    stream = configured()
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("LiteLLM").exception("could not send %s", SECRET)
    assert SECRET not in stream.getvalue()
    (line,) = lines(stream)
    assert line["place"].startswith("test_log.py:")
    assert line["exception"]["error_type"] == "ValueError"


def test_a_library_imported_late_is_adopted() -> None:
    stream = configured()
    own = io.StringIO()
    late = logging.getLogger("late.library")
    late.addHandler(logging.StreamHandler(own))
    late.propagate = False
    adopt()
    late.error("broken")
    assert own.getvalue() == ""
    assert [line["words"] for line in lines(stream)] == ["broken"]


def test_python_warnings_take_the_same_form() -> None:
    stream = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", UserWarning, stacklevel=1)
    assert lines(stream)[0]["logger"] == "py.warnings"


def test_what_json_cannot_hold_is_shown_all_the_same() -> None:
    stream = configured()
    structlog.get_logger().info("odd_values_logged", a=object, b="\ud800", c=2**80, d=b"x", e={1: 2})
    (line,) = lines(stream)
    assert line["c"] == 2**80
    assert line["b"] == "\ud800"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space"), BrokenPipeError(), ValueError("closed file")])
def test_a_log_that_cannot_be_written_fails_nobody(error: Exception) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise error

        def flush(self) -> None:
            raise error

    configure("info", Full())
    structlog.get_logger("proxy.worker").error("write_back_failed", count=1)
    logging.getLogger("aiohttp").warning("careful")
