"""`inject.placement: session`: what goes upstream, request by request, whatever a client does with its conversation."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from proxy.auth import Principal
from proxy.call import Call, Prepared
from proxy.config import load
from proxy.echo import reply
from proxy.forgetting import Choice, apply
from proxy.frozen import Placed
from proxy.inject import CLOSE_MARK, OPEN_MARK
from proxy.metrics import Metrics
from proxy.observe import answer_hash
from proxy.pipeline import Pipeline
from proxy.plugs import FROZEN
from proxy.policy.evaluation import ForgetRequest
from proxy.prepare import Preparation
from proxy.recall import Recall
from proxy.routes import Routes
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.tokens import TokenCounter, count_for
from proxy.types import Memory, Slot
from tests.calls import RULES, ask, tell
from tests.running import running
from tests.scripted import Lane, Reply, ScriptedUpstream, completion
from tests.store_samples import Clock, memory, put
from tests.sweep_samples import EMBEDDER
from tests.write_back import Working, rules

Said = list[dict[str, Any]]
ALICE = Scope("default", "alice", session_id="s")
BUDGET = 300
BLOCK = re.compile(rf"(?:\n\n)?{re.escape(OPEN_MARK)}.*?{re.escape(CLOSE_MARK)}", re.DOTALL)
SETTINGS: dict[str, Any] = {
    "recall": {"deadline_ms": 20_000},
    "inject": {"budget_tokens": BUDGET},
    "models": [{"name": "plain", "litellm": "openai/plain", "system_role": "none"}],
}
NO_RULES = """
triggers:
  - id: never
    why: Nothing is written here.
    when: user_message
    if: {match: 'never said'}
    extract: {template: never}
    write: {memory_type: semantic, kind: fact}
    examples: [{user: never said, expect: [{content: never}]}]
"""


class Slow:
    """An embedder that waits, when told to, until it is let go."""

    def __init__(self) -> None:
        self.fingerprint, self.dimension = EMBEDDER.fingerprint, EMBEDDER.dimension
        self.go = threading.Event()
        self.go.set()

    def documents(self, texts: Sequence[str]) -> Any:
        return EMBEDDER.documents(texts)

    def query(self, text: str) -> Any:
        self.go.wait(20)
        return EMBEDDER.query(text)


class House:
    """The pipeline over a store of its own; what it forwards is read from the call."""

    def __init__(self, folder: Path, more: Mapping[str, Any] = {}) -> None:
        (folder / "config.yaml").write_text(json.dumps({**SETTINGS, **more}), encoding="utf-8")
        self.folder, self.clock, self.working, self.embedder = folder, Clock(), Working(), Slow()
        self.config, self.metrics = load(folder / "config.yaml", {}), Metrics()
        self.policies = rules(folder, NO_RULES)
        self.tokens = TokenCounter()
        self.runner = asyncio.Runner()
        self.threads = ThreadPoolExecutor(8)
        self.open()

    def open(self) -> None:
        """Start it, on what is on disk."""
        self.store = SqliteStore(
            self.folder / "m.db",
            fingerprint=EMBEDDER.fingerprint,
            dimension=EMBEDDER.dimension,
            answer_hash=answer_hash,
            clock=self.clock,
        )
        recall = Recall(self.store, self.working, self.embedder, self.config.recall, Metrics())
        self.preparation = Preparation(
            self.config, self.store, self.working, recall, lambda: self.policies, self.tokens
        )
        routes = Routes(self.config.models)
        self.pipeline = Pipeline(
            self.config, self.preparation, lambda: self.policies, self.clock, self.metrics, self.threads, routes
        )

    def restart(self) -> None:
        self.store.close()
        self.open()

    def close(self) -> None:
        self.embedder.go.set()
        self.runner.close()
        self.threads.shutdown()
        self.store.close()

    async def _begin(self, messages: Said, model: str, headers: Mapping[str, str]) -> Call:
        named = {name: value for name, value in {"X-Memory-Session": "s", **headers}.items() if value}
        body = json.dumps({"model": model, "messages": messages}, ensure_ascii=False).encode()
        return await self.pipeline.begin(body, CIMultiDict(named), Principal("default"), default_user="alice")

    def begin(self, messages: Said, *, model: str = "scripted", times: int = 1, **headers: str) -> list[Call]:
        """So many equal calls at once."""
        named = {f"X-Memory-{name.title()}": value for name, value in headers.items()}

        async def all_of_them() -> list[Call]:
            return list(await asyncio.gather(*(self._begin(messages, model, named) for _ in range(times))))

        return self.runner.run(all_of_them())

    def send(self, messages: Said | str, **more: Any) -> Said:
        """What one call forwards."""
        said = [user(messages)] if isinstance(messages, str) else messages
        return forwarded(self.begin(said, **more)[0])

    def learn(self, content: str, **fields: Any) -> Memory:
        """Something that was said elsewhere."""
        one = memory(content, ALICE, at=self.clock.forward(seconds=1), scope="user", **fields)
        put(self.store, one, vectors=list(EMBEDDER.documents([content])))
        return one

    def supersede(self, old: Memory, content: str) -> Memory:
        stored = self.store.get(ALICE, old.id)
        assert stored is not None
        new = memory(content, ALICE, at=self.clock.forward(seconds=1), scope="user", kind=old.kind)
        self.store.transact(lambda tx: tx.supersede(stored, new, EMBEDDER.documents([content])[0])).result()
        return new

    def forget(self, one: Memory) -> None:
        self.store.transact(lambda tx: tx.forget(ALICE, [one.id])).result()

    def fill_slot(self, value: str, message_hash: str | None = None) -> None:
        self.working.put(ALICE, [Slot("place", value, self.clock(), message_hash=message_hash)])


@contextmanager
def house(folder: Path, **more: Any) -> Iterator[House]:
    opened = House(folder, more)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def at_home(tmp_path: Path) -> Iterator[House]:
    with house(tmp_path) as opened:
        yield opened


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str = "I see.") -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def forwarded(call: Call) -> Said:
    messages: Said = json.loads(call.body)["messages"]
    return messages


def ours(messages: Said) -> list[str]:
    """Every block of ours, in order."""
    return [block.strip() for one in messages for block in BLOCK.findall(text_of(one))]


def text_of(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def cleaned(messages: Said) -> Said:
    """The messages without what is ours; a message that holds nothing else was never the client's."""
    found = []
    for message in messages:
        content = message["content"]
        if isinstance(content, list):
            content = [part for part in content if not BLOCK.fullmatch(part.get("text", ""))]
        elif content:
            content = BLOCK.sub("", content)
        if content or not message["content"]:
            found.append({**message, "content": content})
    return found


