"""English verbs made to agree with "the user": "like" → "likes", "don't" → "does not"; past and modal forms stay.

Pure: words in, words out.
"""

from __future__ import annotations

import re

ADVERBS = (
    "really|also|always|usually|typically|normally|generally|mostly|often|sometimes|rarely|hardly|never|just|still|ever"
    "|even|only|now|already|currently|actually|personally|definitely|absolutely|probably|recently|finally|both|all|much"
    "|strongly|kind of|sort of|especially|particularly|simply|quickly|occasionally|frequently|primarily|mainly|almost"
    "|too|then|soon|(?!(?:f|app|re|rep|supp|multip|comp|imp|ral|bul|tal)ly\\b)[a-z]{2,}ly"
)
_HABIT = re.compile(r"\b(?:always|usually|typically|normally|generally|mostly|often|sometimes|rarely|never)\b")
_FORMS = {
    "am": "is", "are": "is", "have": "has", "do": "does", "don't": "does not", "haven't": "has not", "go": "goes",
    "aren't": "is not", "ain't": "is not", "weren't": "was not", "were": "was",
}  # fmt: skip
# Words that stand after "I" and take no -s: no verbs, modals, and the past.
_STAY = frozenset(
    re.findall(
        r"\S+",
        "and or but nor to in on at of for with as by from than not so if when while because since that which who too "
        "can could will would shall should may might must cannot the a an this these those be been being is has does "
        "was did had went got gotten met saw seen bought brought thought taught caught sought said told left came "
        "became made took taken broke broken ran began begun gave given found lost sent wrote written paid fell flew "
        "drove ate drank slept spent built kept knew heard held felt grew spoke stood understood won wore woke chose "
        "threw rode rose sang swam sold sat shot struck swore tore stuck led meant bent dealt dreamt learnt lent lit "
        "bit dug drew forgot forgave froze hid hung laid lay shook shone shrank slid spun stole swept swung wound "
        "withdrew undertook overcame put set cut hit let shut hurt quit bet cost split spread upset reset read beat "
        "used moved switched",
    )
)
_PRESENT_ED = frozenset(("need", "feed", "speed", "seed", "breed", "bleed", "embed", "exceed", "proceed", "succeed"))
_PRESENT_ING = frozenset(("bring", "sing", "ring", "swing", "cling", "fling"))
_AMBIGUOUS = frozenset(("put", "set", "cut", "hit", "let", "shut", "quit", "bet", "split", "spread", "read", "beat"))
_PARTICIPLES = frozenset(
    ("been", "better", "had", "gone", "done", "seen", "known", "taken", "given", "written", "made")
)


def agreeing(verb: str, *, usual: bool = False) -> str:
    """A verb after "I" or "we" as it stands after "the user".

    Args:
        verb: Lower case, contracted or not.
        usual: An adverb of habit stands before it, so that "read" and "put" are the present.

    Returns:
        The verb; the same one when it is no present tense or no verb at all.

    >>> [agreeing(verb) for verb in ("like", "watch", "fly", "play", "am", "don't", "lived", "can", "need")]
    ['likes', 'watches', 'flies', 'plays', 'is', 'does not', 'lived', 'can', 'needs']
    """
    word = verb.replace("’", "'")
    if word in _FORMS:
        return _FORMS[word]
    if len(word) < 2 or word.endswith("n't") or (word in _STAY and not (usual and word in _AMBIGUOUS)):
        return word
    if word.endswith("ed") and word not in _PRESENT_ED:
        return word
    if word.endswith("ing") and word not in _PRESENT_ING:
        return word
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{word}es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def tells_of_habit(adverbs: str) -> bool:
    """Whether adverbs say that something is done as a rule.

    >>> tells_of_habit(" usually"), tells_of_habit(" just")
    (True, False)
    """
    return _HABIT.search(adverbs) is not None


def after_had(verb: str | None) -> bool:
    """Whether "'d" before this word is "had": "I'd been", and not "I'd like".

    >>> after_had("been"), after_had("like"), after_had("finished")
    (True, False, True)
    """
    return verb is not None and (verb in _PARTICIPLES or (verb.endswith("ed") and verb not in _PRESENT_ED))
