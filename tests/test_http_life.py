"""The life of a memory from outside: use, repetition, forgetting and taking that back, ends of sessions, task chains,
limits, shadow rules, dates, schedules, and a model that helps the rules."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from proxy.observe import answer_hash
from proxy.store.sqlite import SqliteStore
from tests.calls import RULES, Memories, Said, answered, ask, contents, refused, tell
from tests.running import ROOT, Running, eventually, running
from tests.scripted import Lane, Received, Reply, ScriptedUpstream, completion

Ledger = dict[str, Any]
Record = dict[str, Any]


DATABASE = "sidemirror.db"
NOTE = "schedule:clean-up"


class Tongue(NamedTuple):
    """The same conversation in one language."""

    likes: str
    liked: str
    likes_again: str
    aside: str
    forget: str
    restore: str
    port: str
    port_question: str
    port_answer: str
    tea: str
    other_answer: str


ZH = Tongue(
    likes="我喜欢吃榴莲。",
    liked="用户喜欢吃榴莲",
    likes_again="对了，我喜欢吃榴莲。",
    aside="我们的前端用 Vue 3 写的。",
    forget="忘掉我喜欢吃榴莲这件事",
    restore="撤销刚才的删除",
    port="测试库监听 5433 端口",
    port_question="测试库怎么连？",
    port_answer="用 5433 端口连，5433 不是默认的。",
    tea="用户爱喝龙井茶",
    other_answer="我不清楚。",
)
EN = Tongue(
    likes="I like windsurfing.",
    liked="The user likes windsurfing",
    likes_again="By the way, I like windsurfing.",
    aside="Our frontend is written in Vue 3.",
    forget="Forget that I like windsurfing.",
    restore="Actually, restore that.",
    port="The staging database listens on port 5433",
    port_question="How do I reach the staging database?",
    port_answer="Use port 5433; 5433 is not the default.",
    tea="The user likes oolong tea",
    other_answer="I do not know.",
)
both = pytest.mark.parametrize("tongue", [pytest.param(ZH, id="zh"), pytest.param(EN, id="en")])


class Thread:
    """One conversation, whose whole history is sent each turn, as clients do.

    Args:
        product, lane, user: Where, and whose.
        session: Its name; a new one by default.
    """

    def __init__(self, product: Running, lane: Lane, user: str, session: str | None = None) -> None:
        self.product, self.lane, self.user = product, lane, user
        self.session = session or f"s-{secrets.token_hex(4)}"
        self.messages: Said = []

    def say(self, text: str, answer: str = "OK") -> Ledger:
        """Say something, and have its memories written."""
        self.messages.append({"role": "user", "content": text})
        return self.go_on(completion(answer), {"role": "assistant", "content": answer})

    def go_on(self, reply: Reply, message: dict[str, Any]) -> Ledger:
        """Send what there is, and take the answer along."""
        self.lane.script(reply)
        ledger = self.send()
        self.messages.append(message)
        return ledger

    def send(self) -> Ledger:
        """Send the history as it stands."""
        return tell(self.product, self.lane, self.messages, user=self.user, session=self.session)

    def end(self) -> None:
        """End the session."""
        with self.product.http(self.user) as http:
            assert answered(http.delete(f"/memory/sessions/{self.session}"), 200)["ended"] is True

    def slots(self) -> dict[str, Any]:
        """What working memory holds of it."""
        with self.product.http(self.user) as http:
            response = http.get(f"/memory/sessions/{self.session}")
        return {} if response.status_code == 404 else answered(response, 200)["slots"]


@pytest.fixture
def thread(product: Running, lane: Lane, user: str) -> Thread:
    """A conversation of this test's user, with the product as shipped."""
    return Thread(product, lane, user)


def another(thread: Thread) -> Thread:
    """The same user in a new conversation."""
    return Thread(thread.product, thread.lane, thread.user)


def record(thread: Thread, content: str, **query: str) -> Record:
    """The user's one record that says this."""
    [found] = [one for one in thread.product.records(thread.user, **query) if one["content"] == content]
    return found


