"""JSON answers of our own endpoints: UTF-8 as it is, so that Chinese text can be read in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel


def json_answer(data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with JSON.

    Args:
        data: Plain data.
        status: HTTP status.
        headers: More headers.
    """
    body = orjson.dumps(data, default=str)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json", charset="utf-8")


def shape_answer(shape: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with a model's JSON.

    Args:
        shape: What the OpenAPI document says this endpoint answers with.
        status: HTTP status.
        headers: More headers.
    """
    body = shape.model_dump_json().encode()
    return web.Response(body=body, status=status, headers=headers, content_type="application/json", charset="utf-8")