# ── one thing at a time ────────────────────────────────────────────────────────────────────────────────────────────
def test_the_first_turn_freezes_a_block_and_later_turns_repeat_it(at_home: House) -> None:
    at_home.learn("The user prefers dark mode", kind="preference")
    first = at_home.send("Design a page")
    assert "dark mode" in first[0]["content"]
    at_home.learn("The user prefers large print", kind="preference")
    second = at_home.send(
        [user("Design a page"), assistant(), user("Please multiply seventeen by twenty-three for me.")]
    )
    assert second[: len(first)] == first
    assert second[-1] == user("Please multiply seventeen by twenty-three for me.")


def test_what_another_session_learnt_comes_behind_the_question_for_it_once(at_home: House) -> None:
    first = at_home.send("Hello there")
    assert first == [user("Hello there")]
    at_home.learn("The staging port is 5433")
    said = [user("Hello there"), assistant(), user("Which port is staging on?")]
    second = at_home.send(said)
    assert second[:2] == said[:2]
    assert "5433" in second[2]["content"]
    assert second[2]["content"].startswith("Which port is staging on?\n\n" + OPEN_MARK)
    third = at_home.send([*said, assistant(), user("And the staging port again?")])
    assert third[:3] == second
    assert len(ours(third)) == 1


@pytest.mark.parametrize("model", ["scripted", "plain"])
def test_an_empty_block_stays_empty(at_home: House, model: str) -> None:
    at_home.send("Hello there", model=model)
    at_home.learn("The user prefers dark mode", kind="preference")
    said = [user("Hello there"), assistant(), user("Do I like dark mode?")]
    assert at_home.send(said, model=model)[:2] == said[:2]
    assert at_home.send(said[:1], model=model) == said[:1]


