"""The doctor on a healthy, a damaged and a misconfigured installation; and that it only looks unless told to repair."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.backup import archive
from proxy.doctor import installation, services, stored
from proxy.doctor.finding import Finding, worst
from proxy.doctor.installation import COMPROMISED_LITELLM
from proxy.embed import BUILTIN_MODEL
from tests.calls import Memories
from tests.check_environment import COMPROMISED
from tests.installations import ADA, Installation, embedded, installed, now, put_slots, slots_of
from tests.running import eventually, running
from tests.scripted import Reply, ScriptedUpstream
from tests.store_samples import memory, put
from tests.test_working import tcp_server


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    """An installation that has never run."""
    return installed(tmp_path / "here")


def only(findings: Iterator[Finding] | list[Finding], check: str) -> Finding:
    (found,) = [finding for finding in findings if finding.check == check]
    return found


def looked(at: Installation, *args: str) -> tuple[int, dict[str, dict[str, Any]], list[str]]:
    """Exit status, findings by check, and repairs."""
    done = at.command("doctor", "--json", *args)
    body: Mapping[str, Any] = json.loads(done.out[done.out.index("{") :])
    return done.status, {finding["check"]: finding for finding in body["findings"]}, list(body["repairs"])


def damage(database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[8192:40960] = os.urandom(32768)
    database.write_bytes(content)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Mode and length of every file; locks and shared memory are no data."""
    kept = (path for path in folder.rglob("*") if not path.name.endswith(("lock", "-shm", "-wal")))
    return {str(path): (path.stat().st_mode, path.stat().st_size) for path in kept}


class TestTheWhole:
    def test_a_healthy_installation_is_fine_and_nothing_of_it_changes(
        self, tmp_path: Path, provider: ScriptedUpstream
    ) -> None:
        host = provider.url.removesuffix("/v1")
        here = installed(tmp_path / "here", upstream={"base_url": provider.url, "anthropic_base_url": host})
        server = embedded(here.data)
        put_slots(server.url, [("destination", "Rome")])
        server.stop()
        before = snapshot(here.folder)
        status, found, _ = looked(here)
        assert {name: one["status"] for name, one in found.items() if one["status"] != "ok"} == {}
        assert status == 0
        assert snapshot(here.folder) == before
        assert "3 memories" in found["store"]["message"]
        assert "clients send" in found["upstream"]["message"]
        server = embedded(here.data)
        try:
            assert slots_of(server.url) == {"destination": "Rome"}
        finally:
            server.stop()

    def test_beside_a_running_proxy_it_looks_too_and_repairs_nothing_that_is_in_use(
        self, provider: ScriptedUpstream, tmp_path: Path
    ) -> None:
        (tmp_path / "blocked").write_text("a file where the folder for backups should be")
        upstream = {"base_url": provider.url, "anthropic_base_url": provider.url.removesuffix("/v1")}
        config = {"upstream": upstream, "backup": {"at": "03:00", "dir": str(tmp_path / "blocked")}}
        with running(tmp_path / "product", config=config) as product, product.http("ada") as http:
            eventually(lambda: http.get("/readyz").json()["degraded"] == ["backup"])
            Memories(http).create("Ada works in Berlin")
            here = Installation(product.data.parent)
            here.data.chmod(0o755)
            self.lose_words(here)
            status, found, repairs = looked(here, "--repair", "--yes")
            assert status == 1
            assert f"{product.address} is degraded: backup: the daily backup failed" in found["proxy"]["message"]
            assert "takes writes" in found["redis"]["message"]
            assert (found["data folder"]["status"], found["words"]["status"]) == ("ok", "broken")
            assert any("not repaired while a proxy runs" in line for line in repairs)

    def lose_words(self, here: Installation) -> None:
        with closing(sqlite3.connect(here.data / "sidemirror.db", isolation_level=None)) as connection:
            connection.execute("INSERT INTO fts (fts) VALUES ('delete-all')")

    def test_a_misconfigured_one_is_told_every_mistake_with_its_place(self, here: Installation) -> None:
        here.config_file.write_text("data_dir: data\nserver: {prot: 1}\nbackup: {at: '3 am'}\n")
        done = here.process("doctor", "--json")
        assert done.status == 1
        broken = [one for one in json.loads(done.out)["findings"] if one["status"] == "broken"]
        assert {one["check"] for one in broken} == {"config"}
        text = "\n".join(one["message"] for one in broken)
        assert "config.yaml:2:" in text
        assert "did you mean 'port'" in text
        assert "write HH:MM" in text

    def test_without_json_each_finding_is_a_line_with_what_to_do(self, here: Installation) -> None:
        here.data.chmod(0o755)
        done = here.command("doctor")
        assert done.status == 1
        words = " ".join(done.out.split())
        assert "! warning data folder" in words
        assert "→ chmod 700" in words
        assert "✗ broken upstream http://127.0.0.1:9/v1 cannot be reached" in words

    def test_permissions_and_words_are_repaired(self, here: Installation) -> None:
        here.data.chmod(0o755)
        (here.data / "secret").chmod(0o644)
        self.lose_words(here)
        _, found, repairs = looked(here, "--repair")
        assert found["data folder"]["status"] == found["secret"]["status"] == found["words"]["status"] == "ok"
        assert stat.S_IMODE((here.data / "secret").stat().st_mode) == 0o600
        assert len(repairs) == 2

    def test_a_damaged_database_is_replaced_by_the_newest_good_backup_only_with_leave(
        self, here: Installation, tmp_path: Path
    ) -> None:
        here.config_file.write_text(json.dumps({**json.loads(here.config_file.read_text()), "backup": {"dir": "b"}}))
        assert here.command("backup", "b").status == 0
        (good,) = archive.complete(here.folder / "b")
        here.remember("Ada moved to Oslo")
        assert here.command("backup", "b").status == 0
        damage(archive.complete(here.folder / "b")[-1].path / "sidemirror.db")
        damage(here.data / "sidemirror.db")

        status, found, repairs = looked(here, "--repair")
        assert status == 1
        assert found["store"]["repair"] == "restore"
        assert "--repair --yes" in repairs[0]
        assert str(good.path) in repairs[0]

        _, found, repairs = looked(here, "--repair", "--yes")
        assert found["store"]["status"] == "ok"
        assert "restored from the backup" in repairs[0]
        assert here.remembered() == ["Ada works in Berlin", "Ada has a cat called Tux", "阿达喜欢喝茶"]
        assert len(list(here.folder.glob("data.before-restore-*"))) == 1


