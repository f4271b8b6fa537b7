"""How something is said: a statement of one's own, or a question, a supposition, a quote, a part that is played.

Pure. Functions take one sentence and the span in it that a pattern matched, so that "I live in Berlin, is it cold?"
keeps Berlin. Text comes from `patterns.readable`; both languages are looked for in any sentence.
"""

from __future__ import annotations

from collections.abc import Mapping

import regex

from proxy.policy.play import HANDS_OUT
from proxy.policy.whose import REPORTS, SAID_RIGHTLY
from proxy.policy.whose import clause as clause_of
from proxy.shelf import compiled

_I = regex.IGNORECASE
_WH = r"(?:what|why|how|who|whom|whose|which)"
_AUX = r"(?:do|does|did|is|are|was|were|can|could|would|will|should|shall|has|have|am|isn't|don't|didn't)"
_MODAL = r"(?:am|is|are|was|were|can|could|would|will|should|shall|may|isn't|aren't|can't|couldn't|won't|shouldn't)"
_OPENER = compiled(
    rf"""^\W*(?:(?:so|and|but|hey|hi|ok|okay|well|also|then|wait|sorry|please|just)\b[\s,]*){{0,2}}(?:
      (?:do|does|did|have|had|has|don't|doesn't|didn't|haven't)\s+(?:i|you|we|they|he|she|it|this|that|my|your|our|the|any)\b
    | {_MODAL}\s+\w
    | {_WH}(?:'s|'re|s)?\s+(?:(?!(?:i|we|my|our)\b)\w+\s+){{0,2}}{_AUX}\b
    | {_WH}(?:'s|'re)\b | (?:when|where)(?:'s|\s+{_AUX})\b | (?:what|how)\s+(?:about|if)\b
    | (?:guess|tell\s+me|remind\s+me|i\s+wonder|i\s+forgot|not\s+sure)\s+(?:{_WH}|if|whether|when|where)\b
    | (?:你|您)(?:觉得|认为|知道(?!的[，,])|(?:说|猜){SAID_RIGHTLY}|还?记得|能|会|可以(?![叫喊]我|称呼我))
    | 请问|难道|是否|为什么|为啥|怎么|谁|哪|猜猜
    )""",
    _I | regex.X,
)
_ASKS = compiled(
    r"(?<!没|没有|不|随便|不管|无论|管|知道|有)"
    r"(?:什么(?!的|都|也)|哪(?:里|儿|个|些|种|家|天)|谁|多少|几(?:个|点|岁|号|只|种)|怎么|咋|为何)"
    r"|是不是|有没有|能不能|会不会|要不要|可不可以|喜不喜欢|要不|(?<!一)(\p{Han})不\1(?!\1)"
)
_ENDS_AS_QUESTION = compiled(r"[?？][\s\"”’)）」]*$|[吗嘛]\s*[。.!！~～]*\s*$")
_TAG = compiled(
    r"^\W*(?:对吗|对吧|是吗|是吧|是不是|对不对|没错吧"
    r"|right|correct|isn't it|don't i|aren't i|am i(?: not)?|do i|no|yes|huh)\W*$",
    _I,
)
_POLITE_TAG = compiled(
    r"(?:好吗|好吧|好不好|行吗|行不行|可以吗|可不可以|谢谢|ok(?:ay)?|please|alright|thanks?|will you)\W*$", _I
)
_POLITE_IF = (
    r"(?!\s*(?:可以|方便|有可能|可能|没问题|不介意|行)(?:的话)?"
    r"|\s*(?:possible|you don't mind|you can|that's ok|needed)\b)"
)
_HYPOTHETICAL = compiled(
    rf"(?:如果|假如|假设|要是|倘若|若是|假使|万一|设想|想象|比方说){_POLITE_IF}"
    r"|也许|或许|说不定|我可能|可能我|不知道我|是否|恨不得|本来想|(?:我)?好奇|想知道|有没有人"
    rf"|\b(?:if{_POLITE_IF}|suppose|supposing|imagine|pretend(?:ing)?|assum(?:e|ing)|let's say|hypothetically"
    r"|whether|maybe|perhaps|wish(?:ed)?|as though|would've|would have|(?:was|am|'m) (?:just )?(?:wondering|curious)"
    r"|in theory|for the sake of argument)\b",
    _I,
)
_PAST = compiled(
    r"以前|曾经?|过去|小时候|年轻时|当年|原来(?!是)|原本|那时|去年|前年|上学时"
    r"|\b(?:used to|back then|in the past|when i was|as a (?:kid|child|teenager|student)|years ago|last year"
    r"|once upon|formerly)\b",
    _I,
)
_NOW = compiled(r"现在|如今|目前|[搬换改]|\b(?:now|nowadays|these days|currently|today|moved|switched|migrated)\b", _I)
_TAKEN_BACK = compiled(
    r"\W*(?:(?:not|it's\s+not|it\s+isn't|it's\s+not\s+like)\s+(?:that|like|because)\b|(?:我|也|倒|这)?(?:也|倒"
    r"|又)?不是(?:不|没|说|我?(?:不|讨厌))"
    r"|as\s+if\s+i\b|like\s+i\s+(?:care|need|want)\b)",
    _I,
)
_JOKED = compiled(
    r"(?<!别|不|没)(?:开(?:个)?玩笑|逗你|骗你|瞎说|说着玩|闹着玩|胡说)(?:的|呢|啦|玩|而已)*(?=[，,。！!~～\s哈]|$)"
    r"|\b(?:just\s+kidding|only\s+kidding|i'?m\s+kidding|kidding|jk|just\s+joking|i'?m\s+joking|only\s+joking|/s)\b",
    _I,
)
_CITED = compiled(
    r"(?:比如说?|例如|譬如|好比|举(?:个)?例(?:子)?(?:来说)?|类似|歌里唱|歌词(?:是|里)?|标题(?:是|叫)?"
    r"|\b(?:for\s+(?:example|instance)|e\.g\.?|such\s+as"
    r"|something\s+like|the\s+song\s+goes|lyrics?\s+(?:go|are)|titled|called|entitled))[,，:：\s]*(?:the\s+user\s+says\s+)?$",
    _I,
)
_CITES = compiled(
    r"\W*(?:比如说?|例如|譬如|举个例子|for\s+(?:example|instance)|e\.g\.|example\s*:|lyrics?\s*:|歌词|♪|🎵)",
    _I,
)
_PASSING = compiled(
    r"\b(?:all|this\s+whole|the\s+whole)\s+(?:morning|afternoon|evening|night|day|week|weekend)\b"
    r"|\bsince\s+(?:this\s+morning|yesterday|last\s+night"
    r"|lunch|breakfast|\d{1,2}\s?(?:am|pm))\b"
    r"|(?:has|have|had|'s|'ve|hasn't|haven't|been|still|waiting|stuck|down|late"
    r"|delayed)\b[^.,;!?\n]{0,30}\bfor\s+(?:the\s+(?:last|past)\s+)?"
    r"(?:an?|a\s+few|two|three|four|five|six|\d+|several|some|half\s+an?)\s+(?:seconds?|minutes?|mins?|hours?|hrs?"
    r"|days?)\b"
    r"|\b(?:right\s+now|at\s+the\s+moment|just\s+now|at\s+this\s+point|as\s+we\s+speak)\b"
    r"|\b(?:for|in)\s+this\s+(?:e-?mail|one|task|file|question|version|draft|time|chat|case|reply|message|post"
    r"|exercise|example|letter|slide|paragraph|section)\b"
    r"|\bjust\s+(?:this\s+(?:once|time)|for\s+(?:now|today|once))\b|\b(?:only\s+)?this\s+once\b|\bi'?m\s+(?:so"
    r"|really|very|pretty|too|just|a\s+bit)?\s*"
    r"(?:tired|hungry|bored|sleepy|exhausted|stuck|confused|lost|late|busy|nervous|excited|relieved|starving|done"
    r"|back|here|off|ready|sorry)\b"
    r"|(?:一|整)(?:个)?(?:上午|下午|早上|晚上|天|整天|夜|宿)(?:都|一直|了)|(?:等|卡|堵|坏|停|断|宕|挂|报错|排|没来"
    r"|没到|没发)[^，。！？\n]{0,6}"
    r"(?:[一二两三四五六七八九十几半\d]+)个?(?:小时|分钟|天|多小时)|(?:[一二两三四五六七八九十几半\d]+)个?(?:小时"
    r"|分钟|天)了?(?:都|还|也)?(?:没|不)"
    r"|此刻|这会儿|现在正|刚刚才?|(?:仅|只|就)(?:限)?这(?:一)?次|(?:这|本)(?:次|封|篇|一?版|一?稿|道题|张图|个文件"
    r"|段|一?轮)(?:先|就|里|要|用|不|我)"
    r"|(?:好|真|太|有点|快)(?:累|困|饿|烦|无聊|紧张|冷|热)(?:死|啊|了|啦|哦|$)",
    _I,
)
_DENIED = compiled(
    r"(?:不是|并非|并不|不代表|不意味着?|没说过?|谁说|不觉得|不认为|怀疑)\s*(?:因为|说)?\s*$"
    r"|(?:not (?:that|because|saying)|n't (?:mean|think|say|believe|know)|never said|doubt|deny"
    r"|isn't (?:that|true)|hardly)(?: that)?\s*$",
    _I,
)
_MAKE = r"(?:写(?=[一首篇封个段份下出点句几张])|拟|起草|编(?=[一个首段写])|创作|生成|翻译|改写|润色|扩写|续写|造句)"
_COMPOSED = compiled(
    rf"^\W*(?:请|麻烦|你?帮(?:我|忙)|给我|能不能|可以|来){{0,3}}你?{_MAKE}"
    r"|^\W*把.{0,80}(?:翻译|译成|改写|润色)"
    r"|(?:翻译成|译成|翻成|用(?:中文|英文|英语|日语)怎么说|这句话|这段话|这个句子|例句)"
    r"|^\W*(?:(?:please|can you|could you|would you|help me(?: to)?|i need you to|now|let's)\W+){0,2}"
    r"(?:write|compose|draft|generate|translate|rewrite|rephrase|paraphrase|proofread|say|repeat"
    r"|complete the sentence)\b"
    r"|\b(?:translate|in (?:french|chinese|english|german|spanish|japanese)\s*:"
    r"|this sentence|the (?:sentence|phrase|lyrics?|line))\b",
    _I,
)
_COMMAND = compiled(
    r"^\W*(?:(?:请|麻烦|劳驾|那|好|然后|接着|再|先|现在)[，,]?\s*){0,3}(?:你|您)?(?:帮|给|替|为)?(?:我|我们|忙|一下)?"
    r"(?:帮忙|帮我|给我|写|翻译|解释|总结|概括|列出?|生成|画|做一|创建|查|搜|找|看看|看一?下|检查|修改?|改|运行|执行"
    r"|计算|算|分析|推荐|介绍|告诉|比较|对比|说说|讲|继续|重(?:写|试|来)|打开|关闭|删除?|添加|加上|安排|规划|设计|实现"
    r"|优化|润色|预订|订|展示|显示|展开|给出|提供|整理|提醒)(?!了|过)"
    r"|^\W*(?:(?:please|kindly|now|then|ok(?:ay)?|and|also|just|next|hey|hi)\b[\s,]*){0,3}"
    r"(?:write|explain|translate|summari[sz]e|list|generate|draw|create|make|search|find|look|check|fix|change|run"
    r"|execute|calculate|compute|analy[sz]e|recommend|suggest|tell|show|give|compare|describe|continue|rewrite|retry"
    r"|try"
    r"|open|close|delete|remove|add|plan|design|implement|optimi[sz]e|refactor|debug|help|convert|format|sort|build"
    r"|provide|draft|send|book|get|print|compose|review|test|update|set|schedule|read|define|outline|brainstorm|let's"
    r"|let me|walk me|i need you to|i want you to|i'd like you to|can you|could you|would you|will you)\b",
    _I,
)
SIGNS: Mapping[str, tuple[str, ...]] = {
    "hypothetical": (_HYPOTHETICAL.pattern,),
    "past": (_PAST.pattern,),
    "passing": (_PASSING.pattern,),
    "reported": REPORTS,
    "denied": (_DENIED.pattern, _TAKEN_BACK.pattern, _JOKED.pattern),
    "composed": (_COMPOSED.pattern,),
    "role_play": HANDS_OUT,
}
"""Features that a sentence has only where one of these patterns, whatever the case of letters, matches in it."""
_QUOTES = (("“", "”"), ("「", "」"), ("『", "』"), ("《", "》"))
_CHINESE_CHAR = compiled(r"\p{Han}")
_WORD = compiled(r"[A-Za-z0-9_'-]+")


