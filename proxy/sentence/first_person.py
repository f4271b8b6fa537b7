"""The first person turned into "the user": "我的狗" → "用户的狗", "I don't like it" → "The user does not like it".

Pure. In: a masked text of the user's. Out: the same in the third person, verbs agreeing. "You" stays.
"""

from __future__ import annotations

import re

from proxy.sentence import verbs

# ── Chinese ─────────────────────────────────────────────────────────────────────────────────────────────────────────
_SELF = re.compile("[我咱俺]")
_ZH = re.compile(
    "(?<![自忘无敌超唯你])(?P<who>[我咱俺](?P<many>们)?+)"
    "(?!国(?![内外])|方|行我素|的世界|军|党)"
    "(?:(?P<both>[俩两](?![年天个次]))|(?P<firm>司)(?![机法令空])"
    "|(?P<kin>妈妈?|爸(?!妈)爸?|爸妈|父母|母亲|父亲|爷爷|奶奶|外公|外婆|哥哥?|姐姐?|弟弟?|妹妹?|老婆|老公|妻子|丈夫|太太"
    "|[男女]朋友|[男女]友|儿子|女儿|孩子|家人|同事|同学|朋友|叔叔|阿姨|舅舅|舅妈|姑姑|婶婶|[表堂][哥姐弟妹]|下属|上司|老板|导师|室友|邻居|公司|团队|部门|学校|用户)"
    "|(?P<ours>组(?![装织成建队合])|领导|项目|产品|系统|平台|客户|班(?!上)|系(?!统)|经理)|(?P<of>的))?"
)
_FULL = {name: name * 2 for name in "妈爸哥姐弟妹"}


def chinese(text: str) -> str:
    """A Chinese sentence of the user's, told about them.

    >>> chinese("我喜欢茶，我妈不喝"), chinese("我们的测试库在 5433"), chinese("自我介绍写好了")
    ('用户喜欢茶，用户的妈妈不喝', '用户团队的测试库在 5433', '自我介绍写好了')
    """
    return _ZH.sub(_third, text) if _SELF.search(text) else text


def _third(found: re.Match[str]) -> str:
    many = found["many"] or found["who"] == "咱"
    if found["both"]:
        return "用户两人"
    if found["firm"]:
        return "用户的公司"
    if kin := found["kin"]:
        return f"用户的{_FULL.get(kin, kin)}"
    if ours := found["ours"]:  # "我领导一个团队" has a verb there
        return f"用户的{ours}" if many else f"用户{ours}"
    if found["of"]:
        return "用户团队的" if many else "用户的"
    return "用户"


# ── English ─────────────────────────────────────────────────────────────────────────────────────────────────────────
_EN = re.compile(
    r"(?<![\w@#$./’'-])(?=[IiWwMmOoUuAaHhDdCcSs])(?:"
    r"(?:(?P<asks>[Aa]m|[Aa]re|[Hh]ave|[Dd]o|[Ww]as|[Ww]ere|[Dd]id|[Cc]an|[Cc]ould|[Ww]ill|[Ww]ould|[Ss]hould|[Mm]ay"
    r"|[Mm]ust|[Hh]ad|[Dd]on['’]t|[Hh]aven['’]t)\s+)?"
    r"(?P<subject>I|i(?=['’](?:m|ve|d|ll)\b|\s+(?!in\b|is\b|as\b|and\b|or\b|at\b|on\b)[a-z]{2})|[Ww]e)"
    r"(?P<short>['’](?:m|re|ve|ll|d)\b)?(?![\w’'/.-])"
    rf"(?P<tail>(?:,?\s+(?:{verbs.ADVERBS})\b,?)*)(?:\s+(?P<verb>[a-z]+(?:n['’]t)?)(?![\w’'-])(?P<not>\s+not\b)?)?"
    r"|(?P<owner>[Mm]y|[Oo]ur)(?=\s)"
    r"|(?P<object>[Mm]e|us|Us)|(?P<reflexive>[Mm]yself|[Oo]urselves)"
    r"|(?P<owned>[Mm]ine|[Oo]urs)(?=\s*(?:$|[,.;:!?)]|\s(?:is|are|was|were|has|and|but|uses?|runs?)\b)))"
    r"(?![\w/])"
)
_EN_HINT = re.compile(
    r"(?<![A-Za-z])(?:[Ii]|[Ww]e|[Mm]y|[Oo]urs?|[Mm]e|[Uu]s|[Mm]ine|[Mm]yself|[Oo]urselves)(?![A-Za-z])"
)
_STARTS = re.compile(r"(?:^|[.!?\n]\s*)[\s(\ue000-\uf8ff]*$")
_NUMERAL_BEFORE = re.compile(
    r"\b(?:War|Type|Part|Phase|Chapter|Class|Level|Grade|Volume|Vol\.?|Section|Act|Stage|Tier|Step|Article|Title|Factor"
    r"|Henry|George|Charles|Elizabeth)\s+$"
)
_OWNED_AFTER = re.compile(r"(?:\b(?:is|are|was|were|be|of|like|than|as|to|from|with|on|in|and|use|not)|[,;:])\s+$")
# "My wife and I like", and not "I put it in and I like".
_JOINED_BEFORE = re.compile(
    r"(?:^|[.!?,;:]\s*|\b(?:because|when|if|that|so|but)\s+)"
    r"(?:(?:[Mm]y|[Oo]ur|[Tt]he)\s+\w+(?:\s\w+)?|[A-Z][a-z]+|[Yy]ou|[Hh]e|[Ss]he)\s+(?:and|or)\s+$"
)
_COORDINATED = re.compile(
    rf"(?P<link>(?:,\s*|\s+)(?:and|but)\s+(?:(?:{verbs.ADVERBS})\s+)*)"
    r"(?P<verb>am|have|haven['’]t|do|don['’]t|prefer|live|hate|dislike|enjoy|own|speak|want|avoid)"
    r"(?=\s)(?P<not>\s+not\b)?(?!\s+(?:and|or)\b)"
)
_OTHER_SUBJECT = re.compile(r"\b(?:you|they|he|she|it|who|which|that|people)\b")


