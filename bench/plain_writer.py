"""What one would write in an afternoon to keep memories: embed, one SQLite row with words, one commit per request.

`python -m bench.plain_writer FILE`; POST /memory/records takes `content`. It looks for no duplicates and no conflicts,
guards nothing and keeps no history: the baseline of `bench.ingest`.
"""

from __future__ import annotations

import sqlite3
import sys

import orjson
from aiohttp import web
from uuid_utils import uuid7

from bench.filling import open_embedder
from bench.serving import serve
from proxy.plugs import Embedder
from proxy.store.lexical import terms


class PlainWriter:
    """Writes each memory with a commit that is on disk before the answer, as ours are.

    Args:
        path: The database.
        embedder: For the vectors.
    """

    def __init__(self, path: str, embedder: Embedder) -> None:
        self._embedder = embedder
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE records (row INTEGER PRIMARY KEY, id TEXT, user_id TEXT, content TEXT, vector BLOB);"
            "CREATE VIRTUAL TABLE words USING fts5(terms, content='')"
        )

    async def handle(self, request: web.Request) -> web.Response:
        """Write one memory."""
        content = orjson.loads(await request.read())["content"]
        vector = self._embedder.documents([content])[0]
        record = (str(uuid7()), request.headers["X-Memory-User"], content)
        self._database.execute("BEGIN")
        row = self._database.execute(
            "INSERT INTO records (id, user_id, content, vector) VALUES (?, ?, ?, ?)",
            (*record, None if vector is None else vector.tobytes()),
        ).lastrowid
        words = " ".join(f"t{term.encode().hex()}" for term in terms(content))
        self._database.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (row, words))
        self._database.execute("COMMIT")
        answer = {"id": record[0], "content": content, "outcome": "created"}
        return web.Response(status=201, body=orjson.dumps(answer), content_type="application/json")


if __name__ == "__main__":
    app = web.Application()
    app.router.add_post("/memory/records", PlainWriter(sys.argv[1], open_embedder()).handle)
    serve(app)
