"""Forgetting in a chat: what is meant goes and comes back together, and nothing else is ever touched."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.config import Config
from proxy.embed import open_embedder
from proxy.errors import EmbedderError
from proxy.forgetting import FORGOTTEN, MOST, RESTORED, Choice, Forgetting, Spoken, apply, silences
from proxy.observe import answer_hash
from proxy.plugs import Embedder, Filters, Transaction
from proxy.policy.evaluation import ForgetRequest
from proxy.scope import Scope
from proxy.store.sqlite import SqliteStore
from proxy.subject import subject_of
from proxy.types import Draft, Memory, Outcome, Source, Vector
from tests.store_samples import ALICE, ALICES_CODER, BOB, Clock, account, memory, put, said, turn

NOTHING = Spoken("asks")


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    """The shipped one: what is meant hangs on its cosines."""
    return open_embedder(Config())


class House:
    """A store with memories, and chats that ask to forget them."""

    def __init__(self, store: SqliteStore, embedder: Embedder, clock: Clock) -> None:
        self.store, self.embedder, self.clock = store, embedder, clock
        self.forgetting = Forgetting(store, embedder, clock)

    def knows(self, *contents: str, owner: Scope = ALICE, **fields: Any) -> list[Memory]:
        """Memories of the user's, each from a message of its own unless `message` is given."""
        fields = {"scope": "user", "session_id": owner.session_id, **fields}
        made = [memory(one, owner, self.clock(), **{"message": f"said: {one}", **fields}) for one in contents]
        put(self.store, *made, vectors=self.embedder.documents(contents))
        return made

    def choose(
        self, about: str | None, spoken: Spoken = NOTHING, *, restore: bool = False, by: Scope = ALICE
    ) -> Choice:
        return self.forgetting.plan(by, ForgetRequest("forget", about, restore), spoken)

    def asked(self, about: str | None, spoken: Spoken = NOTHING, **more: Any) -> tuple[Outcome, ...]:
        """The same, carried out a while later."""
        choice, by = self.choose(about, spoken, **more), more.get("by", ALICE)
        self.clock.forward(seconds=10)
        return self.store.transact(lambda tx: apply(tx, by, choice, self.clock())).result()

    def takes_back(self, about: str | None = None, **more: Any) -> tuple[Outcome, ...]:
        return self.asked(about, restore=True, **more)

    def remembers(self, owner: Scope = ALICE) -> set[str]:
        """What is still known."""
        return {one.content for one in self.store.list(owner, Filters(), limit=500).items}


@pytest.fixture
def house(tmp_path: Path, embedder: Embedder) -> Iterator[House]:
    """A house of this test's own."""
    clock = Clock()
    store = SqliteStore(
        tmp_path / "m.db",
        fingerprint=embedder.fingerprint,
        dimension=embedder.dimension,
        answer_hash=answer_hash,
        clock=clock,
    )
    yield House(store, embedder, clock)
    store.close()


KNOWN = {
    "zh": {
        "home": ("用户住在杭州滨江区", "user.home"),
        "name": ("用户叫张伟", "user.name"),
        "job": ("用户是后端工程师", "user.job"),
        "coffee": ("用户喜欢咖啡", None),
        "tea": ("用户不喜欢茶", None),
        "dark": ("用户喜欢深色模式", None),
        "port": ("用户的测试库端口是5433", "env.port.测试库"),
        "live": ("用户的生产库端口是5432", "env.port.生产库"),
        "server": ("服务器的 IP 地址是 10.0.0.5", "env.address"),
        "cat": ("用户养了一只猫", None),
        "trip": ("用户下周三去北京出差", None),
        "nuts": ("用户对花生过敏", None),
        "rule": ("用户要求：别再用表情符号", None),
    },
    "en": {
        "home": ("The user lives in Berlin", "user.home"),
        "name": ("The user's name is Ann", "user.name"),
        "job": ("The user is a nurse", "user.job"),
        "coffee": ("The user likes coffee", None),
        "tea": ("The user does not like tea", None),
        "dark": ("The user prefers dark mode", None),
        "port": ("The user's staging server uses port 2222", "env.port.staging server"),
        "live": ("The user's production server uses port 22", "env.port.production server"),
        "server": ("The server's IP address is 10.0.0.5", "env.address"),
        "cat": ("The user's cat is called Miso", None),
        "trip": ("The user is planning a trip to Lisbon in May", None),
        "nuts": ("The user is allergic to peanuts", None),
        "rule": ("The user asks: stop using emojis", None),
    },
}