def actions(ledger: Ledger) -> list[tuple[str, str]]:
    """Which rules did what."""
    return [(one["rule_id"], one["action"]) for one in ledger["written"]["outcomes"]]


def summaries(thread: Thread, **query: str) -> list[str]:
    """What its summaries and key points say."""
    query = {"session_id": thread.session, **query}
    return [one["content"] for one in thread.product.records(thread.user, **query) if one["kind"] == "summary"]


# ── use and repetition ─────────────────────────────────────────────────────────────────────────────────────────────
@both
def test_a_memory_that_an_answer_used_gains_strength_once_and_another_does_not(thread: Thread, tongue: Tongue) -> None:
    with thread.product.http(thread.user) as http:
        for content in (tongue.port, tongue.tea):
            Memories(http).create(content, scope="user")
    ledger = thread.say(tongue.port_question, tongue.port_answer)
    assert ledger["injected"]["items"], ledger
    port, tea = record(thread, tongue.port), record(thread, tongue.tea)
    assert (port["strength"], port["access_count"]) == (pytest.approx(1.1), 1)
    assert port["last_accessed_at"] is not None
    assert (tea["strength"], tea["access_count"], tea["last_accessed_at"]) == (1.0, 0, None)


@both
def test_a_memory_that_was_injected_in_vain_gains_nothing(thread: Thread, tongue: Tongue) -> None:
    with thread.product.http(thread.user) as http:
        Memories(http).create(tongue.port, scope="user")
    ledger = thread.say(tongue.port_question, tongue.other_answer)
    assert ledger["injected"]["items"]
    port = record(thread, tongue.port)
    assert (port["strength"], port["access_count"]) == (1.0, 0)


@both
def test_an_sdks_retry_counts_no_second_use(thread: Thread, tongue: Tongue) -> None:
    with thread.product.http(thread.user) as http:
        Memories(http).create(tongue.port, scope="user")
    thread.messages = [{"role": "user", "content": tongue.port_question}]
    for _ in range(2):
        thread.lane.script(completion(tongue.port_answer))
        thread.send()
    assert record(thread, tongue.port)["access_count"] == 1


@both
def test_a_preference_said_in_another_session_counts_for_more_and_in_the_same_one_does_not(
    thread: Thread, tongue: Tongue
) -> None:
    thread.say(tongue.likes)
    assert record(thread, tongue.liked)["strength"] == 1.0
    thread.say(tongue.likes_again)
    assert record(thread, tongue.liked)["strength"] == 1.0
    another(thread).say(tongue.likes_again)
    assert record(thread, tongue.liked)["strength"] == pytest.approx(1.1)


# ── forget it ──────────────────────────────────────────────────────────────────────────────────────────────────────
@both
def test_forgetting_by_name_archives_and_is_taken_back(thread: Thread, tongue: Tongue) -> None:
    thread.say(tongue.likes)
    thread.say(tongue.aside)
    liked = record(thread, tongue.liked)
    ledger = thread.say(tongue.forget)
    assert ("forget-about", "archived") in actions(ledger)
    archived = {one["memory_id"] for one in ledger["written"]["outcomes"] if one["action"] == "archived"}
    assert liked["id"] in archived
    assert record(thread, tongue.liked, state="archived")["id"] == liked["id"]
    # Neither what was asked nor what was meant is left, under any kind.
    active = thread.product.records(thread.user)
    assert not [one["content"] for one in active if one["source"]["request"] == ledger["id"]]
    assert not [one["content"] for one in active if tongue.liked in one["content"] or tongue.likes in one["content"]]
    ledger = thread.say(tongue.restore)
    assert ("restore-last", "restored") in actions(ledger)
    assert record(thread, tongue.liked)["id"] == liked["id"]
    assert not [one for one in thread.product.records(thread.user) if one["source"]["request"] == ledger["id"]]


