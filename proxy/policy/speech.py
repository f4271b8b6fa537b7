"""How something is said: a statement of one's own, or a question, a supposition, a quote, a part that is played.

Pure. Functions take one sentence and the span in it that a pattern matched, so that "I live in Berlin, is it cold?"
keeps Berlin. Text comes from `patterns.readable`; both languages are looked for in any sentence.
"""

from __future__ import annotations

from collections.abc import Mapping

import regex

_I = regex.IGNORECASE
_ASKING = r"(?:can|could|would|will|what|how|why|where|which|who|is|are|do|does|did)"
_CLAUSE = regex.compile(rf"[，,；;：:—]+|\s[-–]\s|\b(?:and|but|so)\s+(?={_ASKING}\b)", _I)
_WH = r"(?:what|why|how|who|whom|whose|which)"
_AUX = r"(?:do|does|did|is|are|was|were|can|could|would|will|should|shall|has|have|am|isn't|don't|didn't)"
_MODAL = r"(?:am|is|are|was|were|can|could|would|will|should|shall|may|isn't|aren't|can't|couldn't|won't|shouldn't)"
_OPENER = regex.compile(
    rf"""^\W*(?:(?:so|and|but|hey|hi|ok|okay|well|also|then|wait|sorry|please|just)\b[\s,]*){{0,2}}(?:
      (?:do|does|did|have|had|has|don't|doesn't|didn't|haven't)\s+(?:i|you|we|they|he|she|it|this|that|my|your|our|the|any)\b
    | {_MODAL}\s+\w
    | {_WH}(?:'s|'re|s)?\s+(?:(?!(?:i|we|my|our)\b)\w+\s+){{0,2}}{_AUX}\b
    | {_WH}(?:'s|'re)\b | (?:when|where)(?:'s|\s+{_AUX})\b | (?:what|how)\s+(?:about|if)\b
    | (?:guess|tell\s+me|remind\s+me|i\s+wonder|i\s+forgot|not\s+sure)\s+(?:{_WH}|if|whether|when|where)\b
    | (?:你|您)(?:觉得|认为|知道|说|猜|还?记得|能|会|可以)|请问|难道|是否|为什么|为啥|怎么|谁|哪|猜猜
    )""",
    _I | regex.X,
)
_ASKS = regex.compile(
    r"(?<!没|没有|不|随便|不管|无论|管|知道|有)"
    r"(?:什么(?!的|都|也)|哪(?:里|儿|个|些|种|家|天)|谁|多少|几(?:个|点|岁|号|只|种)|怎么|咋|为何)"
    r"|是不是|有没有|能不能|会不会|要不要|可不可以|喜不喜欢|要不|(?<!一)(\p{Han})不\1(?!\1)"
)
_ENDS_AS_QUESTION = regex.compile(r"[?？][\s\"”’)）」]*$|[吗嘛]\s*[。.!！~～]*\s*$")
_TAG = regex.compile(
    r"^\W*(?:对吗|对吧|是吗|是吧|是不是|对不对|没错吧"
    r"|right|correct|isn't it|don't i|aren't i|am i(?: not)?|do i|no|yes|huh)\W*$",
    _I,
)
_POLITE_TAG = regex.compile(
    r"(?:好吗|好吧|好不好|行吗|行不行|可以吗|可不可以|谢谢|ok(?:ay)?|please|alright|thanks?|will you)\W*$", _I
)
_POLITE_IF = (
    r"(?!\s*(?:可以|方便|有可能|可能|没问题|不介意|行)(?:的话)?"
    r"|\s*(?:possible|you don't mind|you can|that's ok|needed)\b)"
)
_HYPOTHETICAL = regex.compile(
    rf"(?:如果|假如|假设|要是|倘若|若是|假使|万一|设想|想象|比方说){_POLITE_IF}"
    r"|也许|或许|说不定|我可能|可能我|不知道我|是否|恨不得|本来想"
    rf"|\b(?:if{_POLITE_IF}|suppose|supposing|imagine|pretend(?:ing)?|assum(?:e|ing)|let's say|hypothetically"
    r"|whether|maybe|perhaps|wish(?:ed)?|as though|would've|would have)\b",
    _I,
)
_PAST = regex.compile(
    r"以前|曾经?|过去|小时候|年轻时|当年|原来(?!是)|原本|那时|去年|前年|上学时"
    r"|\b(?:used to|back then|in the past|when i was|as a (?:kid|child|teenager|student)|years ago|last year"
    r"|once upon|formerly)\b",
    _I,
)
_NOW = regex.compile(
    r"现在|如今|目前|[搬换改]|\b(?:now|nowadays|these days|currently|today|moved|switched|migrated)\b", _I
)
_SPEAKER = (
    r"(?:他|她|它|有人|别人|大家|人家|老板|领导|同事|客户|朋友|同学|老师|医生|你|您|妈妈?|爸爸?|父母|老婆|老公|妻子|丈夫"
    r"|儿子|女儿|哥哥?|姐姐?|弟弟?|妹妹?|书上|文章|网上|助手|AI|小\p{Han}|\p{Han}总)们?(?:里|都|总|经常|曾经?|刚才?|昨天|还)?"
)
_REPORTED = regex.compile(
    rf"{_SPEAKER}(?:说|觉得|认为|以为|告诉|问|写道?|讲|猜|希望|想让)|听说|据说"
    r"|\b(?:he|she|they|it|someone|somebody|everyone|people|you|(?:my|the|our|his|her|their)\s+\w+|who)\s+"
    r"(?:also |just |once |always )?(?:said|says|say|thinks?|thought|claims?|claimed|told|tells|asked|asks|wrote|writes"
    r"|believes?|assumes?|guess(?:es)?|mentioned)\b"
    r"|\b(?-i:[A-Z])\w+\s+(?:said|says|thinks|thought|claims|told|asked|wrote|believes)\b",
    _I,
)
_DENIED = regex.compile(
    r"(?:不是|并非|并不|不代表|不意味着?|没说过?|谁说|不觉得|不认为|怀疑)\s*(?:因为|说)?\s*$"
    r"|(?:not (?:that|because|saying)|n't (?:mean|think|say|believe|know)|never said|doubt|deny"
    r"|isn't (?:that|true)|hardly)(?: that)?\s*$",
    _I,
)
_MAKE = r"(?:写(?=[一首篇封个段份下出点句几张])|拟|起草|编(?=[一个首段写])|创作|生成|翻译|改写|润色|扩写|续写|造句)"
_COMPOSED = regex.compile(
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
_ROLE_PLAY = regex.compile(
    r"你(?:现在|将|就|要|来)?(?:是|当|做|演|扮)(?!不是|谁|什么|怎么|对的|否|我的)"
    r"(?:一[个名位只条]|[^，。？！吗]{1,12}(?:专家|助手|海盗|老师|医生|角色))"
    r"|(?:假设|假装|想象|设想)(?:你|我|自己)|扮演|我们来(?:玩|演)|以.{1,12}的(?:身份|口吻|语气)|进入角色"
    r"|\b(?:you(?:'re| are)(?: now)? (?:an?|the|my) "
    r"(?!star\b|genius|legend|life|great|good|real|big|best|bit|little|expert\b)\w+"
    r"|act (?:as|like)|pretend|role-?play(?:ing)?|imagine (?:you|i|that|being)|play(?:ing)? the (?:role|part)"
    r"|in character|let's play|as (?:if|though) (?:you|i)\b|speak(?:ing)? as|from the perspective of"
    r"|write (?:it|this) as)\b",
    _I,
)
_COMMAND = regex.compile(
    r"^\W*(?:(?:请|麻烦|劳驾|那|好|然后|接着|再|先|现在)[，,]?\s*){0,3}(?:你|您)?(?:帮|给|替|为)?(?:我|我们|忙|一下)?"
    r"(?:帮忙|帮我|给我|写|翻译|解释|总结|概括|列出?|生成|画|做一|创建|查|搜|找|看看|看一?下|检查|修改?|改|运行|执行"
    r"|计算|算|分析|推荐|介绍|告诉|比较|对比|说说|讲|继续|重(?:写|试|来)|打开|关闭|删除?|添加|加上|安排|规划|设计|实现"
    r"|优化|润色|预订|订|展示|显示|展开|给出|提供|整理|提醒)(?!了|过)"
    r"|^\W*(?:(?:please|kindly|now|then|ok(?:ay)?|and|also|just|next|hey|hi)\b[\s,]*){0,3}"
    r"(?:write|explain|translate|summari[sz]e|list|generate|draw|create|make|search|find|look|check|fix|change|run"
    r"|execute|calculate|compute|analy[sz]e|recommend|suggest|tell|show|give|compare|describe|continue|rewrite|retry|try"
    r"|open|close|delete|remove|add|plan|design|implement|optimi[sz]e|refactor|debug|help|convert|format|sort|build"
    r"|provide|draft|send|book|get|print|compose|review|test|update|set|schedule|read|define|outline|brainstorm|let's"
    r"|let me|walk me|i need you to|i want you to|i'd like you to|can you|could you|would you|will you)\b",
    _I,
)
_FIRST_PERSON = regex.compile(
    r"我(?!妈|爸|姐|妹|哥|弟|爷|奶|老婆|老公|朋友|同事|同学|儿子|女儿|家人|男友|女友|室友|领导|老板|们?的)|咱|\b(?:i|we)\b",
    _I,
)
_THIRD_PERSON = regex.compile(
    r"他|她|妈妈?|爸爸?|父亲|母亲|父母|老婆|老公|妻子|丈夫|(?:男|女)朋友|男友|女友|朋友|同事|同学|儿子|女儿|孩子|哥哥?|姐姐?"
    r"|弟弟?|妹妹?|爷爷|奶奶|叔叔|姑姑|舅舅|阿姨|老板|领导|客户|邻居|室友|老师|医生|某人|有人|\p{Han}[总哥姐叔]"
    r"|小[王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马明红]"
    r"|\b(?:he|she|they|my (?:mom|mum|mother|dad|father|parents|wife|husband|partner|girlfriend|boyfriend|friend|sister"
    r"|brother|son|daughter|kids?|boss|manager|colleague|co-?worker|roommate|neighbou?r|uncle|aunt|cousin|grand\w+|client"
    r"|teacher|doctor))\b",
    _I,
)
SIGNS: Mapping[str, str] = {
    "hypothetical": _HYPOTHETICAL.pattern,
    "past": _PAST.pattern,
    "reported": _REPORTED.pattern,
    "denied": _DENIED.pattern,
    "composed": _COMPOSED.pattern,
    "role_play": _ROLE_PLAY.pattern,
}
"""Features that a sentence has only where this pattern, whatever the case of letters, matches in it."""
_QUOTES = (("“", "”"), ("「", "」"), ("『", "』"), ("《", "》"))
_CHINESE_CHAR = regex.compile(r"\p{Han}")
_WORD = regex.compile(r"[A-Za-z0-9_'-]+")


def question(sentence: str, start: int = 0, end: int | None = None) -> bool:
    """Whether the span is asked and not said.

    >>> question("我喜欢茶吗？", 0, 4), question("我喜欢茶，你呢？", 0, 4), question("我喜欢茶，对吧？", 0, 4)
    (True, False, True)
    >>> question("do I like tea"), question("I live in Berlin, is it cold?", 0, 16), question("When I code I use vim")
    (True, False, False)
    """
    end = len(sentence) if end is None else end
    opening, closing = _clause(sentence, start, end)
    clause = sentence[opening:closing]
    if _OPENER.match(clause) or _OPENER.match(sentence[:end]) or (not clause.isascii() and _ASKS.search(clause)):
        return True
    if not _ENDS_AS_QUESTION.search(sentence) or _POLITE_TAG.search(sentence.rstrip("?？ ")):
        return False
    rest = sentence[closing:]
    return not (_WORD.search(rest) or _CHINESE_CHAR.search(rest)) or _TAG.match(rest) is not None


def _clause(sentence: str, start: int, end: int) -> tuple[int, int]:
    opening, closing = 0, len(sentence)
    for cut in _CLAUSE.finditer(sentence):
        if cut.end() <= start:
            opening = cut.end()
        elif cut.start() >= end:
            closing = cut.start()
            break
    return opening, closing


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


def reported(sentence: str, start: int = 0) -> bool:
    """Whether someone else says or thinks the span.

    >>> reported("我妈说我喜欢茶", 3), reported("Bob says I like tea", 9), reported("I said I like tea", 7)
    (True, True, False)
    """
    return _REPORTED.search(sentence[: start + 1]) is not None


def denied(sentence: str, start: int = 0) -> bool:
    """Whether the words right before the span take it back.

    >>> denied("It's not that I like tea", 14), denied("并不是我喜欢茶", 3), denied("I like tea")
    (True, True, False)
    """
    return _DENIED.search(sentence[:start]) is not None


def quoted(paragraph: str, start: int) -> bool:
    """Whether a place lies between quotation marks or in a code span.

    >>> quoted("他写道“我喜欢茶”", 4), quoted("我喜欢“茶”", 0), quoted('she sang "I like tea"', 10)
    (True, False, True)
    """
    before = paragraph[paragraph.rfind("\n", 0, start) + 1 : start]
    if any(before.count(mark) % 2 for mark in ('"', "`")):
        return True
    return any(before.count(opening) > before.count(closing) for opening, closing in _QUOTES)


def third_person(sentence: str, start: int = 0, end: int | None = None) -> bool:
    """Whether the span is about somebody else, or has no subject of its own and goes on about somebody else.

    >>> third_person("我妈是老师，住在杭州", 5), third_person("我叫李雷，住在杭州", 4), third_person("我喜欢茶", 0, 4)
    (True, False, False)
    """
    if _THIRD_PERSON.match(sentence, start):
        return True
    if _FIRST_PERSON.search(sentence, start, end):
        return False
    others = [found.start() for found in _THIRD_PERSON.finditer(sentence, 0, start + 1)]
    selves = [found.start() for found in _FIRST_PERSON.finditer(sentence, 0, start)]
    return bool(others) and max(others) > max(selves, default=-1)


def composed(sentence: str) -> bool:
    """Whether a sentence orders a text to be made or handled, so that its content is not the writer's own.

    >>> composed("写一首歌，说我喜欢茶"), composed("Write a poem about how I like tea"), composed("我喜欢写诗")
    (True, True, False)
    """
    return _COMPOSED.search(sentence) is not None


def role_play(message: str) -> bool:
    """Whether a message hands out a part to play.

    >>> role_play("You are a pirate. I like rum."), role_play("假设你是海盗"), role_play("You are a lifesaver")
    (True, True, False)
    """
    return _ROLE_PLAY.search(message) is not None


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