@pytest.mark.parametrize(
    ("language", "about", "gone"),
    [
        ("zh", "我的地址", "home"),
        ("zh", "我住在哪里", "home"),
        ("zh", "我的名字", "name"),
        ("zh", "我的工作", "job"),
        ("zh", "我喜欢咖啡这件事", "coffee"),
        ("zh", "咖啡的事", "coffee"),
        ("zh", "我不喜欢茶", "tea"),
        ("zh", "测试库的端口", "port"),
        ("zh", "5433 端口", "port"),
        ("zh", "我养猫", "cat"),
        ("zh", "去北京出差的事", "trip"),
        ("zh", "我对花生过敏", "nuts"),
        ("en", "my address", "home"),
        ("en", "where I live", "home"),
        ("en", "my old home address.", "home"),
        ("en", "my name", "name"),
        ("en", "my job", "job"),
        ("en", "that I like coffee", "coffee"),
        ("en", "the fact that I don't like tea", "tea"),
        ("en", "my coffee preference", "coffee"),
        ("en", "the staging port", "port"),
        ("en", "my trip to Lisbon", "trip"),
        ("en", "my cat's name", "cat"),
        ("en", "my peanut allergy", "nuts"),
        ("en", "that I’m allergic to peanuts", "nuts"),
    ],
)
def test_what_is_named_goes_and_nothing_else(house: House, language: str, about: str, gone: str) -> None:
    for content, key in KNOWN[language].values():
        house.knows(content, key=key)
    before = house.remembers()
    [outcome] = house.asked(about)
    assert (outcome.action, outcome.reason) == ("archived", "named")
    assert before - house.remembers() == {KNOWN[language][gone][0]}


@pytest.mark.parametrize(
    ("language", "about"),
    [
        ("zh", "我喜欢爵士乐"),
        ("zh", "我不喜欢咖啡"),
        ("zh", "我喜欢茶"),
        ("zh", "我的生日"),
        ("zh", "5434 端口"),
        ("zh", "会议纪要"),
        ("zh", "烦恼"),
        ("en", "that I like jazz"),
        ("en", "that I don't like coffee"),
        ("en", "my birthday"),
        ("en", "port 2223"),
        ("en", "the meeting notes"),
        ("en", "your worries"),
        ("en", "the milk"),
    ],
)
def test_where_nothing_clearly_matches_nothing_goes(house: House, language: str, about: str) -> None:
    for content, key in KNOWN[language].values():
        house.knows(content, key=key)
    before = house.remembers()
    assert [(one.action, one.reason) for one in house.asked(about)] == [("dropped", "nothing clearly matches")]
    assert house.remembers() == before


@pytest.mark.parametrize("about", ["关于我的一切", "everything you know about me", "all my memories", "我"])
def test_everything_is_not_forgotten_by_the_way(house: House, about: str) -> None:
    house.knows("用户喜欢咖啡")
    [outcome] = house.asked(about)
    assert outcome.action == "dropped"
    assert "too much" in outcome.reason


