"""What the shipped policies take for the user's own lasting statements, and what they leave: talk that only looks so.

One table of messages, some with the messages before them, both languages. A claim is a memory that says something about
the user; raw turns and what tools did are none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.embed import BUILTIN_MODEL, StaticEmbedder
from proxy.fragments import worth_keeping
from proxy.language import detect
from proxy.policy.load import load
from proxy.policy.match import evaluate
from proxy.policy.play import in_play
from proxy.standalone import standing
from proxy.types import Event, Language
from proxy.value import WEIGHTS, ValueModel

POLICIES = load([Path(__file__).parent.parent / "policies"])
EMBEDDER = StaticEmbedder(BUILTIN_MODEL)
MODEL = ValueModel.load(WEIGHTS, EMBEDDER.fingerprint)
AT = datetime(2026, 11, 2, 8, tzinfo=UTC)
RECORDS = {"turn", "tool_result", "tool_failure", "summary", "task", "lesson"}


class Classifier:
    """An empty store, and the shipped value classifier."""

    def known(self, text: str) -> bool:
        return False

    def similar(self, text: str, kind: str | None) -> float:
        return 0.0

    def value(self, text: str, language: Language) -> float:
        return MODEL.score(text, EMBEDDER.documents([text])[0])


def claims(*said: str) -> list[str]:
    """What is claimed of the last message; those before it are the user's earlier ones."""
    *earlier, text = said
    playing = in_play(("user", one, False) for one in earlier)
    event = Event("user_message", text, detect(text), "user", AT, in_play=playing)
    found = evaluate(POLICIES, event, knowledge=Classifier())
    drafts = [*found.drafts, *(draft for task in found.llm for draft in task.fallback)]
    worded = [standing(draft, event, UTC) for draft in drafts if draft.kind not in RECORDS]
    return [draft.content for draft in worded if worth_keeping(draft)]


NOTHING: dict[str, tuple[str, ...]] = {
    "csv": ("which rows look odd?\nid,who,note\n11,zoe,I love figs\n12,kim,I live in Oslo\n13,lee,I hate rain",),
    "table": ("sort this\nname\tcity\tlikes\nAnn\tRome\tI like tea\nBob\tBern\tI like rum",),
    "log": ("why?\n2026-10-01 10:00:01 INFO my name is worker-7\n2026-10-01 10:00:02 WARN I like v6",),
    "clauses": ("any risk?\nSection 1 The tenant always keeps it tidy.\nSection 2 The tenant never smokes.",),
    "transcript": ("who is to blame here?\nMia: I live in Bern and I love skiing\nTom: I never ski\nMia: your loss",),
    "mail": ("answer this politely\nHi team,\nI moved to York and I prefer red bikes.\nThanks,\nPat",),
    "review": ("is this review fake?\nI love this kettle. I always buy two of them and I live in Kent.",),
    "statement of another": ("please proofread my cousin's letter\nI grew up in Accra. I love choir. I am a nurse.",),
    "here is, no colon": ("here is the feedback we got, group it\nI hate the new menu.\nI always order the soup.",),
    "check list": ("- [ ] call Ann about the flat\n- [ ] I need to book Lisbon\n- [x] pay rent",),
    "code": ("what does this do\nconst name = 'I live in Rome';\nconst likes = ['tea'];",),
    "zh csv": ("帮我看下哪行有问题\n1,张三,我喜欢榴莲,5\n2,李四,我住在大连,3\n3,王五,我讨厌下雨,1",),
    "zh clauses": ("这份协议有没有坑\n第一条 承租方应当每月五号前付租金。\n第二条 承租方喜欢养宠物的，须书面同意。",),
    "zh transcript": ("总结一下谁对\n小美：我最喜欢吃火锅\n大刘：我住在通州\n小美：那算了",),
    "zh mail": ("帮我看下这封邮件怎么回\n您好，我是恒达的周敏，我们以后都走德邦，我更喜欢周一收货。",),
    "zh review": ("这条评论是不是刷的\n我家住苏州，每次都买这款，我老公特别爱喝。",),
    "zh statement": ("帮我改一下学生的作文\n我叫陈晨，我在青岛长大，我最喜欢踢足球。",),
    "played later": ("let's play: you're a dragon and I'm a knight", "I love mead and I live in a castle"),
    "played much later": ("you be the grumpy customer", "hello!", "I'm a sales clerk and I prefer cash"),
    "interview": ("can we do a mock interview?", "I have ten years of experience at Acme and I always test first"),
    "story together": ("let's write a story together about a lighthouse", "I live on the rock and I hate the sea"),
    "written for another": ("draft a toast for my brother", "I grew up in Cork and I love my little sister"),
    "zh played later": ("我们来玩角色扮演，你是店员", "我叫赵铁柱，我最爱喝白酒"),
    "zh interview": ("模拟一下面试，你是面试官", "我在腾讯做了五年后端，平时喜欢打羽毛球"),
    "zh ex": ("你来演我前女友", "我最讨厌迟到的人"),
    "colleague": ("My colleague Hugo loves Haskell and wants to port everything",),
    "mate": ("my mate Baz is a massive golf nut",),
    "roommate": ("my flatmate says he can only sleep with the fan on",),
    "customer": ("a customer wrote that she always buys blue and lives in Hull",),
    "zh colleague": ("同事小孙特别喜欢 Emacs，天天安利我",),
    "zh roommate": ("我室友说他只能白天睡觉",),
    "zh uncle": ("我舅舅最爱钓鱼",),
    "not that": ("not that I like Mondays",),
    "zh not that": ("我不是不喜欢爬山，就是没时间",),
    "joke": ("I live on Mars, just kidding",),
    "zh joke": ("我最喜欢加班了，开玩笑的",),
    "passing": ("My build has been stuck for two hours",),
    "zh passing": ("我的快递三天了还没到",),
    "for this one": ("I prefer a formal tone for this email",),
    "zh for this one": ("这封我更喜欢正式一点的",),
    "supposed": ("if I lived in Oslo I'd want a warm coat",),
    "zh supposed": ("要是我住在海边，你推荐买什么车",),
    "song": ('the song goes "I love the night and I live for the day"',),
    "example": ("for example I like jazz and I live in Rome",),
    "zh example": ("比如我喜欢爵士，住在罗马",),
    "guessed": ("I think you said I love opera, where is that from?",),
    "wondering": ("I was wondering whether I like jazz enough for a festival",),
    "secret": ("my card is [redacted:card] exp 12/28",),
    "zh secret": ("我的密码是 [redacted:password]",),
    "greeting": ("hey hey, good to see you again",),
}  # fmt: skip

