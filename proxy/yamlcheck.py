"""Data of a YAML file checked against a pydantic model: each mistake in plain words, at its line and column.

In: a model and a `Located` file. Out: the model, or the list of `Problem`s, with the names that were probably meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from proxy.errors import Problem
from proxy.yamlfile import Located

M = TypeVar("M", bound=BaseModel)


def validate(
    model: type[M], located: Located, nouns: Mapping[str, str] | None = None
) -> tuple[M | None, list[Problem]]:
    """Check a file's data against a pydantic model that forbids unknown keys.

    Args:
        model: What the data must satisfy.
        located: The file.
        nouns: What a key's values are called in messages; by default the key's own name in words.

    Returns:
        The model, or None with every mistake in it, each at its place and with a "did you mean" where one is near.
    """
    try:
        return model.model_validate(located.data), []
    except ValidationError as error:
        problems = [_problem(model, located, entry, nouns or {}) for entry in error.errors(include_url=False)]
        return None, list(dict.fromkeys(problems))  # branches of a union may say the same


def _problem(model: type[BaseModel], located: Located, entry: Any, nouns: Mapping[str, str]) -> Problem:
    where = located.inside(entry["loc"])
    kind, value, context = entry["type"], entry.get("input"), entry.get("ctx") or {}
    if kind == "missing":
        missing = str(entry["loc"][-1])
        return located.problem(where if where[-1:] == (missing,) else (*where, missing), "this key is required")
    if kind == "extra_forbidden":
        name = str(entry["loc"][-1])
        message = f"unknown key '{name}'{did_you_mean(name, _fields_at(model, entry['loc'][:-1]))}"
    elif kind in ("literal_error", "enum"):
        allowed = re.findall(r"'([^']+)'", str(context.get("expected", "")))
        key = next((step for step in reversed(where) if isinstance(step, str)), "value")
        noun = nouns.get(key, key.replace("_", " ")) or "value"
        article = "an" if noun[0] in "aeiou" else "a"
        shown = f"'{value}'" if isinstance(value, str) else _shown(value)
        hint = did_you_mean(str(value), allowed) or f"; one of {', '.join(allowed)}"
        message = f"{shown} is not {article} {noun}{hint}"
    elif kind.startswith("bool"):
        message = f"write true or false (got {_shown(value)})"
    elif kind == "value_error":
        message = str(context.get("error", entry["msg"]))
    elif kind == "string_type" and isinstance(value, bool):
        message = f"{_shown(value)} is a boolean where text is meant; quote it"
    else:
        message = f"{entry['msg'][0].lower()}{entry['msg'][1:]} (got {_shown(value)})"
    return located.problem(where, message)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'semantic'?`` or nothing.

    >>> did_you_mean("semantc", ["semantic", "episodic"])
    "; did you mean 'semantic'?"
    >>> did_you_mean("xyz", ["semantic"])
    ''
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def _fields_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    """Names of the fields of the model that `loc` leads to, by the annotations on the way."""
    models: list[type[BaseModel]] = [model]
    for step in loc:
        following: list[type[BaseModel]] = []
        for one in models:
            if isinstance(step, str) and (info := _field(one, step)) is not None:
                following += _models_in(info.annotation)
        models = following or models
    return [info.alias or name for one in models for name, info in one.model_fields.items()]


def _field(model: type[BaseModel], name: str) -> FieldInfo | None:
    return next((info for key, info in model.model_fields.items() if name in (key, info.alias)), None)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
