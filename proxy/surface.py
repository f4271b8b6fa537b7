"""How a text is said: marks that tell statements from questions, commands, quotes and code, and the terms in it.

In: a text. Out: numbers and words for a linear model. Pure, and a few microseconds for a text of any length: it runs
for each sentence that the rules left over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import add
from typing import Final, NamedTuple

# How a sentence is said shows in its first words and at its end; the bound keeps the cost flat for pasted text.
_HEAD_CHARS: Final = 120
_TAIL_CHARS: Final = 24
# UTF-8 bytes count an ideograph thrice, which makes Chinese and English sentences of one content about as long.
_SHORT_BYTES, _MEDIUM_BYTES, _LONG_BYTES = 14, 32, 90
_NON_LATIN_BYTES_PER_CHAR: Final = 1.6
_CODE_SHARE: Final = 0.07

_ASCII = re.compile(r"[\x00-\x7f]+")
_QUESTION_END = re.compile(r"[?？][\s\"”’)）~～!！]*$|(?:[吗么呢吧不]|来着)[\s。.~～!！]*$")
_SOFT_END = re.compile(r"[!！~～…][\s\"”)）]*$")
_WORD = re.compile(r"[a-z]+(?:['’-][a-z]+)*")
_DIGIT = re.compile(r"\d")
_CODE = re.compile(r"[][{}<>=;|$\\_/@#&*()]|::|--")
_MACHINE = re.compile(r"[a-z][A-Z]|\b[A-Z]{4,}\b|\d\d:\d\d:\d\d|\w\.\w+[.(]|\b\w+_\w+\b|(?:^|\s)--?\w")
_QUOTE = re.compile('["“”「『>]')
_SMALL_WORDS = re.compile("(?:(?:please|pls|plz|ok|okay|so|and|but|then|now|just|also|hey|hi|well|help me)[ ,]+)*")
_FILLERS = re.compile(
    "(?:[请你您先再那就好来快把将]|[帮给替为][我他她忙]?|麻烦|然后|现在|一下|刚才的?|这[个段张]|上面的?)*"
)

# Signs by mark: English words, then Chinese terms of one or two characters.
_OPENERS: Final[Mapping[str, str]] = {
    "opens_as_question": (
        "what what's whats who who's whose which why how how's when when's where where's is are was were do does did"
        " can could would should will has have shall any anything anybody wdym"
        " 怎 为什 为啥 为何 哪 谁 什么 啥 多少 有没 能不 可不 要不 是不 请问 问 如何 几 有什 能"
    ),
    "opens_as_command": (
        "write translate list continue summarize summarise sum calculate compute add check delete draw book"
        " regenerate explain turn say run look play tell sort show take compress search find compare rename"
        " elaborate recommend undo polish export help read generate stop pretty-print put chase walk try expand"
        " quit scroll count fix rewrite convert create open close remove change send get pull push test describe"
        " simulate talk imagine pretend act let's lets fill format build plan suggest update refactor debug compose"
        " draft rephrase outline print analyze analyse make give"
        " 写 翻 列 继续 总结 概括 换个 改 算 查 画 订 生成 重新 解释 打开 关 跑 播 讲 说说 排 搜 对比 比较 接着 展开"
        " 推荐 取消 润 导出 想个 读 检查 停 格式 催 试 扩写 运行 别管 退出 往下 定个 压缩 加 删 看 出 做 找 列出 分析"
        " 介绍 起 模拟 扮"
    ),
    "opens_as_order": (
        "don't dont never always stop whenever keep use avoid skip treat mark cite stick default when from mind no"
        " round leave answer"
        " 别 不要 以后 今后 往后 凡是 每次 一律 统一 报价 代码 列清 夜里"
    ),
}
_SIGNS: Final[Mapping[str, str]] = {
    "asks": (
        "why what which whether how"
        " 怎么 怎样 为什 为啥 哪里 哪个 哪儿 哪些 哪种 哪家 什么 多少 有没 能不 要不 是不 该不 多久 几种 几点 几号"
        " 咋 啥"
    ),
    "first_person": ("i i'm im i've i'd i'll my mine me we we're we've we'd we'll our ours us 我 咱 俺 偶 本人"),
    "second_person": "you you're youre you've your u ur yours 你 您",
    "third_person": (
        "he she he's she's his her they they're their him them someone somebody some guy lady dude"
        " coworker's colleague's friend's cousin cousin's neighbour's neighbor's roommate classmate"
        " flatmate buddy mate bloke neighbour neighbor everyone coworker boyfriend girlfriend recruiter customer"
        " 他 她 那个 隔壁 有个 有人 某 那位 楼上 楼下 路边 邻居 表弟 表妹 表姐 表哥 的朋 友的 事的"
        " 室友 哥们 同学 顾客 对象"
    ),
    "lasting": (
        "always never usually every each often mostly normally generally tend from remember whenever weekends daily"
        " weekly monthly prefer favourite favorite hate rather weekdays"
        " 以后 一般 平时 从来 每天 每周 每月 每年 每次 每晚 每个 一直 总是 固定 通常 习惯 都 只用 只吃 只喝 只有 记住"
        " 今后 往后 别再 不要 一律 凡是 喜欢 基本 统一 周一 周二 周三 周四 周五 周末"
    ),
    "changed": (
        "moved switched changed anymore longer decided settled agreed chose picked replaced dropped going turns fixed"
        " solved meant correction actually"
        " 换成 换了 改成 改用 改了 定了 定下 决定 不再 不用 说好 原来 解决 最后 最终 查出 结论 说错 纠正 其实 已经"
    ),
    "bounded": (
        "must can't cannot cant budget limit max most within before until under deadline capped required needs only"
        " 必须 不能 最多 预算 上限 不许 不可 只能 以内 之前 要求 截止 超过"
    ),
    "supposes": (
        "if wish suppose imagine maybe perhaps might would assuming pretend hypothetically were"
        " 如果 要是 假如 假设 倘若 也许 说不 万一 比方 想象 设想 可能 或许"
    ),
    "of_the_moment": (
        "just today moment currently still again back wait sec here's here this right morning yesterday now"
        " 刚 今天 正在 这会 一下 等 马上 这里 这个 下面 上面 昨天 昨晚 早上 第一 第二 第三 这步"
    ),
    "reported": (
        "says said wrote writes claims told apparently according heard reading commented replied goes reads posted"
        " posts overheard 据说 听说 写着 写道 里说 里讲 原话 转发 回复 留言 台词 新闻 博主 网上 人说"
    ),
    "plays_a_part": (
        "role-play act pretend character scene setting story roleplay player simulate play senior"
        " 扮演 假装 角色 你是 你来 你演 我演 设定 剧本 场景 口吻 口气 身份 模拟 故事 演"
    ),
    "machine_words": (
        "traceback error err exception warn warning info debug critical fatal import def return const var void"
        " function class select insert values kubectl docker curl wget chmod sudo systemctl bash npm yarn pip export"
        " 报错 错误 超时 失败"
    ),
    "came_out": (
        "fixed solved stopped turned turns worked works helped saved cured brought rid refund refunded agreed passed"
        " failed lost because caused once since rolling swapping adding clearing"
        " 解决 好了 修好 原来 就不 不再 终于 退了 最后 是因 查出 降到 以后就"
    ),
    "judges": (
        "too missed forgot wrong helpful loved hated useless perfect bland harsh easy steep suggested recommended gave"
        " mixing"
        " 上次 上回 你给 管用 漏了 不行 好用 满意 太长 太重 太满 你老 那版 那个"
    ),
    "mocks": "sure yeah obviously totally jealous kidding exactly wanted heart moon 可不 真好 逗你 正合 倒也 是是 不是",
    "just_this": (
        "hours hour minutes stuck queue hold slide email reply layout version evening afternoon again red"
        " 一下 下午 一晚 这会 又打 这封 这张 这题 这段 这次 没到 排了 堵在"
    ),
    "cites": (
        "clause sentence sample candidate review song sign horoscope contract chapter narrator diary tenant item"
        " 例句 歌里 评论 留言 条承 乙方 甲方 第二 作文 牌子 星座 比如"
    ),
    "thanks": "thanks thank thx thnx ty cheers grateful appreciated sorry srry 谢 感恩 辛苦 抱歉 好意",
    "feels": (
        "tired hungry sleepy bored happy nervous ugh argh lol haha omg wow phew yay feeling meh funny cool nice kinda"
        " 累 烦 困 饿 哈 嘿 唉 哎 啊 爽 开心 紧张 郁闷 真的 真是 服了"
    ),
    "own_people": (
        "wife husband partner daughter son kids kid mum mom dad mother father parents sister brother team manager boss"
        " 老公 老婆 媳妇 爱人 对象 女儿 儿子 爸 妈 孩子 我姐 我哥 我们 咱们 咱家 我家 室友"
    ),
}
_SHAPES: Final = (
    "non_latin",
    "ends_as_question",
    "ends_softly",
    "digits",
    "quotes",
    "code_share",
    "code_like",
    "machine_forms",
    "short",
    "medium",
    "long",
)
MARKS: Final = (*_SHAPES, *_OPENERS, *_SIGNS, "standing_order")


def _by_sign(table: Mapping[str, str], first: int) -> dict[str, int]:
    """For each sign the set of its marks' places, as bits: one look-up a word, however many marks there are."""
    places: dict[str, int] = {}
    for place, signs in enumerate(table.values(), first):
        for sign in signs.split():
            places[sign] = places.get(sign, 0) | 1 << place
    return places


