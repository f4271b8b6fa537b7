"""Backups: consistent while calls go on, all or nothing, proved whole, and back in place with everything in them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import redis

from proxy.backup import archive, create, restore
from proxy.backup.archive import Backup
from proxy.errors import SidemirrorError
from proxy.store.data_dir import claimed
from proxy.store.database_copy import read_rows
from proxy.store.health import SCHEMA_VERSION
from proxy.types import Vector
from tests.calls import Memories, tell
from tests.installations import ADA, Installation, embedded, installed, now, put_slots, slots_of
from tests.running import ROOT, Running, eventually, running
from tests.scripted import Lane, ScriptedUpstream
from tests.store_samples import START, Clock, memory, put
from tests.test_working import tcp_server


def quiet(_what: str, _done: int, _total: int) -> None:
    """Nobody looks at the progress."""


def origin(of: Installation) -> create.Origin:
    config = of.config()
    return create.Origin(of.data, config.redis.url, of.config_file, config.policies)


def backed_up(
    of: Installation, folder: Path, *, keep: int | None = None, clock: Callable[[], datetime] = now
) -> Backup:
    return create.create(origin(of), folder, keep=keep, clock=clock, told=quiet)


def put_back(backup: Backup, to: Installation) -> restore.Restored:
    return restore.restore(backup, to.data, to.config().redis.url, now=now(), told=quiet)


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    """An installation that has never run."""
    return installed(tmp_path / "here")


@pytest.fixture(scope="module")
def busy(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The product at work, on a data folder of its own."""
    config = {"upstream": {"base_url": provider.url}, "recall": {"deadline_ms": 5_000}}
    with running(tmp_path_factory.mktemp("busy"), config=config) as started:
        yield started


