"""What people say and what is remembered of it, in Chinese and English: varied, repeatable, from no data set.

In: a count and a seed. Out: distinct texts. Half of each kind is Chinese.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.types import Language, MemoryType, Visibility

_ZH: Mapping[str, str] = {
    "who": "小李|王芳|张工|陈老师|刘洋|赵敏|周杰|孙经理|吴姐|郑浩|林夕|何医生",
    "place": "北京|上海|杭州西湖|成都|深圳南山|广州|西安|南京|苏州工业园|武汉光谷|厦门|青岛|大理|昆明|香港",
    "thing": "深色模式|靠窗的座位|手冲咖啡|川菜|简短的回答|表格形式的总结|早上的航班|机械键盘|乌龙茶|爵士乐|"
    "悬疑小说|慢跑|五星级酒店|电动汽车|纸质书|无糖酸奶|羽毛球|科幻电影|双语字幕|代码注释",
    "system": "订单服务|支付网关|登录页面|日志平台|数据仓库|推荐系统|消息队列|部署脚本|测试环境|监控大盘|缓存集群",
    "fault": "端口冲突|内存泄漏|证书过期|连接超时|磁盘写满|死锁|编码错误|权限不足|版本不兼容|主从延迟|配置丢失",
    "deed": "重启容器|回滚版本|扩容节点|清理日志|更新依赖|补充索引|调整超时|加上重试|改用长连接|迁移到新机房",
    "topic": "季度预算|产品发布会|新员工培训|年度体检|装修方案|孩子的入学|毕业论文|搬家计划|团建活动|供应商合同",
}
_EN: Mapping[str, str] = {
    "who": "Alice|Bob Miller|Dr. Chen|Priya|Tom|my manager Sarah|Kenji|Elena|our intern Max|Olga|Samir|Grace",
    "place": "Berlin|San Francisco|Tokyo|a small town near Lyon|Toronto|Singapore|Lisbon|Seattle|Nairobi|Oslo",
    "thing": "dark mode|window seats|short answers|bullet points|green tea|early flights|jazz|spicy food|paperbacks|"
    "mechanical keyboards|oat milk|running at dawn|quiet hotels|electric cars|type hints|tabs over spaces",
    "system": "billing service|auth gateway|landing page|log pipeline|data warehouse|recommendation model|"
    "message queue|deploy script|staging cluster|metrics dashboard|cache layer|nightly report",
    "fault": "a port conflict|a memory leak|an expired certificate|connection timeouts|a full disk|a deadlock|"
    "an encoding error|missing permissions|a version mismatch|replication lag|a lost config file",
    "deed": "restarting the container|rolling back|adding two nodes|rotating the logs|pinning the dependency|"
    "adding an index|raising the timeout|retrying with backoff|moving to the new region",
    "topic": "quarterly budget|product launch|onboarding plan|annual check-up|kitchen renovation|school enrolment|"
    "thesis draft|house move|team offsite|vendor contract",
}
_SAID: Mapping[str, Sequence[str]] = {
    "zh": (
        "上次$system的$fault是怎么解决的？我记得当时是$who处理的",
        "$topic现在进展到哪一步了，下周$n号之前能不能定下来？",
        "帮我给$who写一封邮件，说明$topic要推迟到$n号，语气客气一点",
        "我们之前说好的$system端口是多少来着，是不是${n}8080？",
        "我更喜欢$thing，以后推荐的时候照这个来",
        "我下个月要去$place出差，大概待$n天，住在离地铁近的地方",
        "记住，$system的负责人换成$who了，从$n号开始",
        "以后都用$thing，不要再问我了",
        "不对，我说的是$system，不是别的，版本是$n.2",
        "决定了，$topic就按第$n个方案做，下周一开始执行",
        "刚才部署$system的时候又碰到$fault，日志里全是报错，试过$deed还是不行，你看看第$n行",
        "给我解释一下为什么$system会出现$fault，顺便说说$deed有没有用，分$n点说明",
        "周末想带家人去$place玩$n天，预算三千左右，有什么推荐的路线和吃的？",
        "把这段话翻译成英文：$topic已经完成了百分之$n，感谢$who的支持",
    ),
    "en": (
        "How did we fix $fault in the $system last time? I think $who looked into it",
        "What is the state of the $topic, and can we close it before the ${n}th?",
        "Write a short mail to $who saying that the $topic moves to the ${n}th, keep it friendly",
        "Which port does the $system listen on again, was it ${n}8080?",
        "I prefer $thing, please keep that in mind when you suggest something",
        "I am travelling to $place next month for $n days and need a place near a station",
        "Remember that the owner of the $system is now $who, starting on the ${n}th",
        "Always use $thing from now on, no need to ask",
        "No, I meant the $system, version $n.2, not the other one",
        "We decided to go with option $n for the $topic, we start on Monday",
        "Deploying the $system failed with $fault again; I tried $deed and it did not help, see line $n of the log",
        "Explain why the $system runs into $fault and whether $deed would help, in $n points",
        "We want to spend $n days in $place with the kids, around 900 euros, what route would you take?",
        "Translate this into Chinese: the $topic is ${n} percent done, thanks to $who",
    ),
}
_KEPT: Mapping[str, Sequence[tuple[str, MemoryType, str, Visibility]]] = {
    "zh": (
        ("用户喜欢$thing", "semantic", "preference", "user"),
        ("用户在$place有一个$n人的团队", "semantic", "fact", "user"),
        ("$system的负责人是$who，监听端口${n}8080", "semantic", "fact", "agent"),
        ("$topic定为第$n个方案，由$who跟进", "semantic", "decision", "agent"),
        ("$n号$system出现$fault，$who通过$deed解决", "episodic", "task", "agent"),
        ("帮我看看$system为什么总是$fault，已经是第$n次了，$who也说不清楚", "episodic", "turn", "agent"),
        ("$deed失败：$system返回错误码$n，原因是$fault", "episodic", "tool_failure", "agent"),
        ("$system每逢月底第$n天容易$fault，先$deed更稳妥", "reflective", "lesson", "agent"),
    ),
    "en": (
        ("The user prefers $thing", "semantic", "preference", "user"),
        ("The user has a team of $n in $place", "semantic", "fact", "user"),
        ("$who owns the $system, which listens on port ${n}8080", "semantic", "fact", "agent"),
        ("The $topic follows option $n; $who does the follow-up", "semantic", "decision", "agent"),
        ("On the ${n}th the $system had $fault; $who solved it by $deed", "episodic", "task", "agent"),
        (
            "Please look at the $system, it shows $fault for the ${n}th time and $who is out",
            "episodic",
            "turn",
            "agent",
        ),
        ("$deed failed: the $system returned code $n because of $fault", "episodic", "tool_failure", "agent"),
        ("The $system tends to have $fault near day $n; $deed first is safer", "reflective", "lesson", "agent"),
    ),
}
_ANSWERS = (
    "好的，我先看了相关的记录。建议分三步处理：第一，确认现在的配置和版本；第二，在测试环境里重现一次，留下日志；"
    "第三，再决定是否需要回滚。如果今天之内能确认原因，明天上午就可以恢复，届时我会再整理一份简短的说明给大家。",
    "Here is what I would do: first check the configuration that is live now and compare it with the last release, "
    "then reproduce the problem on staging and keep the logs. If the cause is the one you suspect, the change is small "
    "and can go out tomorrow morning; otherwise roll back first and look at it calmly afterwards.",
)
SYSTEM_PROMPT = (
    "You are the assistant of a small engineering team. Answer in the language of the question, be brief, show "
    "commands in code blocks, say so when you do not know, and never invent names, numbers or dates."
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A memory to fill a scope with."""

    content: str
    memory_type: MemoryType
    kind: str
    scope: Visibility
    language: Language


