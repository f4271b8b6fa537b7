"""`sidemirror key`: what it prints works in config.yaml, and nothing that would not work is given away."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from proxy.auth import PASSTHROUGH, PERMISSIONS, Doorkeeper, Principal
from proxy.cli.commands import cli
from proxy.config import load
from proxy.errors import SidemirrorError
from proxy.layers import install_secret
from proxy.settings import Auth, Key

SECRET = bytes(32)


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["key", *arguments], input=stdin)


def created(*arguments: str) -> tuple[str, str]:
    """The key, and the line for config.yaml."""
    ran = run("create", *arguments)
    assert ran.exit_code == 0, ran.output
    (key,) = re.findall(r"^  (sm-\S+)$", ran.output, re.MULTILINE)
    (line,) = re.findall(r"^  - (\{.*\})$", ran.output, re.MULTILINE)
    assert ran.output.count(key) == 1
    return key, line


def refusal(*arguments: str, stdin: str = "") -> str:
    ran = run(*arguments, stdin=stdin)
    assert isinstance(ran.exception, SidemirrorError), ran.output
    assert "sm-" not in ran.output
    return str(ran.exception)


def principal(tmp_path: Path, key: str, line: str) -> Principal:
    """Who the key is to a server with this line in its config.yaml."""
    path = tmp_path / "config.yaml"
    path.write_text(f"auth:\n  mode: keys\n  keys:\n    - {line}\n", encoding="utf-8")
    return Doorkeeper(load(path, {}).auth, SECRET).admit(CIMultiDict(Authorization=f"Bearer {key}"))


# ── create ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_new_key_is_printed_once_and_its_line_lets_it_in(tmp_path: Path) -> None:
    key, line = created()
    assert key not in line
    assert principal(tmp_path, key, line) == Principal("default", PASSTHROUGH, name="default")


def test_options_end_up_in_the_line(tmp_path: Path) -> None:
    options = ["--name", "Ada's bot", "--user", "ada: #1", "--agent", "机器人", "--tenant", "{acme}"]
    key, line = created(*options, "--permission", "chat", "--permission", "admin", "--permission", "chat")
    found = principal(tmp_path, key, line)
    assert found == Principal("{acme}", frozenset({"chat", "admin"}), "ada: #1", "机器人", "Ada's bot")


def test_every_key_is_another_one() -> None:
    assert len({created()[0] for _ in range(5)}) == 5


names = st.text(
    st.characters(categories=["L", "N", "P", "S"]) | st.sampled_from(" '\"#:"), min_size=1, max_size=20
).filter(lambda name: name.strip() and name.isprintable() and "${" not in name)


@settings(max_examples=40)
@given(names, names, names)
def test_any_name_survives_the_way_through_yaml(name: str, user: str, tenant: str) -> None:
    key, line = created(f"--name={name}", f"--user={user}", f"--tenant={tenant}")
    entry: Any = YAML(typ="safe").load(line)
    known = Key.model_validate_json(json.dumps(entry))
    assert (known.name, known.user, known.tenant, known.agent) == (name, user, tenant, None)
    admitted = Doorkeeper(Auth(mode="keys", keys=(known,)), SECRET).admit(CIMultiDict({"x-api-key": key}))
    assert admitted.user_id == user


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        # An empty shell variable must not make an unbound key.
        (["--user", ""], "--user is blank"),
        (["--agent", ""], "--agent is blank"),
        (["--tenant", " "], "--tenant is blank"),
        (["--name", ""], "--name is blank"),
        (["--user", "a" * 257], "--user is longer"),
        (["--name", "a" * 200], "--name: String should have at most 128 characters"),
        (["--name", "two\nlines"], "--name holds a control character"),
        (["--user", "${USER}"], "--user holds ${"),
        (["--permission", "chat", "--permission", "memory:wirte"], "memory:wirte: no such permission"),
        (["--permission", ""], "no such permission"),
    ],
)
def test_what_config_would_refuse_or_misread_makes_no_key(arguments: list[str], why: str) -> None:
    assert why in refusal("create", *arguments)


def test_a_wrong_permission_is_told_the_right_ones() -> None:
    message = refusal("create", "--permission", "write")
    assert all(permission in message for permission in PERMISSIONS)


# ── tenant ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings of an installation that ran before."""
    (tmp_path / "memories").mkdir()
    install_secret(tmp_path / "memories")
    path = tmp_path / "config.yaml"
    path.write_text("data_dir: memories\nauth: {tenant: api_key}\n", encoding="utf-8")
    return path


def test_the_tenant_of_a_provider_key_is_the_servers(config: Path) -> None:
    doorkeeper = Doorkeeper(Auth(tenant="api_key"), install_secret(config.parent / "memories"))
    for line in ("sk-1\n", "  sk-1  \n", "sk-1", "sk-1\r\n"):
        ran = run("tenant", "--config", str(config), stdin=line)
        assert (ran.exit_code, ran.output) == (0, f"{doorkeeper.tenant_of('sk-1')}\n")
    assert run("tenant", "--config", str(config), stdin="sk-2\n").output != ran.output


def test_a_rotated_key_is_told_its_own_tenant_though_an_alias_moves_it(config: Path) -> None:
    before = run("tenant", "--config", str(config), stdin="sk-new\n").output.strip()
    aliases = f"auth: {{tenant: api_key, aliases: [{{tenant: {before}, keeps: key-old}}]}}\n"
    config.write_text(f"data_dir: memories\n{aliases}", encoding="utf-8")
    assert run("tenant", "--config", str(config), stdin="sk-new\n").output.strip() == before
    auth = load(config, {}).auth
    assert Doorkeeper(auth, install_secret(config.parent / "memories")).tenant_of("sk-new") == "key-old"


def test_another_data_folder_is_named_as_to_serve(config: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    secret = install_secret(tmp_path / "elsewhere")
    ran = run("tenant", "--config", str(config), "--data", str(tmp_path / "elsewhere"), stdin="sk-1\n")
    assert ran.output.strip() == Doorkeeper(Auth(tenant="api_key"), secret).tenant_of("sk-1")


def test_a_folder_where_nothing_ran_tells_no_tenant_and_gets_no_secret(config: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "absent"):
        message = refusal("tenant", "--config", str(config), "--data", str(folder), stdin="sk-1\n")
        assert "no Sidemirror has run" in message
        assert str(folder) in message
    assert list((tmp_path / "empty").iterdir()) == []
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("stdin", ["", "\n", "   \n"])
def test_no_key_on_standard_input_is_refused(config: Path, stdin: str) -> None:
    assert "standard input" in refusal("tenant", "--config", str(config), stdin=stdin)
