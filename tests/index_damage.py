"""What may happen to the index folder, each in a process of its own, since a damaged file may crash whoever reads it.

Run as ``python -m tests.index_damage FOLDER``: makes a store with an index, does one thing after the other to a copy of
it, and prints a JSON line for each: its name, how its process ended, and what it saw.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from proxy.observe import answer_hash
from proxy.store.sqlite import SqliteStore
from tests.store_samples import ALICE, BOB, DIMENSION, Clock, memory, put, unit

COUNT = 150
PARTITION, BOBS = ALICE.partition("agent"), BOB.partition("agent")
Damage = Callable[[Path], None]


def open_store(folder: Path) -> SqliteStore:
    return SqliteStore(
        folder / "store.db",
        fingerprint="model",
        dimension=DIMENSION,
        answer_hash=answer_hash,
        exact_below=50,
        clock=Clock(),
    )


def expected(seed: int, count: int = COUNT) -> list[str]:
    """The five records nearest to a vector, by plain computation."""
    scores = np.stack([unit(i) for i in range(count)]).astype("<f2").astype(np.float32) @ unit(seed)
    return [f"number {i}" for i in np.argsort(-scores)[:5]]


def wrong(store: SqliteStore) -> list[int]:
    """Queries whose hits are not the nearest records."""
    seeds = []
    for seed in range(0, COUNT, 17):
        found = store.search(ALICE, unit(seed), [], limit=5).candidates
        records = store.load(ALICE, [one.row for one in found])
        if [records[one.row].content for one in found] != expected(seed):
            seeds.append(seed)
    return seeds


def source(store: SqliteStore) -> str:
    return store.search(ALICE, unit(1), [], limit=5).source


def fill(folder: Path) -> None:
    store = open_store(folder)
    for owner in (ALICE, BOB):
        put(store, *(memory(f"number {i}", owner) for i in range(COUNT)), vectors=[unit(i) for i in range(COUNT)])
        store.search(owner, unit(1), [], limit=1)
    assert store.settle(30)
    assert source(store) == "index"
    store.close()


# ── what may lie there when the store opens ────────────────────────────────────────────────────────────────────────
def file(folder: Path, ending: str = "usearch", partition: str = PARTITION) -> Path:
    return folder / "index" / f"{partition}.{ending}"


def rewrite(change: Callable[[bytearray], bytes | bytearray], ending: str = "usearch") -> Damage:
    def damage(folder: Path) -> None:
        path = file(folder, ending)
        path.write_bytes(change(bytearray(path.read_bytes())))

    return damage


def flipped(at: float) -> Damage:
    def change(content: bytearray) -> bytearray:
        content[int(at * (len(content) - 1))] ^= 0x40
        return content

    return rewrite(change)


def manifest(**changes: object) -> Damage:
    return rewrite(lambda content: json.dumps({**json.loads(content), **changes}).encode(), "json")


def replaced(make: Callable[[Path], object], ending: str = "usearch") -> Damage:
    def damage(folder: Path) -> None:
        file(folder, ending).unlink()
        make(file(folder, ending))

    return damage


def with_content(path: Path) -> None:
    path.mkdir()
    (path / "somebody's").write_text("own")


def anothers(folder: Path) -> None:
    for ending in ("usearch", "json"):
        shutil.copy(file(folder, ending, BOBS), file(folder, ending))


def anothers_with_our_name(folder: Path) -> None:
    shutil.copy(file(folder, partition=BOBS), file(folder))
    other = json.loads(file(folder, "json", BOBS).read_text())
    file(folder, "json").write_text(json.dumps({**other, "partition": PARTITION}))


def folder_is_a_file(folder: Path) -> None:
    shutil.rmtree(folder / "index")
    (folder / "index").write_text("no folder")


LYING: Mapping[str, Damage] = {
    "cut in half": rewrite(lambda content: content[: len(content) // 2]),
    "empty": rewrite(lambda content: b""),
    "zeroed": rewrite(lambda content: bytes(len(content))),
    "random bytes": rewrite(lambda content: os.urandom(len(content))),
    "random second half": rewrite(lambda content: content[: len(content) // 2] + os.urandom(-(-len(content) // 2))),
    **{f"one bit flipped at {at}": flipped(at) for at in (0.0, 0.1, 0.5, 0.9, 1.0)},
    "one byte more": rewrite(lambda content: content + b"\0"),
    "another file": rewrite(lambda content: b"PNG or so" * 5_000),
    "missing": lambda folder: file(folder).unlink(),
    "a folder": replaced(with_content),
    "a pipe": replaced(os.mkfifo),
    "a link": replaced(lambda path: path.symlink_to("/dev/zero")),
    "manifest missing": lambda folder: file(folder, "json").unlink(),
    "manifest empty": rewrite(lambda content: b"", "json"),
    "manifest random": rewrite(lambda content: os.urandom(300), "json"),
    "manifest of another shape": rewrite(lambda content: b"[1, 2]", "json"),
    "manifest endless": rewrite(lambda content: content + b" " * 10_000_000, "json"),
    "manifest a folder": replaced(with_content, "json"),
    "manifest a pipe": replaced(os.mkfifo, "json"),
    "another version of usearch": manifest(usearch="1.0.0"),
    "another format": manifest(format=99),
    "another model": manifest(fingerprint="other"),
    "another dimension": manifest(dimension=2 * DIMENSION),
    "fewer vectors": manifest(vectors=COUNT - 1),
    "fewer rows": manifest(rows=COUNT - 1),
    "a file of no length": manifest(usearch_bytes=0),
    "a file of another length": manifest(usearch_bytes=2**40),
    "no checksum": manifest(sha256=""),
    "another partition's": anothers,
    "another partition's under our name": anothers_with_our_name,
    "no folder": lambda folder: shutil.rmtree(folder / "index"),
    "a file for a folder": folder_is_a_file,
}
UNHEALED = {"a file for a folder"}


def lying(folder: Path, name: str) -> dict[str, object]:
    """Damage, then open: right at once, and by an index again after the upkeep."""
    LYING[name](folder)
    store = open_store(folder)
    seen: dict[str, object] = {"wrong": wrong(store), "settled": store.settle(30)}
    seen |= {"wrong later": wrong(store), "source": source(store), "trouble": store.index_health()}
    store.close()
    return seen


# ── what may happen while it is in use ─────────────────────────────────────────────────────────────────────────────
def overwrite(content: bytes) -> Damage:
    def damage(folder: Path) -> None:
        with file(folder).open("r+b") as opened:
            opened.write(content * (file(folder).stat().st_size // len(content)))

    return damage


IN_USE: Mapping[str, Damage] = {
    "truncated in use": lambda folder: os.truncate(file(folder), 0),
    "cut in use": lambda folder: os.truncate(file(folder), 8_192),
    "zeroed in use": overwrite(bytes(16)),
    "random bytes in use": overwrite(os.urandom(4_096)),
    "removed in use": lambda folder: file(folder).unlink(),
    "folder removed in use": lambda folder: shutil.rmtree(folder / "index"),
}


def in_use(folder: Path, name: str) -> dict[str, object]:
    store = open_store(folder)
    assert source(store) == "index"
    IN_USE[name](folder)
    seen: dict[str, object] = {"wrong": wrong(store), "source": source(store)}
    store.close()
    return seen


# ── what may keep it from being written ────────────────────────────────────────────────────────────────────────────
def unwritten(folder: Path, prevent: Callable[[], None], permit: Callable[[], None]) -> dict[str, object]:
    shutil.rmtree(folder / "index")
    (folder / "index").mkdir()
    store = open_store(folder)
    prevent()
    seen: dict[str, object] = {"wrong": wrong(store), "settled": store.settle(30), "while": source(store)}
    seen |= {"trouble": store.index_health(), "left": [one.name for one in (folder / "index").iterdir()]}
    permit()
    store._index._upkeep.forgive()
    seen |= {"wrong later": wrong(store), "settled later": store.settle(30), "source": source(store)}
    seen |= {"trouble later": store.index_health()}
    store.close()
    return seen


def disk_full(folder: Path) -> dict[str, object]:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    return unwritten(
        folder,
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard)),
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)),
    )


def read_only(folder: Path) -> dict[str, object]:
    give_up_root(folder)
    (folder / "index").chmod(0o700)
    return unwritten(folder, lambda: (folder / "index").chmod(0o500), lambda: (folder / "index").chmod(0o700))


def read_only_but_whole(folder: Path) -> dict[str, object]:
    give_up_root(folder)
    (folder / "index").chmod(0o500)
    store = open_store(folder)
    seen: dict[str, object] = {"wrong": wrong(store), "source": source(store)}
    store.close()
    return seen


def give_up_root(folder: Path) -> None:
    """Nobody may write what is read-only, but root may."""
    if os.geteuid() == 0:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, 65_534, 65_534)
        os.setuid(65_534)


def no_copy_fits(folder: Path) -> dict[str, object]:
    """A whole index on a full disk is read into memory instead."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = open_store(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    seen: dict[str, object] = {"wrong": wrong(store), "source": source(store)}
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    store.close()
    return seen