def question(sentence: str, start: int = 0, end: int | None = None) -> bool:
    """Whether the span is asked and not said.

    >>> question("我喜欢茶吗？", 0, 4), question("我喜欢茶，你呢？", 0, 4), question("我喜欢茶，对吧？", 0, 4)
    (True, False, True)
    >>> question("do I like tea"), question("I live in Berlin, is it cold?", 0, 16), question("When I code I use vim")
    (True, False, False)
    """
    end = len(sentence) if end is None else end
    opening, closing = clause_of(sentence, start, end)
    clause = sentence[opening:closing]
    if _OPENER.match(clause) or _OPENER.match(sentence[:end]) or (not clause.isascii() and _ASKS.search(clause)):
        return True
    if not _ENDS_AS_QUESTION.search(sentence) or _POLITE_TAG.search(sentence.rstrip("?？ ")):
        return False
    rest = sentence[closing:]
    return not (_WORD.search(rest) or _CHINESE_CHAR.search(rest)) or _TAG.match(rest) is not None


def hypothetical(sentence: str) -> bool:
    """Whether a sentence only supposes.

    >>> hypothetical("如果我喜欢茶"), hypothetical("if I liked tea"), hypothetical("如果可以的话，我喜欢茶")
    (True, True, False)
    """
    return _HYPOTHETICAL.search(sentence) is not None


