"""`sidemirror import` against a running proxy: through the policies or as it is, in both languages, and never twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.calls import Memories, contents, tell
from tests.commands import Commands
from tests.running import ROOT, Running, eventually
from tests.scripted import Lane, completion

SAMPLES = Path(__file__).parent / "samples"
CHATGPT, TRANSCRIPT, MEM0, NOTES = (
    str(SAMPLES / name) for name in ("chatgpt.json", "transcript.jsonl", "mem0.json", "notes.md")
)
LEARNT = {
    "The user prefers dark mode",
    "The user is allergic to peanuts",
    "用户不吃辣",
    "用户把数据库从MySQL换成了PostgreSQL",
}


@pytest.fixture
def memories(product: Running, user: str) -> Iterator[Memories]:
    """The user's memory API."""
    with product.http(user) as http:
        yield Memories(http)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, product: Running
) -> Commands:
    """Run a command."""
    return Commands(monkeypatch, capsys, tmp_path, ("--url", product.address))


def lasting(product: Running, user: str) -> set[str]:
    """What was learnt, summaries left out."""
    return {one["content"] for one in product.records(user) if one["kind"] not in ("turn", "summary")}


# ── conversations, through the policies ────────────────────────────────────────────────────────────────────────────
def test_conversations_go_through_the_policies(run: Commands, product: Running, user: str) -> None:
    ran = run("import", CHATGPT, "--user", user)
    assert ran.status == 0
    assert "2 conversations, 4 new turns" in ran.out
    assert "1 entries" in ran.err  # one holds nothing that the user said
    assert lasting(product, user) == LEARNT


def test_memories_are_dated_as_the_conversation_is(run: Commands, product: Running, user: str) -> None:
    run("import", CHATGPT, "--user", user)
    records = product.records(user)
    days = {one["content"]: one["valid_from"][:10] for one in records}
    assert days["The user prefers dark mode"] == "2025-01-01"
    assert days["用户不吃辣"] == "2025-02-19"
    # The end of each conversation too: not as if all of them had ended today.
    assert {one["valid_from"][:10] for one in records if one["kind"] == "summary"} == {"2025-01-01", "2025-02-19"}


def test_a_second_import_writes_nothing_and_a_grown_file_adds_what_is_new(
    run: Commands, product: Running, user: str, tmp_path: Path
) -> None:
    file = tmp_path / "talk.jsonl"
    said = [{"role": "user", "content": "I prefer dark mode."}, {"role": "assistant", "content": "Noted."}]
    file.write_text(json.dumps({"messages": said}))
    assert run("import", str(file), "--user", user, "--json").json["turns"] == 1
    before = product.records(user)
    again = run("import", str(file), "--user", user, "--json").json
    assert (again["turns"], again["known"], again["outcomes"]) == (0, 1, {})
    assert product.records(user) == before
    said += [{"role": "user", "content": "我不吃辣"}, {"role": "assistant", "content": "好的。"}]
    file.write_text(json.dumps({"messages": said}))
    grown = run("import", str(file), "--user", user, "--json").json
    assert (grown["turns"], grown["known"]) == (1, 1)
    assert lasting(product, user) == {"The user prefers dark mode", "用户不吃辣"}
    # Both belong to one session, whose summary was made anew.
    assert len({one["session_id"] for one in product.records(user)}) == 1
    assert sum(one["key"] is not None and one["key"].startswith("session.") for one in product.records(user)) == 1


def test_a_dry_run_says_what_would_be_written_and_writes_nothing(run: Commands, product: Running, user: str) -> None:
    ran = run("import", TRANSCRIPT, "--user", user, "--dry-run")
    assert ran.status == 0
    assert "The user's favourite editor is Neovim" in ran.out
    assert "用户一般都早上七点去江边跑步" in ran.out
    told = run("import", TRANSCRIPT, "--user", user, "--dry-run", "--json").json
    assert {one["kind"] for one in told["proposals"]} >= {"preference", "tool_failure"}
    assert product.records(user, state="all") == []


def test_tools_of_a_transcript_are_paired_with_their_calls(run: Commands, product: Running, user: str) -> None:
    assert run("import", TRANSCRIPT, "--user", user).status == 0
    assert "工具 get_weather 失败：Error: connection refused" in lasting(product, user)


