"""`/openapi.json`: our own endpoints, described by the very models that their handlers read and fill.

In: `Operation`s. Out: an OpenAPI 3.1 document, made once. What is relayed under `/v1/*` is the provider's to describe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

import proxy
from proxy.auth import Principal
from proxy.http.house_shapes import Health, Readiness
from proxy.http.operation import JSON, Answer, Header, Operation, Route
from proxy.http.shapes import ErrorAnswer
from proxy.identity import AGENT, USER

Model = type[BaseModel]
Mode = Literal["validation", "serialization"]
References = Mapping[Any, dict[str, Any]]
"""Per model and mode, the reference to its schema."""
_REF = "#/components/schemas/{model}"
_ABOUT = """Memories that Sidemirror keeps for agents: read, search, correct, carry and forget them.

Calls to models go to `/v1/*` and are relayed: their bodies are the provider's. On them, `X-Memory-User`, \
`X-Memory-Agent`, `X-Memory-Session`, `X-Memory-Mode: on|read|write|off` and `X-Memory-Budget: N` say whose memories \
are used and how; the answer carries `X-Memory-Request-Id`, `X-Memory-Status`, `X-Memory-Injected`, `X-Memory-Tokens` \
and `X-Memory-Session`.

Errors have OpenAI's shape. Times are ISO 8601 in UTC."""
_TAGS = {
    "records": "Memories: read, search, write, change, forget.",
    "review": "Decisions upon memories: approve, refuse, bring back.",
    "transfer": "All of a user's memories as JSON lines, out and in.",
    "sessions": "Working memory.",
    "calls": "What memory did for one call.",
    "policies": "What is remembered, and why.",
    "mcp": "The same for agents that speak the Model Context Protocol.",
    "house": "How the house is doing.",
}
_ERRORS = {
    400: "The request, or a field of it, is wrong.",
    401: "No key, or none of this server's.",
    403: "A foreign host, page, user or agent, or a key without the permission.",
    404: "There is no such thing, or none that this owner may read.",
    409: "It cannot be done to this record as it is, or the Idempotency-Key is in use.",
    410: "The record that the first answer showed was forgotten since.",
    412: "The record changed since it was read.",
    413: "The body is larger than `server.max_body_mb`, or a line of it too long.",
    415: "The body is compressed.",
    422: "The Idempotency-Key was used for another request.",
    429: "A rate of the policies is reached.",
    503: "The store cannot be used now.",
}
_OWNER = (
    Header(USER, "Whose memories; without it the key's user, or `identity.default_user`.", "ada"),
    Header(AGENT, "Which agent's; `default` without it.", "helper"),
)


class JsonRpc(BaseModel):
    """A message of the Model Context Protocol."""

    model_config = ConfigDict(extra="allow")

    jsonrpc: Literal["2.0"]


ELSEWHERE = (
    Operation(
        "POST", "/mcp", "Model Context Protocol, streamable HTTP without sessions", "mcp", None,
        (Answer(200, "The answer, by the protocol.", JsonRpc), Answer(202, "Nothing to answer.", media="text/plain")),
        body=JsonRpc,
    ),
    Operation(
        "GET", "/healthz", "The process is alive", "house", None, (Answer(200, "It is.", Health),), scoped=False,
        public=True,
    ),
    Operation(
        "GET", "/readyz", "Calls can be relayed; what else does not work is named", "house", None,
        (Answer(200, "They can.", Readiness), Answer(503, "It is stopping.", Readiness)), scoped=False, public=True,
    ),
    Operation(
        "GET", "/metrics", "Counters, for Prometheus", "house", None,
        (Answer(200, "Prometheus' text format.", media="text/plain"),), scoped=False, public=True,
    ),
)  # fmt: skip
"""What other doors answer: `McpDoor` and `HealthDoor`."""
_SELF = Operation(
    "GET", "/openapi.json", "This document", "house", None, (Answer(200, "OpenAPI 3.1.", media=JSON),), scoped=False
)


