"""`sidemirror mcp`: an agent that starts it as a program gets the running proxy's tools; and the documents say how."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import mcp
import pytest
from mcp.types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from bench.processes import free_port
from proxy.auth import hashed, new_key
from proxy.cli import stdio
from proxy.cli.client import Target
from proxy.errors import SidemirrorError
from proxy.http.mcp.catalogue import TOOLS
from proxy.http.mcp.words import INSTRUCTIONS
from tests.agents import Agent
from tests.chaos import folder_with_rules
from tests.running import ROOT, Running, running

NAMES = ["memory_search", "memory_write", "memory_update", "memory_forget"]
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def command(*args: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "proxy", "mcp", *args]


def environment(**more: str) -> dict[str, str]:
    """The test's environment without settings for us."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("SIDEMIRROR")}, **more}


def ran(*args: str, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        command(*args), input=given, capture_output=True, text=True, cwd=ROOT, env=environment(**env), timeout=30
    )


@asynccontextmanager
async def started(address: str, *args: str, mode: str = "auto") -> AsyncIterator[Agent]:
    """The official client, which starts the command."""
    whole = command("--url", address, *args)
    program = mcp.StdioServerParameters(command=whole[0], args=whole[1:], cwd=ROOT, env=environment())
    async with mcp.Client(program, mode=mode) as client:
        yield Agent(client)


# ── what an agent gets ─────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("mode", "version", "text", "query"),
    [
        ("auto", LATEST_MODERN_VERSION, "用户喜欢深色模式 🌙", "深色模式"),
        ("legacy", LATEST_HANDSHAKE_VERSION, "The user prefers dark mode", "dark mode"),
    ],
)
async def test_the_official_client_gets_the_proxys_rules_and_tools(
    product: Running, user: str, mode: str, version: str, text: str, query: str
) -> None:
    async with started(product.address, "--user", user, "--agent", "coder", mode=mode) as one:
        assert (one.client.protocol_version, one.client.instructions) == (version, INSTRUCTIONS)
        assert await one.tools() == NAMES
        written = await one.done("memory_write", content=text, kind="preference")
        assert (await one.done("memory_search", query=query)).contents == [text]
        assert "top_k" in await one.refused("memory_search", query=query, top_k=0)
        (record,) = product.records(user, agent_id="coder")
        assert (record["content"], record["agent_id"], record["scope"]) == (text, "coder", "user")
        await one.done("memory_forget", memory_id=written.data["memory"]["id"])
    assert product.records(user, agent_id="coder") == []


async def test_options_say_whose_memories(product: Running, user: str) -> None:
    async with started(product.address, "--user", user, "--agent", "coder") as one:
        await one.done("memory_write", content="The build runs at night")
        async with started(product.address, "--user", user, "--agent", "shop") as other:
            assert (await other.done("memory_search", query="build")).contents == []
            assert "user_id" in await other.refused("memory_search", query="build", user_id=user)
        assert (await one.done("memory_search", query="build")).contents == ["The build runs at night"]