def past(sentence: str, start: int = 0) -> bool:
    """Whether what stands before the span puts it into the past: "小时候我住在…".

    >>> past("以前我住在北京", 2), past("以前住北京，现在我住在上海", 8)
    (True, False)
    """
    return _PAST.search(sentence[: start + 8]) is not None and not _NOW.search(sentence[: start + 8])


def denied(sentence: str, start: int = 0) -> bool:
    """Whether the words right before the span take it back, or the sentence opens by taking back what it says.

    >>> denied("It's not that I like tea", 14), denied("并不是我喜欢茶", 3), denied("I like tea")
    (True, True, False)
    >>> denied("not that I want to"), denied("我不是不喜欢瑜伽，就是没时间")
    (True, True)
    """
    return _DENIED.search(sentence[:start]) is not None or _TAKEN_BACK.match(sentence) is not None


def joked(message: str) -> bool:
    """Whether a message takes back what it says as a joke.

    >>> joked("我住月球上，开玩笑的"), joked("I live on the moon, just kidding"), joked("别开玩笑")
    (True, True, False)
    """
    return _JOKED.search(message) is not None


def passing(sentence: str) -> bool:
    """Whether a sentence tells of the moment, or asks for something this once.

    >>> passing("CI has been red all morning"), passing("I want it formal for this email"), passing("I run CI on ARM")
    (True, True, False)
    >>> passing("我的订单三天了还没到"), passing("这封先写英文"), passing("我每天喝茶")
    (True, True, False)
    """
    return _PASSING.search(sentence) is not None


