"""Whether a talk is being played: a part was handed out, a story is written together, and nobody has ended it yet.

Pure. In: the texts of a request's messages, the oldest first. Out: whether what is said next belongs to the play.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import regex

from proxy.shelf import compiled

_I = regex.IGNORECASE
_LOOKED_AT_CHARS = 400
_REMEMBERED = 4_096
"""Messages of which it is kept how they turn a play: a history comes anew with each request."""
LOOKED_BACK = 60
"""Messages of the history that are looked at: about thirty of the user's."""
_PLAY_TURNS = 12
"""A play that nobody ends ends by itself after so many messages of the user."""
_LENT_TURNS = 2
"""So many of the user's messages after a text was ordered in somebody else's name may still be that one's words."""

_PARTS_ZH = (
    r"(?:海盗|国王|女王|公主|王子|皇[帝上后]|骑士|巫师|女巫|侦探|船长|士兵|机器人|外星人|吸血鬼|精灵|猫娘|主角|反派"
    r"|角色|NPC"
    r"|店员|店主|老板娘|服务员|收银员|前台|顾客|客人|乘客|病人|面试官|考官|应聘者|求职者|法官|房东|租客"
    r"|我(?:的)?前?(?:男友|女友"
    r"|男朋友|女朋友|妈|爸|老公|老婆|老板|上司|导师|同学|领导|孩子))"
)
_PARTS_EN = (
    r"(?:pirate|king|queen|knight|wizard|witch|princess|prince|detective|captain|soldier|robot|alien|vampire|ghost"
    r"|dragon"
    r"|cat|dog|elf|villain|character|npc|narrator|dungeon\s+master|game\s+master|waiter|waitress|barista|bartender"
    r"|shopkeeper"
    r"|cashier|clerk|receptionist|customer|shopper|passenger|patient(?!\s+\w)|candidate|interviewer|examiner"
    r"|recruiter|judge|cop"
    r"|landlord|tenant|ex|boss|girlfriend|boyfriend|stranger|caveman|shakespeare)"
)
_GAME = (
    r"扮演|进入角色|模拟(?:一下|一场|个)?(?:面试|对话|场景|谈判|客服|法庭|答辩)|(?:练|演)(?:习)?(?:一?下|一遍"
    r"|一场)?(?:面试|答辩|对话|谈判)"
    r"|(?:我们|咱们?|陪我|跟我)来?(?:玩|演|对戏)(?!完|过|了|具|意|得)|假装(?:你|我|自己|咱|是)|(?:跑团|剧本杀"
    r"|文字冒险|对戏)"
    r"|你(?:现在|将|就|要|来|先|去)?(?:演|扮)(?!讲|示|出|员|唱|奏)"
    rf"|(?:你|我来|让我|换我|换你)(?:现在|将|就|要|来)?(?:是|当"
    rf"|做)(?:一?[个名位只条])?[^，。！？?!吗\n]{{0,6}}{_PARTS_ZH}"
    r"|\b(?:let's|let us|wanna|want to|shall we)\s+"
    r"(?:play(?=\s*[:,—–-]|\W*$|\s+(?:an?|the|pretend|that|you|i'm|doctors?|house|shop|pirates|detectives?)\b)|role"
    r"|pretend)"
    r"|\brole[- ]?play(?:ing|s)?\b|\bpretend(?:ing)?\b|\bin\s+character\b|\btext\s+adventure\b"
    r"|\b(?:mock|practi[cs]e|fake|pretend)\s+(?:job\s+)?interview|\binterview\s+(?:me|practice)\b"
    r"|\bpracti[cs]e\s+(?:an?|my|the|for\s+(?:an?|my|the))\s+(?:\w+\s+)?(?:interview|negotiation|dialog(?:ue)?|viva)\b"
    rf"|\b(?:you(?:'re|\s+are|'ll\s+be|\s+be|\s+play)?|i(?:'ll)?\s+(?:be|play)|act(?:ing)?\s+(?:as|like)|speak\s+as)"
    rf"\s+(?:now\s+)?(?:the|an?|my|like\s+an?)\s+(?:[\w'-]+\s+){{0,2}}?{_PARTS_EN}\b"
    r"|\byou\s+(?:be|play)\s+(?:the|an?|my)\s+\w+|\bi'?ll\s+(?:be|play)\s+the\s+\w+"
    r"|\bimagine\s+(?:you(?:'re|\s+are)|i(?:'m|\s+am)|we(?:'re|\s+are))\b"
)
_WRITTEN_TOGETHER = (
    r"(?:我们|咱们?|一起|接龙|轮流)[^，。！？\n]{0,8}(?:写|编|续)[^，。！？\n]{0,10}(?:故事|小说|剧本|歌词|诗|同人)"
    r"|故事接龙"
    r"|(?:用|以)第一人称(?:写|续|讲)"
    r"|\b(?:let's|let us|we(?:'re|\s+are))\s+(?:co-?)?writ(?:e|ing)\s+(?:an?|the|our|this)\s+(?:[\w-]+\s+){0,3}"
    r"(?:story|novel|song|lyrics?|poem|script|screenplay|play|fan\s?fic\w*|tale|saga)\b"
    r"|\bcontinue\s+(?:the|our|my)\s+(?:story|tale|novel|adventure)\b"
)
_LENT = compiled(
    r"(?:替|帮|给|为)我?(?:的)?(?:一[个位])?[^，。！？\n]{0,6}(?:朋友|同学|学生|妹妹?|弟弟?|姐姐?|哥哥?|客户|学员"
    r"|孩子|儿子|女儿|室友|老板)"
    r"[^，。！？\n]{0,4}(?:写|拟|编|起草)[^，。！？\n]{0,16}(?:陈述|简历|介绍|演讲|发言|致辞|情书|检讨|文书|申请|信"
    r"|文案|简介)"
    r"|\b(?:write|draft|compose|ghost-?write)\s+(?:me\s+)?(?:an?|the|this)\s+(?:[\w-]+\s+){0,3}"
    r"(?:statement|letter|speech|bio|profile|essay|application|toast|vows|post)\s+(?:for|as|in\s+the\s+voice\s+of)\s+"
    r"(?:my\s+(?!team|company|site|blog|job|phd|self|application|class|course)\w+|a\s+(?:friend|client|student|character)|someone)",
    _I,
)
_ASSIGNED = (
    r"你(?:现在|将|就|要|来)?(?:是|当|做)(?!不是|谁|什么|怎么|对的|否|我的)"
    r"(?:一[个名位只条]|[^，。？！吗]{1,12}(?:专家|助手|海盗|老师|医生|角色))"
    r"|(?:假设|想象|设想)(?:你|我|自己)|以.{1,12}的(?:身份|口吻|语气)"
    r"|\b(?:you(?:'re|\s+are)(?:\s+now)?\s+(?:an?|the|my)\s+"
    r"(?!star\b|genius|legend|life|lucky|great|good|real|big|huge|best|bit|little|expert\b|quick|clever|kind"
    r"|patient\s+\w|wonderful"
    r"|amazing|true|total|one\b|only\b|same\b|reason|first|fan|natural|champ|gem|angel|saint|saviou?r|treasure"
    r"|magician)\w+"
    r"|act\s+(?:as|like)|imagine\s+(?:you|i|that|being)|play(?:ing)?\s+the\s+(?:role|part)"
    r"|as\s+(?:if|though)\s+(?:you|i)\b|speak(?:ing)?\s+as|from\s+the\s+perspective\s+of|write\s+(?:it|this)\s+as)\b"
)
HANDS_OUT = (_GAME, _WRITTEN_TOGETHER, _ASSIGNED)
"""Patterns of messages that hand out a part: to the assistant or to the writer, for fun, practice or work."""
_HANDS_OUT = compiled("|".join(HANDS_OUT), _I)
_OPENS = compiled(rf"{_GAME}|{_WRITTEN_TOGETHER}", _I)
_PLAYED_ONCE = compiled(
    r"^\W*(?:if|假如|如果)\b|^\W*你是[^，。]{0,12}吗|(?:什么|怎么|如何|要不要|喜欢|爱|讨厌|不会"
    r"|擅长)[^，。！？\n]{0,4}扮演|扮演(?:了|过|着)"
    r"|\b(?:i|we)\s+(?:don't|do\s+not|can't|never|won't)\s+pretend|\bpretend(?:ed|s)\b"
    r"|\b(?:like|love|enjoy|hate|into)\s+role[- ]?play",
    _I,
)
_CLOSES = compiled(
    r"(?:不|别|甭)(?:玩|演|编|装|扮)(?:了|下去)|(?:演|玩|练|编)(?:完|够)了?(?=[，,。！!\s]|$)|游戏结束|出戏"
    r"|变回(?:来|助手|正常)|恢复正常"
    r"|(?:退出|结束|停止?|跳出|停下)[^，。！？\n]{0,4}(?:角色|扮演|游戏|面试|模拟|演戏|剧情)|(?:角色扮演|面试|模拟"
    r"|游戏)(?:就)?(?:到此|到这|结束)"
    r"|回到?(?:正题|现实|正事|工作|正经|主题)|(?:说|聊|谈)(?:点|回)?正(?:经|事|题)|言归正传|换个话题"
    r"|\b(?:stop|quit|end|finish|enough|done)\b[\w\s,']{0,14}\b(?:role[- ]?play\w*|play(?:ing)?|pretend\w*|acting"
    r"|game|scene|interview|story|pirate)\b"
    r"|\b(?:end|out)\s+of\s+(?:the\s+)?(?:role|character|scene|game|story)|\bbreak\s+character\b|\bend\s+scene\b"
    r"|\bgame\s+over\b|\booc\b"
    r"|\bno\s+more\s+(?:role|play|pretend)|\bdrop\s+the\s+act\b"
    r"|\bback\s+to\s+(?:work|reality|normal|business|real\s+life|being\s+(?:you|an?\s+assistant)|the\s+(?:real"
    r"|actual|topic)|my\s+(?:actual|real))"
    r"|^\W*(?:ok(?:ay)?|alright|right|well|anyway)\b[\s,.!]*(?:stop|enough|seriously|back\s+to|for\s+real)\b"
    r"|^\W*(?:enough|stop)\W*$"
    r"|\b(?:seriously\s+now|in\s+real\s+life|on\s+a\s+serious\s+note|jokes?\s+aside|change\s+of\s+topic|different\s+(?:topic|question))\b",
    _I,
)
_FOR_ONESELF = compiled(r"我自己|至于我|\b(?:for\s+me|myself|as\s+for\s+me|on\s+my\s+side)\b", _I)