OTHERS: Mapping[str, Callable[[Path], dict[str, object]]] = {
    "disk full": disk_full,
    "read-only": read_only,
    "read-only but whole": read_only_but_whole,
    "no copy fits": no_copy_fits,
}


def apart(name: str, folder: Path, work: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Do it in a child process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(work()).encode())
        except BaseException:  # noqa: BLE001 - told to the parent, whatever it is
            os.write(writing, json.dumps({"raised": traceback.format_exc()}).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        said = told.read()
    _, status = os.waitpid(child, 0)
    return {"name": name, "status": status, **(json.loads(said) if said else {})}


def main(folder: Path) -> None:
    source_folder = folder / "source"
    os.chmod(folder, 0o755)
    # In a child: a process that has started threads is not to fork.
    filled = apart("fill", source_folder, lambda: fill(source_folder) or {})  # type: ignore[func-returns-value]
    assert filled == {"name": "fill", "status": 0}, filled
    works: dict[str, Callable[[Path], dict[str, object]]] = dict(OTHERS)
    works |= {name: lambda at, name=name: lying(at, name) for name in LYING}  # type: ignore[misc]
    works |= {name: lambda at, name=name: in_use(at, name) for name in IN_USE}  # type: ignore[misc]
    for number, (name, work) in enumerate(works.items()):
        copy = folder / str(number)
        shutil.copytree(source_folder, copy)
        print(json.dumps(apart(name, copy, lambda copy=copy, work=work: work(copy))), flush=True)  # type: ignore[misc]
        shutil.rmtree(copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