def quoted(paragraph: str, start: int) -> bool:
    """Whether a place lies between quotation marks or in a code span, or is given as an example.

    >>> quoted("他写道“我喜欢茶”", 4), quoted("我喜欢“茶”", 0), quoted('she sang "I like tea"', 10)
    (True, False, True)
    >>> quoted("for example I like tea", 12), quoted("比如我喜欢茶", 2), quoted("I like fruit, for example figs", 0)
    (True, True, False)
    """
    before = paragraph[paragraph.rfind("\n", 0, start) + 1 : start]
    if any(before.count(mark) % 2 for mark in ('"', "`")):
        return True
    if any(before.count(opening) > before.count(closing) for opening, closing in _QUOTES):
        return True
    return _CITED.search(before) is not None or _CITES.match(paragraph, start) is not None


def composed(sentence: str) -> bool:
    """Whether a sentence orders a text to be made or handled, so that its content is not the writer's own.

    >>> composed("写一首歌，说我喜欢茶"), composed("Write a poem about how I like tea"), composed("我喜欢写诗")
    (True, True, False)
    """
    return _COMPOSED.search(sentence) is not None


def command(sentence: str) -> bool:
    """Whether a sentence tells the assistant to do something now.

    >>> command("帮我写一个脚本"), command("please list the files"), command("我们用 Postgres")
    (True, True, False)
    """
    return _COMMAND.match(sentence) is not None


def says_something(sentence: str) -> bool:
    """Whether a sentence states something: long enough, no question, command, supposition, or text to be made.

    >>> says_something("我们的测试库在 5433 端口"), says_something("嗯嗯"), says_something("what is that")
    (True, False, False)
    """
    if sentence.rstrip().endswith((":", "：")):  # announces something
        return False
    long_enough = len(_CHINESE_CHAR.findall(sentence)) + 2 * len(_WORD.findall(sentence)) >= 6
    return long_enough and not (question(sentence) or command(sentence) or composed(sentence) or hypothetical(sentence))
