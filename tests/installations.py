"""An installation on disk, made without starting the product, and its commands run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from proxy.cli import main
from proxy.config import Config, load
from proxy.embed import open_embedder
from proxy.observe import answer_hash
from proxy.scope import Scope
from proxy.store.database_copy import read_rows
from proxy.store.embedded_redis import EmbeddedRedis
from proxy.store.sqlite import SqliteStore
from proxy.store.working import RedisWorkingMemory
from proxy.types import Slot
from tests.running import ROOT
from tests.store_samples import memory, put

ADA = Scope("default", "ada", session_id="s1")


def now() -> datetime:
    """The real time."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Installation:
    """A folder with config.yaml and data."""

    folder: Path

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def config_file(self) -> Path:
        """The settings file."""
        return self.folder / "config.yaml"

    def config(self) -> Config:
        """The settings as read."""
        return load(self.config_file, {})

    def command(self, *args: str) -> Done:
        """Run a command in this folder, to its end; in this process, which saves the second that an import takes."""
        out, err = StringIO(), StringIO()
        with (
            mock.patch.object(sys, "argv", ["sidemirror", *args]),
            mock.patch("proxy.log.configure"),  # the tests' own stays
            chdir(self.folder),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main()
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
        return Done(status, out.getvalue(), err.getvalue())

    def process(self, *args: str) -> Done:
        """Run a command as a user does, in a process of its own."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith("SIDEMIRROR__")}
        done = subprocess.run(
            [sys.executable, "-m", "proxy", *args],
            cwd=self.folder,
            env={**environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def store(self) -> SqliteStore:
        """Its store, opened; to be closed."""
        embedder = open_embedder(Config())
        return SqliteStore(
            self.data / "sidemirror.db",
            fingerprint=embedder.fingerprint,
            dimension=embedder.dimension,
            answer_hash=answer_hash,
            clock=now,
        )

    def remember(self, *contents: str, owner: Scope = ADA) -> None:
        """Write records."""
        vectors = open_embedder(Config()).documents(contents)
        with closing(self.store()) as store:
            put(store, *(memory(content, owner, now()) for content in contents), vectors=vectors)

    def remembered(self, owner: Scope = ADA) -> list[str]:
        """What the owner's records say, oldest first."""
        query = "SELECT content FROM memories WHERE user_id = :user ORDER BY row"
        return [content for (content,) in read_rows(self.data / "sidemirror.db", query, {"user": owner.user_id})]


def installed(folder: Path, **settings: Any) -> Installation:
    """Make an installation with three records and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    # Nothing listens on port 9 ("discard"): a provider that cannot be reached.
    upstream = {"base_url": "http://127.0.0.1:9/v1", "anthropic_base_url": "http://127.0.0.1:9"}
    text = {"data_dir": "data", "server": {"port": 0}, "upstream": upstream, **settings}
    made = Installation(folder)
    made.config_file.write_text(json.dumps(text), encoding="utf-8")
    made.data.mkdir(mode=0o700)
    (made.data / "secret").write_bytes(os.urandom(32))
    (made.data / "secret").chmod(0o600)
    made.remember("Ada works in Berlin", "Ada has a cat called Tux", "阿达喜欢喝茶")
    return made


def put_slots(url: str, slots: Sequence[tuple[str, str]], *, ttl_s: float = 3600.0, scope: Scope = ADA) -> None:
    """Write working memory: the slots, and a step of the task chain."""
    with closing(RedisWorkingMemory(url, timeout_s=5.0)) as working:
        working.append_step(scope, {"tool": "search", "message_hash": "m1"})
        # Last, since the newest write's time to live holds for both.
        working.put(scope, [Slot(name, value, now(), "task-slots", "m1") for name, value in slots], ttl_s=ttl_s)


def slots_of(url: str, scope: Scope = ADA) -> dict[str, Any]:
    """The values of a session's slots."""
    with closing(RedisWorkingMemory(url, timeout_s=5.0)) as working:
        return {name: slot.value for name, slot in working.slots(scope).items()}


def embedded(data: Path) -> EmbeddedRedis:
    """The data directory's Redis, started; to be stopped."""
    server = EmbeddedRedis(data)
    server.start()
    return server
