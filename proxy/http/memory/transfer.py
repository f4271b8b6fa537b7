"""The door of transfer: all that a user has as JSON lines, streamed out; and such lines streamed in.

Neither direction holds more than one batch of records in memory, however large the whole is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

import structlog
from aiohttp import web

from proxy.auth import Principal
from proxy.errors import RequestError, StoreError
from proxy.http.bodies import Exporting, Importing, read_query
from proxy.http.memory.entrance import ALL_AGENTS, Entrance
from proxy.http.memory.idempotency import Claim, Idempotency, Reply, key_of, started_fingerprint
from proxy.http.operation import IDEMPOTENCY_KEY, NDJSON, REPLAYED, Answer, Operation, Route
from proxy.http.shapes import ErrorDetail, FailedImport, ImportAnswer, LineError
from proxy.identity import AGENT
from proxy.plugs import Store
from proxy.scope import Scope
from proxy.transfer.importer import Importer, Tally, Terms
from proxy.transfer.lines import CarriedLine, lines

log = structlog.get_logger(__name__)
MAX_LINE_BYTES = 4 * 2**20
_CHUNK_BYTES = 2**16
_BATCH = 200
Numbered = tuple[int, bytes]


@dataclass(frozen=True)
class TransferDoor:
    """`/memory/export` and `/memory/import`.

    Args:
        entrance: The way in.
        store: Reads.
        importer: Writes.
        idempotency: Keeps answers for repeated requests.
    """

    entrance: Entrance
    store: Store
    importer: Importer
    idempotency: Idempotency

    def routes(self) -> list[Route]:
        """This door's routes."""
        streamed = Answer(200, "One record per line, in the order they were written.", CarriedLine, media=NDJSON)
        counted = Answer(200, "Every line came in, or was there already.", ImportAnswer, (REPLAYED,))
        refused = Answer(422, "Some lines did not come in; the others did.", FailedImport, (REPLAYED,))
        return [
            Route(
                Operation(
                    "GET", "/memory/export", "Everything a user has, in every state, with its history", "transfer",
                    "memory:read", (streamed,), query=Exporting,
                ),
                self.export,
            ),
            Route(
                Operation(
                    "POST", "/memory/import", "Take records in as they were; those that are there already are skipped",
                    "transfer", "memory:write", (counted, refused), query=Importing, body=CarriedLine,
                    body_media=NDJSON, headers=(IDEMPOTENCY_KEY,), errors=(409, 415),
                ),
                self.take_in,
            ),
        ]  # fmt: skip

    async def export(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Stream every record of a user's."""
        query = read_query(request, Exporting)
        scope, one_agent = self._owner(request, principal, query.user_id, query.agent_id)
        found = lines(self.store.carried(scope, all_agents=not one_agent))
        # The first page is read before the answer begins: a store that cannot be read is told by the status.
        batch = await self.entrance.run(lambda: _next(found))
        response = web.StreamResponse(headers={"Content-Type": NDJSON})
        await response.prepare(request)
        try:
            while batch:
                await response.write(batch)
                batch = await self.entrance.run(lambda: _next(found))
        except StoreError as error:
            # The answer has begun; that its end is missing tells the client.
            log.error("export_broken_off", error_type=type(error).__name__)
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the store broke off an export") from error
        await response.write_eof()
        return response

    async def take_in(self, request: web.Request, principal: Principal) -> web.Response:
        """Take records in, line by line."""
        query = read_query(request, Importing)
        scope, one_agent = self._owner(request, principal, query.user_id, query.agent_id)
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise RequestError("send the lines as they are, not compressed", status=415, code="content_encoding")
        may_share = principal.may("shared:write")
        terms = Terms(scope, one_agent, move=query.move, may_share=may_share, dry_run=query.dry_run)
        asked = started_fingerprint(request, scope)
        key = key_of(request)
        with self.idempotency.hold(scope, key):
            claim = await self.entrance.run(lambda: self.idempotency.look_up(scope, key))
            if claim.kept is not None:
                return (await _repeated(request, claim, asked)).response()
            tally = Tally()
            async for batch in _batches(_hashed(request, asked)):
                await self.entrance.run(lambda lines=batch: self.importer.take(lines, terms, tally))  # type: ignore[misc]
            reply = _reply(tally, dry_run=query.dry_run)
            await self.entrance.run(lambda: self.idempotency.keep(scope, claim, asked.hexdigest(), reply))
        return reply.response()

    def _owner(
        self, request: web.Request, principal: Principal, user_id: str | None, agent_id: str | None
    ) -> tuple[Scope, bool]:
        """Whose records are meant, and whether those of one agent only: as soon as anything names an agent."""
        named = request.headers.get(AGENT) or agent_id or principal.agent_id
        scope, every = self.entrance.owners(request, principal, user_id, agent_id)
        return scope, named not in (None, ALL_AGENTS) and not every


def _next(found: Iterator[bytes]) -> bytes:
    return b"".join(islice(found, _BATCH))


async def _hashed(request: web.Request, asked: blake2b) -> AsyncIterator[bytes]:
    async for chunk in request.content.iter_chunked(_CHUNK_BYTES):
        asked.update(chunk)
        yield chunk


async def _repeated(request: web.Request, claim: Claim, asked: blake2b) -> Reply:
    async for _ in _hashed(request, asked):
        pass
    reply = claim.replay(asked.hexdigest())
    assert reply is not None
    return reply


async def _batches(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[Numbered]]:
    """Numbered lines, some at a time."""
    batch: list[Numbered] = []
    async for numbered in _numbered(chunks):
        batch.append(numbered)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def _numbered(chunks: AsyncIterator[bytes]) -> AsyncIterator[Numbered]:
    number, rest = 1, b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield number, line
            number += 1
        if len(rest) > MAX_LINE_BYTES:
            raise RequestError(
                f"line {number} is longer than {MAX_LINE_BYTES // 2**20} MiB: give one record per line",
                status=413,
                code="line_too_long",
                param=f"line {number}",
            )
    if rest:
        yield number, rest


def _reply(tally: Tally, *, dry_run: bool) -> Reply:
    counts = ImportAnswer(
        imported=tally.imported,
        skipped=tally.skipped,
        forgotten=tally.forgotten,
        failed=tally.failed,
        dry_run=dry_run,
        errors=tuple(LineError(line=line, message=message) for line, message in tally.errors),
    )
    if not tally.failed:
        return Reply(200, counts.model_dump_json())
    line, message = tally.errors[0]
    error = ErrorDetail(
        message=f"{tally.failed} line(s) did not come in; line {line}: {message}. The others did: mend these, and send "
        "them again",
        type="invalid_request_error",
        code="invalid_lines",
        param=f"line {line}",
    )
    return Reply(422, FailedImport(error=error, **dict(counts)).model_dump_json())