def test_a_superseded_memory_is_corrected_by_a_piece_that_names_what_it_replaced(at_home: House) -> None:
    old = at_home.learn("The user lives in Bern", kind="fact")
    first = at_home.send("Plan my evening")
    assert "Bern" in first[0]["content"]
    newer = at_home.supersede(old, "The user lives in Rome")
    said = [user("Plan my evening"), assistant(), user("Thanks, what else could be done?")]
    second = at_home.send(said)
    assert second[:2] == first[:2]
    assert "The user lives in Rome (before: The user lives in Bern)" in second[-1]["content"]
    said += [assistant(), user("And where do I live?")]
    third = at_home.send(said)
    assert third[: len(second)] == second
    assert len(ours(third)) == 2
    at_home.supersede(newer, "The user lives in Oslo")
    fourth = at_home.send([*said, assistant(), user("And now, where do I live?")])
    assert fourth[-1]["content"].count("Oslo") == 1
    assert "(before: The user lives in Rome)" in fourth[-1]["content"]


def test_a_memory_that_was_rewritten_in_place_is_corrected_once(at_home: House) -> None:
    one = at_home.learn("The user lives in Bern", kind="fact")
    said = [user("Plan my evening")]
    first = at_home.send(said)
    changed = replace(one, content="The user lives in Rome", version=2)
    at_home.store.transact(lambda tx: tx.update(changed, None, change="updated")).result()
    said += [assistant(), user("Thanks, what else could be done?")]
    second = at_home.send(said)
    assert second[:2] == first[:2]
    assert "The user lives in Rome (before: The user lives in Bern)" in second[-1]["content"]
    tagged = replace(changed, tags=("home",), version=3)
    at_home.store.transact(lambda tx: tx.update(tagged, None, change="updated")).result()
    third = at_home.send([*said, assistant(), user("And where do I live?")])
    assert third[: len(second)] == second
    assert len(ours(third)) == 2


def test_what_is_forgotten_is_in_no_later_request_and_not_in_the_files(at_home: House) -> None:
    kept = at_home.learn("The user prefers dark mode", kind="preference")
    gone = at_home.learn("The user lives in Zanzibar", kind="fact")
    said = [user("Plan my evening")]
    assert "Zanzibar" in at_home.send(said)[0]["content"]
    at_home.forget(gone)
    for more in ([], [assistant(), user("Where do I live?")], [assistant(), {"role": "tool", "content": "x"}]):
        said += more
        sent = at_home.send(said)
        assert "Zanzibar" not in json.dumps(sent)
        assert kept.content in sent[0]["content"]
    at_home.store.transact(lambda tx: None).result()
    files = b"".join(path.read_bytes() for path in at_home.folder.glob("m.db*"))
    assert b"Zanzibar" not in files


def test_a_forgotten_piece_behind_a_message_leaves_the_block_as_it_was(at_home: House) -> None:
    at_home.learn("The user prefers dark mode", kind="preference")
    said = [user("Plan my evening")]
    first = at_home.send(said)
    gone = at_home.learn("The staging port is 5433")
    said += [assistant(), user("Which port is staging on?")]
    assert "5433" in at_home.send(said)[-1]["content"]
    at_home.forget(gone)
    said += [assistant(), user("Which port is staging on?")]
    assert at_home.send(said) == [*first, *said[1:]]


def test_nothing_new_is_said_in_a_tool_loop(at_home: House) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}
    said = [user("Hello there"), assistant(), user("Which port is staging on?")]
    at_home.send(said[:1])
    before = at_home.send(said)
    at_home.learn("The staging port is 5433")
    loop = [*said, call, {"role": "tool", "tool_call_id": "1", "content": "the staging port"}]
    assert at_home.send(loop) == [*before, *loop[3:]]
    assert at_home.send(said) == before


def test_a_session_that_is_met_in_a_tool_loop_freezes_an_empty_block(at_home: House) -> None:
    at_home.learn("The user prefers dark mode", kind="preference")
    loop = [user("Hi"), assistant("calling"), {"role": "tool", "content": "42"}]
    assert at_home.send(loop) == loop
    said = [*loop, assistant(), user("Do I prefer dark mode?")]
    assert at_home.send(said)[:-1] == said[:-1]


def test_text_and_image_parts_take_their_piece_as_a_part(at_home: House) -> None:
    at_home.send("Hello there")
    at_home.learn("The staging port is 5433")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 9}}
    said = [user("Hello there"), assistant(), user([{"type": "text", "text": "Which staging port?"}, image])]
    sent = at_home.send(said)
    assert sent[-1]["content"][:2] == said[-1]["content"]
    assert "5433" in sent[-1]["content"][2]["text"]
    assert cleaned(sent) == said
    later = at_home.send([*said, assistant(), user([image])])
    assert later[: len(sent)] == sent
    assert later[-1] == user([image])


