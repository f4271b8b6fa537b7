"""Making the words' postings and the index files anew from the records, while no proxy runs, and missing vectors.

In: settings. Out: how many records were indexed and embedded. The store is the truth; all are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from proxy.config import Config
from proxy.embed import opened
from proxy.errors import EmbedderError, SidemirrorError, StoreUnavailable
from proxy.observe import answer_hash
from proxy.plugs import Embedder
from proxy.reembed import embed_some
from proxy.store import queries
from proxy.store.data_dir import DATABASE, INDEX, claimed
from proxy.store.database_copy import read_rows
from proxy.store.sqlite import SqliteStore

_LOOK_S = 0.1
_SQL = queries.load("memories")


@dataclass(frozen=True, slots=True)
class Reindexed:
    """What was done.

    Args:
        records: Active records whose words were indexed.
        embedded: Records that waited for a vector of the present model, and were embedded.
        files: Index files made, one for each large scope.
        trouble: Why not all vectors or files could be made; None when they were.
    """

    records: int
    embedded: int
    files: int
    trouble: str | None


def reindex(config: Config, clock: Callable[[], datetime], told: Callable[[str, int, int], None]) -> Reindexed:
    """Make postings and index files anew, and the vectors that the present model was not asked for.

    Args:
        config: Settings.
        clock: The present time, aware UTC.
        told: Told of progress.

    Raises:
        SidemirrorError: A proxy runs, there is no database, or it is damaged.
    """
    path = config.data_dir / DATABASE
    with claimed(config.data_dir) as idle:
        if not idle:
            raise SidemirrorError(f"a Sidemirror works on {config.data_dir}: stop it, then reindex")
        if not path.is_file():
            raise SidemirrorError(f"there is nothing to index: {path} does not exist")
        with opened(config) as embedder, closing(_store(config, embedder, clock)) as store:
            if (sick := store.health()) is not None:
                raise StoreUnavailable(sick)
            embedded, silent = _embedded(store, embedder, told)
            records = _awaited(store.reindex(), lambda: told("words", 0, 0))
            told("words", 1, 1)
            large = {"fingerprint": embedder.fingerprint, "above": config.index.exact_below}
            total = len(read_rows(path, _SQL["large_partitions"], large))
            while not store.settle(_LOOK_S):
                told("vectors", _files(config), total)
            if silent is None:
                store.drop_foreign_index()
            return Reindexed(records, embedded, _files(config), silent or store.index_health())


def _store(config: Config, embedder: Embedder, clock: Callable[[], datetime]) -> SqliteStore:
    return SqliteStore(
        config.data_dir / DATABASE,
        fingerprint=embedder.fingerprint,
        dimension=embedder.dimension,
        answer_hash=answer_hash,
        exact_below=config.index.exact_below,
        clock=clock,
    )


def _embedded(store: SqliteStore, embedder: Embedder, told: Callable[[str, int, int], None]) -> tuple[int, str | None]:
    """Embed what waits for the present model.

    Returns:
        How many records were embedded, and why not all; None when all were.
    """
    total, done = store.unembedded_count(), 0
    try:
        while some := embed_some(store, embedder):
            done += some
            told("embeddings", done, total)
    except EmbedderError as error:
        return done, f"{total - done} records could not be embedded, and are found by their words only: {error}"
    return done, None


def _awaited(future: Future[int], meanwhile: Callable[[], None]) -> int:
    while not wait_for([future], _LOOK_S).done:
        meanwhile()
    return future.result()


def _files(config: Config) -> int:
    return len(list((config.data_dir / INDEX).glob("[!.]*.json")))
