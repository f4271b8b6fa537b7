"""config.yaml: merging, positions of mistakes, and the refusals of what is not there yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from proxy import config as config_module
from proxy.config import Config, Override, default_path, env_names, load, shipped
from proxy.errors import ConfigError
from proxy.yamlfile import read

ROOT = Path(__file__).resolve().parent.parent


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(path: Path | None, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load(path, environ or {})
    return [str(problem) for problem in raised.value.problems]


def leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


class TestDefaults:
    def test_without_a_file_every_key_has_the_default_of_the_design(self) -> None:
        values = dict(leaves(load(None, {})))
        expected = {
            "server.host": "127.0.0.1", "server.port": 8080, "server.max_body_mb": 64, "server.allowed_hosts": (),
            "upstream.base_url": "https://api.openai.com/v1",
            "upstream.anthropic_base_url": "https://api.anthropic.com", "upstream.api_key": None,
            "models": (), "auth.mode": "passthrough", "auth.tenant": "single", "auth.keys": (),
    "auth.aliases": (),
            "identity.default_user": "local", "identity.timezone": "local", "redis.url": "embedded",
            "store.url": "sqlite", "embedding.provider": "model2vec", "embedding.model": "builtin",
            "embedding.api_base": None, "embedding.api_key": None, "embedding.dimensions": None,
            "index.exact_below": 2000, "recall.deadline_ms": 50, "recall.cache_s": 30, "recall.min_confidence": 0.25,
            "recall.quotas.working": "all", "recall.quotas.semantic": 8, "recall.quotas.episodic": 5,
            "recall.quotas.reflective": 2, "recall.recent_episodic": 2, "inject.placement": "session",
            "inject.budget_tokens": 1200, "inject.share_of_context": 0.15, "inject.max_item_chars": 400,
            "session.idle_s": 1800, "backup.at": None, "backup.keep": 7, "debug": False,
        }  # fmt: skip
        paths = {"data_dir", "policies", "backup.dir"}
        assert {key: value for key, value in values.items() if key not in paths} == expected
        assert set(values) - set(expected) == paths

    def test_the_repositorys_file_names_every_key_with_its_default_in_the_models_order(self) -> None:
        located, _ = read(ROOT / "config.yaml")
        assert located is not None

        def keys(node: Any, prefix: str = "") -> Iterator[str]:
            for key, value in node.items():
                yield from keys(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}"]

        assert list(keys(located.data)) == [key for key, _ in leaves(Config())]
        with_file, without = load(ROOT / "config.yaml", {}), load(None, {})
        same = {"data_dir", "policies", "backup"}
        assert with_file.model_dump(exclude=same) == without.model_dump(exclude=same)

    def test_every_field_is_described(self) -> None:
        def undescribed(model: type[BaseModel]) -> Iterator[str]:
            assert model.__doc__
            for name, field in model.model_fields.items():
                if not field.description:
                    yield f"{model.__name__}.{name}"
                if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                    yield from undescribed(field.annotation)

        assert list(undescribed(Config)) == []

    def test_a_section_whose_keys_are_all_commented_out_keeps_its_defaults(self, tmp_path: Path) -> None:
        path = written(tmp_path, "server:\n  # port: 9000\nrecall: {quotas: {semantic: 3}}\n")
        config = load(path, {})
        assert config.server.port == 8080
        assert config.recall.quotas.semantic == 3
        assert config.recall.quotas.episodic == 5

    def test_settings_cannot_be_changed(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(load(None, {}).server, "port", 1)  # noqa: B010 - the plain form does not type-check

    def test_quotas_give_limits(self) -> None:
        quotas = load(None, {}).recall.quotas
        assert quotas.limit("working") is None
        assert quotas.limit("episodic") == 5


class TestEnvironment:
    def test_variables_win_over_the_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, "server: {port: 9000}\ndebug: false\n")
        (tmp_path / "a").mkdir()
        environ = {
            "SIDEMIRROR__SERVER__PORT": "9100",
            "SIDEMIRROR__DEBUG": "true",
            "SIDEMIRROR__POLICIES": '["a"]',
            "SIDEMIRROR__SERVER__ALLOWED_HOSTS": '["box.example"]',
            "SIDEMIRROR__RECALL__QUOTAS": '{"semantic": 3}',
            "SIDEMIRROR__RECALL__QUOTAS__WORKING": "10",
            "SIDEMIRROR__RECALL__CACHE_S": "1.5",
            "SIDEMIRROR__IDENTITY__DEFAULT_USER": "42",
            "SIDEMIRROR__UPSTREAM__API_KEY": "12345",
            "SIDEMIRROR__INJECT__PLACEMENT": "user",
        }
        config = load(path, environ)
        assert config.server.port == 9100
        assert config.debug is True
        assert config.policies == (tmp_path / "a",)
        assert config.server.allowed_hosts == ("box.example",)
        assert (config.recall.quotas.semantic, config.recall.quotas.working) == (3, 10)
        assert config.recall.cache_s == 1.5
        assert config.identity.default_user == "42"
        assert config.upstream.api_key is not None
        assert config.upstream.api_key.get_secret_value() == "12345"
        assert config.inject.placement == "user"

    def test_an_empty_variable_is_not_set_and_null_clears(self, tmp_path: Path) -> None:
        path = written(tmp_path, "server: {port: 9000}\nupstream: {api_key: abc}\n")
        environ = {"SIDEMIRROR__SERVER__PORT": "", "SIDEMIRROR__UPSTREAM__API_KEY": "null"}
        config = load(path, environ)
        assert config.server.port == 9000
        assert config.upstream.api_key is None

    def test_a_wrong_value_is_reported_under_the_variables_name(self, tmp_path: Path) -> None:
        path = written(tmp_path, "server: {port: 9000}\n")
        environ = {
            "SIDEMIRROR__SERVER__PORT": "80x",
            "SIDEMIRROR__POLICIES": "policies",
            "SIDEMIRROR__RECALL__QUOTAS": '{"semantik": 3}',
        }
        policies, quotas, port = sorted(mistakes(path, environ))
        assert policies.startswith("SIDEMIRROR__POLICIES: must be a JSON list")
        assert quotas.startswith("SIDEMIRROR__RECALL__QUOTAS: recall.quotas.semantik: unknown key 'semantik'; did you")
        assert port.startswith("SIDEMIRROR__SERVER__PORT: server.port: ")

    def test_an_unknown_variable_is_refused_with_the_nearest_name(self) -> None:
        (line,) = mistakes(None, {"SIDEMIRROR__SERVER__PROT": "1", "OTHER__THING": "x"})
        assert line.startswith("SIDEMIRROR__SERVER__PROT: there is no such setting")
        assert "did you mean 'SIDEMIRROR__SERVER__PORT'?" in line

    def test_flags_win_over_variables_and_are_named_in_messages(self) -> None:
        flag = Override("--port", ("server", "port"), "70000")
        assert (
            load(None, {"SIDEMIRROR__SERVER__PORT": "1"}, [Override("--port", ("server", "port"), 2)]).server.port == 2
        )
        with pytest.raises(ConfigError, match=r"^--port: server\.port: "):
            load(None, {"SIDEMIRROR__SERVER__PORT": "1"}, [flag])

    def test_every_setting_has_a_variable(self) -> None:
        names = {".".join(where) for _, where in env_names()}
        assert {key for key, _ in leaves(Config())} <= names


class TestMistakes:
    def test_all_are_reported_at_once_each_with_its_place(self, tmp_path: Path) -> None:
        path = written(
            tmp_path,
            "servr: {}\nserver:\n  port: 70000\n  hots: x\nrecall:\n  quotas: {semantic: -1}\ndebug: yes\n"
            "inject: {placement: sytem}\n",
        )
        lines = mistakes(path, {"SIDEMIRROR__NOPE": "1"})
        text = "\n".join(lines)
        assert f"{path}:1:1: servr: unknown key 'servr'; did you mean 'server'?" in lines
        assert f"{path}:4:3: server.hots: unknown key 'hots'; did you mean 'host'?" in lines
        assert f"{path}:3:3: server.port: " in text
        assert f"{path}:6:12: recall.quotas.semantic: must be all, or a number from 0 up" in text
        (debug,) = (line for line in lines if "debug" in line)
        assert debug.startswith(f"{path}:7:1: debug: 'yes' ")
        assert "write true or false" in debug
        assert "did you mean 'system'?" in text
        assert lines[0] == "SIDEMIRROR__NOPE: there is no such setting"
        places = [int(line.removeprefix(f"{path}:").split(":")[0]) for line in lines[1:]]
        assert places == sorted(places) == [1, 3, 4, 6, 7, 8]

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("store: {url: 'postgresql://h/db'}", "store.url"),
        ],
    )
    def test_what_a_later_version_brings_is_refused(self, tmp_path: Path, text: str, names: str) -> None:
        (line,) = mistakes(written(tmp_path, text))
        assert f": {names}: " in line
        assert "not supported yet" in line

    @pytest.mark.parametrize(
        "text",
        [
            "server: {port: -1}",
            "server: {port: 65536}",
            "server: {port: true}",
            "server: {max_body_mb: 0}",
            "upstream: {base_url: api.openai.com}",
            "upstream: {base_url: 'https://x/v1?a=b'}",
            "upstream: {api_key: ''}",
            "identity: {timezone: Mars/Olympus}",
            "backup: {at: '3:00'}",
            "backup: {at: '24:00'}",
            "backup: {at: 180}",
            "backup: {keep: 0}",
            "identity: {timezone: ../../etc/passwd}",
            "redis: {url: localhost:6379}",
            "store: {url: mysql://x}",
            "recall: {min_confidence: 1.1}",
            "recall: {min_confidence: .nan}",
            "recall: {quotas: {semantic: some}}",
            "inject: {share_of_context: 0}",
            "- a list",
            "debug: 1",
            "embedding: {dimensions: 8}",
            "embedding: {api_key: k}",
            "embedding: {api_base: 'http://127.0.0.1:1/v1'}",
            "embedding: {provider: litellm}",
            "embedding: {provider: litellm, model: text-embedding-3-small}",
            "embedding: {provider: litellm, model: 'openai/*'}",
            "embedding: {provider: litellm, model: hosted_vllm/bge-m3}",
            "embedding: {provider: litellm, model: openai/x, dimensions: 0}",
            "embedding: {provider: litellm, model: openai/x, api_base: nowhere}",
        ],
    )
    def test_values_out_of_range_are_refused(self, tmp_path: Path, text: str) -> None:
        assert mistakes(written(tmp_path, text))

    @pytest.mark.parametrize(
        ("text", "deadline_ms"),
        [
            ("embedding: {provider: litellm, model: openai/x}", 400),
            ("{embedding: {provider: litellm, model: openai/x}, recall: {cache_s: 1}}", 400),
            ("{embedding: {provider: litellm, model: openai/x}, recall: }", 400),
            ("{embedding: {provider: litellm, model: openai/x}, recall: {deadline_ms: 50}}", 50),
            ("recall: {cache_s: 1}", 50),
        ],
    )
    def test_a_recall_that_asks_an_api_has_longer_unless_the_file_says_otherwise(
        self, tmp_path: Path, text: str, deadline_ms: int
    ) -> None:
        assert load(written(tmp_path, text), {}).recall.deadline_ms == deadline_ms

    def test_an_apis_key_may_come_from_the_environment_and_is_not_shown(self, tmp_path: Path) -> None:
        text = "embedding: {provider: litellm, model: openai/x, api_key: '${EMBED_KEY}'}"
        config = load(written(tmp_path, text), {"EMBED_KEY": "sk-secret"})
        assert config.embedding.api_key is not None
        assert config.embedding.api_key.get_secret_value() == "sk-secret"
        assert "sk-secret" not in repr(config)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "proxy.example"])
    def test_listening_beyond_this_machine_is_refused_with_the_way_out(self, host: str) -> None:
        (line,) = mistakes(None, {"SIDEMIRROR__SERVER__HOST": host})
        assert line.startswith("SIDEMIRROR__SERVER__HOST: server.host: ")
        assert "not a loopback address" in line
        assert "-p 127.0.0.1:8080:8080" in line

    @pytest.mark.parametrize(
        ("auth", "why"),
        [
            ("{mode: keys}", "nobody could call"),
            ("{tenant: api_key, mode: keys, keys: [{name: a, hash: H}]}", "leave `auth.tenant` at single"),
            ("{keys: [{name: a, hash: H}]}", "of no use in passthrough mode"),
            ("{mode: keys, keys: [{name: a, hash: H}, {name: a, hash: G}]}", "two keys have the same name"),
            ("{mode: keys, keys: [{name: a, hash: H}, {name: b, hash: H}]}", "two keys have the same hash"),
            ("{aliases: [{tenant: a, keeps: b}]}", "need tenant: api_key"),
            ("{tenant: api_key, aliases: [{tenant: a, keeps: b}, {tenant: a, keeps: c}]}", "of the same tenant"),
            ("{mode: keys, keys: [{name: a, hash: abc}]}", "pattern"),
            ("{mode: keys, keys: [{name: a, hash: H, permissions: [chatt]}]}", "did you mean 'chat'?"),
        ],
    )
    def test_keys_that_make_no_sense_are_refused(self, tmp_path: Path, auth: str, why: str) -> None:
        path = tmp_path / "config.yaml"
        path.write_text(f"auth: {auth.replace('H', 'sha256:' + '0' * 64).replace('G', 'sha256:' + '1' * 64)}\n")
        assert any(why in line for line in mistakes(path, {}))

    @pytest.mark.parametrize("auth", ["{tenant: api_key}", "{mode: keys, keys: [{name: a, hash: H}]}"])
    def test_with_keys_every_address_is_taken(self, tmp_path: Path, auth: str) -> None:
        path = tmp_path / "config.yaml"
        path.write_text(f"server: {{host: 0.0.0.0}}\nauth: {auth.replace('H', 'sha256:' + '0' * 64)}\n")
        assert load(path, {}).server.host == "0.0.0.0"

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
    def test_loopback_addresses_are_taken(self, host: str) -> None:
        assert load(None, {"SIDEMIRROR__SERVER__HOST": host}).server.host == host

    def test_a_file_that_cannot_be_read_is_reported_with_the_variables(self, tmp_path: Path) -> None:
        lines = mistakes(tmp_path / "absent.yaml", {"SIDEMIRROR__NOPE": "1"})
        assert "does not exist" in lines[0]
        assert "SIDEMIRROR__NOPE" in lines[1]

    def test_secrets_are_kept_out_of_reprs(self) -> None:
        environ = {"SIDEMIRROR__UPSTREAM__API_KEY": "sk-secret", "SIDEMIRROR__REDIS__URL": "redis://:secret@h"}
        assert "secret" not in repr(load(None, environ))


class TestSubstitution:
    def test_names_are_replaced_in_any_string(self, tmp_path: Path) -> None:
        path = written(
            tmp_path,
            'upstream: {api_key: "${KEY}"}\nserver: {allowed_hosts: ["${A}.${B}"], port: "${PORT}"}\n',
        )
        config = load(path, {"KEY": "k${A}", "A": "x", "B": "example", "PORT": "81"})
        assert config.upstream.api_key is not None
        assert config.upstream.api_key.get_secret_value() == "k${A}", "a value is not looked into again"
        assert config.server.allowed_hosts == ("x.example",)
        assert config.server.port == 81

    def test_a_missing_name_is_reported_where_it_stands(self, tmp_path: Path) -> None:
        path = written(tmp_path, 'upstream:\n  api_key: "${GONE}"\n')
        (line,) = mistakes(path)
        assert line.startswith(f"{path}:2:3: upstream.api_key: the environment variable GONE is not set")


class TestPaths:
    def test_relative_ones_start_at_the_files_folder(self, tmp_path: Path) -> None:
        (tmp_path / "policies").mkdir()
        (tmp_path / "model").mkdir()
        config = load(written(tmp_path, "embedding: {model: ./model}\nbackup: {dir: /b}\n"), {})
        assert config.data_dir == tmp_path / "data"
        assert config.backup.dir == Path("/b")
        assert config.policies == (tmp_path / "policies",)
        assert Path(config.embedding.model) == tmp_path / "model"

    def test_without_a_file_they_start_at_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert load(None, {"SIDEMIRROR__DATA_DIR": "here"}).data_dir == tmp_path / "here"

    def test_hub_ids_stay_as_they_are(self, tmp_path: Path) -> None:
        assert load(written(tmp_path, "embedding: {model: who/what}"), {}).embedding.model == "who/what"

    def test_the_shipped_policies_stand_in_for_a_missing_folder(self, tmp_path: Path) -> None:
        assert load(written(tmp_path, ""), {}).policies == (shipped() / "policies",)

    def test_another_missing_policy_path_is_a_mistake(self, tmp_path: Path) -> None:
        path = written(tmp_path, "policies: [policies, mine]\n")
        (line,) = mistakes(path)
        assert line.startswith(f"{path}:1:22: policies[1]: there is no file or folder {tmp_path / 'mine'}")

    def test_a_checkout_ships_from_its_root_and_a_wheel_from_its_package(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert shipped() == ROOT
        (tmp_path / "proxy" / "shipped").mkdir(parents=True)
        monkeypatch.setattr(config_module, "__file__", str(tmp_path / "proxy" / "config.py"))
        assert shipped() == tmp_path / "proxy" / "shipped"

    def test_the_default_file_is_the_working_directorys(self, tmp_path: Path) -> None:
        assert default_path(tmp_path) is None
        assert default_path(written(tmp_path, "").parent) == tmp_path / "config.yaml"
