"""The claims of a short English sentence: subject, verb, and what follows it by its prepositions.

Pure and without a grammar: the verb is found in a closed list (`lexicon`), and a sentence with none claims nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from proxy.claim.lexicon import EN_JOBS, EN_VERBS
from proxy.claim.nouns import ADVERBS, KIN, MANNERS, PREPOSITIONS, SLOTS, THINGS
from proxy.claim.types import Claim, Valued
from proxy.claim.verb import DETERMINERS, Verb, find_verb, lemma_of
from proxy.claim.wording import stem

Words = tuple[str, ...]
_LEAD = re.compile(
    r"^(?:(?:note|fyi|reminder|remember|correction|update)\b[:,]?\s+(?:that )?|actually,?\s+|no,\s+"
    r"|(?:the )?user (?:said|says|mentioned|noted|confirmed|stated|corrected)(?: that\b|:)?\s+"
    r"|on the user's side:\s+)+",
    re.IGNORECASE,
)
_OPENING = re.compile(
    r"^(?P<mark>for|in|on|at|during|when|with|as of|since)\s+(?P<what>[^,]+?)(?:,\s*|\s+(?=(?:the )?user\b|I\b|we\b))"
    r"(?P<rest>.+)$",
    re.IGNORECASE,
)
_DROPPED = re.compile(
    r",? (?:because|since it|so that|although|which|as of)\b.*$"
    r"|(?:,?\s+(?:rather than|instead of|and not)|,\s*not)\s+(?:the )?[^,]+$"
    r"|,?\s+(?:any ?more|any longer|instead|these days|nowadays|too|as well|now|currently|already|again|for now)\s*$",
    re.IGNORECASE,
)
_PREFERRED = re.compile(r"(?<=\bprefer)(s?(?: to use)? .{1,40}?) over (?:the )?[^,]+$")
_CLAUSES = re.compile(
    r"\s*;\s*|\.\s+|,\s+(?:but|and|while)\s+(?=\w+ )"
    r"|\s+and\s+(?=(?:now |also |currently )*"
    r"(?:is|has|likes?|lives|works|uses|prefers|owns|drives|speaks|loves|hates|dislikes)\s)"
)
_TOKEN = re.compile(r"(?<=\w)['’]s?(?!\w)|[%$€£]?[^\W_]+(?:[-_.:+#/@][^\W_]+)*[+#%]*")
_USER = frozenset(("user", "users", "i", "we", "me", "us", "'s", "’s", "'", "’"))
_NAMELESS = DETERMINERS | _USER | ADVERBS
_ALIKE = {"into": "to", "onto": "to", "each": "on", "every": "on", "via": "with", "within": "in", "near": "in"}
_CHANGES = frozenset(("live", "become"))
"""Told in the past tense these hold ever since: "moved to Oslo"; what else is told so has happened once."""
_MANY_BY = frozenset({("work", "on"), ("work", "with"), ("listen", "to"), ("work", "after"), ("serve", "with")})
_ONE_BY = frozenset(("due", "available", "open", "closed", "responsible"))
_ONE_WITH = frozenset({("learn", "at"), ("bank", "at"), ("meet", "on"), ("meet", "at")})
_GROUPED = {
    ("work", "for"): "at",
    ("work", "in"): "at",
    ("live", "at"): "in",
    ("live", "to"): "in",
    ("name", "as"): "as",
}
_TASTE_VERBS = frozenset(("use", "using", "have", "eat", "eating", "drink", "drinking", "be"))


def read(text: str) -> tuple[Claim, ...]:
    """The claims of a sentence in plain form (`wording.plain`).

    >>> [claim] = read("The user prefers pnpm for frontend dependencies")
    >>> claim.subject, claim.predicate, claim.value, claim.frame, claim.valued
    (('user',), 'use', ('pnpm',), (('for', ('frontend', 'dependencie')),), 'one')
    >>> read("Alice works at Acme")[0].subject, read("colourless green")
    (('alice',), ())
    """
    found: list[Claim] = []
    subject: Words | None = None
    for clause in _CLAUSES.split(_LEAD.sub("", text.strip().rstrip(".!"))):
        claim = _clause(clause, subject)
        if claim is not None:
            found.append(claim)
            subject = claim.subject
    return tuple(found)


def _clause(clause: str, inherited: Words | None) -> Claim | None:
    frame: dict[str, Words] = {}
    if opening := _OPENING.match(clause):
        frame[opening["mark"].lower()] = _stems(_TOKEN.findall(opening["what"]))
        clause = opening["rest"]
    while (shorter := _DROPPED.sub("", clause)) != clause:
        clause = shorter
    tokens = _TOKEN.findall(_PREFERRED.sub(r"\1", clause))
    verb = find_verb(tokens)
    if verb is None or (verb.start == 0 and verb.be):
        return None
    named = _subject(tokens[: verb.start], plural=_is_plural(tokens[verb.start].lower()))
    subject = named if verb.start else (inherited or ("user",))
    return _claim(subject, verb, tokens[verb.end :], frame)


def _claim(subject: Words, verb: Verb, rest: Sequence[str], frame: dict[str, Words]) -> Claim:
    head, phrases = _phrases(rest)
    frame = {**frame, **{mark: _stems(words) for mark, words in phrases}}
    if verb.be and verb.lemma in ("be", "was"):
        return _being(subject, verb, head, frame)
    predicate, valued = EN_VERBS.get(verb.lemma, (verb.lemma, "many"))
    positive = verb.positive
    if predicate == "dislike":
        predicate, positive = "like", not positive
    if verb.desire:
        if verb.desire != "like" or verb.lemma not in _TASTE_VERBS:
            head = [verb.lemma, *head]
        predicate, valued = verb.desire, "many"
    elif predicate == "like" and len(head) > 1 and head[0].lower() in _TASTE_VERBS:
        head = head[1:]
    elif predicate == "like" and head and head[0].endswith("ing"):
        head = [lemma_of(head[0])[0] or head[0], *head[1:]]  # likes hiking, likes to hike
    if verb.past and not verb.be and predicate not in _CHANGES:
        predicate, valued = f"{predicate}-once", "many"
    value = _stems(head)
    if not value:
        return _by_phrase(subject, predicate, valued, frame, positive)
    if (verb.lemma in EN_JOBS and not verb.be) or verb.desire:
        return _of_job(subject, predicate, valued, value, frame, positive)
    return Claim(subject, predicate, value, _sorted(frame), valued, positive)


def _by_phrase(subject: Words, predicate: str, valued: Valued, frame: dict[str, Words], positive: bool) -> Claim:
    """Without an object the first phrase is the value: "lives in Oslo", "starts at 9 on Monday"."""
    if not frame:
        return Claim(subject, predicate, (), (), "many", positive)
    mark = next(iter(frame))
    value = sum(frame.values(), ()) if valued == "one" else frame[mark]
    others = {} if valued == "one" else {key: words for key, words in frame.items() if key != mark}
    if (predicate, mark) in _MANY_BY:
        valued = "many"
    if (predicate, mark) in _ONE_WITH:
        valued = "one"
    if mark == "to" and subject != ("user",) and predicate in ("become", "live"):
        return Claim(subject, "become", value, (), "one", positive)
    predicate = f"{predicate}@{_GROUPED.get((predicate, mark), mark)}"
    return Claim(subject, predicate, value, _sorted(others), valued, positive)


def _of_job(
    subject: Words, predicate: str, valued: Valued, value: Words, frame: dict[str, Words], positive: bool
) -> Claim:
    """One tool for one job: the job stays in the frame, and the tool is the value."""
    tasteful = predicate in ("like", "use", "want")
    if tasteful and "for" in frame:
        return Claim(subject, "want" if predicate == "want" else "use", value, _sorted(frame), "one", positive)
    for mark in ("in", "to", "on", "with", "at", "from", "by", "over", "for", "as"):
        words = frame.get(mark, ())
        if words and (not tasteful or (mark in ("in", "as") and MANNERS & set(words))):
            others = {key: inner for key, inner in frame.items() if key != mark}
            if subject == ("user",) and not tasteful:
                subject = value  # "we keep backups in S3" is "backups are kept in S3"
            else:
                others["object"] = value
            return Claim(subject, f"{predicate}@{mark}", words, _sorted(others), "one", positive)
    # Without a tool beside it there is room for many: "writes Go", "sends mail".
    return Claim(subject, predicate, value, _sorted(frame), "many" if valued == "one" else valued, positive)


def _being(subject: Words, verb: Verb, head: Sequence[str], frame: dict[str, Words]) -> Claim:
    be, value = verb.lemma, _stems(head)
    if not value:
        return _by_phrase(subject, be, "one", frame, verb.positive)
    bare = len(head) == 1 and head[0].islower()
    mark = next(iter(frame), "")
    if bare and mark in ("to", "of", "at", "in", "with", "about", "on", "for", "from", "until"):
        valued: Valued = "one" if head[0] in _ONE_BY else "many"
        others = {key: words for key, words in frame.items() if key != mark}
        return Claim(subject, f"{value[0]}@{mark}", frame[mark], _sorted(others), valued, verb.positive)
    if head[0].lower() == "the" and len(head) > 1 and subject != ("user",):
        # Who has a role of which there is one: "Wendy is the product owner".
        role = _subject(head, plural=False)
        return Claim(role, f"{be}:slot", subject, _sorted(frame), "one", verb.positive)
    if bare and head[0].endswith("ed") and mark:  # a verb on no list: "is powered by Elasticsearch"
        return _by_phrase(subject, value[0], "one", frame, verb.positive)
    sort, valued = _sort(subject, head)
    return Claim(subject, f"{be}:{sort}", value, _sorted(frame), valued, verb.positive)


def _sort(subject: Words, head: Sequence[str]) -> tuple[str, Valued]:
    """What sort of thing the subject is said to be: only values of one sort compete."""
    noun = _noun(subject)
    if subject != ("user",) and (noun in SLOTS or subject[0] in ("favourite", "favorite", "default")):
        return "slot", "one"
    if any(character.isdigit() for character in head[0]):
        return "number", "one"
    if head[0].lower() in ("a", "an"):
        sort = "job" if _is_job(head[-1]) else "a"
        of_a_thing = subject != ("user",) and noun not in KIN and (len(subject) > 1 or noun in THINGS)
        return sort, "rival" if sort == "job" or of_a_thing else "many"
    if head[0][0].isupper() and subject != ("user",):
        return "name", "one"
    return "such", "many"


def _noun(subject: Words) -> str:
    """What a subject is in the first place: the goal in "goal for this quarter"."""
    ends = [index for index, word in enumerate(subject) if index and word in PREPOSITIONS | {"of"}]
    return subject[ends[0] - 1] if ends else subject[-1]


def _is_job(word: str) -> bool:
    return word.endswith(("er", "or", "ist", "ian", "ect", "nurse", "chef", "nt", "pilot", "ess")) and word not in (
        "vegetarian",
        "twin",
    )


def _phrases(tokens: Sequence[str]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    head: list[str] = []
    phrases: list[tuple[str, list[str]]] = []
    into = head
    for token in tokens:
        word = token.lower()
        if word in PREPOSITIONS and token.islower():
            into = []
            phrases.append((_ALIKE.get(word, word), into))
        elif not (word in ADVERBS and token.islower()):
            into.append(token)
    return head, [(mark, words) for mark, words in phrases if words]


def _subject(tokens: Sequence[str], *, plural: bool) -> Words:
    named = [word for word in tokens if word == "A" or word.lower() not in _NAMELESS]
    if plural and len(named) == 1:
        named = [named[0].lower()]  # "Backups are" opens a sentence; "Adams is" does not become "Adam"
    return _stems(named) or ("user",)


def _is_plural(verb: str) -> bool:
    return verb in ("are", "were", "do", "have") or verb in EN_VERBS


def _stems(tokens: Sequence[str]) -> Words:
    return tuple(
        stem(word) for word in tokens if (word == "A" or word.lower() not in DETERMINERS) and word[0] not in "'’"
    )


def _sorted(frame: dict[str, Words]) -> tuple[tuple[str, Words], ...]:
    return tuple(sorted(frame.items()))
