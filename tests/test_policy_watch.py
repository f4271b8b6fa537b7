"""Reload: all or nothing, and seen without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.errors import PolicyError
from proxy.policy.rules import PolicySet
from proxy.policy.watch import PolicyHolder

RULE = """version: 1
triggers:
  - id: likes
    when: user_message
    if: {match: 'I like (?P<thing>\\w+)'}
    extract: {template: The user likes $thing}
    write: {memory_type: semantic, confidence: CONFIDENCE}
    examples:
      - {user: I like tea, expect: [{content: EXPECTED}]}
"""


def write(folder: Path, confidence: str = "0.8", expected: str = "The user likes tea") -> None:
    text = RULE.replace("CONFIDENCE", confidence).replace("EXPECTED", expected)
    (folder / "10-likes.yaml").write_text(text, "utf-8")


def confidence(policies: PolicySet) -> float:
    write_part = policies.triggers[0].trigger.write
    assert write_part is not None
    return write_part.confidence


def test_first_load_fails_loudly(tmp_path: Path) -> None:
    write(tmp_path, expected="something else")
    with pytest.raises(PolicyError, match=r"10-likes\.yaml:9:"):
        PolicyHolder([tmp_path])


def test_reload_swaps_the_set_and_tells(tmp_path: Path) -> None:
    write(tmp_path)
    changed: list[PolicySet] = []
    holder = PolicyHolder([tmp_path], on_change=changed.append)
    before = holder.current
    write(tmp_path, confidence="0.5")
    assert holder.reload()
    assert (confidence(before), confidence(holder.current)) == (0.8, 0.5)
    assert changed == [holder.current]
    assert before.hash != holder.current.hash


def test_reload_keeps_old_set_when_an_example_fails(tmp_path: Path) -> None:
    write(tmp_path)
    refused: list[str] = []
    holder = PolicyHolder([tmp_path], on_refused=refused.append)
    before = holder.current
    write(tmp_path, confidence="0.5", expected="The user likes coffee")
    assert not holder.reload()
    assert holder.current is before
    assert holder.error is not None
    assert "expected {content: The user likes coffee} but got {content: The user likes tea}" in holder.error
    assert refused == [holder.error]
    write(tmp_path, confidence="0.5")
    assert holder.reload()
    assert holder.error is None


def test_reload_keeps_old_set_when_the_folder_is_emptied(tmp_path: Path) -> None:
    write(tmp_path)
    holder = PolicyHolder([tmp_path])
    (tmp_path / "10-likes.yaml").unlink()
    assert not holder.reload()
    assert len(holder.current.triggers) == 1


@asynccontextmanager
async def watching(holder: PolicyHolder) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(holder.watch(stop))
        yield
        stop.set()


def thread_safe(event: asyncio.Event) -> Callable[[object], None]:
    loop = asyncio.get_running_loop()

    def set_it(_: object) -> None:
        loop.call_soon_threadsafe(event.set)

    return set_it


async def test_a_changed_file_is_seen_and_a_broken_one_is_not_used(tmp_path: Path) -> None:
    write(tmp_path)
    changed, refused = asyncio.Event(), asyncio.Event()
    holder = PolicyHolder([tmp_path], on_change=thread_safe(changed), on_refused=thread_safe(refused))
    async with asyncio.timeout(20), watching(holder):
        write(tmp_path, confidence="0.5")
        await changed.wait()
        assert confidence(holder.current) == 0.5
        (tmp_path / "20-broken.yaml").write_text("version: 1\ntrigers: []\n", "utf-8")
        await refused.wait()
        assert confidence(holder.current) == 0.5
        assert "did you mean 'triggers'" in (holder.error or "")


async def test_a_change_before_watching_began_is_seen(tmp_path: Path) -> None:
    write(tmp_path)
    changed = asyncio.Event()
    holder = PolicyHolder([tmp_path], on_change=thread_safe(changed))
    write(tmp_path, confidence="0.55")
    async with asyncio.timeout(20), watching(holder):
        await changed.wait()
    assert confidence(holder.current) == 0.55


async def test_a_new_local_folder_is_seen(tmp_path: Path) -> None:
    write(tmp_path)
    changed = asyncio.Event()
    holder = PolicyHolder([tmp_path], on_change=thread_safe(changed))
    async with asyncio.timeout(20), watching(holder):
        (tmp_path / "local").mkdir()
        text = RULE.replace("CONFIDENCE", "0.3").replace("EXPECTED", "The user likes tea")
        (tmp_path / "local" / "mine.yaml").write_text(
            text.replace("id: likes", "id: likes\n    override: true"), "utf-8"
        )
        await changed.wait()
    assert confidence(holder.current) == 0.3