def sayings(count: int, seed: int) -> list[str]:
    """User messages, all distinct: questions, tasks, and now and then something to be remembered."""
    choose = random.Random(seed)
    return _distinct(_say(choose), count)


def memories(count: int, seed: int) -> list[Kept]:
    """Memories with distinct contents: facts, preferences, episodes, lessons."""
    choose = random.Random(seed)
    found: dict[str, Kept] = {}
    for index in _attempts(count):
        language: Literal["zh", "en"] = "zh" if index % 2 else "en"
        template, memory_type, kind, scope = choose.choice(_KEPT[language])
        content = _filled(template, language, choose)
        found.setdefault(content, Kept(content, memory_type, kind, scope, language))
        if len(found) == count:
            break
    return list(found.values())


def answer(number: int) -> str:
    """A model's answer of ordinary length; two in turn, one in each language."""
    return _ANSWERS[number % len(_ANSWERS)]


def _say(choose: random.Random) -> Iterator[str]:
    index = 0
    while True:
        language = "zh" if index % 2 else "en"
        yield _filled(choose.choice(_SAID[language]), language, choose)
        index += 1


def _filled(template: str, language: str, choose: random.Random) -> str:
    words = _ZH if language == "zh" else _EN
    fields = {name: choose.choice(options.split("|")) for name, options in words.items()}
    return string.Template(template).substitute(fields, n=choose.randint(2, 28))


def _distinct(texts: Iterator[str], count: int) -> list[str]:
    found: dict[str, None] = {}
    for _ in _attempts(count):
        found[next(texts)] = None
        if len(found) == count:
            break
    return list(found)


def _attempts(count: int) -> range:
    """Enough draws for `count` distinct texts out of the hundred thousand or so that the templates can make."""
    return range(50 * count)