def test_a_kind_that_is_named_goes_whole_while_it_is_small(house: House) -> None:
    house.knows(*(f"The user likes {word}" for word in ("tea", "jazz", "rain")), kind="preference")
    house.knows("The user lives in Berlin")
    assert len(house.asked("my preferences")) == 3
    assert house.remembers() == {"The user lives in Berlin"}
    house.knows(*(f"The user likes {word}" for word in "abcdefg"[: MOST + 1]), kind="preference")
    assert [one.action for one in house.asked("my preferences")] == ["dropped"]


@pytest.mark.parametrize(
    ("about", "content", "key"),
    [
        ("我的地址", "服务器的 IP 地址是 10.0.0.5", "env.address"),
        ("我的生日", "用户的妈妈生日是5月3日", None),
        ("my birthday", "The user's wife has her birthday on May 3", None),
        ("我对花生过敏", "用户对花生不过敏", None),
        ("我喜欢深色主题", "用户喜欢浅色主题", None),
        ("前端依赖用 pnpm", "用户的前端依赖用 yarn", None),
        ("that I use pnpm for frontend work", "The user uses yarn for frontend work", None),
        ("that backups are kept for thirty days", "Backups are kept for seven days", None),
        ("coffee", "We met Tom at the coffee place to sign the lease for the new office", None),
    ],
)
def test_something_like_it_is_not_what_is_named(house: House, about: str, content: str, key: str | None) -> None:
    house.knows(content, key=key)
    assert [one.action for one in house.asked(about)] == ["dropped"]


def test_what_fits_too_many_is_not_clear(house: House) -> None:
    house.knows(*(f"The user flew to Lisbon with {name}" for name in ("Ann", "Bob", "Eve", "Kim", "Lee", "Max")))
    assert [one.action for one in house.asked("that I flew to Lisbon")] == ["dropped"]


def test_the_raw_turn_of_what_is_named_goes_along_and_its_other_memories_stay(house: House) -> None:
    house.knows("用户叫张伟", key="user.name", message="m")
    house.knows("用户住在杭州", key="user.home", message="m")
    house.knows("我叫张伟，住在杭州", kind="turn", message="m", scope="agent")
    assert len(house.asked("我的地址")) == 2
    assert house.remembers() == {"用户叫张伟"}


def test_a_sessions_summary_that_repeats_it_goes_along(house: House) -> None:
    house.knows("The user lives in Berlin", key="user.home")
    house.knows("The user lives in Berlin; Decision: rack 7.", key="session.s1", kind="summary", scope="agent")
    house.knows("Decision: rack 8.", key="session.s2", kind="summary", scope="agent")
    house.asked("where I live")
    assert house.remembers() == {"Decision: rack 8."}


def test_nobody_elses_and_no_shared_memories_go(house: House) -> None:
    house.knows("The user likes coffee", owner=BOB)
    house.knows("The user likes coffee", owner=BOB, scope="shared")
    house.knows("The user likes coffee", owner=ALICES_CODER, scope="agent")
    assert [one.action for one in house.asked("that I like coffee")] == ["dropped"]