def test_a_large_image_does_not_crowd_memory_out_of_the_window(at_home: House) -> None:
    at_home.learn("The user prefers dark mode", kind="preference")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo+" * 40_000}}
    assert "dark mode" in json.dumps(at_home.send([user([image, {"type": "text", "text": "Hi"}])], model="gpt-4o"))


def test_nothing_of_ours_goes_past_the_window(at_home: House) -> None:
    at_home.learn("The user prefers dark mode", kind="preference")
    assert len(ours(at_home.send("Hello there", model="gpt-4"))) == 1  # it takes 8,192 tokens
    said = [user("Hello there"), assistant("word " * 4_000), user("And now?")]
    assert at_home.send(said, model="gpt-4") == said


def test_a_model_without_a_system_role_gets_both_pieces_in_messages(at_home: House) -> None:
    at_home.learn("The user prefers dark mode", kind="preference")
    said = [{"role": "system", "content": "Be brief."}, user("Hello there")]
    first = at_home.send(said, model="plain")
    assert first[0] == said[0]
    assert "dark mode" in first[1]["content"]
    at_home.learn("The staging port is 5433")
    said += [assistant(), user("Which port is staging on?")]
    second = at_home.send(said, model="plain")
    assert second[:2] == first
    assert cleaned(second) == said
    # The client trims: the message with a piece is now the first, which takes the block as well.
    third = at_home.send([said[0], said[3]], model="plain")
    assert "dark mode" in third[1]["content"]
    assert "5433" in third[1]["content"]
    assert cleaned(third) == [said[0], said[3]]


def test_working_slots_come_once_their_source_has_left_the_messages(at_home: House) -> None:
    first = user("I fly to Lisbon")
    (call,) = at_home.begin([first])
    assert call.talk is not None
    at_home.fill_slot("Lisbon", call.talk.messages[0].hash)
    said = [first, assistant(), user("What should I pack for the trip?")]
    assert at_home.send(said) == said
    trimmed = [user("What else should I pack for the trip?")]
    assert "place: Lisbon" in at_home.send(trimmed)[0]["content"]
    later = [*trimmed, assistant(), user("Anything else for the trip?")]
    assert len(ours(at_home.send(later))) == 1
    at_home.fill_slot("Porto")
    later += [assistant(), user("And what is next on the trip?")]
    assert "place: Porto" in at_home.send(later)[-1]["content"]


def test_a_restart_in_the_middle_of_a_session_keeps_every_byte(at_home: House) -> None:
    at_home.learn("用户喜欢深色模式", kind="preference")
    said = [user("帮我设计一个页面")]
    at_home.send(said)
    at_home.learn("测试环境的端口是 5433")
    said += [assistant("好的"), user("测试环境的端口是多少？")]
    before = at_home.send(said)
    assert len(ours(before)) == 2
    at_home.restart()
    at_home.learn("用户喜欢大字号", kind="preference")
    assert at_home.send(said) == before
    assert at_home.send(said[:1]) == before[:2]


def test_a_recall_that_misses_its_deadline_freezes_an_empty_block(tmp_path: Path) -> None:
    with house(tmp_path, recall={"deadline_ms": 150}) as slow:
        slow.learn("The user prefers dark mode", kind="preference")
        slow.embedder.go.clear()
        (call,) = slow.begin([user("Hello there")])
        assert call.status == "degraded:deadline"
        assert forwarded(call) == [user("Hello there")]
        slow.embedder.go.set()
        assert call.prepared is not None
        call.prepared.get_loop().run_until_complete(asyncio.wait({call.prepared}))
        slow.learn("The staging port is 5433")
        said = [user("Hello there"), assistant(), user("Which port is staging on?")]
        sent = slow.send(said)
        assert sent[:-1] == said[:-1]
        assert "5433" in sent[-1]["content"]


def test_a_call_that_went_out_before_its_session_was_known_adds_nothing_afterwards(at_home: House) -> None:
    at_home.learn("The user prefers dark mode", kind="preference")
    (call,) = at_home.begin([user("Hello there")])
    assert call.prepared is not None
    found = call.prepared.result()
    late = replace(found.scope, session_id="late")
    call.settled, found.scope, found.pieces = False, late, at_home.store.pieces(late)
    at_home.preparation.keep(call, found)
    assert at_home.store.pieces(late)[FROZEN].text == ""
    assert at_home.send("Hello there", session="late") == [user("Hello there")]


