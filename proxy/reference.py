"""The configuration reference, made from the settings' own models: `python -m proxy.reference > docs/configuration.md`.

Pure. A test holds the file to it, so that a key that is added is documented, and one that goes is not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from proxy.settings import Config

_HEAD = """\
# Configuration reference

Every key of `config.yaml`, with its default; made from the code. Each is also an environment variable, which wins:
`SIDEMIRROR__` and the key's path in capitals, joined by two underscores (`SIDEMIRROR__SERVER__PORT=9000`); lists and
maps are given in JSON. Relative paths start at the file's folder. Unknown keys are errors, with line and column. What
is remembered, and for how long, is not here but in `policies/`.
"""


def markdown() -> str:
    """The whole reference."""
    return "\n".join([_HEAD, *_section("", Config), ""])


def _section(path: str, model: type[BaseModel]) -> Iterator[str]:
    plain = {name: info for name, info in model.model_fields.items() if _nested(info) is None}
    if path:
        yield f"\n## `{path}`\n\n{(model.__doc__ or '').strip()}"
    elif plain:
        yield "\n## Top level"
    if plain:
        yield "\n| key | default | |\n|---|---|---|"
        yield from (_row(path, name, info) for name, info in plain.items())
    for name, info in model.model_fields.items():
        nested = _nested(info)
        if nested is not None:
            yield from _section(f"{path}.{name}" if path else name, nested)


def _row(path: str, name: str, info: FieldInfo) -> str:
    default = "required" if info.is_required() else f"`{_shown(info.get_default(call_default_factory=True))}`"
    choices = ", ".join(f"`{choice}`" for choice in _choices(info.annotation))
    told = (info.description or "").rstrip(".")
    key = f"{path}.{name}" if path else name
    return f"| `{key}` | {default} | {told}.{f' One of {choices}.' if choices else ''} |"


def _nested(info: FieldInfo) -> type[BaseModel] | None:
    """The model of a section, or of the entries of a list of them."""
    for one in (info.annotation, *get_args(info.annotation)):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None


def _choices(annotation: Any) -> tuple[str, ...]:
    return tuple(one for one in get_args(annotation) if isinstance(one, str))


def _shown(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return "…"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value


if __name__ == "__main__":
    sys.stdout.write(markdown())
