"""Durations as policies write them: 90s, 15m, 1h, 30d, never. In: text. Out: seconds, None for never."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def seconds(value: Any) -> float | None:
    """Read a duration.

    Args:
        value: A number with a unit, or ``never``.

    Returns:
        Seconds, or None for ``never``.

    Raises:
        ValueError: No duration; a bare number gets a hint.

    >>> seconds("90s"), seconds("1h"), seconds("30d"), seconds("never")
    (90.0, 3600.0, 2592000.0, None)
    >>> seconds(30)
    Traceback (most recent call last):
    ...
    ValueError: 30 has no unit; write 30s, 30m, 30h or 30d
    """
    if value == "never":
        return None
    found = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    if found:
        return float(found.group(1)) * _UNIT_S[found.group(2)]
    if (isinstance(value, int | float) and not isinstance(value, bool)) or str(value).strip().isdigit():
        raise ValueError(f"{value} has no unit; write {value}s, {value}m, {value}h or {value}d")
    raise ValueError(f"{value!r} is no duration; write a number with its unit, such as 90s, 1h or 30d, or never")


def shown(value_s: float | None) -> str:
    """The shortest form of a duration.

    >>> shown(3600.0), shown(90.0), shown(None)
    ('1h', '90s', 'never')
    """
    if value_s is None:
        return "never"
    unit, size = next(((u, s) for u, s in reversed(list(_UNIT_S.items())[:4]) if value_s % s == 0), ("s", 1.0))
    return f"{value_s / size:g}{unit}"


_SCHEMA = {"type": "string", "pattern": r"^(never|\d+(\.\d+)?\s*[smhdw])$", "examples": ["90s", "1h", "30d", "never"]}
_FINITE_SCHEMA = {"type": "string", "pattern": r"^\d+(\.\d+)?\s*[smhdw]$", "examples": ["90s", "1h", "30d"]}

Duration = Annotated[float | None, BeforeValidator(seconds), WithJsonSchema(_SCHEMA)]
"""A field holding seconds; None stands for never."""


def _finite(value: Any) -> float:
    found = seconds(value)
    if found is None:
        raise ValueError("never makes no sense here; write a number with its unit, such as 30s or 60d")
    return found


Span = Annotated[float, BeforeValidator(_finite), WithJsonSchema(_FINITE_SCHEMA)]
"""A field holding seconds, where never is refused."""
