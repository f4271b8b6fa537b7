"""`sidemirror demo`: two conversations, two sessions each, showing what was written, recalled and injected."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from proxy.app import serving
from proxy.config import Override, default_path, load

_LEDGER_POLL_S = 0.05
_LEDGER_WAIT_S = 15.0
_OFFLINE_KEY = "demo"
"""For `demo/echo`, which asks for none: with `auth.tenant: api_key` a call without a key gets no memory."""


@dataclass(frozen=True, slots=True)
class Story:
    """One user's two sessions.

    Args:
        user: User id (a random ending is added, so that every demo starts with an empty memory).
        first: What is said in the first session, one message a turn.
        second: What is asked in the second session, which knows nothing of the first.
    """

    user: str
    first: tuple[str, ...]
    second: str


STORIES = (
    Story(
        "xiaolin",
        ("我叫小林，我住在杭州。", "我更喜欢深色模式。以后都用中文回答我。"),
        "帮我设计一个设置页面，你还记得我喜欢什么吗？",
    ),
    Story(
        "ada",
        (
            "My name is Ada and I live in Berlin.",
            "I prefer short answers. Our staging database runs on port 5433.",
        ),
        "How do I connect to our staging database?",
    ),
)


async def run(url: str | None, model: str | None, *, compare: bool, console: Console) -> None:
    """Play the stories against a proxy.

    Args:
        url: A running proxy's address; None starts one on a free port, with a data folder that is thrown away.
        model: Model name; by default `demo/echo`, or a real one when OPENAI_API_KEY is set.
        compare: Ask each second session again with memory off.
        console: Where to print.
    """
    key = os.environ.get("OPENAI_API_KEY", "")
    model = model or ("gpt-4o-mini" if key else "demo/echo")
    console.print(f"model [bold]{model}[/bold]" + ("" if key else " (offline: it quotes the memory it is given)"))
    bearer = key or (_OFFLINE_KEY if model == "demo/echo" else "")
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    async with _proxy(url) as base, aiohttp.ClientSession(base, headers=headers) as client:
        for story in STORIES:
            await _play(client, story, model, compare=compare, console=console)


@asynccontextmanager
async def _proxy(url: str | None) -> AsyncIterator[str]:
    if url is not None:
        yield url.rstrip("/")
        return
    with tempfile.TemporaryDirectory(prefix="sidemirror-demo-") as folder:
        flags = [
            Override("--data", ("data_dir",), str(Path(folder) / "data")),
            Override("--port", ("server", "port"), 0),
        ]
        async with serving(load(default_path(), os.environ, flags)) as address:
            yield address


async def _play(client: aiohttp.ClientSession, story: Story, model: str, *, compare: bool, console: Console) -> None:
    user = f"{story.user}-{secrets.token_hex(3)}"
    console.rule(f"[bold]{user}")
    for text in story.first:
        await _turn(client, user, "first", text, model, console=console)
    await _turn(client, user, "second", story.second, model, console=console)
    if compare:
        await _turn(client, user, "third", story.second, model, console=console, mode="off")


async def _turn(
    client: aiohttp.ClientSession,
    user: str,
    session: str,
    text: str,
    model: str,
    *,
    console: Console,
    mode: str = "on",
) -> None:
    headers = {"X-Memory-User": user, "X-Memory-Session": session, "X-Memory-Mode": mode}
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    async with client.post("/v1/chat/completions", json=body, headers=headers) as response:
        answer = await response.json()
        memory = {name: response.headers.get(f"X-Memory-{name}", "") for name in ("Status", "Injected", "Tokens")}
        request_id = response.headers.get("X-Memory-Request-Id", "")
        failed = response.status >= 400
    said = answer.get("error", {}).get("message", "") if failed else answer["choices"][0]["message"]["content"]
    counts = f"{memory['Injected']} injected, {memory['Tokens']} tokens"
    title = f"session {session}, memory {mode}: {memory['Status']}, {counts}"
    shown = Text.assemble(("user  ", "bold cyan"), text, ("\nmodel ", "bold green"), str(said))
    console.print(Panel(shown, title=title, title_align="left"))
    if mode == "on" and not failed:
        console.print(_table(await _account(client, user, request_id)))


async def _account(client: aiohttp.ClientSession, user: str, request_id: str) -> Mapping[str, Any]:
    """The call's ledger, once its memories are written."""
    async with asyncio.timeout(_LEDGER_WAIT_S):
        while True:
            async with client.get(f"/memory/requests/{request_id}", headers={"X-Memory-User": user}) as response:
                ledger: Mapping[str, Any] = await response.json()
            if response.status == 200 and ledger["written"]["status"] != "queued":
                return {**ledger, "written": await _with_text(client, user, ledger["written"])}
            await asyncio.sleep(_LEDGER_POLL_S)


async def _with_text(client: aiohttp.ClientSession, user: str, written: Mapping[str, Any]) -> Mapping[str, Any]:
    outcomes = []
    for outcome in written["outcomes"]:
        content = outcome["memory_id"] or ""
        if outcome["action"] not in ("slot", "dropped", "failed"):
            path = f"/memory/records/{outcome['memory_id']}"
            async with client.get(path, headers={"X-Memory-User": user}) as response:
                content = (await response.json()).get("content", content)
        outcomes.append({**outcome, "content": content})
    return {**written, "outcomes": outcomes}


def _table(ledger: Mapping[str, Any]) -> Table:
    table = Table("", "memory", "how", show_edge=False, pad_edge=False)
    injected = set(ledger["injected"].get("items", ()))
    for hit in ledger["recalled"]:
        where = "injected" if hit["id"] in injected else f"left out: {hit['left_out']}"
        table.add_row("recalled", escape(str(hit["content"])), f"score {hit['score']:.2f}, {where}")
    for outcome in ledger["written"]["outcomes"]:
        table.add_row("written", escape(str(outcome["content"])), f"{outcome['action']} by {outcome['rule_id']}")
    if not table.rows:
        table.add_row("", "(nothing recalled, nothing written)", "")
    return table