SAID: dict[str, tuple[tuple[str, ...], str]] = {
    "request after own words": (("I'm vegan.\nsummarize this mail\nI love ham and I live in York.",), "vegan"),
    "own list": (("About me:\n- I live in Rome\n- I'm allergic to nuts",), "nuts"),
    "own paragraph": (("Hi! I'm allergic to nuts.\nI live in Rome.\nCan you plan my week?",), "nuts"),
    "play ended": (("let's play: you're a dragon", "ok stop, back to work", "I'm allergic to cats"), "cats"),
    "the ending says it": (("you be the dragon", "out of character: I'm allergic to cats"), "cats"),
    "system prompt is no play": (("You are a helpful assistant.", "I'm allergic to cats"), "cats"),
    "praise is no play": (("you are a great help", "I'm allergic to cats"), "cats"),
    "zh own list": (("我先说下情况\n我对花生过敏\n我住在大连",), "花生"),
    "zh play ended": (("你来当店员", "好了不玩了", "我对花生过敏"), "花生"),
    "zh hobby is no play": (("我周末喜欢玩剧情游戏", "我对花生过敏"), "花生"),
    "zh doctor's word binds": (("我对花生过敏，医生说必须随身带药",), "花生"),
    "habit": (("I always test on a real phone before a release",), "real phone"),
}


@pytest.mark.parametrize("said", NOTHING.values(), ids=NOTHING.keys())
def test_nothing_is_claimed(said: tuple[str, ...]) -> None:
    assert claims(*said) == []


@pytest.mark.parametrize(("said", "word"), SAID.values(), ids=SAID.keys())
def test_own_words_are_claimed(said: tuple[str, ...], word: str) -> None:
    found = claims(*said)

    assert any(word in claim for claim in found), found
    assert not any(foreign in claim for claim in found for foreign in ("ham", "York"))


def test_a_tool_at_work_ends_a_play() -> None:
    opened = ("user", "let's play: you're a pirate", False)

    assert in_play([opened, ("assistant", "Arr!", False)])
    assert not in_play([opened, ("assistant", "", True)])


def test_a_play_nobody_ends_fades() -> None:
    talk = [("user", "you be the pirate", False), *[("user", f"what about plan {n}", False) for n in range(20)]]

    assert in_play(talk[:5])
    assert not in_play(talk)
