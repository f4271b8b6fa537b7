"""Our own lexical terms: words for Latin script and numbers, uni- and bigrams for CJK and scripts without spaces.

In: a stored text or a question. Out: its terms, each an exact index key. Pure. The same text gives the same terms
everywhere, so a change here must change `VERSION` (the store then re-indexes itself).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

VERSION = f"2/{unicodedata.unidata_version}"
MAX_QUERY_TERMS = 24
_KEPT, _KEPT_CHARS = 512, 4_000
"""The terms of so many texts, up to this long, are kept: a turn asks for those of the same text several times."""
_MAX_TERMS = 4_096
_MAX_WORD_CHARS = 64
_RunTerms = Callable[[str], list[str]]

_HAN = r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = r"\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_HANGUL = r"\uac00-\ud7a3"
_UNSPACED = r"\u0e01-\u0edf\u1000-\u109f\u1780-\u17d3"  # Thai, Lao, Burmese, Khmer
_RUNS = f"{_HAN}{_KANA}{_HANGUL}{_UNSPACED}"
_WORD = rf"[^\W{_RUNS}]+"
# Bounded and possessive: a ruler of a hundred dashes, as under a table's head, would else be tried in every way.
_LEAD = r"(?:--?|[/~.@#$%]){0,8}+"
_CHUNK = re.compile(rf"(?P<run>[{_RUNS}]+)|(?P<compound>{_LEAD}{_WORD}(?:[-._/@:=+#~\\&?%]+{_WORD})*)")
_PART = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_APOSTROPHE = re.compile(r"[’']s\b|(?<=\w)[’'](?=\w)")
_ACCENTS = re.compile(r"[\u0300-\u036f]")
_HAN_CHAR = re.compile(f"[{_HAN}]")
_DOUBLED = re.compile(r"([^aeiouylsz])\1$")
_VOWEL = re.compile("[aeiouy]")

_EN_STOP = frozenset(
    re.findall(
        r"\w+",
        """
        a about am an and are as at be been but by can could did do does dont for from had has have he her him his how i
        id if im in is it its ive me my of on or our she should so that the their them then there these they this those
        to us was we were what when where which who whom whose why will with would you your yours please
        """,
    )
)
# Particles that no content word holds: a bigram with one of them tells nothing.
_ZH_PARTICLES = frozenset("的了吗呢吧啊呀嘛哦么")
_ZH_FUNCTION = _ZH_PARTICLES | frozenset(
    "我你您他她它们是在有和与或也都就还又很不没这那哪谁什怎多少几个一要会能把被给从到对用上下里请让"
)
_ZH_STOP_BIGRAMS = frozenset(
    re.findall(
        r"\w+",
        """
        什么 怎么 为什 如何 可以 可能 现在 以后 之前 时候 知道 告诉 帮我 请问 一下 一些 因为 所以
        但是 如果 然后 还是 哪些
        """,
    )
)


def terms(text: str) -> list[str]:
    """Terms of a stored text.

    Args:
        text: Any text in any language.

    Returns:
        Distinct terms in order of appearance, at most 4,096; English function words are left out unless nothing else
        remains.

    >>> terms("我住在北京")
    ['我', '住', '在', '北', '京', '我住', '住在', '在北', '北京']
    >>> terms("Servers listen on --port=2222")
    ['server', 'listen', '--port=2222', 'port', '2222']
    """
    return list(_kept_terms(text) if len(text) <= _KEPT_CHARS else _terms(text))


def _terms(text: str) -> list[str]:
    found = _distinct(text, _run_terms)
    kept = [term for term in found if term not in _EN_STOP]
    return (kept or found)[:_MAX_TERMS]


@lru_cache(maxsize=_KEPT)
def _kept_terms(text: str) -> tuple[str, ...]:
    return tuple(_terms(text))


def query_terms(text: str) -> list[str]:
    """Terms of a question: as `terms`, without what is in every sentence.

    Args:
        text: The question.

    Returns:
        At most 24 distinct terms, the more telling first: compounds and long words, then bigrams. Single ideographs
        only where no bigram remains beside them. Empty when the text holds no word.

    >>> query_terms("我在北京的朋友叫什么？")
    ['在北', '北京', '朋友', '友叫', '叫什']
    >>> query_terms("What is my name?")
    ['nam']
    """
    return list(_kept_query_terms(text) if len(text) <= _KEPT_CHARS else _query_terms(text))


def _query_terms(text: str) -> list[str]:
    found = _distinct(text, _run_query_terms)
    kept = [term for term in found if term not in _EN_STOP] or found or _distinct(text, _run_terms)
    return sorted(kept, key=_telling, reverse=True)[:MAX_QUERY_TERMS]


@lru_cache(maxsize=_KEPT)
def _kept_query_terms(text: str) -> tuple[str, ...]:
    return tuple(_query_terms(text))


def token(partition: str, term: str) -> str:
    """The index key of a term in a partition: letters and digits only, so that one key is one FTS token.

    Args:
        partition: From `Scope.partition`; all are of one length, so no two pairs share a key.
        term: From `terms` or `query_terms`.

    >>> token("p0", "北京")
    'p0e58c97e4baac'
    """
    return partition + token_suffix(term)


@lru_cache(maxsize=8_192)
def token_suffix(term: str) -> str:
    """What `token` puts behind the partition."""
    return term.encode("utf-8", "replace").hex()


def _telling(term: str) -> int:
    return min(len(term), 12) if term.isascii() else 2 * min(len(term), 2)


def _distinct(text: str, of_run: _RunTerms) -> list[str]:
    found: dict[str, None] = {}
    for chunk in _CHUNK.finditer(_APOSTROPHE.sub("", _folded(text))):
        run = chunk["run"]
        for term in of_run(run) if run else _compound_terms(chunk["compound"]):
            found[term] = None
        if len(found) > _MAX_TERMS:
            break
    return list(found)


def _folded(text: str) -> str:
    """NFKC without accents; case stays, because camelCase is cut by it."""
    if text.isascii():
        return text
    spread = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    return unicodedata.normalize("NFC", _ACCENTS.sub("", spread))


def _run_terms(run: str) -> list[str]:
    single = _HAN_CHAR.findall(run) if len(run) > 1 else [run]
    return [*single, *_bigrams(run)]


def _run_query_terms(run: str) -> list[str]:
    if len(run) == 1:
        return [] if run in _ZH_FUNCTION else [run]
    telling: list[str] = []
    for segment in _segments(run):
        if len(segment) == 1 and segment not in _ZH_FUNCTION:
            telling.append(segment)
        telling += [
            pair for pair in _bigrams(segment) if pair not in _ZH_STOP_BIGRAMS and not _ZH_FUNCTION.issuperset(pair)
        ]
    return telling


def _segments(run: str) -> list[str]:
    for particle in _ZH_PARTICLES.intersection(run):
        run = run.replace(particle, " ")
    return run.split()


def _bigrams(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]


def _compound_terms(compound: str) -> list[str]:
    parts = _PART.findall(compound)
    if len(parts) == 1:
        humps = _CAMEL.split(parts[0])
        words = [_stem(hump.casefold()) for hump in humps] if len(humps) > 1 else []
        return [_stem(parts[0].casefold()), *words]
    humps = [hump for part in parts for hump in _CAMEL.split(part)]
    whole = compound.casefold()
    return [*([whole] if len(whole) <= 2 * _MAX_WORD_CHARS else []), *(_stem(hump.casefold()) for hump in humps)]


def _stem(word: str) -> str:
    """A light English stem: plural, -ing, -ed and final -e go; other words stay as they are.

    >>> [_stem(word) for word in ("cities", "city", "preferred", "prefer", "boxes", "using", "string", "2222")]
    ['citi', 'citi', 'prefer', 'prefer', 'box', 'using', 'string', '2222']
    """
    if len(word) < 3 or word in _EN_STOP or not (word.isascii() and word.isalpha()):
        return word[:_MAX_WORD_CHARS]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith("ies") else word[:-1]
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= 3 and base[-1] != "e" and _VOWEL.search(base):
            word = _DOUBLED.sub(r"\1", base)
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return (word[:-1] + "i" if word.endswith("y") and len(word) > 2 else word)[:_MAX_WORD_CHARS]
