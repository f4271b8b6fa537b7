"""Which of many patterns can match a text at all, found in one look at the short runs of characters in it.

In: the patterns of a set of rules, by `literals.required`. Out: the numbers of those worth running; every pattern that
matches is among them. The cost grows with the text and hardly with the number of rules. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import add

from proxy.policy.literals import Clause, likely, lowered

RUN_CHARS = 3


class Sieve:
    """A fixed list of entries; each entry is a choice of patterns, and a pattern is what its clauses say.

    Args:
        entries: For each entry the clauses of each of its patterns; an entry is worth trying when all clauses of any
            of them are met.

    >>> sieve = Sieve([[(frozenset({"喜欢", "like"}),)], [(frozenset({"port"}), frozenset({"5", "7"}))], [()]])
    >>> sieve.likely("I LIKE port 7"), sieve.likely("port x"), sieve.likely("")
    ([0, 1, 2], [2], [2])
    """

    def __init__(self, entries: Iterable[Iterable[tuple[Clause, ...]]]) -> None:
        bits: dict[Clause, int] = {}
        needed: list[tuple[int, int]] = []
        for number, patterns in enumerate(entries):
            needs = {sum(bits.setdefault(clause, 1 << len(bits)) for clause in set(clauses)) for clauses in patterns}
            needed += [(need, number) for need in needs]
        self._all = list(dict.fromkeys(number for _, number in needed))
        self._always = [number for need, number in needed if not need]
        self._by_bit = _by_rarest_bit(needed)
        self._literals = _by_literal(bits)
        self._by_run = _by_run(self._literals)
        self._runs = frozenset(self._by_run)

    def likely(self, text: str) -> list[int]:
        """The numbers of the entries that may match in a text, in order.

        Args:
            text: As the patterns see it.
        """
        small = lowered(text)
        if small is None:
            return list(self._all)
        found = left = self._met(small)
        likely = {*self._always}
        while left:
            bit = left & -left
            left ^= bit
            for need, number in self._by_bit.get(bit, ()):
                if found & need == need:
                    likely.add(number)
        return sorted(likely)

    def _met(self, small: str) -> int:
        """The clauses that a text in lower case meets."""
        found = 0
        if len(self._literals) < len(small):
            for literal, met in self._literals.items():
                if literal in small:
                    found |= met
            return found
        pairs = list(map(add, small, small[1:]))
        for run in self._runs.intersection({*small, *pairs, *map(add, pairs, small[2:])}):
            for literal, met in self._by_run[run]:
                if literal in small:
                    found |= met
        return found


def _by_rarest_bit(needed: Iterable[tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
    """For some clauses: the entries that need them. Each entry stands at the one of its clauses that fewest need."""
    needed = [one for one in needed if one[0]]
    count = Counter(bit for need, _ in needed for bit in _bits(need))
    found: dict[int, list[tuple[int, int]]] = {}
    for need, number in needed:
        found.setdefault(min(_bits(need), key=lambda bit: count[bit]), []).append((need, number))
    return found


def _bits(need: int) -> list[int]:
    return [1 << place for place in range(need.bit_length()) if need >> place & 1]


def _by_literal(bits: Mapping[Clause, int]) -> dict[str, int]:
    """For each literal the clauses that it meets."""
    found: dict[str, int] = {}
    for clause, bit in bits.items():
        for literal in clause:
            found[literal] = found.get(literal, 0) | bit
    return found


def _by_run(literals: Mapping[str, int]) -> dict[str, list[tuple[str, int]]]:
    """For some runs of up to three characters: the literals that hold them. Each literal stands at its rarest run."""
    found: dict[str, list[tuple[str, int]]] = {}
    for literal, met in literals.items():
        runs = [literal[at : at + RUN_CHARS] for at in range(max(1, len(literal) - RUN_CHARS + 1))]
        found.setdefault(min(runs, key=lambda run: likely(frozenset({run}))), []).append((literal, met))
    return found