@both
def test_the_history_sent_again_forgets_and_restores_nothing(thread: Thread, tongue: Tongue) -> None:
    def census() -> list[tuple[str, str, int]]:
        found = thread.product.records(thread.user, state="all")
        return sorted((one["content"], one["state"], one["version"]) for one in found)

    thread.say(tongue.likes)
    thread.say(tongue.forget)
    forgotten = census()
    for _ in range(2):
        thread.send()
    assert census() == forgotten
    thread.say(tongue.restore)
    restored = census()
    assert restored != forgotten
    thread.send()
    # As a thread that came from elsewhere: without the name of its session.
    tell(thread.product, thread.lane, thread.messages[:-1], user=thread.user)
    assert census() == restored


@both
def test_a_reference_to_what_was_said_last_is_understood(thread: Thread, tongue: Tongue) -> None:
    thread.say(tongue.aside)
    kept = set(contents(thread.product, thread.user))
    thread.say(tongue.likes)
    ledger = thread.say({ZH: "算了，忘掉刚才那句话", EN: "Scratch that."}[tongue])
    assert ("forget-last", "archived") in actions(ledger)
    assert set(contents(thread.product, thread.user)) == kept


# ── the end of a session ───────────────────────────────────────────────────────────────────────────────────────────
class Trip(NamedTuple):
    """A session with a slot and a decision, in one language."""

    wish: str
    decision: str
    told: str
    more: str
    more_told: str


TRIPS = {
    ZH: Trip(
        "我想去京都，三个人，下个月出发。",
        "我决定住在鸭川旁边。",
        "鸭川",
        "我们还决定租一辆 7 座的车。",
        "7 座",
    ),
    EN: Trip(
        "I want to fly to Kyoto with 3 people next month.",
        "We decided to stay at the Kamo river.",
        "Kamo river",
        "We decided to rent a car with 7 seats.",
        "7 seats",
    ),
}


@both
def test_an_asked_end_writes_one_summary_with_key_points_and_clears_the_slots(thread: Thread, tongue: Tongue) -> None:
    trip = TRIPS[tongue]
    thread.say(trip.wish)
    thread.say(trip.decision)
    assert "destination" in thread.slots()
    thread.end()
    assert thread.slots() == {}
    points, summary = summaries(thread)
    assert trip.told in summary
    assert trip.told in points
    with thread.product.http(thread.user) as http:
        http.delete(f"/memory/sessions/{thread.session}")
    assert summaries(thread) == [points, summary]


@both
def test_a_second_end_after_more_talk_replaces_the_summary(thread: Thread, tongue: Tongue) -> None:
    trip = TRIPS[tongue]
    thread.say(trip.wish)
    thread.say(trip.decision)
    thread.end()
    former = {one["id"] for one in thread.product.records(thread.user, session_id=thread.session, kind="summary")}
    thread.say(trip.more)
    thread.end()
    points, summary = summaries(thread)
    assert trip.told in summary
    assert trip.more_told in summary
    assert trip.more_told in points
    superseded = thread.product.records(thread.user, session_id=thread.session, kind="summary", state="superseded")
    assert {one["id"] for one in superseded} == former


@both
def test_a_forgotten_record_leaves_the_summary_which_is_told_anew_without_it(thread: Thread, tongue: Tongue) -> None:
    trip = TRIPS[tongue]
    thread.say(trip.decision)
    thread.say(trip.more)
    thread.end()
    former = {one["id"] for one in thread.product.records(thread.user, session_id=thread.session, kind="summary")}
    [wrong] = [
        one
        for one in thread.product.records(thread.user, session_id=thread.session, kind="decision")
        if trip.told in one["content"]
    ]
    with thread.product.http(thread.user) as http:
        answered(http.delete(f"/memory/records/{wrong['id']}"), 200)
    texts = eventually(lambda: summaries(thread))
    assert texts
    assert any(trip.more_told in text for text in texts)
    everything = thread.product.records(thread.user, state="all", agent_id="*")
    assert not [one["content"] for one in everything if trip.told in one["content"]]
    assert not former & {one["id"] for one in everything}