def hands_out(message: str) -> bool:
    """Whether a message hands out a part to play.

    >>> hands_out("You are a pirate. I like rum."), hands_out("假设你是海盗"), hands_out("You are a lifesaver")
    (True, True, False)
    >>> hands_out("you be the customer, I'm Dave"), hands_out("ok stop playing, I am vegan")
    (True, False)
    """
    return _HANDS_OUT.search(message) is not None and not ends_play(message)


def ends_play(message: str) -> bool:
    """Whether a message ends a play.

    >>> ends_play("好了不玩了"), ends_play("ok stop, back to work"), ends_play("end of role play")
    (True, True, True)
    """
    return _CLOSES.search(message) is not None


def in_play(messages: Iterable[tuple[str, str, bool]]) -> bool:
    """Whether what the user says next is said in a part.

    Args:
        messages: Role, text and "asks for tools" of each earlier message, the oldest first. Only a user opens or ends
            a play: a system prompt that hands out a part says what the assistant is.

    Returns:
        True from a user's opening on, until the user ends it, the assistant does real work with a tool, or a dozen
        messages have passed.

    >>> in_play([("user", "let's play: you're a pirate", False), ("assistant", "Arr!", False)])
    True
    >>> in_play([("user", "let's play pirates", False), ("user", "ok stop, back to work", False)])
    False
    >>> in_play([("system", "You are a pirate.", False), ("user", "You are a great help!", False)])
    False
    """
    left = 0
    for role, text, asks_for_tools in messages:
        if role == "assistant" and asks_for_tools:
            left = 0
        elif role == "user":
            left = _left(text[:_LOOKED_AT_CHARS], left)
    return left > 0


def _left(said: str, left: int) -> int:
    """How many messages the play goes on after this one."""
    ends, opens, lends, for_oneself = _turns(said)
    if left and (ends or (left <= _LENT_TURNS and for_oneself)):
        return 0
    if opens and not ends:
        return _PLAY_TURNS
    return max(left, _LENT_TURNS) if lends else max(left - 1, 0)


@lru_cache(maxsize=_REMEMBERED)
def _turns(said: str) -> tuple[bool, bool, bool, bool]:
    """Whether a message ends a play, opens one, orders a text in another's name, comes back to the writer."""
    return (
        ends_play(said),
        _OPENS.search(said) is not None and not _PLAYED_ONCE.search(said),
        _LENT.search(said) is not None,
        _FOR_ONESELF.search(said) is not None,
    )