@dataclass(frozen=True)
class OpenApiDoor:
    """`GET /openapi.json`.

    Args:
        operations: Every endpoint of ours but this one.
    """

    operations: Sequence[Operation]

    def routes(self) -> list[Route]:
        """This door's route."""
        body = orjson.dumps(document([*self.operations, _SELF]))

        async def told(request: web.Request, principal: Principal) -> web.StreamResponse:
            return web.Response(body=body, content_type=JSON, charset="utf-8")

        return [Route(_SELF, told)]


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The OpenAPI document of some endpoints.

    Args:
        operations: Each method and path once.
    """
    every = list(operations)
    wanted = sorted(set(_models(every)), key=lambda one: (one[0].__name__, one[1]))
    references, definitions = models_json_schema(wanted, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in every:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, references)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sidemirror", "version": proxy.__version__, "description": _ABOUT},
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "In keys mode one of this server's keys."}
            },
        },
    }


def _models(operations: Iterable[Operation]) -> Iterable[tuple[Model, Mode]]:
    yield ErrorAnswer, "serialization"
    for operation in operations:
        if operation.body is not None:
            yield operation.body, "validation"
        for answer in operation.answers:
            if answer.model is not None:
                yield answer.model, _mode(answer.model)


def _mode(model: Model) -> Mode:
    # A line of an export is a line of an import: one schema for both.
    return "validation" if model.__name__ == "CarriedLine" else "serialization"


def _operation(operation: Operation, references: References) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _name(operation),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": list(_parameters(operation)),
        "responses": _responses(operation, references),
        "security": [{}] if operation.public else [{"key": []}, {}],
    }
    if operation.permission is not None:
        described["description"] = f"In keys mode it takes the permission `{operation.permission}`."
    if operation.body is not None:
        schema = references[operation.body, "validation"]
        described["requestBody"] = {
            "required": operation.body_required,
            "content": {operation.body_media: {"schema": schema}},
        }
    return described


def _name(operation: Operation) -> str:
    """A name for generated clients.

    >>> _name(Operation("POST", "/memory/records/{id}/restore", "", "", None, ()))
    'post_memory_records_id_restore'
    """
    words = operation.path.replace("{", "").replace("}", "").replace(".", "/").split("/")
    return "_".join([operation.method.lower(), *(word for word in words if word)])


def _parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    if "{id}" in operation.path:
        yield {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    if operation.query is not None:
        schema = operation.query.model_json_schema()
        for name, field in schema["properties"].items():
            shown = {key: value for key, value in field.items() if key not in ("title", "description")}
            about = {"description": field["description"]} if "description" in field else {}
            yield {"name": name, "in": "query", "required": False, "schema": shown, **about}
    elif operation.scoped and (operation.body is None or "user_id" not in operation.body.model_fields):
        for name in ("user_id", "agent_id"):
            yield {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
    for header in (*(_OWNER if operation.scoped else ()), *operation.headers):
        yield {"name": header.name, "in": "header", "required": False, **_header(header)}


def _header(header: Header) -> dict[str, Any]:
    example = {} if header.example is None else {"example": header.example}
    return {"description": header.description, "schema": {"type": "string"}, **example}


def _responses(operation: Operation, references: References) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for answer in operation.answers:
        status = str(answer.status)
        schema = _schema(answer, references)
        if status in found:  # the same status with another body
            held = found[status]["content"][answer.media]["schema"]
            found[status]["content"][answer.media]["schema"] = {"anyOf": [held, schema]}
            continue
        found[status] = {"description": answer.description, "content": {answer.media: {"schema": schema}}}
        if answer.headers:
            found[status]["headers"] = {header.name: _header(header) for header in answer.headers}
    error = references[ErrorAnswer, "serialization"]
    for number in sorted(_statuses(operation)):
        found.setdefault(
            str(number),
            {"description": _ERRORS[number], "content": {JSON: {"schema": error}}},
        )
    return found


def _statuses(operation: Operation) -> set[int]:
    if operation.public:
        return set()
    found = {401, 403, *operation.errors}
    if operation.query is not None or operation.body is not None or operation.scoped:
        found.add(400)
    if "{id}" in operation.path:
        found.add(404)
    if operation.body is not None:
        found.add(413)
    return found | {503} if operation.tag != "policies" and operation.path != _SELF.path else found


def _schema(answer: Answer, references: References) -> dict[str, Any]:
    if answer.model is None:
        return {"type": "object"} if answer.media == JSON else {"type": "string"}
    schema: dict[str, Any] = references[answer.model, _mode(answer.model)]
    return schema