def english(text: str) -> str:
    """An English sentence of the user's, told about them.

    >>> english("I like tea and I'm vegan"), english("Never call me Bob, my name is Robert")
    ('The user likes tea and the user is vegan', "Never call the user Bob, the user's name is Robert")
    >>> english("World War I was long"), english("I usually don't drink coffee")
    ('World War I was long', 'The user usually does not drink coffee')
    """
    if _EN_HINT.search(text) is None:
        return text
    return _EN.sub(_rewritten, _coordinated(text))


def _coordinated(text: str) -> str:
    """ "I'm vegan and don't eat cheese": the second verb has the first one's subject, and will agree with it."""

    def agree(found: re.Match[str]) -> str:
        clause = re.split(r"[.;!?\n]", text[: found.start()])[-1]
        subject = _last_subject(clause)
        if subject is None or _OTHER_SUBJECT.search(clause, subject):
            return found.group()
        return f"{found['link']}{verbs.agreeing(found['verb'])}{found['not'] or ''}"

    return _COORDINATED.sub(agree, text)


def _last_subject(clause: str) -> int | None:
    ends = [one.end() for one in re.finditer(r"(?<![\w'’])(?:I|[Ww]e)(?![\w.])", clause)]
    return ends[-1] if ends else None


def _rewritten(found: re.Match[str]) -> str:
    if found["subject"]:
        return _subject(found)
    at_start = _STARTS.search(found.string, 0, found.start()) is not None if found.group()[0].isupper() else False
    if found.group()[0].isupper() and not at_start:
        return found.group()  # "My Little Pony", "Windows Me"
    user = "The user" if at_start else "the user"
    if found["owned"] and not (at_start or _OWNED_AFTER.search(found.string, 0, found.start())):
        return found.group()  # "a coal mine"
    if found["owner"] or found["owned"]:
        return f"{user}'s"
    return "themselves" if found["reflexive"] else user


def _subject(found: re.Match[str]) -> str:
    before = found.string[: found.start()]
    if found["subject"] == "I" and _NUMERAL_BEFORE.search(before):
        return found.group()
    at_start = _STARTS.search(before) is not None
    tail, verb, asks = found["tail"] or "", found["verb"], found["asks"]
    rest = found.group()[found.end("tail") - found.start() :]
    if asks:
        opener = verbs.agreeing(asks.lower())
        return f"{opener.capitalize() if at_start else opener} the user{_short(found)}{tail}{rest}"
    user = "The user" if at_start else "the user"
    if found["short"] or verb is None or _JOINED_BEFORE.search(before):
        return f"{user}{_short(found)}{tail}{rest}"
    agreed = verbs.agreeing(verb, usual=verbs.tells_of_habit(tail))
    gap = rest[: rest.index(verb)]
    return f"{user}{tail}{gap}{agreed}{found['not'] or ''}"


def _short(found: re.Match[str]) -> str:
    """The full form of a contracted verb."""
    short = (found["short"] or "").lstrip("'’")
    if short == "d":
        return " had" if verbs.after_had(found["verb"]) else " would"
    forms: dict[str, str] = {"": "", "m": " is", "re": " is", "ve": " has", "ll": " will"}
    return forms[short]