def test_stdout_carries_the_protocol_alone_and_the_end_of_stdin_ends_it(product: Running, user: str) -> None:
    done = ran("--url", product.address, "--user", user, given=json.dumps(HELLO) + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["result"]["serverInfo"]["name"] == "sidemirror"


def test_ctrl_c_ends_it_while_it_waits(product: Running) -> None:
    with subprocess.Popen(
        command("--url", product.address), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(HELLO) + "\n")
        process.stdin.flush()
        assert "sidemirror" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT


# ── when there is no proxy ─────────────────────────────────────────────────────────────────────────────────────────
def test_without_a_proxy_it_says_how_to_start_one() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = ran("--url", url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"sidemirror: no proxy answers at {url}; start it with 'sidemirror serve', or name another with --url\n"
    )


async def test_a_proxy_that_restarts_is_found_again(tmp_path: Path) -> None:
    port = str(free_port())
    target, folder = Target(f"http://127.0.0.1:{port}", user="ada"), folder_with_rules(tmp_path)
    async with stdio.RemoteTools(target) as tools:
        with running(folder, args=("--port", port)):
            served = stdio.server(tools, await tools.hello())
            async with mcp.Client(served) as client:
                await Agent(client).done("memory_write", content="The kettle is blue")
        async with mcp.Client(served) as client:
            said = await Agent(client).refused("memory_search", query="kettle")
            assert "sidemirror serve" in said
            assert "Go on without it" in said
            with pytest.raises(mcp.MCPError, match="no proxy answers"):
                await client.list_tools()
            with running(folder, args=("--port", port)):
                assert (await Agent(client).done("memory_search", query="kettle")).contents == ["The kettle is blue"]


async def test_a_proxy_that_hangs_is_not_waited_for_for_ever() -> None:
    with answering(lambda _: None) as (url, _):
        async with stdio.RemoteTools(Target(url), timeout_s=0.05) as tools:
            with pytest.raises(SidemirrorError, match="no proxy answers"):
                await tools.hello()


async def refused(target: Target) -> str:
    """Why the command would not start."""
    async with stdio.RemoteTools(target) as tools:
        with pytest.raises(SidemirrorError) as failed:
            await tools.hello()
    return str(failed.value)


REFUSAL = {"error": {"message": "not you", "type": "t", "code": "c", "param": None}}
INFO = {"serverInfo": {"name": "sidemirror", "version": "9"}, "protocolVersion": LATEST_HANDSHAKE_VERSION}


@contextmanager
def answering(answer: Any) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """A server that answers every POST with a status and JSON or bytes; its address, and the headers it got."""
    got: list[Mapping[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(dict(self.headers))
            self.rfile.read(int(self.headers["Content-Length"]))
            reply = answer(self.path)
            if reply is None:  # never answers: the client hangs up
                self.rfile.read(1)
                return
            status, said = reply
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", got
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, REFUSAL, "not you; give a key with --key"),
        (403, REFUSAL, "name the user with --user"),
        (500, REFUSAL, "HTTP 500"),
        (200, {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no such method"}}, "no such method"),
        (200, {"jsonrpc": "2.0", "id": 1, "result": {"serverInfo": {"name": "other"}}}, "is no Sidemirror"),
        (200, b"<html>", "is no Sidemirror"),
        (200, [], "is no Sidemirror"),
        (404, {"detail": "Not Found"}, "is no Sidemirror"),
    ],
)
async def test_whatever_answers_instead_is_told_in_a_sentence(status: int, body: Any, said: str) -> None:
    with answering(lambda _: (status, body)) as (url, _):
        refusal = await refused(Target(url))
    assert said in refusal
    assert url in refusal
    assert len(refusal.splitlines()) == 1


@pytest.mark.parametrize("url", ["not an address", "ftp://127.0.0.1", "http://"])
async def test_an_address_that_is_none_is_named(url: str) -> None:
    assert "--url" in await refused(Target(url))


def test_every_call_carries_the_key_and_whose_memories_are_meant() -> None:
    reply = {"jsonrpc": "2.0", "id": 1, "result": INFO}
    with answering(lambda _: (200, reply)) as (url, got):
        done = ran("--url", f"{url}/", "--user", "ada", "--agent", "coder", SIDEMIRROR_KEY="sm-from-the-environment")
        assert (done.returncode, done.stderr) == (0, "")
    (first,) = got
    assert first["Authorization"] == "Bearer sm-from-the-environment"
    assert (first["X-Memory-User"], first["X-Memory-Agent"]) == ("ada", "coder")


async def test_keys_hold_over_stdio_too(tmp_path: Path) -> None:
    key = new_key()
    entry = {"name": "reader", "hash": hashed(key), "permissions": ["memory:read"], "tenant": "home", "user": "ada"}
    with running(folder_with_rules(tmp_path), config={"auth": {"mode": "keys", "keys": [entry]}}) as product:
        assert "--key" in await refused(Target(product.address))
        assert "bound to another user" in await refused(Target(product.address, key, user="bob"))
        async with started(product.address, "--key", key) as one:
            assert await one.tools() == ["memory_search"]
            assert "memory:write" in await one.refused("memory_write", content="The kettle is blue")


# ── the documents ──────────────────────────────────────────────────────────────────────────────────────────────────
DOCUMENTS = ["docs/mcp.md", "docs/mcp.zh-CN.md"]


def blocks(document: str, language: str) -> list[str]:
    """The code blocks of a document in one language."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [block for name, block in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL) if name == language]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_settings_shown_are_well_formed_and_lead_here(document: str) -> None:
    shown = [json.loads(block) for block in blocks(document, "json")]
    shown += [tomllib.loads(block) for block in blocks(document, "toml")]
    assert len(shown) >= 6
    for settings in shown:
        text = json.dumps(settings)
        assert "http://127.0.0.1:8080/mcp" in text or '"mcp"' in text


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_shown_have_the_options_they_use(document: str) -> None:
    known = ran("--help").stdout
    text = "\n".join(["\n".join(blocks(document, name)) for name in ("json", "toml", "sh", "python")])
    used = set(re.findall(r"--[a-z]+", re.sub(r"claude mcp add.*?--$", "", text, flags=re.MULTILINE)))
    assert used & {"--user", "--agent"}
    assert not [option for option in used - {"--transport", "--header", "--url"} if option not in known]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_shown_compiles(document: str) -> None:
    (shown,) = blocks(document, "python")
    compile(shown, document, "exec", flags=0x2000)  # top-level await


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_tool_and_argument_is_explained(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for tool in TOOLS:
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{tool.name}` |")]
        missing = [name for name in tool.arguments.model_fields if f"`{name}`" not in line]
        assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_prompt_snippets_name_the_tools_and_show_examples_in_both_languages(document: str) -> None:
    zh, en = blocks(document, "text")
    for snippet in (zh, en):
        arguments = {name for tool in TOOLS for name in tool.arguments.model_fields}
        assert {tool.name for tool in TOOLS} == set(re.findall(r"memory_[a-z]+", snippet)) - arguments
        assert len(re.findall(r"^<example>$", snippet, re.MULTILINE)) >= 3


def test_both_documents_show_the_same_snippets_and_settings() -> None:
    for language in ("json", "toml", "text", "sh", "python"):
        assert blocks(DOCUMENTS[0], language) == blocks(DOCUMENTS[1], language)
