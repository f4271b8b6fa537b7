"""What a text must hold for a pattern to match in it: short literals, read off the pattern's parse tree.

In: a pattern. Out: clauses; wherever the pattern matches, the lower-cased text holds a member of each. Pure. The tree
is the one that the `regex` engine itself makes, so that nothing is read otherwise than it is run; what this module does
not know (a new kind of node, another version of the engine) yields no clause, and the pattern is then simply run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import regex

from proxy.shelf import SHELF, digest_of

Clause = frozenset[str]
ODD_CASE: Final = frozenset("\u0130\u0131\u017f\u212a")
"""The characters beyond ASCII that case-insensitive patterns take for ASCII letters; clauses say nothing about them."""

_READING: Final = digest_of(__file__)  # clauses read off by other code than this are none of ours
_core: Final[Any] = importlib.import_module("regex._regex_core")  # its stubs leave the parser out
_EMPTY: Final = frozenset({""})
_MAX_EXACT = 64
_MAX_SET = 16
_MAX_LITERALS = 256
_MAX_CLAUSES = 3
_COMMON: Final = frozenset("etaoinsrhldu ,.我你的是了不在有一个用这也就要到说")
# How likely a character is at a place of a text: only their order counts, to choose the rarest clauses.
_LIKELY_COMMON, _LIKELY_ASCII, _LIKELY_OTHER = 0.05, 0.015, 0.003
_TOO_LIKELY = 0.06


@dataclass(frozen=True, slots=True)
class _Need:
    """What one node asks for.

    Args:
        exact: All that the node can match; None when that is unknown or too much.
        clauses: What the text must hold besides.
    """

    exact: Clause | None
    clauses: tuple[Clause, ...] = ()

    @property
    def all(self) -> tuple[Clause, ...]:
        return self.clauses if self.exact is None else (*self.clauses, self.exact)


_UNKNOWN: Final = _Need(None)
_NO_WIDTH: Final = _Need(_EMPTY)


def required(pattern: str, lines: bool = False) -> tuple[Clause, ...]:
    """The clauses of a pattern: at most three, the rarest; none when nothing is certain.

    Args:
        pattern: One that compiles.
        lines: As in `patterns.compiled`.

    >>> [sorted(clause) for clause in required("我更?喜欢|my (?i:Favou?rite)")]
    [['my favorite', 'my favourite', '我喜欢', '我更喜欢']]
    >>> [sorted(clause) for clause in required("(?:我|咱).{0,9}(?:喜欢|爱喝)")]
    [['喜欢', '爱喝'], ['咱', '我']]
    >>> required(r"\\w+|x"), required("(?=a)?"), required("[^a]")
    ((), (), ())
    """
    key = ("clauses", _READING, regex.__version__, pattern, int(lines))
    return SHELF.get(key, lambda: _required(pattern, lines))


def _required(pattern: str, lines: bool) -> tuple[Clause, ...]:
    try:
        need = _need(_tree(pattern, regex.MULTILINE if lines else 0))
    except (AttributeError, TypeError, ValueError, RecursionError, regex.error):  # another engine's tree
        return ()
    usable = {_shortest(clause) for clause in need.all if "" not in clause}
    rare = sorted((clause for clause in usable if likely(clause) < _TOO_LIKELY), key=lambda c: (likely(c), sorted(c)))
    return tuple(rare[:_MAX_CLAUSES])


def _tree(pattern: str, flags: int) -> Any:
    while True:
        source = _core.Source(pattern)
        info = _core.Info(flags, source.char_type, {})
        info.guess_encoding = regex.UNICODE
        source.ignore_space = bool(info.flags & regex.VERBOSE)
        try:
            return _core._parse_pattern(source, info)
        except _core._UnscopedFlagSet:  # flags further on hold for all: read again with them
            flags = info.global_flags


def _need(node: Any) -> _Need:
    return _KINDS.get(type(node).__name__, _unknown)(node)


def _unknown(node: Any) -> _Need:
    return _NO_WIDTH if isinstance(node, _core.ZeroWidthBase) else _UNKNOWN


def _character(node: Any) -> _Need:
    if node.zerowidth or not node.positive:
        return _UNKNOWN
    char = chr(node.value)
    if char.isascii():
        return _Need(frozenset({char.lower()}))
    # A character with case has other forms than its lower one; only those without any stay what they are.
    return _Need(frozenset({char})) if char == char.lower() == char.upper() == char.casefold() else _UNKNOWN


def _set(node: Any) -> _Need:
    if node.zerowidth or not node.positive:
        return _UNKNOWN
    return _either([_need(item) for item in node.items], _MAX_SET)


def _range(node: Any) -> _Need:
    if node.zerowidth or not node.positive or node.upper - node.lower >= _MAX_SET:
        return _UNKNOWN
    characters = (_core.Character(value) for value in range(node.lower, node.upper + 1))
    return _either([_character(one) for one in characters], _MAX_SET)


def _sequence(node: Any) -> _Need:
    return _joined([_need(item) for item in node.items])


def _joined(needs: Iterable[_Need]) -> _Need:
    clauses: list[Clause] = []
    current, whole = _EMPTY, True
    for need in needs:
        clauses += need.clauses
        if need.exact is not None and len(current) * len(need.exact) <= _MAX_EXACT:
            current = frozenset(first + second for first in current for second in need.exact)
            continue
        clauses.append(current)
        current, whole = need.exact or _EMPTY, False
    return _Need(current, tuple(clauses)) if whole else _Need(None, (*clauses, current))


def _branch(node: Any) -> _Need:
    return _either([_need(branch) for branch in node.branches], _MAX_EXACT)


def _either(needs: Sequence[_Need], most: int) -> _Need:
    exact = [need.exact for need in needs if need.exact is not None]
    together = frozenset().union(*exact)
    if len(exact) == len(needs) and len(together) <= most:
        return _Need(together)
    rarest: list[Clause] = []
    for need in needs:
        usable = [clause for clause in need.all if "" not in clause]
        if not usable:
            return _UNKNOWN
        rarest.append(min(usable, key=likely))
    clause = frozenset().union(*rarest)
    return _Need(None, (clause,)) if len(clause) <= _MAX_LITERALS else _UNKNOWN


def _repeat(node: Any) -> _Need:
    inner = _need(node.subpattern)
    if node.min_count == 0:
        once = node.max_count == 1 and inner.exact is not None and len(inner.exact) < _MAX_EXACT
        return _Need((inner.exact or _EMPTY) | _EMPTY) if once else _UNKNOWN
    return inner if node.max_count == 1 else _Need(None, inner.all)


def _group(node: Any) -> _Need:
    return _need(node.subpattern)


def _look_around(node: Any) -> _Need:
    return _Need(_EMPTY, _need(node.subpattern).all) if node.positive else _NO_WIDTH


_KINDS: Final[Mapping[str, Callable[[Any], _Need]]] = {
    "Character": _character,
    "Range": _range,
    "SetUnion": _set,
    "Sequence": _sequence,
    "Branch": _branch,
    "GreedyRepeat": _repeat,
    "LazyRepeat": _repeat,
    "PossessiveRepeat": _repeat,
    "Group": _group,
    "Atomic": _group,
    "LookAround": _look_around,
}


def _shortest(clause: Clause) -> Clause:
    """The clause without literals that hold another one of it."""
    kept: list[str] = []
    for literal in sorted(clause, key=lambda text: (len(text), text)):
        if not any(shorter in literal for shorter in kept):
            kept.append(literal)
    return frozenset(kept)


def lowered(text: str) -> str | None:
    """A text as clauses speak of it; None when it holds a character about which they say nothing.

    >>> lowered("My PORT 我"), lowered("\u017fo")
    ('my port 我', None)
    """
    return text.lower() if text.isascii() or ODD_CASE.isdisjoint(text) else None


def likely(clause: Clause) -> float:
    """How often a member of a clause stands at a place of a text, roughly: for choosing the rarest."""
    total = 0.0
    for literal in clause:
        chance = 1.0
        for char in literal:
            chance *= _LIKELY_COMMON if char in _COMMON else _LIKELY_ASCII if char.isascii() else _LIKELY_OTHER
        total += chance
    return total
