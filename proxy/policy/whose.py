"""Whose word, taste or wish a sentence tells: the writer's own, or somebody else's.

Pure. In: one sentence and the span in it that a pattern matched. Out: yes or no. Both languages in any sentence.
"""

from __future__ import annotations

import regex

from proxy.shelf import compiled

_I = regex.IGNORECASE
_ASKING = r"(?:can|could|would|will|what|how|why|where|which|who|is|are|do|does|did)"
_CLAUSE = compiled(rf"[，,；;：:—]+|\s[-–]\s|\b(?:and|but|so)\s+(?={_ASKING}\b)", _I)
_SPEAKER = (
    r"(?:他|她|它|有人|别人|大家|人家|老板|领导|同事|客户|朋友|同学|老师|医生|你|您|妈妈?|爸爸?|父母|老婆|老公|妻子"
    r"|丈夫"
    r"|儿子|女儿|哥哥?|姐姐?|弟弟?|妹妹?|书上|文章|网上|助手|AI|小\p{Han}|\p{Han}总)们?(?:里|都|总|经常|曾经?|刚才?"
    r"|昨天|还)?"
)
SAID_RIGHTLY = r"(?!得?(?:很|太|都)?对|的(?:没错|很对|对|是)?[，,]|中了)"
"""Behind 说 or 猜: not "you are right", which neither asks nor reports."""
_REPORTED = compiled(
    rf"{_SPEAKER}(?:(?:说|猜|讲){SAID_RIGHTLY}|觉得|认为|以为|告诉|问|写道?|希望|想让)|听说|据说"
    r"|\b(?:he|she|they|it|someone|somebody|everyone|people|you|(?:my|the|our|his|her|their)\s+\w+|who)\s+"
    r"(?:also |just |once |always )?(?:said|says|say|thinks?|thought|claims?|claimed|told|tells|asked|asks|wrote|writes"
    r"|believes?|assumes?|guess(?:es)?|mentioned)\b"
    r"|\b(?-i:[A-Z])\w+\s+(?:said|says|thinks|thought|claims|told|asked|wrote|believes)\b",
    _I,
)
_OTHERS_ZH = (
    r"(?:我(?:的)?(?:一个|那个|那)?)?(?:同事|同学|室友|舍友|朋友|闺蜜|哥们|兄弟|邻居|客户|顾客|网友|群友|老乡|同桌"
    r"|领导|老板|上司|师兄|师姐"
    r"|学长|学姐|老师|房东|队友|妈妈?|爸爸?|老婆|老公|妻子|丈夫|对象|男友|女友|(?:男|女)朋友|儿子|女儿|哥哥?|姐姐?"
    r"|弟弟?|妹妹?|爷爷|奶奶"
    r"|他|她|有人|别人|大家|人家|老\p{Han}(?=[都特很最就也总天一喜爱讨]|$)|小\p{Han}(?=[都特很最就也总天一喜爱讨]"
    r"|$))们?"
    r"(?:老\p{Han}|小\p{Han}|\p{Han}[总哥姐工]|[A-Z]\w+)?"
)
_OTHERS_EN = (
    r"(?:(?:my|our|a|the|this|that|his|her|one of my)\s+(?:[\w-]+\s+)?(?:mates?|friends?|buddy|pal|colleagues?"
    r"|co-?workers?|teammates?"
    r"|room-?mates?|flat-?mates?|house-?mates?|neighbou?rs?|classmates?|boss|manager|cousin|customers?|clients?"
    r"|users?|guests?|brother"
    r"|sister|mum|mom|mother|dad|father|parents|wife|husband|partner|girlfriend|boyfriend|son|daughter|kids?|uncle"
    r"|aunt|gran\w*"
    r"|landlord|teacher|professor|guy|lady|bloke|dude|woman|man)(?:\s+(?-i:[A-Z])\w+)?|he|she|someone|somebody|everyone"
    r"|(?-i:(?!(?:I|We|You|It|This|That|They|These|Those|There|What|Who|Team|Company|Management|Nobody|Never|Always"
    r"|Really|Just"
    r"|Also|Still|Only|Absolutely|Honestly|Personally|Would|Do|Did)\b)[A-Z][a-z]+))"
)
_OTHERS = compiled(
    # Somebody else's taste, wish or way, told at the opening of a clause.
    rf"\W*(?:(?:而且|不过|但是?|另外|对了|其实|因为|听说|and|but|so|also|well|oh|because|btw"
    rf"|apparently)\b?[\s,，]*){{0,2}}(?:{_OTHERS_ZH}"
    r"[，,]?(?:也|都|就|很|最|特别|非常|超级?|总|老|一直|天天|一天到晚|整天|从来|其实|每天|真的|还|又|自己|倒是|反而"
    r"|挺|蛮|比较|更|一般|平时|只){0,4}"
    r"(?:不(?:太|怎么)?)?(?:喜欢|爱(?!人)|讨厌|想(?!法)|偏好|偏爱|迷|热衷|推荐|安利|受不了|怕|烦|习惯|希望|觉得|认为"
    r"|劝|要求我|让我|叫我)"
    rf"|{_OTHERS_EN}(?:'s)?,?\s+(?:(?:also|really|always|never|still|just|only|absolutely|actually|totally|usually"
    rf"|clearly|definitely|keeps?|"
    r"doesn't|does\s+not|can't|won't|don't|do\s+not)\s+){0,3}"
    r"(?:likes?|loves?|hates?|prefers?|adores?|wants?|enjoys?|dislikes?|swears?\s+by|recommends?|recommending"
    r"|pushing|nagging|telling|thinks?"
    r"|feels?|believes?|(?:is|are|was)\s+(?:an?\s+)?(?:[\w-]+\s+){0,2}?(?:fan|carnivore|nut|addict|enthusiast"
    r"|obsessed|crazy|mad|into|keen|lover|snob|freak)))",
    _I,
)
_OTHERS_OR_SPEAKER = rf"(?:{_OTHERS_ZH}|{_SPEAKER})"
_SPEAKS = compiled(
    rf"\W*(?:(?:而且|不过|但是?|对了|and|but|so|also|well|oh|btw)\b?[\s,，]*){{0,2}}(?:{_OTHERS_OR_SPEAKER}(?:又|就"
    rf"|也|老|跟我|和我|对我)?"
    r"(?:说|写道?|讲|问|抱怨|吐槽|留言|回复|评论)"
    rf"|{_OTHERS_EN}\s+(?:just\s+|also\s+|always\s+|once\s+|keeps\s+)?"
    r"(?:said|says?|saying|claims?|claimed|wrote|writes|posted|complains?|complained|asked|asks|commented|told|tells|replied|texted|mentioned)\b)",
    _I,
)
_BINDING = compiled(
    # Whose word binds the user: what they demand is a limit the user has.
    r"(?:老板|领导|医生|导师|公司|法务|甲方|客户|上司|老师|房东|学校|银行).{0,12}(?:必须|不能|只能|不许|要求|得|不准"
    r"|别|少|让|要|以前|之前|之内)"
    r"|\b(?:boss|manager|doctor|dentist|client|customers?|legal|landlord|teacher|professor|advisor|bank|school"
    r"|company|hr)\b.{0,40}"
    r"\b(?:must|has to|have to|can't|cannot|may not|should|needs?|only|no|not|by|before|until|avoid)\b",
    _I,
)
_FIRST_PERSON = compiled(
    r"我(?!妈|爸|姐|妹|哥|弟|爷|奶|老婆|老公|朋友|同事|同学|儿子|女儿|家人|男友|女友|室友|领导|老板|们?的)|咱|\b(?:i|we)\b",
    _I,
)
_THIRD_PERSON = compiled(
    r"他|她|妈妈?|爸爸?|父亲|母亲|父母|老婆|老公|妻子|丈夫|(?:男|女)朋友|男友|女友|朋友|同事|同学|儿子|女儿|孩子"
    r"|哥哥?|姐姐?"
    r"|弟弟?|妹妹?|爷爷|奶奶|叔叔|姑姑|舅舅|阿姨|老板|领导|客户|邻居|室友|老师|医生|某人|有人|\p{Han}[总哥姐叔]"
    r"|小[王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马明红]"
    r"|\b(?:he|she|they|my (?:mom|mum|mother|dad|father|parents|wife|husband|partner|girlfriend|boyfriend|friend|sister"
    r"|brother|son|daughter|kids?|boss|manager|colleague|co-?worker|roommate|neighbou?r|uncle|aunt|cousin|grand\w+"
    r"|client"
    r"|teacher|doctor))\b",
    _I,
)
REPORTS = (_REPORTED.pattern, _OTHERS.pattern, _SPEAKS.pattern)
"""Patterns of which one matches in each sentence that `reported` holds for."""