def test_without_vectors_what_is_in_a_slot_is_still_found(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.knows("The user lives in Berlin", key="user.home")

    def broken(texts: list[str]) -> list[Vector | None]:
        raise EmbedderError("gone")

    monkeypatch.setattr(house.embedder, "documents", broken)
    assert [one.action for one in house.asked("my address")] == ["archived"]
    assert [one.action for one in house.asked("the milk")] == ["dropped"]


# ── what was said last ─────────────────────────────────────────────────────────────────────────────────────────────
LAST = Spoken("asks", previous="said: before", answer_hash="answered")


@pytest.mark.parametrize("about", [None, "刚才说的", "这件事", "what I just said", "that"])
def test_what_was_made_of_the_message_before_goes(house: House, about: str | None) -> None:
    house.knows("The user likes tea", "I like tea, by the way", message="said: before")
    house.knows("result: noted tea", message="answered", role="assistant")
    house.knows("The user likes jazz")
    assert {one.action for one in house.asked(about, LAST)} == {"archived"}
    assert house.remembers() == {"The user likes jazz"}


def test_what_the_message_before_only_repeated_goes_too(house: House) -> None:
    [known] = house.knows("The user likes tea")
    opened = turn(said("I do like tea"), id="r7", at=house.clock())
    house.store.journal_open(opened, account(opened)).result()
    outcomes = [Outcome("liked", "merged", known.id, "the same text"), Outcome("other", "dropped", None, "")]
    house.store.transact(lambda tx: tx.journal_done("r7", "done", outcomes)).result()
    trace = memory("I do like tea", at=house.clock(), session_id="s1", kind="turn")
    put(house.store, Memory(**{**fields(trace), "source": Source("user", "s1", "r7", "said: before")}))
    assert len(house.asked(None, LAST)) == 2
    assert house.remembers() == set()


def fields(one: Memory) -> dict[str, Any]:
    """A record's fields by name."""
    return {name: getattr(one, name) for name in Memory.__slots__}


@pytest.mark.parametrize("spoken", [NOTHING, Spoken("asks", previous="said: hi")])
def test_a_figure_of_speech_after_small_talk_touches_nothing(house: House, spoken: Spoken) -> None:
    house.knows("The user likes tea")
    assert [one.action for one in house.asked(None, spoken)] == ["dropped"]
    assert house.remembers() == {"The user likes tea"}


def test_what_was_said_before_in_the_same_request_is_meant_first(house: House) -> None:
    house.knows("The user likes tea", message="said: before")
    choice = house.choose(None, Spoken("asks", earlier=("one", "two"), previous="said: before", answer_hash="answered"))
    assert choice.memories == ()
    assert choice.messages == ("two",)


# ── taking it back ─────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_was_forgotten_together_comes_back_together_as_it_was(house: House) -> None:
    made = house.knows("The user likes tea", "I like tea, by the way", message="said: before", tags=("taste",))
    house.asked(None, LAST)
    assert {one.action for one in house.takes_back()} == {"restored"}
    stored = [house.store.get(ALICE, one.id) for one in made]
    assert [(one.state, one.tags, one.content) for one in stored if one] == [
        ("active", ("taste",), one.content) for one in made
    ]
    changes = [one.change for one in house.store.history(ALICE, made[0].id)]
    assert changes == ["created", FORGOTTEN, RESTORED]


def test_the_last_is_taken_back_first(house: House) -> None:
    house.knows("The user likes coffee", "The user is allergic to peanuts")
    house.asked("that I like coffee")
    house.asked("that I'm allergic to peanuts")
    house.takes_back()
    assert house.remembers() == {"The user is allergic to peanuts"}
    house.takes_back()
    assert len(house.remembers()) == 2
    assert [one.action for one in house.takes_back()] == ["dropped"]


def test_what_is_named_is_taken_back_before_what_was_last(house: House) -> None:
    house.knows("The user likes coffee", "The user is allergic to peanuts")
    house.asked("that I like coffee")
    house.asked("that I'm allergic to peanuts")
    house.takes_back("my coffee")
    assert house.remembers() == {"The user likes coffee"}


def test_only_the_session_that_forgot_takes_it_back(house: House) -> None:
    house.knows("The user likes coffee")
    house.asked("that I like coffee")
    assert [one.action for one in house.takes_back(by=ALICE.in_session("s2"))] == ["dropped"]
    assert [one.action for one in house.takes_back(by=BOB.in_session("s1"))] == ["dropped"]
    assert [one.action for one in house.takes_back()] == ["restored"]


@pytest.mark.parametrize(("days", "action"), [(6.9, "restored"), (7.1, "dropped")])
def test_it_can_be_taken_back_for_seven_days(house: House, days: float, action: str) -> None:
    house.knows("The user likes coffee")
    house.asked("that I like coffee")
    house.clock.forward(days=days)
    assert [one.action for one in house.takes_back()] == [action]


def test_what_a_sweep_archived_is_not_taken_back(house: House) -> None:
    house.knows("The user likes coffee", state="archived")
    assert [one.action for one in house.takes_back()] == ["dropped"]


@pytest.mark.parametrize("key", ["user.home", None])
def test_what_has_been_said_anew_since_is_not_taken_back(house: House, key: str | None) -> None:
    house.knows("The user lives in Berlin", key=key)
    house.asked("that I live in Berlin")
    house.knows("The user lives in Berlin", key=key)
    [outcome] = house.takes_back()
    assert (outcome.action, outcome.reason) == ("dropped", "something newer has taken its place")
    assert len(house.store.list(ALICE, Filters(), limit=9).items) == 1


def test_what_has_run_out_meanwhile_is_not_taken_back(house: House) -> None:
    house.knows("The user likes coffee", expires_at=house.clock() + timedelta(hours=1))
    house.asked("that I like coffee")
    house.clock.forward(hours=2)
    assert [one.action for one in house.takes_back()] == ["dropped"]


# ── in the transaction ─────────────────────────────────────────────────────────────────────────────────────────────
def test_worked_on_twice_it_is_forgotten_once(house: House) -> None:
    [known] = house.knows("The user likes coffee")
    choice = house.choose("that I like coffee")

    def twice(tx: Transaction) -> list[Outcome]:
        return [*apply(tx, ALICE, choice, house.clock()), *apply(tx, ALICE, choice, house.clock())]

    assert [one.action for one in house.store.transact(twice).result()] == ["archived", "dropped"]
    assert len(house.store.history(ALICE, known.id)) == 2


def test_a_turn_that_fails_forgets_nothing(house: House) -> None:
    house.knows("The user likes coffee")
    choice = house.choose("that I like coffee")

    def fails(tx: Transaction) -> None:
        apply(tx, ALICE, choice, house.clock())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        house.store.transact(fails).result()
    assert house.remembers() == {"The user likes coffee"}


# ── what the request itself leaves behind ──────────────────────────────────────────────────────────────────────────
def draft(content: str, kind: str = "preference") -> Draft:
    """What a rule makes of the message."""
    return Draft("rule", "hash", content, "semantic", kind, "user", 0.9, "en")


@pytest.mark.parametrize(
    ("about", "content", "kind", "silenced"),
    [
        ("that I like coffee", "The user likes coffee", "preference", True),
        ("我喜欢咖啡这件事", "用户喜欢咖啡这件事", "preference", True),
        ("我喜欢咖啡这件事", "用户要求：别再记着我喜欢咖啡这件事", "instruction", True),
        ("my address", "Forget my address, I live in Berlin now", "turn", True),
        ("my old address", "The user lives in Berlin", "fact", False),
        (None, "用户要求：忘了刚才的话", "instruction", True),
        (None, "The user prefers Vim", "preference", False),
    ],
)
def test_the_request_leaves_no_memory_but_what_it_says_besides_does(
    house: House, about: str | None, content: str, kind: str, silenced: bool
) -> None:
    choice = house.choose(about)
    assert silences(choice, draft(content, kind), "asks", "asks") is silenced
    assert not silences(choice, draft(content, kind), "another", "asks")


def test_what_the_same_request_said_before_leaves_nothing_either(house: House) -> None:
    choice = house.choose(None, Spoken("asks", earlier=("one", "two")))
    assert silences(choice, draft("The user likes tea"), "two", "asks")
    assert not silences(choice, draft("The user likes tea"), "one", "asks")


def test_taking_back_leaves_no_memory(house: House) -> None:
    assert silences(house.choose(None, restore=True), draft("The user asked to remember: that one"), "asks", "asks")


@pytest.mark.parametrize("about", [None, "", "那个", "刚才那句话", "this", "the last thing I said", "all of that"])
def test_pointing_words_mean_what_was_said_last(about: str | None) -> None:
    assert subject_of(about).last