class TestInstallation:
    def test_compromised_releases_are_those_that_the_environment_check_refuses(self) -> None:
        assert COMPROMISED["litellm"] == COMPROMISED_LITELLM

    def test_a_compromised_litellm_is_broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installation, "version", lambda _: "1.107.2")
        assert installation.litellm_release().status == "broken"

    def test_a_changed_model_file_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "model.bin").write_bytes(b"weights")
        sums = tmp_path / "SHA256SUMS"
        sums.write_text(f"{'0' * 64}  model.bin\n{'0' * 64}  gone.bin\n")
        found = installation.model_files(sums)
        assert found.status == "broken"
        assert "model.bin is not the shipped one" in found.message
        assert "gone.bin cannot be read" in found.message

    def test_the_shipped_model_is_the_models_cards(self) -> None:
        sums = BUILTIN_MODEL.parent / "SHA256SUMS"
        card = (sums.parent / "README.md").read_text(encoding="utf-8")
        for line in sums.read_text().splitlines():
            hashed, name = line.split()
            assert f"{Path(name).name} {hashed}" in card
        assert installation.model_files().status == "ok"

    def test_policies_with_mistakes_are_told_with_their_places(self, here: Installation) -> None:
        (here.folder / "policies").mkdir()
        (here.folder / "policies" / "a.yaml").write_text("version: 1\ntrigers: []\n")
        (found,) = installation.policies(here.config())
        assert found.status == "broken"
        assert "a.yaml:2:1" in found.message

    def test_rules_of_ones_own_alone_are_told_to_take_the_place_of_the_shipped_ones(self, here: Installation) -> None:
        (folder := here.folder / "policies" / "local").mkdir(parents=True)
        (folder / "own.yaml").write_text("version: 1\n", encoding="utf-8")
        (found,) = installation.policies(here.config())
        assert (found.status, found.advice) == (
            "warning",
            "let 'sidemirror init' write the shipped files beside local/",
        )

    def test_a_missing_or_cut_secret_is_broken_where_tenants_hang_on_it(self, tmp_path: Path) -> None:
        here = installed(tmp_path / "here", auth={"tenant": "api_key"})
        secret = here.data / "secret"
        secret.write_bytes(b"short")
        assert "damaged" in [one.message for one in installation.permissions(here.config()) if one.check == "secret"][1]
        secret.unlink()
        assert only(installation.permissions(here.config()), "secret").status == "broken"

    def test_a_full_disk_is_broken_and_a_nearly_full_one_a_warning(
        self, here: Installation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for free, status in ((10 << 20, "broken"), (500 << 20, "warning"), (50 << 30, "ok")):
            usage = type("Usage", (), {"free": free})
            monkeypatch.setattr("proxy.doctor.installation.shutil.disk_usage", lambda _, usage=usage: usage)
            assert only(installation.disk_space(here.config()), "disk").status == status

    def test_a_daily_backup_that_does_not_come_is_told(self, tmp_path: Path) -> None:
        here = installed(tmp_path / "here", backup={"at": "03:00", "dir": "b"})
        assert installation.backups(here.config(), now()).status == "warning"
        assert here.command("backup", "b").status == 0
        assert installation.backups(here.config(), now()).status == "ok"
        assert installation.backups(here.config(), now() + timedelta(days=3)).status == "warning"


class TestStored:
    def test_records_of_another_model_are_a_warning(self, here: Installation) -> None:
        with closing(here.store()) as store:
            put(store, memory("Ada likes tea", ADA, now()), vectors=[_direction(1)])
            own = store._around.fingerprint
        assert only(stored.store(here.config(), own), "vectors").status == "ok"
        assert "4 records wait to be embedded by other" in only(stored.store(here.config(), "other"), "vectors").message

    def test_index_files_are_held_against_the_store(self, tmp_path: Path) -> None:
        here = installed(tmp_path / "here", index={"exact_below": 2})
        with closing(here.store()) as store:
            facts = [memory(f"Fact {number}", ADA, now()) for number in range(5)]
            put(store, *facts, vectors=[_direction(number) for number in range(5)])
            own = store._around.fingerprint
        assert "not built yet" in only(stored.store(here.config(), own), "index").message
        assert here.command("reindex").status == 0
        assert only(stored.store(here.config(), own), "index").status == "ok"
        (file,) = (here.data / "index").glob("*.usearch")
        content = bytearray(file.read_bytes())
        content[100] ^= 1
        file.write_bytes(content)
        found = only(stored.store(here.config(), own), "index")
        assert (found.status, found.repair) == ("warning", "reindex")
        assert "it is damaged" in found.message

    def test_another_programs_database_is_never_offered_to_repair(self, here: Installation) -> None:
        path = here.data / "sidemirror.db"
        path.unlink()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE t (x)")
        (found,) = stored.store(here.config(), None)
        assert (found.status, found.repair) == ("broken", None)
        assert "another program" in found.message


class TestServices:
    def test_a_redis_by_url_answers_or_is_broken(self, tmp_path: Path) -> None:
        with tcp_server(tmp_path) as (url, _):
            here = installed(tmp_path / "here", redis={"url": url})
            assert services.redis(here.config(), proxy_runs=False).status == "ok"
        assert services.redis(here.config(), proxy_runs=False).status == "broken"

    def test_a_damaged_append_only_file_is_told_and_left_as_it_is(self, here: Installation) -> None:
        server = embedded(here.data)
        put_slots(server.url, [("destination", "Rome")])
        server.stop()
        (file,) = (here.data / "redis" / "appendonlydir").glob("*.incr.aof")
        file.write_bytes(b"*3\r\n$3\r\nnonsense\r\n" + file.read_bytes())
        found = services.redis(here.config(), proxy_runs=False)
        assert found.status == "warning"
        assert "cannot be read" in found.message
        assert file.read_bytes().startswith(b"*3\r\n$3\r\nnonsense")

    def test_a_port_in_use_is_broken(self, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            here = installed(tmp_path / "here", server={"port": taken.getsockname()[1]})
            (found,) = services.port(here.config(), proxy_runs=False)
        assert found.status == "broken"
        assert "another with server.port" in found.advice

    @pytest.mark.parametrize(
        ("status", "verdict", "said"),
        [(200, "ok", "200"), (401, "warning", "refuses our key"), (404, "warning", "/models"), (503, "warning", "503")],
    )
    def test_a_providers_answer_is_read(
        self, provider: ScriptedUpstream, tmp_path: Path, status: int, verdict: str, said: str
    ) -> None:
        lane = provider.lane(f"sk-{tmp_path.name}")
        lane.script(Reply([b"{}"], status=status))
        here = installed(tmp_path / "here", upstream={"base_url": provider.url, "api_key": lane.key})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(services, "_ANSWER_S", 2.0)
            found = only(_main_only(here), "upstream")
        assert found.status == verdict
        assert said in found.message
        assert lane.last.path_qs == "/v1/models"


def _main_only(of: Installation) -> list[Finding]:
    config = of.config()
    upstream = config.upstream.model_copy(update={"anthropic_base_url": "http://127.0.0.1:9"})
    return list(services.upstreams(config.model_copy(update={"upstream": upstream})))


def _direction(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    vector = np.random.default_rng(seed).standard_normal(256).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def test_the_verdict_is_the_worst_finding() -> None:
    findings = [Finding("a", "ok", ""), Finding("b", "broken", ""), Finding("c", "warning", "")]
    assert worst(findings) == "broken"
    assert worst([]) == "ok"