_OPENER_PLACES: Final = _by_sign(_OPENERS, len(_SHAPES))
_SIGN_PLACES: Final = _by_sign(_SIGNS, len(_SHAPES) + len(_OPENERS))
_LASTING: Final = 1 << MARKS.index("lasting")
_ORDER: Final = 1 << MARKS.index("opens_as_command") | 1 << MARKS.index("second_person")
_STANDING: Final = 1 << MARKS.index("standing_order")
_SIGN_RANGE: Final = range(len(_SHAPES), len(MARKS))


class Look(NamedTuple):
    """What a text shows on its surface.

    Args:
        marks: In the order of `MARKS`; each 0 or 1 but for the share of code signs, 0–1.
        terms: English words and pairs of them, Chinese characters and pairs of them, each once.
    """

    marks: list[float]
    terms: Sequence[str]


def look(text: str) -> Look:
    """How a text is said.

    Args:
        text: Any text; its first 120 characters and its end are looked at.

    >>> marks = dict(zip(MARKS, look("Why does my container keep restarting?").marks, strict=True))
    >>> marks["opens_as_question"], marks["ends_as_question"], marks["first_person"], marks["lasting"]
    (1.0, 1.0, 1.0, 0.0)
    >>> dict(zip(MARKS, look("帮我写一封信").marks, strict=True))["opens_as_command"]
    1.0
    >>> look("We use k8s 部署").terms
    ['we', 'use', 'k', 's', '^ we', 'we use', 'use k', 'k s', '^', ' ', '部', '署', '^ ', ' 部', '部署']
    """
    said = text[:_HEAD_CHARS].strip()
    head = said.lower()
    ascii_only = head.isascii()
    terms: list[str] = _WORD.findall(head)
    terms += [f"{one} {next_one}" for one, next_one in zip(["^", *terms], terms, strict=False)]
    fillers = _SMALL_WORDS if ascii_only else _FILLERS
    start = found.end() if (found := fillers.match(head)) else 0
    if ascii_only:
        opening = [word.group()] if (word := _WORD.match(head, start)) else []
    else:
        opening = [head[start : start + 1], head[start : start + 2]]
        other = "^" + _ASCII.sub(" ", head)
        terms += other
        terms += map(add, other, other[1:])
    once = list(dict.fromkeys(terms))
    marks = _shapes(said, text[-_TAIL_CHARS:], ascii_only)
    marks += _signs(opening, once)
    return Look(marks, once)


def _signs(opening: Sequence[str], terms: Sequence[str]) -> list[float]:
    seen = 0
    for sign in opening:
        seen |= _OPENER_PLACES.get(sign, 0)
    for sign in terms:
        seen |= _SIGN_PLACES.get(sign, 0)
    if seen & _LASTING and seen & _ORDER:
        seen |= _STANDING
    return [1.0 if seen >> place & 1 else 0.0 for place in _SIGN_RANGE]


def _shapes(head: str, tail: str, ascii_only: bool) -> list[float]:
    size = len(head) if ascii_only else len(head.encode("utf-8", "replace"))
    share = len(_CODE.findall(head)) / max(len(head), 1)
    shapes = (
        size >= _NON_LATIN_BYTES_PER_CHAR * max(len(head), 1),
        _QUESTION_END.search(tail) is not None,
        _SOFT_END.search(tail) is not None,
        _DIGIT.search(head) is not None,
        _QUOTE.search(head) is not None,
        share,
        share >= _CODE_SHARE,
        _MACHINE.search(head) is not None,
        size < _SHORT_BYTES,
        _SHORT_BYTES <= size < _MEDIUM_BYTES,
        size >= _LONG_BYTES,
    )
    return list(map(float, shapes))
