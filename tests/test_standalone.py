"""Content that stands alone: the first person, openers and particles, pronouns; and what stays as it was said."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.sentence.masking import MAX_CHARS
from proxy.standalone import stand_alone
from proxy.types import Language

MONDAY = datetime(2026, 11, 30, 21, 15, tzinfo=UTC)

CHINESE = [
    # who
    ("我的狗叫旺财", "用户的狗叫旺财"),
    ("我对花生过敏，我妈也是", "用户对花生过敏，用户的妈妈也是"),
    ("我哥在深圳", "用户的哥哥在深圳"),
    ("我老婆是医生", "用户的老婆是医生"),
    ("我表妹住在北京", "用户的表妹住在北京"),
    ("俺不吃辣", "用户不吃辣"),
    ("我自己写的脚本", "用户自己写的脚本"),
    ("我家有两只猫", "用户家有两只猫"),
    ("我俩结婚三年了", "用户两人结婚三年了"),
    ("我用户名是 bob", "用户的用户名是 bob"),
    ("我们的测试库在 5433 端口", "用户团队的测试库在 5433 端口"),
    ("我们决定用 PostgreSQL", "用户决定用 PostgreSQL"),
    ("我们公司在杭州", "用户的公司在杭州"),
    ("我司用钉钉", "用户的公司用钉钉"),
    ("咱们组每周五都开例会", "用户的组每周五都开例会"),
    ("我们领导同意了", "用户的领导同意了"),
    ("我领导一个团队", "用户领导一个团队"),
    ("我对象棋感兴趣", "用户对象棋感兴趣"),
    ("我先生病了一周", "用户先生病了一周"),
    ("你叫我老王就行", "你叫用户老王就行"),
    ("用户让记住：我的车牌是浙A12345", "用户让记住：用户的车牌是浙A12345"),
    # when
    ("我下周二要去东京", "用户 2026-12-08 要去东京"),
    ("用户更正：会议是周五，不是周四", "用户更正：会议是 2026-12-04，不是 2026-12-03"),
    ("刚才我把 nginx 重启了", "用户把 nginx 重启了"),
    # openers and particles
    ("记住，我的车是蓝色的", "用户的车是蓝色的"),
    ("请记住以后都用中文回答", "以后都用中文回答"),
    ("帮我记一下：门禁密码每月换", "门禁密码每月换"),
    ("顺便说一下，我搬到了上海。", "用户搬到了上海"),
    ("对了，我换成 pnpm 了啊", "用户换成 pnpm 了"),
    ("我换成 pnpm 啦！", "用户换成 pnpm 了"),
    ("我不吃香菜哦。", "用户不吃香菜"),
]
ENGLISH = [
    # who
    ("I like tea", "The user likes tea"),
    ("I'm vegan", "The user is vegan"),
    ("I\u2019m vegan", "The user is vegan"),
    ("I've lived in Rome", "The user has lived in Rome"),
    ("I'll be in Rome", "The user will be in Rome"),
    ("I'd like short answers", "The user would like short answers"),
    ("I'd been there before", "The user had been there before"),
    ("I don't eat meat", "The user does not eat meat"),
    ("I do not eat meat", "The user does not eat meat"),
    ("I haven't decided", "The user has not decided"),
    ("I am not a fan of jazz", "The user is not a fan of jazz"),
    ("I was born in 1990", "The user was born in 1990"),
    ("I went to Rome", "The user went to Rome"),
    ("I moved to Rome", "The user moved to Rome"),
    ("I can't stand mushrooms", "The user can't stand mushrooms"),
    ("I have two cats", "The user has two cats"),
    ("I watch TV and play chess", "The user watches TV and play chess"),
    ("I fly a lot", "The user flies a lot"),
    ("I focus on work", "The user focuses on work"),
    ("I bring tea", "The user brings tea"),
    ("I need tea", "The user needs tea"),
    ("I usually read papers", "The user usually reads papers"),
    ("I fully agree", "The user fully agrees"),
    ("I'm vegan and don't eat cheese", "The user is vegan and does not eat cheese"),
    ("I work at Acme and live in Rome", "The user works at Acme and lives in Rome"),
    ("i like tea", "The user likes tea"),
    ("We run Postgres 15", "The user runs Postgres 15"),
    ("We're on k8s", "The user is on k8s"),
    ("I put it in and I like it", "The user put it in and the user likes it"),
    ("Rome it is, so should I focus on it", "Rome it is, so should the user focus on it"),
    ("My wife and I like sushi", "The user's wife and the user like sushi"),
    ("My name is Robert, never call me Bob", "The user's name is Robert, never call the user Bob"),
    ("tell us everything", "tell the user everything"),
    ("I built it myself", "The user built it themselves"),
    ("the red bike is mine", "the red bike is the user's"),
    ("Should I use tabs", "Should the user use tabs"),
    ("The user asks: always use tabs in my code", "The user asks: always use tabs in the user's code"),
    # when
    ("I fly to Rome next Tuesday", "The user flies to Rome on 2026-12-08"),
    ("As of today I do not drink", "As of 2026-11-30 the user does not drink"),
    # openers and closers
    ("Remember that my car is blue.", "The user's car is blue"),
    ("Please remember: my car is blue", "The user's car is blue"),
    ("By the way, I don't eat meat.", "The user does not eat meat"),
    ("I don't eat meat, by the way.", "The user does not eat meat"),
    ("I live in Rome.", "The user lives in Rome"),
]
ALONE = [
    ("zh", "用户喜欢深色模式"),
    ("zh", "用户解决了问题：Docker 容器启动报端口冲突，改映射端口解决了"),
    ("zh", "用户要求“帮我看看明天天气”，结果：已发送"),
    ("zh", "自我介绍要放在最前面"),
    ("zh", "我国有很多茶"),
    ("zh", "咱们国家有很多茶"),
    ("zh", "我的世界服务器在 25565"),
    ("zh", "记住密码功能坏了"),
    ("zh", "用户常去网吧"),
    ("zh", "用户喜欢嘻哈"),
    ("zh", "你以后都用中文回答"),
    ("zh", "用户用 `我的.conf` 和 https://a.com/我的"),
    ("zh", "你我"),
    ("en", "The user prefers dark mode"),
    ("en", "The user's habit: usually commit with signed-off messages"),
    ("en", "The user said \"I like tea\""),
    ("en", "World War I was long"),
    ("en", "Type I diabetes"),
    ("en", "I/O errors are common"),
    ("en", "for i in range"),
    ("en", "US servers only"),
    ("en", "data mine"),
    ("en", "Use my.cnf and --me and @my and $my"),
    ("en", "The user works for Foo Inc."),
    ("en", "The user likes tea, coffee etc."),
    ("en", "They sang My Way"),
    ("en", "Always answer you in French"),
    ("other", "私は明日行く"),
    ("zh", ""),
    ("zh", "。"),
    ("en", "By the way"),
]  # fmt: skip
PRONOUNS: list[tuple[Language, list[str], str, str]] = [
    ("zh", ["我们的库是 PostgreSQL"], "它在 5433 端口", "PostgreSQL 在 5433 端口"),
    ("zh", ["我们用 pnpm"], "把它升级到 9 了", "把 pnpm 升级到 9 了"),
    ("zh", ["我在看「三体」"], "我很喜欢它", "用户很喜欢「三体」"),
    ("zh", ["试试 Neovim 吧"], "我更喜欢这个", "用户更喜欢 Neovim"),
    ("zh", ["我老婆明天来"], "她对花生过敏", "用户的老婆对花生过敏"),
    ("zh", ["王总下午到"], "他的车牌是浙A1", "王总的车牌是浙A1"),
    ("zh", ["Redis 挂了", "好的，看一下"], "它在 6379 端口", "Redis 在 6379 端口"),
    ("en", ["We use Postgres for that"], "It runs on port 5433", "Postgres runs on port 5433"),
    ("en", ["Our database is PostgreSQL 15."], "It's on port 5433", "PostgreSQL 15 is on port 5433"),
    ("en", ["Our main store is Postgres"], "We upgraded it to 16", "The user upgraded Postgres to 16"),
    ("en", ["Try Neovim maybe"], "I prefer that", "The user prefers Neovim"),
    ("en", ["My sister Anna comes over"], "She is allergic to nuts", "The user's sister Anna is allergic to nuts"),
    ("en", ["My wife is coming"], "Her birthday is in May", "The user's wife's birthday is in May"),
    ("en", ["Bob said hi", "I like tea"], "He lives in Rome", "Bob lives in Rome"),
]
DOUBTFUL: list[tuple[Language, list[str], str]] = [
    ("zh", [], "它在 5433 端口"),
    ("zh", ["我们用 PostgreSQL 和 Redis"], "它在 5433 端口"),
    ("zh", ["用 Redis", "用 MySQL 或 SQLite"], "它在 5433 端口"),
    ("zh", ["王总明天来，小李也来"], "他喜欢茶"),
    ("zh", ["我们用 Redis"], "Docker 报错，把它重启就好了"),
    ("zh", ["用 Redis"], "这个项目用 Go"),
    ("zh", ["王总来"], "其他的都行"),
    ("zh", ["王总来"], "他们都喜欢茶"),
    ("en", ["We run Nginx and Redis"], "Its port is 80"),
    ("en", ["We use Postgres"], "It's raining"),
    ("en", ["We use Postgres"], "It is important that tabs are used"),
    ("en", ["We use Go"], "that file is large"),
    ("en", ["Databases are slow"], "It runs on port 80"),
]


def alone(content: str, language: Language, before: list[str] | None = None) -> str:
    return stand_alone(content, said_at=MONDAY, language=language, before=before or [])


@pytest.mark.parametrize(("said", "kept"), CHINESE, ids=[said for said, _ in CHINESE])
def test_chinese_content_stands_alone(said: str, kept: str) -> None:
    assert alone(said, "zh") == kept


@pytest.mark.parametrize(("said", "kept"), ENGLISH, ids=[said for said, _ in ENGLISH])
def test_english_content_stands_alone(said: str, kept: str) -> None:
    assert alone(said, "en") == kept


@pytest.mark.parametrize(("language", "content"), ALONE, ids=[content or "empty" for _, content in ALONE])
def test_what_stands_alone_already_is_unchanged(language: Language, content: str) -> None:
    assert alone(content, language) == content


@pytest.mark.parametrize(
    ("language", "kept"), [("zh", kept) for _, kept in CHINESE] + [("en", kept) for _, kept in ENGLISH]
)
def test_content_made_to_stand_alone_is_left_the_second_time(language: Language, kept: str) -> None:
    assert alone(kept, language) == kept


@pytest.mark.parametrize(("language", "before", "said", "kept"), PRONOUNS, ids=[said for _, _, said, _ in PRONOUNS])
def test_a_pronoun_becomes_the_one_name_before_it(language: Language, before: list[str], said: str, kept: str) -> None:
    assert alone(said, language, before) == kept


@pytest.mark.parametrize(("language", "before", "said"), DOUBTFUL, ids=[f"{b} {said}" for _, b, said in DOUBTFUL])
def test_a_pronoun_in_doubt_stays(language: Language, before: list[str], said: str) -> None:
    assert alone(said, language, before) == said


def test_the_nearest_text_that_names_anything_counts() -> None:
    assert alone("它在 80 端口", "zh", ["用 Redis", "用 Nginx"]) == "Nginx 在 80 端口"


def test_words_that_are_not_the_users_keep_their_first_person() -> None:
    said = "I restarted it yesterday"
    assert stand_alone(said, said_at=MONDAY, language="en", of_user=False) == "I restarted it on 2026-11-29"


def test_a_text_that_is_no_sentence_comes_back_as_it_is() -> None:
    text = "我" * (MAX_CHARS + 1)
    assert alone(text, "zh") == text


# ── any text ───────────────────────────────────────────────────────────────────────────────────────────────────────
PIECES = st.sampled_from(
    [
        *(said for said, _ in CHINESE + ENGLISH),
        *(content for _, content in ALONE),
        *(said for _, _, said, _ in PRONOUNS),
        *("8080", "`x`", "明天", "next week", "it", "我", "I", "my", "记住", "吧", "by the way"),
    ]
)
SENTENCES = st.builds(
    str.join, st.sampled_from(["，", "。", ", ", ". ", "；", " and ", "\n"]), st.lists(PIECES, max_size=5)
)
LANGUAGES = st.sampled_from(["zh", "en", "other"])


@given(st.text(max_size=80) | SENTENCES, LANGUAGES)
def test_whatever_came_out_comes_back_unchanged(text: str, language: Language) -> None:
    once = alone(text, language)
    assert alone(once, language) == once


@given(st.text(max_size=80) | SENTENCES, LANGUAGES, st.lists(st.text(max_size=40) | PIECES, max_size=3))
def test_any_text_is_taken_and_never_emptied(text: str, language: Language, before: list[str]) -> None:
    assert bool(alone(text, language, before)) == bool(text)


@given(st.lists(st.integers(1_000, 99_999).map(str) | PIECES, max_size=6), LANGUAGES)
def test_no_number_is_lost(pieces: list[str], language: Language) -> None:
    text = "，".join(pieces)
    after = re.findall(r"\d+", alone(text, language))
    assert all(number in after for number in re.findall(r"\d{4,}", text))


@given(st.lists(PIECES, max_size=3), st.text(alphabet="我I my明天today it吧。", min_size=1, max_size=20), LANGUAGES)
def test_code_quotes_and_addresses_stay_to_the_letter(pieces: list[str], inner: str, language: Language) -> None:
    spans = [f"`{inner}`", f"「{inner}」", "https://a.b/today?i=my"]
    kept = alone("，".join([*pieces, *spans, "x"]), language)
    assert all(span in kept for span in spans)