def test_mode_off_in_between_disturbs_nothing_and_mode_read_freezes_too(at_home: House) -> None:
    at_home.learn("The user prefers dark mode", kind="preference")
    said = [user("Hello there")]
    first = at_home.send(said, mode="read")
    assert len(ours(first)) == 1
    said += [assistant(), user("Off the record")]
    assert at_home.send(said, mode="off") == said
    said += [assistant(), user("Back again")]
    assert at_home.send(said)[: len(first)] == first
    assert cleaned(at_home.send(said)) == said


def test_two_openings_of_a_session_at_once_share_the_block_and_tell_nothing_twice(at_home: House) -> None:
    """As sub-agents do, which share a session id."""
    at_home.learn("The user prefers dark mode", kind="preference")
    at_home.learn("The staging port is 5433")

    async def both() -> list[Call]:
        opened = [[user("Paint the page")], [user("Which port is staging on?")]]
        return list(await asyncio.gather(*(at_home._begin(one, "scripted", {}) for one in opened)))

    for call in at_home.runner.run(both()):
        texts = ours(forwarded(call))
        assert json.dumps(texts).count("dark mode") == 1
        assert json.dumps(texts).count("5433") <= 1
    one, other = (at_home.send(text) for text in ("Paint the page", "Which port is staging on?"))
    assert one[0] == other[0]


def test_two_calls_at_once_without_a_session_are_one_session(at_home: House) -> None:
    async def both() -> list[Call]:
        named = {"X-Memory-Session": ""}
        said = [user("Hello there")]
        return list(await asyncio.gather(*(at_home._begin(said, "scripted", named) for _ in range(8))))

    calls = at_home.runner.run(both())
    assert len({call.headers["X-Memory-Session"] for call in calls}) == 1


def test_forgetting_while_a_call_is_under_way_leaves_nothing_behind(
    at_home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [user("Hello there"), assistant(), user("Which port is staging on?")]
    at_home.send(said[:1])
    gone = at_home.learn("The staging port is 5433")
    settle = at_home.preparation.settle

    def forgotten_first(call: Call, found: Prepared) -> Placed:
        assert gone.id in {hit.memory.id for hit in found.recalled.hits}
        at_home.forget(gone)
        return settle(call, found)

    with monkeypatch.context() as patch:
        patch.setattr(at_home.preparation, "settle", forgotten_first)
        at_home.send(said)
    at_home.store.transact(lambda tx: None).result()
    assert "5433" not in json.dumps(at_home.send(said))
    assert "5433" not in json.dumps(at_home.send([*said, assistant(), user("And the staging port?")]))
    files = b"".join(path.read_bytes() for path in at_home.folder.glob("m.db*"))
    assert b"5433" not in files


def test_what_was_put_away_in_a_chat_is_in_no_later_request_and_neither_is_what_it_replaced(at_home: House) -> None:
    old = at_home.learn("The user lives in Bern", kind="fact")
    said = [user("Plan my evening")]
    assert "Bern" in at_home.send(said)[0]["content"]
    new = at_home.supersede(old, "The user lives in Rome")
    said += [assistant(), user("And where do I live?")]
    assert "Rome" in at_home.send(said)[-1]["content"]
    stored = at_home.store.get(ALICE, new.id)
    assert stored is not None
    choice = Choice(ForgetRequest("r", "home", restore=False), (stored,), "named", "s")
    at_home.store.transact(lambda tx: apply(tx, ALICE, choice, at_home.clock())).result()
    for more in ([], [assistant(), user("And where do I live now?")]):
        said += more
        text = json.dumps(at_home.send(said))
        assert "Bern" not in text
        assert "Rome" not in text


def test_what_is_learnt_meanwhile_finds_room_after_much_that_was_known_was_told(at_home: House) -> None:
    for number in range(60):
        at_home.learn(f"The harbour has a crane with number {number} and a red light on top")
    at_home.clock.forward(minutes=1)
    said: Said = []
    for number in range(8):
        said.append(user(f"Question {number}: what is known about the harbour and its cranes?"))
        (call,) = at_home.begin(said)
        assert call.block.tokens <= BUDGET
        at_home.store.transact(
            lambda tx: tx.link_session(ALICE, f"link {number}", at_home.clock(), head=True)  # noqa: B023 - at once
        ).result()
        said.append(assistant())
    at_home.learn("The orchard gate opens with code 5433")
    sent = at_home.send([*said, user("Which code opens the orchard gate?")])
    assert "5433" in sent[-1]["content"]


def test_cached_tokens_are_counted_apart_with_memory_on_and_off(
    provider: ScriptedUpstream, lane: Lane, tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "10-rules.yaml").write_text(RULES, encoding="utf-8")
    usage = {"prompt_tokens": 500, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 384}}
    body = json.loads(b"".join(completion("OK").body)) | {"usage": usage}
    lane.default = lambda received: Reply([json.dumps(body).encode()])
    config = {"upstream": {"base_url": provider.url}, "recall": {"deadline_ms": 5_000}}
    with running(folder, config=config) as product:
        tell(product, lane, "I collect stamps", user="ada", session="one")
        ask(product, lane, "What do I collect?", user="ada", session="two", mode="off")
        ask(product, lane, "What do I collect?", user="ada", session="three")
        assert "stamps" in lane.last.system
        with product.http() as http:
            told = http.get("/metrics").text
    counted = dict(re.findall(r'^sidemirror_usage_tokens_total\{kind="cached",memory="(\w+)"\} (\S+)$', told, re.M))
    assert float(counted["on"]) + float(counted["off"]) == 3 * 384
    assert float(counted["on"]) >= 384
    assert float(counted["off"]) >= 384


