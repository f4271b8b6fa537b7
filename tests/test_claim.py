"""What a memory sentence claims: subject, predicate and value in both languages, and how two claims stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.claim import answers, claims, relate, says_addition, says_change
from proxy.claim.marker import replaced
from proxy.claim.types import Claim, Relation
from proxy.claim.wording import content_words, plain


def only(text: str) -> Claim:
    [claim] = claims(text).stated
    return claim


def relation(new: str, old: str) -> Relation:
    return relate(claims(new), claims(old))


# ── one form of writing ────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("备份保留三十天", "备份保留 30 天"),
        ("预算是两千五百元", "预算是2500元"),
        ("奖金是三十万元", "奖金是 300000 元"),
        ("用户有个儿子", "用户有一个儿子"),
        ("住在杭州市滨江区", "住在杭州滨江区"),
        ("用英文写注释", "写英文注释"),
        ("Kept for thirty-five days", "Kept for 35 days"),
        ("It ships on the tenth of May", "It ships on the 10th of May"),
        ("It doesn't run", "It does not run"),
        ("They can’t swim", "They cannot swim"),
    ],
)
def test_one_thing_written_in_two_ways_has_the_same_words(one: str, other: str) -> None:
    assert content_words(one) == content_words(other)


@pytest.mark.parametrize(
    "text",
    ["统一处理", "周一开会", "三四天", "第一次", "用飞书沟通", "住在成都", "the blue one-off", "30 second timeout"],
)
def test_what_is_no_numeral_stays(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(("one", "other"), [("会议室 A 有投影", "会议室 B 有投影"), ("Room A is free", "Room is free")])
def test_a_letter_that_is_a_name_is_a_word(one: str, other: str) -> None:
    assert content_words(one) != content_words(other)


# ── claims ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("text", "subject", "predicate", "value", "valued"),
    [
        ("The user lives in Paris", "user", "live@in", "paris", "one"),
        ("I moved to Paris", "user", "live@in", "paris", "one"),
        ("Alice works at Acme", "alice", "work@at", "acme", "one"),
        ("The user's dog is called Rex", "dog", "name", "rex", "one"),
        ("The user likes tea", "user", "like", "tea", "many"),
        ("The user would like tea", "user", "want", "tea", "many"),
        ("The user prefers pnpm for builds", "user", "use", "pnpm", "one"),
        ("The user visited Rome", "user", "visit-once", "rome", "many"),
        ("Backups are kept for 30 days", "backup", "keep@for", "30 day", "one"),
        ("The default branch is main", "default branch", "be:slot", "main", "one"),
        ("The office is bright", "office", "be:slot", "bright", "one"),
        ("The street is bright", "street", "be:such", "bright", "many"),
        ("Wendy is the product owner", "product owner", "be:slot", "wendy", "one"),
        ("Prefers tabs", "user", "like", "tab", "many"),
        ("Never deploy on Fridays", "user", "host@on", "friday", "one"),
        ("用户住在上海", "user", "live", "上 海", "one"),
        ("用户喜欢喝茶", "user", "like", "茶", "many"),
        ("用户用 Vim 写代码", "user", "use", "vim", "one"),
        ("生产环境的端口是 8080", "生 产 环 境 端 口", "be:slot", "8080", "one"),
        ("告警推送到飞书群里", "告 警", "send", "飞 书 群", "one"),
        ("用户在美团上班", "user", "work", "美 团", "one"),
        ("用户对花生过敏", "user", "allergic", "花 生", "many"),
        ("用户的女儿今年六岁", "女 儿", "age", "6 岁", "one"),
        ("小李负责订单服务", "小 李", "own", "订 单 服 务", "many"),
    ],
)
def test_a_sentence_is_read(text: str, subject: str, predicate: str, value: str, valued: str) -> None:
    claim = only(text)
    assert (" ".join(claim.subject), claim.predicate, " ".join(claim.value)) == (subject, predicate, value)
    assert claim.valued == valued


@pytest.mark.parametrize(
    ("denied", "stated"),
    [
        ("The user does not eat meat", "The user eats meat"),
        ("The user no longer drinks cola", "The user drinks cola"),
        ("The user hates fish", "The user likes fish"),
        ("The user is not left-handed", "The user is left-handed"),
        ("用户不吃肉", "用户吃肉"),
        ("用户不再喝可乐了", "用户喝可乐"),
        ("用户讨厌香菜", "用户喜欢香菜"),
        ("用户吃不了辣", "用户喜欢吃辣"),
        ("用户没结婚", "用户结婚了"),
        ("用户不再喝可乐", "用户喜欢喝无糖可乐"),
    ],
)
def test_a_denial_is_the_opposite_of_what_it_denies(denied: str, stated: str) -> None:
    assert relation(denied, stated) == "flip"
    assert not only(denied).positive
    assert only(stated).positive


@pytest.mark.parametrize("text", ["", "hm", "哈哈哈", "colourless green", "x" * 200, "こんにちは、元気です", "8080"])
def test_what_is_no_sentence_claims_nothing(text: str) -> None:
    assert claims(text).stated == ()


# ── two claims ─────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ("The user lives in Rome", "The user resides in Rome", "same"),
        ("The user lives in Rome", "The user lives in Paris", "replaces"),
        ("The release moved to Tuesday", "The release is on Monday", "replaces"),
        ("The user likes light themes", "The user likes dark themes", "rivals"),
        ("The project uses Node 20", "The project uses Node 18", "rivals"),
        ("The user likes jazz", "The user likes tea", "another"),
        ("Bob works at Acme", "Alice works at Acme", "apart"),
        ("The user also works at Bosch", "The user works at Siemens", "apart"),
        ("The user lives in Rome", "The user works in Rome", "apart"),
        ("The user is 180 cm", "The user is 34 years", "apart"),
        ("The user doesn't like coffee", "The user likes coffee cake", "apart"),
        ("用户住在上海", "用户住在北京", "replaces"),
        ("日志级别改成 DEBUG 了", "日志级别是 INFO", "replaces"),
        ("用户喜欢浅色主题", "用户喜欢深色主题", "rivals"),
        ("用户喜欢爵士乐", "用户喜欢茶", "another"),
        ("小王负责支付", "小李负责支付", "apart"),
        ("用户还会说法语", "用户会说英语", "apart"),
        ("测试库是 PG14", "生产库是 PG15", "apart"),
        ("用户写 Go 用制表符", "用户写 Python 用空格", "apart"),
    ],
)
def test_two_claims_stand(new: str, old: str, expected: Relation) -> None:
    assert relation(new, old) == expected


def test_a_text_answers_another_when_it_speaks_to_all_of_it() -> None:
    old = claims("The user lives in Paris and works at Acme")
    assert len(old.stated) == 2
    assert not answers(claims("The user lives in Rome"), old)
    assert answers(claims("The user lives in Rome and works at Globex"), old)


# ── markers ────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "text", ["我现在喝茶", "改成喝茶", "不再喝茶", "I now drink tea", "no longer", "We switched to tea"]
)
def test_a_change_is_heard(text: str) -> None:
    assert says_change(text)


@pytest.mark.parametrize("text", ["我喝茶", "I know tea", "Snow is white", "变化多端"])
def test_no_change_is_heard_where_there_is_none(text: str) -> None:
    assert not says_change(text)
    assert not says_addition(text)


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("用户从 MySQL 换成了 PostgreSQL", ("mysql",)),
        ("是 5433，不是 5432", ("5432",)),
        ("用户不再用 Jenkins 了", ("jenkins",)),
        ("The user changed from Jenkins to Actions", ("jenkins",)),
        ("Uses yarn instead of npm", ("npm",)),
        ("It is 5433, not 5432", ("5432",)),
    ],
)
def test_what_is_said_to_hold_no_longer_is_named(text: str, old: tuple[str, ...]) -> None:
    assert old in replaced(plain(text))


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    read = claims(text)
    assert relate(read, read) in ("same", "apart")
    assert all(claim.subject for claim in read.stated)
