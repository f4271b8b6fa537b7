"""The container files keep what docs/docker.md promises; read as text, so that no engine is needed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from proxy import app
from proxy.config import Config, env_names, load
from proxy.errors import ConfigError
from tests.running import Running
from tests.scripted import Lane, completion

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "Dockerfile"
COMPOSE = ROOT / "docker-compose.yml"
PROSE = ("docs/docker.md", "docs/docker.zh-CN.md")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile, its continued lines joined."""

    name: str
    value: str


def instructions() -> Iterator[Instruction]:
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, value = line.partition(" ")
            yield Instruction(name, value.strip())


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for each in instructions():
        if each.name == "FROM":
            found.append([])
        found[-1].append(each)
    return found


def in_image(name: str) -> str:
    """The value of an instruction that stands once in the stage that becomes the image."""
    (value,) = [each.value for each in stages()[-1] if each.name == name]
    return value


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(in_image("ENV")))


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(COMPOSE.read_text(encoding="utf-8"))
    return loaded


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"][name]
    return found


def filled_in(value: Any) -> str:
    """A compose value where nothing is set outside: each `${NAME:-default}` is its default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))


def compose_environment() -> dict[str, str]:
    return {name: filled_in(value) for name, value in service("sidemirror")["environment"].items()}


def config(environment: Mapping[str, str]) -> Config:
    return load(None, environment)


def images() -> list[str]:
    built = {each.value.partition(" AS ")[2] for each in instructions() if each.name == "FROM"} - {""}
    named = [each.value.partition(" AS ")[0] for each in instructions() if each.name == "FROM"]
    named += [each["image"] for each in compose()["services"].values()]
    return [image for image in named if image not in built]


def volumes_of(name: str) -> dict[str, str]:
    """Where each named volume of a service is mounted."""
    mounts = [mount.split(":") for mount in service(name).get("volumes", ())]
    return {parts[0]: parts[1] for parts in mounts if re.fullmatch(r"\w+", parts[0])}


def test_every_image_has_a_version_and_no_registry() -> None:
    assert len(images()) >= 4
    for image in images():
        name, _, tag = image.partition(":")
        assert re.search(r"\d", tag) or image == service("sidemirror")["image"], f"{image} names no version"
        assert "latest" not in tag
        assert "/" not in name, f"{image} names a registry or an account"


def test_no_file_names_a_host_of_anybody() -> None:
    for path in (DOCKERFILE, COMPOSE, ROOT / ".dockerignore"):
        text = path.read_text(encoding="utf-8")
        hosts = set(re.findall(r"\w+://([\w.-]+)", text))
        assert hosts <= {LOOPBACK, "redis", "sidemirror"}, path.name
        assert not re.search("index-url|trusted-host", text), path.name


def test_dependencies_come_hashed_from_the_lock_before_the_sources() -> None:
    build = [f"{each.name} {each.value}" for each in stages()[0]]
    lock = next(at for at, line in enumerate(build) if line.startswith("COPY requirements.lock"))
    installed = next(at for at, line in enumerate(build) if "--require-hashes -r requirements.lock" in line)
    sources = next(at for at, line in enumerate(build) if line.startswith("COPY proxy"))
    assert lock < installed < sources, "a change in the sources would install the dependencies again"


def test_the_project_is_installed_as_a_wheel_and_its_build_tools_stay_behind() -> None:
    build = "\n".join(each.value for each in stages()[0])
    assert "pip wheel --no-deps --no-build-isolation" in build
    assert not re.search(r"--editable|\s-e\s", build)
    assert "pip check" in build, "what is taken out must be needed by nothing that stays"
    assert [each.value for each in stages()[-1] if each.name == "COPY"] == [
        "--from=builder /opt/sidemirror /opt/sidemirror"
    ]


def test_no_instruction_needs_buildkit() -> None:
    assert not [each for each in instructions() if re.search(r"--(mount|chmod|link|security)\b|<<", each.value)]


def test_the_image_runs_serve_under_tini_as_a_user_that_is_not_root() -> None:
    assert in_image("USER") == "10001:10001"
    assert "--uid 10001" in in_image("RUN")
    assert json.loads(in_image("ENTRYPOINT")) == ["tini", "--", "sidemirror"]
    assert json.loads(in_image("CMD")) == ["serve"]
    assert " tini " in in_image("RUN")
    assert in_image("STOPSIGNAL") == "SIGTERM"


def test_the_image_keeps_data_in_a_volume_that_its_user_owns() -> None:
    settings = config(image_environment())
    assert in_image("VOLUME") == str(settings.data_dir) == "/data"
    assert re.search(r"chown \S+ /data /backups", in_image("RUN"))
    assert str(settings.backup.dir) == "/backups"


def test_the_image_says_which_port_it_serves() -> None:
    assert in_image("EXPOSE") == str(config(image_environment()).server.port)


def test_the_image_is_watched_without_curl_and_past_any_http_proxy() -> None:
    check = in_image("HEALTHCHECK")
    command = json.loads(check[check.index("CMD ") + 4 :])
    assert command[0] == "python"
    compile(command[-1], "HEALTHCHECK", "exec")
    for part in ("urllib.request", "/readyz", "ProxyHandler({})"):
        assert part in command[-1]
    assert "curl" not in DOCKERFILE.read_text(encoding="utf-8")


@pytest.mark.parametrize("environment", [image_environment, compose_environment])
def test_every_variable_is_a_setting(environment: Any) -> None:
    named = {name for name in environment() if name.startswith("SIDEMIRROR")}
    assert named
    assert named <= {name for name, _ in env_names()}


def test_variables_passed_on_by_compose_are_settings_under_their_own_name() -> None:
    for name, value in service("sidemirror")["environment"].items():
        assert [name] == re.findall(r"\$\{(\w+)", str(value)) or "${" not in str(value)


def test_the_image_may_listen_everywhere_only_because_keys_are_tenants() -> None:
    environment = image_environment()
    assert config(environment).server.host == "0.0.0.0"
    del environment["SIDEMIRROR__AUTH__TENANT"]
    with pytest.raises(ConfigError, match="not a loopback address"):
        config(environment)


def test_compose_makes_settings_that_the_proxy_accepts() -> None:
    settings = config({**image_environment(), **compose_environment()})
    assert settings.auth.tenant == "api_key"
    assert {"sidemirror", "host.docker.internal"} <= set(settings.server.allowed_hosts)
    assert settings.upstream.base_url == config({}).upstream.base_url
    assert settings.redis.url == "redis://redis:6379/0"
    assert settings.backup.at is not None


def test_compose_keeps_everything_in_named_volumes() -> None:
    settings = config({**image_environment(), **compose_environment()})
    mounted = volumes_of("sidemirror")
    assert str(settings.data_dir) in mounted.values()
    assert str(settings.backup.dir) in mounted.values()
    assert "/data" in volumes_of("redis").values()
    declared = set(compose()["volumes"])
    assert declared == {*mounted, *volumes_of("redis")}


def test_compose_publishes_on_this_machine_only() -> None:
    for name, each in compose()["services"].items():
        for port in each.get("ports", ()):
            assert port.startswith(f"{LOOPBACK}:"), name
    assert service("sidemirror")["ports"] == [f"{LOOPBACK}:8080:8080"]


def test_compose_starts_without_a_key_and_without_the_example_agent() -> None:
    started = [name for name, each in compose()["services"].items() if not each.get("profiles")]
    assert sorted(started) == ["redis", "sidemirror"]
    required = re.findall(r"\$\{\w+(?:\}|:?\?)", COMPOSE.read_text(encoding="utf-8"))
    assert required == [], "each ${NAME} needs a default"


def test_compose_brings_services_back_and_waits_until_they_are_well() -> None:
    for name in ("sidemirror", "redis"):
        assert service(name)["restart"] == "unless-stopped"
    assert service("sidemirror")["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert service("agent")["depends_on"] == {"sidemirror": {"condition": "service_healthy"}}
    assert "ping" in " ".join(service("redis")["healthcheck"]["test"])


def test_compose_leaves_more_time_to_stop_than_stopping_takes() -> None:
    longest_s = app._SHUTDOWN_S + 2 * app._DRAIN_S
    assert int(service("sidemirror")["stop_grace_period"].removesuffix("s")) > longest_s


def test_redis_writes_its_log_every_second_into_its_volume() -> None:
    arguments = shlex.split(service("redis")["command"])
    options = {arguments[at].removeprefix("--"): arguments[at + 1] for at in range(1, len(arguments), 2)}
    assert options["appendonly"] == "yes"
    assert options["appendfsync"] == "everysec"
    assert options["dir"] in volumes_of("redis").values()
    assert options["save"] == ""


def test_redis_is_out_of_reach_of_agents() -> None:
    agents, storage = set(service("agent")["networks"]), set(service("redis")["networks"])
    assert not agents & storage
    assert set(service("sidemirror")["networks"]) == agents | storage
    assert all(compose()["networks"][name]["internal"] for name in storage)


def test_an_upstream_on_the_host_has_the_same_name_everywhere() -> None:
    assert service("sidemirror")["extra_hosts"] == ["host.docker.internal:host-gateway"]


def test_the_proxy_can_write_its_data_and_nothing_else() -> None:
    proxy = service("sidemirror")
    assert proxy["read_only"] is True
    assert proxy["cap_drop"] == ["ALL"]
    assert proxy["security_opt"] == ["no-new-privileges:true"]
    assert proxy["tmpfs"] == ["/tmp"], "the embedded Redis' socket and temporary files"


def test_nothing_private_enters_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*", "what is not named stays out"
    let_in = {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}
    copied = {
        source
        for each in stages()[0]
        if each.name == "COPY"
        for source in each.value.split()[:-1]
        if not source.startswith("--")
    }
    assert let_in == copied
    assert "policies/local" in patterns


def test_the_example_agent_is_given_what_it_reads() -> None:
    agent = service("agent")
    source, _, target = agent["volumes"][0].removesuffix(":ro").partition(":")
    script = (ROOT / source).read_text(encoding="utf-8")
    assert target in agent["entrypoint"]
    assert set(re.findall(r"""environ\[["'](\w+)["']\]""", script)) == set(agent["environment"])
    assert agent["environment"]["OPENAI_BASE_URL"].startswith("http://sidemirror:8080/")


def test_the_example_agent_asks_and_tells_what_memory_did(product: Running, lane: Lane) -> None:
    lane.script(completion("Dark mode."))
    environment = {"OPENAI_BASE_URL": f"{product.address}/v1", "OPENAI_API_KEY": lane.key, "MODEL": "gpt-4o-mini"}
    script = ROOT / "docs" / "docker" / "agent.py"
    done = subprocess.run(
        [sys.executable, str(script), "What do", "I prefer?"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert re.fullmatch(r"Dark mode\.\n\[memory ok, \d+ injected\]\n", done.stdout), done.stderr
    assert lane.last.json["messages"][-1] == {"role": "user", "content": "What do I prefer?"}


@pytest.mark.parametrize("document", PROSE)
def test_the_page_names_only_services_volumes_and_settings_that_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    known = {"SIDEMIRROR__SECTION__KEY", *(name for name, _ in env_names())}
    assert set(re.findall(r"SIDEMIRROR__\w+", text)) <= known
    made = {each["name"] for each in compose()["volumes"].values()}
    assert set(re.findall(r"\bsidemirror_\w+", text)) <= made
    named = re.findall(r"docker compose (?:logs|restart|stop|run --rm|exec)(?: --?[\w-]+(?: \d+)?)*\s+(\w+)", text)
    assert named
    assert set(named) <= set(compose()["services"])


def test_both_pages_show_the_same_commands() -> None:
    def shown(document: str) -> list[str]:
        blocks = re.findall(r"```sh\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
        lines = [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines()]
        return [line for line in lines if line and not line.startswith("docker compose run --rm agent")]

    assert shown(PROSE[0]) == shown(PROSE[1])
    assert len(shown(PROSE[0])) > 10