def clause(sentence: str, start: int, end: int) -> tuple[int, int]:
    """Where the clause that a span stands in opens and closes."""
    opening, closing = 0, len(sentence)
    for cut in _CLAUSE.finditer(sentence):
        if cut.end() <= start:
            opening = cut.end()
        elif cut.start() >= end:
            closing = cut.start()
            break
    return opening, closing


def reported(sentence: str, start: int = 0) -> bool:
    """Whether someone else says, thinks, likes or wishes the span; what binds the user (a doctor's ban) is the user's.

    >>> reported("我妈说我喜欢茶", 3), reported("Bob says I like tea", 9), reported("I said I like tea", 7)
    (True, True, False)
    >>> reported("我妈喜欢喝茶，我喜欢喝咖啡", 7), reported("同事爱喝茶，喜欢喝咖啡", 6)
    (False, True)
    >>> reported("My mate Gus loves ale"), reported("同事老周特别喜欢 Vim"), reported("My boss says it must ship")
    (True, True, False)
    """
    if _REPORTED.search(sentence[: start + 1]) is not None:
        return True
    opening = clause(sentence, start, start + 1)[0]
    own_clause = _FIRST_PERSON.match(sentence, opening) is not None
    if _OTHERS.match(sentence, opening) or (opening and start and not own_clause and _OTHERS.match(sentence)):
        return not _BINDING.search(sentence)
    return _SPEAKS.match(sentence, opening) is not None and not _BINDING.search(sentence)


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