def test_an_old_statement_does_not_take_the_place_of_a_newer_one(
    run: Commands, product: Running, user: str, tmp_path: Path
) -> None:
    file = tmp_path / "talk.jsonl"
    said = {"2025-06-01": "We moved from Jenkins to GitHub Actions.", "2024-06-01": "We moved from cron to Jenkins."}
    lines = [{"at": day, "messages": [{"role": "user", "content": text}]} for day, text in said.items()]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert run("import", str(file), "--user", user).status == 0
    assert "The user moved from Jenkins to GitHub Actions" in lasting(product, user)


def test_secrets_of_a_transcript_are_taken_out(run: Commands, product: Running, user: str, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    secret = "sk-" + "a1B2c3D4" * 6
    file.write_text(json.dumps({"role": "user", "content": f"Remember: I like tea, and my key is {secret}."}))
    assert run("import", str(file), "--user", user).status == 0
    records = product.records(user, state="all")
    assert records
    assert secret not in json.dumps(records)


def test_background_calls_in_a_log_are_kept_out(run: Commands, product: Running, user: str, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    task = (
        "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\nI prefer dark mode."
    )
    file.write_text(json.dumps({"messages": [{"role": "user", "content": task}]}))
    told = run("import", str(file), "--user", user, "--json").json
    assert (told["turns"], told["dropped"]) == (0, 1)
    assert product.records(user, state="all") == []


def test_what_cannot_be_told_is_named_and_the_rest_comes_in(
    run: Commands, product: Running, user: str, tmp_path: Path
) -> None:
    file = tmp_path / "talk.jsonl"
    lines = [
        '{"messages": [{"role": "wizard", "content": "hi"}]}',
        '{"messages": [{"role": "assistant", "content": "hi"}]}',
        "nonsense",
        '{"messages": [{"role": "user", "content": "I prefer dark mode."}]}',
    ]
    file.write_text("\n".join(lines))
    ran = run("import", str(file), "--user", user)
    assert ran.status == 1
    assert f"{file}:1: messages[0]: role 'wizard'" in ran.err
    assert f"{file}:2: nobody but the assistant" in ran.err
    assert f"{file}:3: not JSON" in ran.err
    assert "3 did not come in" in ran.err
    assert lasting(product, user) == {"The user prefers dark mode"}


def test_a_thread_that_goes_on_through_the_proxy_is_known(
    run: Commands, product: Running, user: str, lane: Lane, tmp_path: Path
) -> None:
    said = [{"role": "user", "content": "I prefer dark mode."}, {"role": "assistant", "content": "Noted, sir."}]
    file = tmp_path / "talk.jsonl"
    file.write_text(json.dumps({"messages": said}))
    assert run("import", str(file), "--user", user).status == 0
    lane.script(completion("ok"))
    tell(product, lane, [*said, {"role": "user", "content": "我不吃辣"}], user=user)
    learnt = [one for one in product.records(user) if one["kind"] == "preference"]
    assert sorted(one["content"] for one in learnt) == ["The user prefers dark mode", "用户不吃辣"]
    assert len({one["session_id"] for one in learnt}) == 1
    # What was imported is not taken for an unseen beginning of the thread.
    assert not [one for one in product.records(user) if "backfill" in one["tags"]]


# ── memories, as they are ──────────────────────────────────────────────────────────────────────────────────────────
def test_memories_of_mem0_come_in_for_their_user_as_they_are(
    run: Commands, product: Running, user: str, tmp_path: Path
) -> None:
    data = json.loads(Path(MEM0).read_text())
    for entry in data["results"]:
        entry["user_id"] = user
        entry["id"] = entry["id"].replace("8", "9") if "-" in entry["id"][3:] else entry["id"]
    file = tmp_path / "mem0.json"
    file.write_text(json.dumps(data))
    ran = run("import", str(file), "--user", user)
    assert (ran.status, ran.out) == (0, "3 memories came in, 0 were there already\n")
    by_text = {one["content"]: one for one in product.records(user, agent_id="*")}
    taste = by_text["Prefers sci-fi movies over thrillers"]
    assert (taste["id"], taste["agent_id"], taste["kind"]) == (data["results"][1]["id"], "movie-agent", "preference")
    assert taste["created_at"] == "2025-02-27T04:01:40Z"
    assert by_text["用户对花生过敏"]["source"]["rule"] == "import.mem0"
    assert run("import", str(file), "--user", user, "--json").json["skipped"] == 3


def test_memories_of_another_user_move_only_when_that_is_said(
    run: Commands, product: Running, memories: Memories, user: str
) -> None:
    ran = run("import", MEM0, "--user", user)
    assert (ran.status, memories.listed()) == (1, [])
    assert "--to-user" in ran.err
    moved = run("import", MEM0, "--to-user", user, "--to-agent", "coder", "--to-scope", "agent")
    assert (moved.status, moved.out) == (0, "3 memories came in, 0 were there already\n")
    found = product.records(user, agent_id="coder")
    assert {(one["agent_id"], one["scope"]) for one in found} == {("coder", "agent")}
    assert {one["source"]["request"] for one in found} >= {"m-17"}
    again = run("import", MEM0, "--to-user", user, "--to-agent", "coder", "--to-scope", "agent", "--json")
    assert (again.json["imported"], again.json["skipped"]) == (0, 3)


def test_lists_in_markdown_come_in_as_they_are(run: Commands, memories: Memories, user: str) -> None:
    assert run("import", NOTES, "--user", user).status == 0
    assert set(memories.listed()) >= {"Likes dark mode", "Tools: Neovim", "不吃辣"}
    assert run("import", NOTES, "--user", user, "--json").json["imported"] == 0


def test_the_same_list_may_be_for_two_users(run: Commands, product: Running, user: str) -> None:
    for one in (user, f"{user}-b"):
        assert run("import", NOTES, "--user", one, "--json").json["imported"] == 7


def test_the_ways_can_be_exchanged(run: Commands, product: Running, user: str, tmp_path: Path) -> None:
    assert run("import", TRANSCRIPT, "--user", user, "--as-is", "--json").json["imported"] == 3
    assert {one["kind"] for one in product.records(user)} == {"turn"}
    file = tmp_path / "mine.md"
    file.write_text("- I prefer dark mode.\n- Is this a question?\n")
    told = run("import", str(file), "--user", f"{user}-b", "--through-policies", "--json").json
    assert told["turns"] == 2
    assert contents(product, f"{user}-b", kind="preference") == ["The user prefers dark mode"]


# ── mistakes ───────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nowhere.json",), "nowhere.json cannot be read"),
        ((TRANSCRIPT, "--format", "yaml"), "--format 'yaml'"),
        ((TRANSCRIPT, "--to-scope", "user"), "--to-scope goes with --as-is"),
        ((MEM0, "--to-scope", "world"), "--to-scope 'world'"),
        ((MEM0, "--through-policies"), "memories of alice"),
        ((NOTES, "--format", "chatgpt"), "no export of ChatGPT"),
        ((NOTES, "--format", "transcript"), "nothing to import"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(run: Commands, args: tuple[str, ...], said: str) -> None:
    ran = run("import", *args)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err


# ── interrupted, killed ──────────────────────────────────────────────────────────────────────────────────────────────
def test_an_interrupted_import_says_that_it_can_be_gone_on_with(
    run: Commands, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("proxy.cli.importing.send", interrupted)
    ran = run("import", CHATGPT, "--user", user)
    assert (ran.status, ran.out) == (130, "")
    assert "the same command goes on where this one stopped" in ran.err


def test_a_killed_import_goes_on_without_doubles(run: Commands, product: Running, user: str, tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    said = [f"My locker {number} has the code {number * 7919}." for number in range(60)]
    talks = [{"id": text.split()[2], "messages": [{"role": "user", "content": text}]} for text in said]
    file.write_text("\n".join(map(json.dumps, talks)))
    command = [sys.executable, "-m", "proxy", "import", str(file), "--url", product.address, "--user", user]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        eventually(lambda: product.records(user, kind="turn"), within_s=60)
    finally:
        started.send_signal(signal.SIGKILL)
        started.communicate()
    assert len(product.records(user, kind="turn")) < len(said)
    assert run("import", str(file), "--user", user).status == 0
    turns = [one["content"] for one in product.records(user, kind="turn")]
    assert sorted(turns) == sorted(said)