class TestAtRest:
    def test_a_round_trip_brings_back_records_secret_slots_chains_and_what_is_left_of_their_time(
        self, here: Installation, tmp_path: Path
    ) -> None:
        server = embedded(here.data)
        put_slots(server.url, [("destination", "北京"), ("count", "2")], ttl_s=900)
        server.stop()
        secret = (here.data / "secret").read_bytes()
        backup = backed_up(here, tmp_path / "b")
        assert backup.manifest.working_keys == 3

        elsewhere = Installation(tmp_path / "new")
        elsewhere.folder.mkdir()
        elsewhere.config_file.write_bytes(here.config_file.read_bytes())
        done = put_back(backup, elsewhere)
        assert (done.aside, done.working_keys) == (None, 3)
        assert elsewhere.remembered() == ["Ada works in Berlin", "Ada has a cat called Tux", "阿达喜欢喝茶"]
        assert (elsewhere.data / "secret").read_bytes() == secret
        server = embedded(elsewhere.data)
        try:
            with closing(redis.Redis.from_url(server.url)) as client:
                assert 800_000 < client.pttl("session:{default/ada/s1/default}") <= 900_000
                assert client.llen("chain:{default/ada/s1/default}") == 1
                assert client.zcard("idle") == 1
            assert slots_of(server.url) == {"destination": "北京", "count": "2"}
        finally:
            server.stop()

    def test_what_has_expired_since_stays_away(self, here: Installation, tmp_path: Path) -> None:
        server = embedded(here.data)
        put_slots(server.url, [("destination", "Rome")], ttl_s=0.5)
        server.stop()
        backup = backed_up(here, tmp_path / "b")
        lines = (backup.path / archive.WORKING).read_bytes().splitlines()
        until = max(json.loads(line)["expires_at_ms"] or 0 for line in lines)
        eventually(lambda: now().timestamp() * 1000 > until)
        assert put_back(backup, here).working_keys == 1  # the idle set, which has no end
        server = embedded(here.data)
        try:
            assert slots_of(server.url) == {}
        finally:
            server.stop()

    def test_a_redis_by_url_is_copied_and_refilled_and_other_peoples_keys_are_let_be(self, tmp_path: Path) -> None:
        with tcp_server(tmp_path) as (url, _):
            here = installed(tmp_path / "here", redis={"url": url})
            put_slots(url, [("destination", "Rome")])
            with closing(redis.Redis.from_url(url)) as client:
                client.set("session:{not/ours}", "x")
                client.set("theirs", "y")
                backup = backed_up(here, tmp_path / "b")
                assert backup.manifest.working_keys == 3
                put_slots(url, [("destination", "Oslo")], scope=ADA.in_session("s2"))
                done = put_back(backup, here)
                assert slots_of(url) == {"destination": "Rome"}
                assert slots_of(url, ADA.in_session("s2")) == {}
                assert client.mget("session:{not/ours}", "theirs") == [b"x", b"y"]
            assert done.aside is not None
            aside = (done.aside / "working.before-restore.jsonl").read_text()
            assert len(aside.splitlines()) == 5

    def test_a_backup_of_an_embedded_server_fills_a_redis_by_url(self, here: Installation, tmp_path: Path) -> None:
        server = embedded(here.data)
        put_slots(server.url, [("destination", "Rome")])
        server.stop()
        backup = backed_up(here, tmp_path / "b")
        with tcp_server(tmp_path) as (url, _):
            put_back(backup, installed(tmp_path / "other", redis={"url": url}))
            assert slots_of(url) == {"destination": "Rome"}

    def test_a_redis_that_is_gone_does_not_keep_memories_from_being_backed_up(self, tmp_path: Path) -> None:
        here = installed(tmp_path / "here", redis={"url": f"unix://{tmp_path}/nobody.sock"})
        done = here.command("backup", str(tmp_path / "b"))
        assert done.status == 0
        assert "without working memory" in done.err
        (backup,) = archive.complete(tmp_path / "b")
        assert backup.manifest.working_keys is None
        with pytest.raises(SidemirrorError, match="Redis at"):
            put_back(backup, here)
        assert sorted(path.name for path in here.folder.iterdir()) == ["config.yaml", "data"]
        here.config_file.write_text('{"data_dir": "data"}')
        assert put_back(backup, here).working_keys is None
        assert len(here.remembered()) == 3

    def test_nobody_else_may_read_it(self, here: Installation, tmp_path: Path) -> None:
        backup = backed_up(here, tmp_path / "b")
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "b").rglob("*")}
        assert modes == {0o600, 0o700}
        assert set(backup.manifest.files) == {"sidemirror.db", "secret", "working.jsonl", "settings/config.yaml"}

    def test_the_former_data_is_moved_aside_with_all_that_was_in_it(self, here: Installation, tmp_path: Path) -> None:
        backup = backed_up(here, tmp_path / "b")
        here.remember("Ada moved to Oslo")
        done = put_back(backup, here)
        assert "Ada moved to Oslo" not in here.remembered()
        assert done.aside is not None
        assert done.aside.name.startswith("data.before-restore-")
        kept = Installation(tmp_path / "kept")
        kept.folder.mkdir()
        done.aside.rename(kept.data)
        assert "Ada moved to Oslo" in kept.remembered()

    def test_data_that_cannot_be_renamed_is_moved_aside_inside_its_folder(
        self, here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backup = backed_up(here, tmp_path / "b")
        here.remember("Ada moved to Oslo")
        monkeypatch.setattr("proxy.backup.restore.os.path.ismount", lambda path: path == here.data)
        url, clock = here.config().redis.url, Clock(START)
        for _ in range(2):
            done = restore.restore(backup, here.data, url, now=clock.forward(days=1), told=quiet)
            assert len(here.remembered()) == 3
            assert done.aside is not None
            assert done.aside.parent == here.data
        kept = sorted(path for path in here.data.iterdir() if path.name.startswith("before-restore"))
        assert [(path / "sidemirror.db").is_file() for path in kept] == [True, True]
        assert not [path for path in here.data.iterdir() if path.name.startswith("restoring")]

    def test_forgotten_text_does_not_come_back_silently(self, here: Installation, tmp_path: Path) -> None:
        backup = backed_up(here, tmp_path / "b")
        (row,) = read_rows(here.data / "sidemirror.db", "SELECT id FROM memories WHERE content LIKE '%Tux%'", {})
        with closing(here.store()) as store:
            assert store.transact(lambda tx: tx.forget(ADA, [row[0]])).result() == 1
        done = here.command("restore", str(backup.path))
        assert done.status == 0, done.err
        assert "what was forgotten since is back" in done.out
        assert "to be forgotten again: 1 " in done.out

    def test_on_a_fresh_machine_settings_and_policies_come_back_too(self, here: Installation, tmp_path: Path) -> None:
        policies = here.folder / "policies" / "local"
        policies.mkdir(parents=True)
        (policies / "mine.yaml").write_text("version: 1\ntriggers: []\n")
        made = here.command("backup", "b")
        assert made.status == 0, made.err
        (backup,) = archive.complete(here.folder / "b")
        fresh = Installation(tmp_path / "fresh")
        fresh.folder.mkdir()
        done = fresh.command("restore", str(backup.path))
        assert done.status == 0, done.err
        assert fresh.config_file.read_bytes() == here.config_file.read_bytes()
        assert (fresh.folder / "policies" / "local" / "mine.yaml").is_file()
        assert len(fresh.remembered()) == 3


class TestWholeOrNotAtAll:
    @pytest.fixture
    def backup(self, here: Installation, tmp_path: Path) -> Backup:
        return backed_up(here, tmp_path / "b")

    def refused(self, here: Installation, path: Path) -> str:
        before = here.remembered()
        done = here.command("restore", str(path))
        assert done.status == 2
        assert here.remembered() == before
        assert sorted(entry.name for entry in here.folder.iterdir()) == ["config.yaml", "data"]
        return done.err

    def test_a_changed_byte_is_found_before_anything_is_touched(self, here: Installation, backup: Backup) -> None:
        path = backup.path / "sidemirror.db"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        assert "sidemirror.db is not what was backed up" in self.refused(here, backup.path)

    @pytest.mark.parametrize("name", ["secret", "sidemirror.db", "working.jsonl"])
    def test_a_missing_or_shortened_file_makes_it_no_backup(
        self, here: Installation, backup: Backup, name: str
    ) -> None:
        os.truncate(backup.path / name, (backup.path / name).stat().st_size // 2 + 1)
        if name == "working.jsonl":
            (backup.path / name).unlink()
        assert archive.complete(backup.path.parent) == []
        with pytest.raises(SidemirrorError, match=f"{name} is missing"):
            archive.open_backup(backup.path)

    @pytest.mark.parametrize(
        ("manifest", "said"),
        [("{", "its manifest is damaged"), ('{"format": 1}', "its manifest is damaged"), (None, "is no backup")],
    )
    def test_a_damaged_manifest_is_refused(
        self, here: Installation, backup: Backup, manifest: str | None, said: str
    ) -> None:
        path = backup.path / archive.MANIFEST
        path.write_text(manifest) if manifest is not None else path.unlink()
        with pytest.raises(SidemirrorError, match=said):
            archive.open_backup(backup.path)

    def test_a_manifest_that_names_a_file_outside_is_refused(self, here: Installation, backup: Backup) -> None:
        path = backup.path / archive.MANIFEST
        path.write_text(path.read_text().replace('"secret"', '"../secret"'))
        with pytest.raises(SidemirrorError, match="outside"):
            archive.open_backup(backup.path)

    def test_a_backup_of_another_schema_names_the_version_that_reads_it(
        self, here: Installation, backup: Backup
    ) -> None:
        path = backup.path / archive.MANIFEST
        path.write_text(path.read_text().replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 99'))
        with pytest.raises(SidemirrorError, match=r"holds schema 99, .* use version "):
            archive.verify(archive.open_backup(backup.path), quiet)

    def test_the_folder_of_backups_named_in_place_of_one_is_answered_with_the_newest(
        self, here: Installation, backup: Backup
    ) -> None:
        assert f"the newest is {backup.path}" in self.refused(here, backup.path.parent)

    def test_a_damaged_database_gives_no_backup_and_takes_none_away(
        self, here: Installation, backup: Backup, tmp_path: Path
    ) -> None:
        path = here.data / "sidemirror.db"
        content = bytearray(path.read_bytes())
        content[8192:40960] = os.urandom(32768)
        path.write_bytes(content)
        done = here.command("backup", str(tmp_path / "b"), "--keep", "1")
        assert done.status == 2
        assert "sidemirror.db" in done.err
        assert [found.path for found in archive.complete(tmp_path / "b")] == [backup.path]
        assert [path.name for path in (tmp_path / "b").iterdir()] == [backup.path.name]

    def test_killed_at_any_step_it_leaves_nothing_that_counts_and_the_next_one_cleans_up(
        self, here: Installation, tmp_path: Path
    ) -> None:
        folder = tmp_path / "b"
        for step in ("copying the database", "reading back"):
            _kill_at(step, here, folder)
            assert archive.complete(folder) == []
            assert len(list(folder.glob(f"{archive.UNFINISHED}*"))) == 1
        backup = backed_up(here, folder)
        assert [path.name for path in folder.iterdir()] == [backup.path.name]
        archive.verify(backup, quiet)

    def test_two_at_a_time_are_refused(self, here: Installation, tmp_path: Path) -> None:
        def meanwhile(_what: str, _done: int, _total: int) -> None:
            with pytest.raises(SidemirrorError, match="under way"):
                backed_up(here, tmp_path / "c")

        create.create(origin(here), tmp_path / "b", keep=None, clock=now, told=meanwhile)
        assert len(archive.complete(tmp_path / "b")) == 1

    def test_a_disk_without_room_is_told_before_anything_is_copied(
        self, here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("proxy.backup.create.shutil.disk_usage", lambda _: _Full)
        with pytest.raises(SidemirrorError, match="free some space"):
            backed_up(here, tmp_path / "b")
        assert list((tmp_path / "b").iterdir()) == []


class TestKeep:
    def test_the_oldest_go_and_only_ours(self, here: Installation, tmp_path: Path) -> None:
        folder, clock = tmp_path / "b", Clock(START)
        other = backed_up(installed(tmp_path / "other"), folder, clock=clock)
        (folder / "sidemirror-holiday-pictures").mkdir()
        (folder / "notes.txt").write_text("mine")
        made = []
        for _ in range(4):
            clock.forward(days=1)
            made.append(backed_up(here, folder, keep=2, clock=clock).path.name)
        kept = {path.name for path in folder.iterdir()}
        assert kept == {*made[2:], other.path.name, "sidemirror-holiday-pictures", "notes.txt"}

    def test_a_damaged_one_does_not_count_and_is_let_be(self, here: Installation, tmp_path: Path) -> None:
        folder, clock = tmp_path / "b", Clock(START)
        first = backed_up(here, folder, clock=clock)
        clock.forward(days=1)
        damaged = backed_up(here, folder, clock=clock)
        (damaged.path / "secret").unlink()
        clock.forward(days=1)
        third = backed_up(here, folder, keep=2, clock=clock)
        assert {path.name for path in folder.iterdir()} == {backup.path.name for backup in (first, damaged, third)}

    def test_two_in_one_second_are_two(self, here: Installation, tmp_path: Path) -> None:
        clock = Clock(START)
        names = [backed_up(here, tmp_path / "b", clock=clock).path.name for _ in range(2)]
        assert names == ["sidemirror-20261102T083000Z", "sidemirror-20261102T083000Z-2"]


class TestWhileItRuns:
    def test_writes_go_on_and_every_record_acknowledged_before_the_start_is_in_it(
        self, busy: Running, lane: Lane, user: str, tmp_path: Path
    ) -> None:
        here = Installation(busy.data.parent)
        tell(busy, lane, "I want to fly to Rome on May 3 with 2 people.", user=user, session="trip")
        acknowledged: list[str] = []
        stop = threading.Event()

        def write() -> None:
            with busy.http(user) as http:
                while not stop.is_set():
                    text = f"Fact number {len(acknowledged)} of many"
                    Memories(http).create(text, on_conflict="keep_both")
                    acknowledged.append(text)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            eventually(lambda: len(acknowledged) > 20)
            before = list(acknowledged)
            done = here.process("backup", str(tmp_path / "b"))
            at_the_end = len(acknowledged)
            eventually(lambda: len(acknowledged) > at_the_end)
        finally:
            stop.set()
            writer.join(20)
        assert done.status == 0, done.err
        assert at_the_end > len(before)
        (backup,) = archive.complete(tmp_path / "b")
        archive.verify(backup, quiet)
        query = "SELECT content FROM memories WHERE user_id = :user AND content LIKE 'Fact number%' ORDER BY row"
        copied = [text for (text,) in read_rows(backup.path / "sidemirror.db", query, {"user": user})]
        assert set(before) <= set(copied)
        assert copied == [f"Fact number {number} of many" for number in range(len(copied))]

        restored = Installation(tmp_path / "restored")
        restored.folder.mkdir()
        restored.config_file.write_text('{"data_dir": "data"}')
        assert restored.command("restore", str(backup.path)).status == 0
        with running(tmp_path / "restored") as again, again.http(user) as http:
            assert len(again.records(user, text="Fact number")) == len(copied)
            assert Memories(http).get("sessions/trip")["slots"]

    def test_restore_and_reindex_are_refused_and_say_why(self, busy: Running, tmp_path: Path) -> None:
        here = Installation(busy.data.parent)
        assert here.command("backup", str(tmp_path / "b")).status == 0
        (backup,) = archive.complete(tmp_path / "b")
        for command in (("restore", str(backup.path)), ("reindex",)):
            done = here.command(*command)
            assert done.status == 2
            assert f"a Sidemirror works on {busy.data}: stop it" in done.err
        with claimed(busy.data) as idle:
            assert not idle

    def test_text_forgotten_during_a_backup_leaves_the_write_ahead_log_when_the_backup_ends(
        self, here: Installation, tmp_path: Path
    ) -> None:
        secret = "a very particular sentence"
        here.remember(secret)
        (row,) = read_rows(here.data / "sidemirror.db", "SELECT id FROM memories WHERE content = :it", {"it": secret})
        wal = here.data / "sidemirror.db-wal"
        with closing(here.store()) as store:
            store.transact(lambda tx: tx.forget(ADA, [])).result()
            forgotten = False

            def meanwhile(what: str, _done: int, _total: int) -> None:
                nonlocal forgotten
                if what == "copying the database" and not forgotten:
                    forgotten = True
                    store.transact(lambda tx: tx.forget(ADA, [row[0]])).result(20)
                    assert wal.stat().st_size > 0

            create.create(origin(here), tmp_path / "b", keep=None, clock=now, told=meanwhile)
            assert forgotten
            assert wal.stat().st_size == 0


def test_reindex_makes_what_was_lost_found_again(here: Installation) -> None:
    with closing(sqlite3.connect(here.data / "sidemirror.db", isolation_level=None)) as connection:
        connection.execute("INSERT INTO fts (fts) VALUES ('delete-all')")
    assert here.command("doctor").status == 1
    done = here.command("reindex")
    assert (done.status, done.out) == (
        0,
        "3 records indexed by their words, 0 index files made for large scopes\n",
    )
    with closing(here.store()) as store:
        assert len(store.search(ADA, None, ["tux"], limit=5).candidates) == 1


def test_reindex_makes_index_files_for_large_scopes(tmp_path: Path) -> None:
    here = installed(tmp_path / "here", index={"exact_below": 2})
    with closing(here.store()) as store:
        several = [memory(f"Fact {number}", ADA, now()) for number in range(5)]
        put(store, *several, vectors=[_direction(number) for number in range(5)])
    done = here.command("reindex")
    assert done.status == 0, done.err
    assert done.out.endswith("8 records indexed by their words, 1 index files made for large scopes\n")


def _kill_at(step: str, of: Installation, folder: Path) -> None:
    script = """
import sys, time
from pathlib import Path
from proxy.backup.create import Origin, create
from tests.installations import now
data, folder, step = sys.argv[1:]
def told(what, done, total):
    if what == step:
        print("reached", flush=True)
        time.sleep(60)
create(Origin(Path(data), "embedded"), Path(folder), keep=1, clock=now, told=told)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(of.data), str(folder), step], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n"
        process.send_signal(signal.SIGKILL)


def _direction(seed: int) -> Vector:
    vector = np.random.default_rng(seed).standard_normal(256).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))


class _Full:
    free = 0