@both
def test_what_is_forgotten_in_a_chat_leaves_the_summary_of_an_earlier_session_too(
    thread: Thread, tongue: Tongue
) -> None:
    thread.say(tongue.likes)
    thread.say(tongue.aside)
    thread.end()
    assert [text for text in summaries(thread) if tongue.liked in text]
    ledger = another(thread).say(tongue.forget)
    assert ("forget-about", "archived") in actions(ledger)
    texts = eventually(lambda: summaries(thread))
    assert all("Vue 3" in text for text in texts)
    active = [one["content"] for one in thread.product.records(thread.user)]
    assert not [text for text in active if tongue.liked in text or tongue.likes.rstrip("。.") in text]


# ── tools ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def calls(name: str, number: int) -> dict[str, Any]:
    """An assistant message that calls a tool."""
    function = {"name": name, "arguments": json.dumps({"step": number})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Task(NamedTuple):
    """A loop of tool calls, in one language."""

    wish: str
    results: tuple[str, str, str]
    done: str


TOOLS = ("disk", "clean", "upgrade")
TASKS = {
    ZH: Task(
        "帮我把测试库升级到 16，看看行不行",
        (
            "磁盘剩余空间只有 3 GB，不够升级，先清理一下。",
            "清理完成，释放了 40 GB 的空间，可以升级了。",
            "Error: 连接被拒绝，端口 5433 不可用",
        ),
        "升级没有成功，请检查端口。",
    ),
    EN: Task(
        "Please upgrade the staging database to 16 and see whether it works",
        (
            "Only 3 GB of disk space are left, clean up first.",
            "Cleaned up, 40 GB of space were freed.",
            "Error: connection refused on port 5433",
        ),
        "The upgrade did not work, please look at the port.",
    ),
}


@both
def test_the_memories_of_a_tool_chain_lead_back_to_the_first(thread: Thread, tongue: Tongue) -> None:
    task = TASKS[tongue]
    thread.messages.append({"role": "user", "content": task.wish})
    for number, (tool, result) in enumerate(zip(TOOLS, task.results, strict=True)):
        call = calls(tool, number)
        thread.go_on(completion("", content=None, tool_calls=call["tool_calls"]), call)
        thread.messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
    thread.go_on(completion(task.done), {"role": "assistant", "content": task.done})
    last = next(one for one in thread.product.records(thread.user) if one["kind"] == "tool_failure")
    with thread.product.http(thread.user, agent=last["agent_id"]) as http:
        way = http.get(f"/memory/records/{last['id']}/history").json()["steps"]
    assert [step["tool"] for step in way] == list(TOOLS)
    assert [step["status"] for step in way] == ["ok", "ok", "error"]
    assert way[-1]["memory_id"] == last["id"]
    for step, result in zip(way[:2], task.results[:2], strict=True):
        assert result.rstrip("。.") in step["content"]


@contextmanager
def opened(path: Path) -> Iterator[SqliteStore]:
    """A database that no product has open."""
    store = SqliteStore(path, fingerprint="", dimension=256, answer_hash=answer_hash, clock=lambda: datetime.now(UTC))
    try:
        yield store
    finally:
        store.close()


@contextmanager
def copied(product: Running, folder: Path) -> Iterator[SqliteStore]:
    """The store of a running product as it is now."""
    with (
        closing(sqlite3.connect(product.data / DATABASE)) as there,
        closing(sqlite3.connect(folder / "copy.db")) as copy,
    ):
        there.backup(copy)
    with opened(folder / "copy.db") as store:
        yield store


# ── what config.yaml and policies change ───────────────────────────────────────────────────────────────────────────
OWN_RULES = r"""
version: 1
triggers:
  - id: settles
    why: What the user decided, for these tests.
    when: user_message
    if: {match: {zh: '我决定(?P<what>[^。]+)', en: 'I decided to (?P<what>[^.]+)'}}
    extract: {template: {zh: 用户决定$what, en: The user decided to $what}}
    write: {memory_type: semantic, kind: decision, scope: user, confidence: 0.9}
    examples: [{user: I decided to stay, expect: [{content: The user decided to stay}]}]
  - id: only-counted
    why: A rule on trial.
    mode: shadow
    when: user_message
    if: {match: {zh: 我决定, en: I decided}}
    extract: {verbatim: {of: sentence}}
    write: {memory_type: semantic, kind: fact, confidence: 0.9}
    examples: [{user: I decided to stay, expect: [{content: I decided to stay}]}]
  - id: plans-by-model
    why: What the user intends, told by a model.
    when: user_message
    if: {match: {zh: '打算', en: 'I plan'}}
    extract:
      llm: {model: extractor, prompt: "Which plans? $text", timeout: 20s, otherwise: verbatim}
      verbatim: {of: sentence}
    write: {memory_type: semantic, kind: decision, scope: user, confidence: 0.7}
    examples: [{user: I plan to move, expect: [{content: I plan to move}]}]
  - id: hopes-by-model
    why: What the user hopes for, told by a model that is out of order.
    when: user_message
    if: {match: {zh: '希望', en: 'I hope'}}
    extract:
      llm: {model: faulty, prompt: "Which hopes? $text", timeout: 20s, otherwise: template}
      template: {zh: 用户有一个愿望, en: The user has a wish}
    write: {memory_type: semantic, kind: decision, scope: user, confidence: 0.7}
    examples: [{user: I hope to move, expect: [{content: The user has a wish}]}]
"""
EXTRACTOR_KEY, FAULTY_KEY = "sk-of-the-extractor", "sk-of-the-faulty-one"


def elsewhere(now: datetime) -> ZoneInfo:
    """A zone where it is another day than in UTC."""
    return ZoneInfo("Pacific/Kiritimati" if now.hour >= 11 else "Pacific/Pago_Pago")


ZONE = elsewhere(datetime.now(UTC))


class Extractor:
    """The model that helps the rules. It answers by what it is asked: sessions of other tests end meanwhile.

    Args:
        lane: Its side of the provider.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.answers: dict[str, Reply] = {"Summarise this conversation": told("What the model made of it")}
        lane.default = self._answer

    def _answer(self, received: Received) -> Reply:
        text = json.dumps(received.json, ensure_ascii=False)
        return next((reply for said, reply in self.answers.items() if said in text), told())

    def asked(self, text: str) -> int:
        """How many questions a text stood in."""
        return sum(text in json.dumps(one.json, ensure_ascii=False) for one in self._lane.received)


@pytest.fixture(scope="module")
def extractor(provider: ScriptedUpstream) -> Extractor:
    """The model that helps the rules."""
    return Extractor(provider.lane(EXTRACTOR_KEY))


@pytest.fixture(scope="module")
def busy(
    provider: ScriptedUpstream, extractor: Extractor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A product where sessions end after a second, far from UTC, with a model that helps and one that cannot."""
    folder = tmp_path_factory.mktemp("busy")
    (folder / "own.yaml").write_text(OWN_RULES, encoding="utf-8")
    provider.lane(FAULTY_KEY).default = lambda _: Reply([b'{"error": {"message": "down"}}'], 500)
    shipped = [str(ROOT / "policies" / name) for name in ("30-task.yaml", "50-turns.yaml", "60-sessions.yaml")]
    config = {
        "upstream": {"base_url": provider.url},
        "recall": {"deadline_ms": 5_000},
        "policies": ["own.yaml", *shipped],
        "session": {"idle_s": 1},
        "identity": {"timezone": ZONE.key},
        "models": [
            {"name": name, "litellm": "openai/gpt-4o-mini", "api_base": provider.url, "api_key": key}
            for name, key in (("extractor", EXTRACTOR_KEY), ("faulty", FAULTY_KEY))
        ],
    }
    with running(folder, config=config) as started:
        # What a model needs is imported before its first call, which may take its time.
        ask(started, provider.lane("sk-of-the-first-one"), "I plan to warm up.", user="the-first-one")
        eventually(lambda: extractor.asked("I plan to warm up."), within_s=60)
        yield started


@pytest.fixture
def talk(busy: Running, lane: Lane, user: str) -> Thread:
    """A conversation of this test's user there."""
    return Thread(busy, lane, user)


def told(*memories: str) -> Reply:
    """A model's answer that names memories."""
    return completion(json.dumps({"memories": [{"content": one} for one in memories]}, ensure_ascii=False))


@pytest.mark.parametrize(
    ("said", "kept"),
    [("我决定明天搬家。", "用户决定 {} 搬家"), ("I decided to move tomorrow.", "The user decided to move on {}")],
)
def test_relative_dates_are_those_of_the_users_zone(talk: Thread, said: str, kept: str) -> None:
    before = datetime.now(ZONE)
    talk.say(said)
    tomorrows = {(moment + timedelta(days=1)).date() for moment in (before, datetime.now(ZONE))}
    assert datetime.now(UTC).date() + timedelta(days=1) not in tomorrows
    [content] = [one["content"] for one in talk.product.records(talk.user) if one["kind"] == "decision"]
    assert content in {kept.format(day) for day in tomorrows}


@both
def test_an_idle_session_is_ended_by_itself_and_leaves_its_slots(talk: Thread, tongue: Tongue) -> None:
    trip = TRIPS[tongue]
    talk.say(trip.wish)
    talk.say(trip.decision)
    texts = eventually(lambda: found if len(found := summaries(talk)) == 2 else [], within_s=30)
    [points] = [text for text in texts if text != "What the model made of it"]
    assert trip.told in points
    assert "destination" in talk.slots()
    with talk.product.http(talk.user) as http:
        session = answered(http.get(f"/memory/sessions/{talk.session}"), 200)
    assert session["ended_at"] is not None


def test_shadow_rules_write_nothing(talk: Thread) -> None:
    ledger = talk.say("I decided to stay.")
    assert ("settles", "created") in actions(ledger)
    assert "only-counted" not in dict(actions(ledger))
    assert contents(talk.product, talk.user) == ["The user decided to stay"]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("我打算九月去看极光。", "用户打算九月去看极光"),
        ("I plan to see the aurora.", "The user plans to see the aurora"),
    ],
)
def test_a_model_is_asked_for_the_rules_that_name_it(
    talk: Thread, extractor: Extractor, said: str, answer: str
) -> None:
    extractor.answers[said] = told(answer)
    ledger = talk.say(said)
    assert ("plans-by-model", "created") in actions(ledger)
    [found] = [one for one in talk.product.records(talk.user) if one["source"]["rule"] == "plans-by-model"]
    assert (found["content"], found["confidence"], found["kind"]) == (answer, 0.7, "decision")
    assert extractor.asked(said) == 1