def test_the_offline_model_quotes_the_block_and_every_piece(at_home: House) -> None:
    at_home.learn("The user prefers dark mode", kind="preference")
    said = [user("Hello there")]
    at_home.send(said, model="demo/echo")
    at_home.learn("The staging port is 5433")
    said += [assistant(), user("Which port is staging on?")]
    told = reply(at_home.send(said, model="demo/echo")).splitlines()
    assert told[0] == "You said: Which port is staging on?"
    assert [line.rpartition("] ")[2] for line in told[2:]] == ["The user prefers dark mode", "The staging port is 5433"]


# ── all of it at random ────────────────────────────────────────────────────────────────────────────────────────────
TOPICS = ("harbour", "orchard", "lantern", "meadow")
OFTEN = {"say": 5, "learn": 3, "forget": 2, "supersede": 2, "edit": 2}
STEPS = [*OFTEN, "tool", "again", "trim", "compact", "slot", "restart", "budget"]
STEP = st.tuples(st.sampled_from([step for step in STEPS for _ in range(OFTEN.get(step, 1))]), st.integers(0, 9))


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: when, what the client sent, and what was forwarded."""

    at: int
    said: Said
    forwarded: Said


class Session:
    """A client and what it may expect of the proxy; it checks every request it makes."""

    def __init__(self, at_home: House, model: str, prompt: str | None) -> None:
        self.home, self.model = at_home, model
        self.prompt: Said = [] if prompt is None else [{"role": "system", "content": prompt}]
        self.said: Said = []
        self.memories: list[Memory] = []
        self.gone: list[str] = []
        self.sent: list[Sent] = []
        self.newest_at: dict[str, int] = {}
        self.clock = self.number = 0

    def next(self) -> int:
        self.number += 1
        return self.number

    def play(self, step: str, at: int) -> None:
        turns = [index for index, one in enumerate(self.said) if one["role"] == "user"]
        match step:
            case "say":
                self.said.append(user(f"Question {self.next()}: what about the {TOPICS[at % 4]}?"))
                self.request(times=2 if at == 9 else 1)
                self.said.append(assistant(f"Answer {self.next()}."))
            case "tool" if self.said:
                self.said[-1] = {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{self.next()}"}]}
                self.said.append({"role": "tool", "tool_call_id": f"c{self.number}", "content": "the harbour is open"})
                self.request()
                self.said.append(assistant(f"Answer {self.next()}."))
            case "again" if self.said:
                last = self.said.pop()
                self.request()
                self.said.append(last)
            case "edit" if turns:
                del self.said[turns[at % len(turns)] :]
                self.play("say", at)
            case "trim" if len(turns) > 1:
                del self.said[: turns[1 + at % (len(turns) - 1)]]
            case "compact" if turns:
                self.said = [user(f"Summary {self.next()} of what was said about the harbour."), assistant("Noted.")]
            case "learn":
                self.memories.append(self.home.learn(f"The {TOPICS[at % 4]} code is code-{self.next():04}"))
            case "supersede" if self.memories:
                old = self.memories.pop(at % len(self.memories))
                self.memories.append(
                    self.home.supersede(old, f"The new {old.content.split()[1]} is code-{self.next():04}")
                )
            case "forget" if self.memories:
                one = self.memories.pop(at % len(self.memories))
                self.home.forget(one)
                self.gone.append(one.content)
                self.sent.clear()  # a forgotten one ends the freeze
            case "slot":
                self.home.fill_slot(f"slot-{at}")
            case "restart":
                self.home.restart()
            case "budget" if self.said:
                self.request(budget=20 * at)

    def request(self, *, times: int = 1, budget: int = BUDGET) -> None:
        said = [*self.prompt, *self.said]
        calls = self.home.begin(said, model=self.model, times=times, budget=str(budget))
        got = forwarded(calls[0])
        assert all(call.body == calls[0].body for call in calls)
        assert {call.status for call in calls} == {"ok"}
        self.check_ours(calls[0], got, budget)
        assert cleaned(got) == said
        self.check_bytes(said, got, budget)

    def check_ours(self, call: Call, got: Said, budget: int) -> None:
        text = json.dumps(got)
        assert not [one for one in self.gone if one in text]
        blocks = ours(got)
        costs = [count_for(self.model, self.home.tokens.count(block)) for block in blocks]
        assert sum(costs) <= call.block.tokens + 2 * len(blocks)  # lines are counted apart
        assert call.block.tokens <= budget
        pieces = self.home.store.pieces(ALICE)
        assert pieces[FROZEN].tokens <= BUDGET // 2
        assert len(blocks) == text.count(OPEN_MARK) == text.count(CLOSE_MARK)
        told = [
            line for block in blocks for line in block.splitlines() if line.startswith("- ") and "slot-" not in line
        ]
        assert len(told) == len(set(told))

    def check_bytes(self, said: Said, got: Said, budget: int) -> None:
        self.clock += 1
        newest = max((index for index, one in enumerate(said) if one["role"] == "user"), default=0)
        self.newest_at.setdefault(json.dumps(said[: newest + 1]), self.clock)
        if budget < BUDGET:
            return
        for before in self.sent:
            same = next((i for i, (a, b) in enumerate(zip(before.said, said, strict=False)) if a != b), None)
            same = min(len(before.said), len(said)) if same is None else same
            offset, other = len(before.forwarded) - len(before.said), len(got) - len(said)
            assert offset == other, "a system message came or went"
            assert before.forwarded[:offset] == got[:offset]
            for index in range(same):
                first_asked = self.newest_at.get(json.dumps(said[: index + 1]), 0)
                # A message that was in the middle when it was first seen may be asked anew, and gets its piece then.
                if first_asked <= before.at:
                    assert before.forwarded[index + offset] == got[index + offset]
        self.sent.append(Sent(self.clock, said, got))


@settings(max_examples=25)
@given(
    st.lists(STEP, min_size=12, max_size=24),
    st.integers(0, 5),
    st.sampled_from(["scripted", "plain"]),
    st.sampled_from([None, "Be kind."]),
)
def test_whatever_a_client_does_the_bytes_that_were_sent_stay(
    steps: list[tuple[str, int]], known: int, model: str, prompt: str | None
) -> None:
    with tempfile.TemporaryDirectory() as folder, house(Path(folder)) as at_home:
        session = Session(at_home, model, prompt)
        for step, at in [*(("learn", number) for number in range(known)), *steps]:
            session.play(step, at)


@pytest.mark.usefixtures("slow_patterns")
def test_a_request_rule_that_took_too_long_is_counted_and_holds_nothing_back(at_home: House) -> None:
    slow = "triggers:\n  - {id: slow, when: request, if: {match: '(?:x|xx)+$'}, drop: true}\n"
    at_home.policies = rules(at_home.folder, slow)
    [call] = at_home.begin([user("x" * 60 + "z")])
    assert not call.status.startswith("skipped:")
    assert b'sidemirror_policy_timeouts_total{pattern="(?:x|xx)+$"} 1.0' in at_home.metrics.render()
