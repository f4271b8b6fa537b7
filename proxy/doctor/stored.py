"""What is stored: the database page by page, its words and vectors, and the index files against it.

In: settings and a model's fingerprint. Out: findings. Only reads, so it may be done while a proxy runs.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from pydantic import ValidationError

from proxy.config import Config
from proxy.doctor.finding import Finding
from proxy.errors import StoreUnavailable
from proxy.store import lexical, queries
from proxy.store.data_dir import DATABASE, INDEX
from proxy.store.database_copy import read_back, read_rows
from proxy.store.health import SCHEMA_VERSION
from proxy.store.index_file import FORMAT, Manifest
from proxy.store.usearch_file import USEARCH_VERSION

_SQL = queries.load("memories")
_UNEMBEDDED = queries.load("unembedded")
_SAMPLE = 200
_SAMPLED = (
    "SELECT row, partition, content FROM memories WHERE state = 'active' AND term_count > 0 "
    "ORDER BY row * 2654435761 % 4294967296 LIMIT :limit"
)


def store(config: Config, fingerprint: str | None) -> Iterator[Finding]:
    """Look at the database, and at the index files if it is sound.

    Args:
        config: Settings.
        fingerprint: Of the model whose vectors are searched; None when it cannot be used.
    """
    path = config.data_dir / DATABASE
    if not path.exists():
        yield Finding("store", "ok", f"{path} is made at the first start")
        return
    try:
        rows = read_back(path, lambda _done, _total: None)
        yield Finding("store", "ok", f"{path}: {_told(rows)}; schema {SCHEMA_VERSION}, every page is sound")
        yield _words(path)
        if fingerprint is not None:
            yield _vectors(path, fingerprint)
            yield from _index(config, path, fingerprint)
    except StoreUnavailable as error:
        damaged = "damaged" in str(error)
        advice = "" if "restore" in str(error) else "restore a backup with 'sidemirror restore'"
        if not damaged:
            advice = "see what holds or owns the file; a database of another version is read by that version"
        yield Finding("store", "broken", str(error), advice, "restore" if damaged else None)


def _told(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{rows.get(table, 0)} {table}" for table in ("memories", "sessions", "versions"))


def _words(path: Path) -> Finding:
    """Look some records up by words of their own."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2.0)) as connection:
            sampled = connection.execute(_SAMPLED, {"limit": _SAMPLE}).fetchall()
            lost = sum(not _is_found(connection, *one) for one in sampled)
    except sqlite3.Error as error:
        return Finding(
            "words", "broken", f"the index of words cannot be read: {error}", "run 'sidemirror reindex'", "reindex"
        )
    if lost:
        message = f"{lost} of {len(sampled)} records looked up are not found by their own words"
        return Finding("words", "broken", message, "run 'sidemirror reindex'", "reindex")
    return Finding("words", "ok", f"all of {len(sampled)} records looked up are found by their words")


def _is_found(connection: sqlite3.Connection, row: int, partition: str, content: str) -> bool:
    words = lexical.terms(content)
    if not words:
        return True
    query = "SELECT 1 FROM fts WHERE fts MATCH ? AND rowid = ?"
    return connection.execute(query, (lexical.token(partition, min(words)), row)).fetchone() is not None


def _vectors(path: Path, fingerprint: str) -> Finding:
    ((waiting,),) = read_rows(path, _UNEMBEDDED["count_waiting"], {"fingerprint": fingerprint})
    if waiting:
        message = f"{waiting} records wait to be embedded by {fingerprint}: they are found by their words only"
        advice = "a running proxy does it by itself, and /readyz tells how far it is; or run 'sidemirror reindex'"
        return Finding("vectors", "warning", message, advice)
    return Finding("vectors", "ok", f"all are of the model in use, {fingerprint}")


def _index(config: Config, path: Path, fingerprint: str) -> Iterator[Finding]:
    folder = config.data_dir / INDEX
    keys = {"fingerprint": fingerprint, "above": config.index.exact_below}
    large = [str(partition) for (partition,) in read_rows(path, _SQL["large_partitions"], keys)]
    if not large:
        yield Finding("index", "ok", f"not needed: no scope has more than {config.index.exact_below} vectors")
        return
    wrong = {name: said for name in large if (said := _mistake(folder, name, fingerprint)) is not None}
    if wrong:
        partition, said = next(iter(wrong.items()))
        message = f"{len(wrong)} of {len(large)} large scopes are searched exactly: {partition}: {said}"
        advice = "the running proxy builds it by itself; or run 'sidemirror reindex'"
        yield Finding("index", "warning", message, advice, "reindex")
    else:
        yield Finding("index", "ok", f"{len(large)} large scopes, every file is whole")


def _mistake(folder: Path, partition: str, fingerprint: str) -> str | None:
    """What is wrong with a partition's file; None when nothing is."""
    try:
        manifest = Manifest.model_validate_json((folder / f"{partition}.json").read_bytes())
        with (folder / f"{partition}.usearch").open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "not built yet"
    except (OSError, ValidationError) as error:
        return f"it cannot be read ({type(error).__name__})"
    if (manifest.format, manifest.usearch, manifest.partition) != (FORMAT, USEARCH_VERSION, partition):
        return "it was built by another version"
    if manifest.fingerprint != fingerprint:
        return "it was built for another model"
    return None if found == manifest.sha256 else "it is damaged"
