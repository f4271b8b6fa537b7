"""A scripted embedding API in OpenAI's dialect: vectors from the words of a text, faults as a test wants them."""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.running import eventually

_FEW = 3


class Embeddings:
    """The API, on threads of its own.

    Attributes:
        url: Its base URL.
        asked: The texts of each request, in the order they came.
        bodies: The requests whole.
        dimension: Length of what it answers.
        status: What it answers instead of 200.
        refuses: A word whose texts it answers with 400.
        silent: While cleared, it lets requests wait.
        batches: How many requests of several texts it still answers before it lets those wait; None for all.
    """

    def __init__(self, dimension: int = 32) -> None:
        self.dimension = dimension
        self.status = 200
        self.refuses: str | None = None
        self.asked: list[list[str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.silent = threading.Event()
        self.silent.set()
        self.batches: int | None = None
        self.body: bytes | None = None
        self.url = ""

    def vector(self, text: str) -> list[float]:
        """Texts with words in common have vectors that are near."""
        values = [0.0] * self.dimension
        for word in re.findall(r"\w", text) + re.findall(r"\w+", text.lower()) * 3:
            values[zlib.crc32(word.encode()) % self.dimension] += 2.0
        return values

    def answer(self, body: dict[str, Any]) -> tuple[int, bytes]:
        """Status and body."""
        texts: Sequence[str] = body["input"]
        self.asked.append(list(texts))
        self.bodies.append(body)
        refused = self.refuses is not None and any(self.refuses in text for text in texts)
        if self.status != 200 or refused:
            message = {"error": {"message": "scripted", "type": "x", "code": "x", "param": None}}
            return 400 if refused else self.status, json.dumps(message).encode()
        data = [
            {"object": "embedding", "index": place, "embedding": self.vector(text)} for place, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        # The order of an answer's items is no promise; their index is.
        found = {"object": "list", "model": "scripted", "data": data[::-1], "usage": usage}
        return 200, self.body or json.dumps(found).encode()

    @contextmanager
    def running(self, port: int = 0) -> Iterator[Embeddings]:
        """Listen."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"  # a connection for each call: none is left open

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                api.keys.append(self.headers.get("Authorization", ""))
                status, answer = api.answer(body)
                if api.batches is not None and len(body["input"]) > _FEW:
                    api.batches -= 1
                    eventually(lambda: api.batches is None or api.batches >= 0, within_s=60)
                api.silent.wait(20)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                try:
                    self.wfile.write(answer)
                except OSError:
                    return  # whoever asked has gone

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.silent.set()
            self.batches = None
            server.shutdown()
            server.server_close()
            thread.join()