def test_a_model_that_finds_nothing_writes_nothing(talk: Thread, extractor: Extractor) -> None:
    ledger = talk.say("I plan nothing.")
    assert "plans-by-model" not in dict(actions(ledger))
    assert extractor.asked("I plan nothing.")


@pytest.mark.parametrize(
    ("said", "kept"), [("我希望能住海边。", "用户有一个愿望"), ("I hope to live by the sea.", "The user has a wish")]
)
def test_when_the_model_fails_the_fallback_is_written_and_the_ledger_says_so(
    talk: Thread, said: str, kept: str
) -> None:
    ledger = talk.say(said)
    assert ("hopes-by-model", "fallback") in actions(ledger)
    assert ("hopes-by-model", "created") in actions(ledger)
    assert kept in contents(talk.product, talk.user)


def test_who_waits_for_a_model_holds_up_no_other_user(busy: Running, talk: Thread, extractor: Extractor) -> None:
    # Users share lanes by chance; among so many there are some with another one.
    release = threading.Event()
    slow = told("The user plans to wait")
    extractor.answers["I plan to wait."] = Reply(slow.body, headers=slow.headers, hold={0: release})
    response = ask(busy, talk.lane, "I plan to wait.", user=talk.user)
    try:
        eventually(lambda: extractor.asked("I plan to wait."))
        others = [f"{talk.user}-{number}" for number in range(12)]
        calls = {other: ask(busy, talk.lane, "I decided to stay.", user=other) for other in others}
        eventually(lambda: any(contents(busy, other) for other in calls))
        with busy.http(talk.user) as http:
            account = answered(http.get(f"/memory/requests/{response.headers['X-Memory-Request-Id']}"), 200)
        assert account["written"]["status"] == "queued"
    finally:
        release.set()
    busy.ledger(response.headers["X-Memory-Request-Id"], talk.user)


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────
LIMITS = """
version: 1
guard:
  rate: {writes_per_minute: 5, memories_per_user: 3}
"""
HOURLY = """
version: 1
triggers:
  - id: clean-up
    why: What has expired goes, for these tests.
    when: {schedule: hourly}
    sweep: [expire]
"""


@pytest.fixture(scope="module")
def limited(provider: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A product where a user may write little."""
    folder = tmp_path_factory.mktemp("limited")
    for name, text in (("rules", RULES), ("limits", LIMITS)):
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    config = {"upstream": {"base_url": provider.url}, "policies": ["rules.yaml", "limits.yaml"]}
    with running(folder, config=config) as started:
        yield started


def test_no_more_memories_than_a_user_may_have(limited: Running, lane: Lane, user: str) -> None:
    for number in range(3):
        tell(limited, lane, f"I collect stamps{number}", user=user)
    ledger = tell(limited, lane, "I collect coins", user=user)
    [outcome] = ledger["written"]["outcomes"]
    assert (outcome["rule_id"], outcome["action"], outcome["memory_id"]) == ("collects", "dropped", None)
    assert "memories_per_user (3)" in outcome["reason"]
    with limited.http(user) as http:
        error = refused(http.post("/memory/records", json={"content": "The user collects shells"}), 429)
        assert "memories_per_user (3)" in error["message"]
        # Room is made by forgetting.
        http.delete(f"/memory/records/{limited.records(user)[0]['id']}")
        Memories(http).create("The user collects shells")


def test_no_more_writes_a_minute_than_a_user_may_make(limited: Running, lane: Lane, user: str) -> None:
    for number in range(5):
        tell(limited, lane, "I collect stamps", user=user, session=f"s{number}")
    ledger = tell(limited, lane, "I collect stamps", user=user, session="s5")
    assert actions(ledger) == [("collects", "dropped")]
    assert "writes_per_minute (5)" in ledger["written"]["outcomes"][0]["reason"]
    with limited.http(user) as http:
        error = refused(http.post("/memory/records", json={"content": "The user collects shells"}), 429)
    assert "writes_per_minute (5)" in error["message"]
    assert tell(limited, lane, "I collect stamps", user=f"not-{user}")["written"]["outcomes"][0]["action"] == "created"


# ── schedules ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_sweep_that_was_missed_is_made_up_for_at_the_next_start(tmp_path: Path, user: str) -> None:
    (tmp_path / "hourly.yaml").write_text(HOURLY, encoding="utf-8")
    config = {"policies": ["hourly.yaml"]}
    with running(tmp_path, config=config) as product, product.http(user) as http:
        soon = datetime.now(UTC) + timedelta(seconds=1)
        offer = Memories(http).create("The offer ends soon", expires_at=soon.isoformat())
        lasting = Memories(http).create("The user collects stamps")
        eventually(lambda: last_run(product, tmp_path))
    two_hours_ago = datetime.now(UTC) - timedelta(hours=2)
    with opened(product.data / DATABASE) as store:
        store.transact(lambda tx: tx.keep_note(NOTE, two_hours_ago.isoformat())).result()
    with running(tmp_path, config=config) as product, product.http(user) as http:
        eventually(lambda: Memories(http).get(f"records/{offer['id']}")["state"] == "archived")
        assert Memories(http).get(f"records/{lasting['id']}")["state"] == "active"
        eventually(lambda: last_run(product, tmp_path) != two_hours_ago.isoformat())


def last_run(product: Running, folder: Path) -> str | None:
    """When the schedule rule ran last, as a running product has noted it."""
    with copied(product, folder) as store:
        return store.note(NOTE)
