"""Whether a sentence is worth keeping: a linear model over its vector, its words and some marks of how it is said.

In: a text and its document vector. Out: a probability. It catches the lasting facts that the rules miss; the weights
are data in ``policy/value_weights.json``, which ``bench/fit_value.py`` writes. Pure, but for reading that file once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from proxy.errors import SidemirrorError
from proxy.surface import MARKS, Look, look
from proxy.types import Vector

WEIGHTS: Final = Path(__file__).parent / "policy" / "value_weights.json"


@dataclass(frozen=True, slots=True)
class Linear:
    """One logistic regression.

    Args:
        bias: Log odds of a text that shows nothing.
        marks: Weight of each mark in `MARKS`.
        terms: Weights of the terms that count.
    """

    bias: float
    marks: tuple[float, ...]
    terms: Mapping[str, float]

    def log_odds(self, seen: Look) -> float:
        """Log odds of being worth keeping."""
        weight = self.terms.get
        said: float = sum(map(mul, self.marks, seen.marks))
        return self.bias + said + sum([weight(term, 0.0) for term in seen.terms])


@dataclass(frozen=True, slots=True)
class ValueModel:
    """The fitted classifier; safe to share between threads.

    Args:
        with_vector: Used, together with `meaning`, where the text has a vector.
        alone: Used where it has none.
        meaning: Weights of a document vector, shape (dimension,); empty where vectors are not looked at.
    """

    with_vector: Linear
    alone: Linear
    meaning: npt.NDArray[np.float32]

    @classmethod
    def load(cls, path: Path, fingerprint: str) -> Self:
        """Read the weights; those of vectors only if they are of the embedder in use.

        Args:
            path: The file that ``bench/fit_value.py`` wrote; `WEIGHTS` is the shipped one.
            fingerprint: That of the embedder in use.

        Returns:
            The model. Fitted on another embedder's vectors, whose figures would mean nothing here, it judges by the
            surface alone.

        Raises:
            SidemirrorError: The file is missing, or is not of this form.
        """
        try:
            content = json.loads(path.read_bytes())
            meaning = np.array(content["meaning"], dtype=np.float32)
            if meaning.ndim != 1 or not np.isfinite(meaning).all():
                raise ValueError("meaning is no list of finite numbers")
            both, alone = _linear(content["with_vector"]), _linear(content["alone"])
            ours = content["embedder"] == fingerprint
            return cls(both if ours else alone, alone, meaning if ours else meaning[:0])
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise SidemirrorError(f"{path} cannot be read as value weights ({error!r}); install anew") from error

    def score(self, text: str, vector: Vector | None) -> float:
        """How likely it is that a text says something worth keeping.

        Args:
            text: One sentence, as said.
            vector: Its document vector, of unit length; None judges by its surface alone.

        Returns:
            A probability, 0–1; 0 for text without a letter or digit.

        Raises:
            ValueError: The vector has another dimension than the weights.

        >>> nothing = Linear(0.0, (0.0,) * len(MARKS), {"deploy": 2.0})
        >>> model = ValueModel(nothing, nothing, np.zeros(2, dtype=np.float32))
        >>> round(model.score("we deploy Fridays only", None), 2), model.score("ok then", None), model.score("?!", None)
        (0.88, 0.5, 0.0)
        """
        if not any(map(str.isalnum, text)):
            return 0.0
        seen = look(text)
        if vector is not None and self.meaning.size:
            log_odds = self.with_vector.log_odds(seen) + float(vector @ self.meaning)
            if math.isfinite(log_odds):
                return _probability(log_odds)
        return _probability(self.alone.log_odds(seen))


def _linear(content: Mapping[str, Any]) -> Linear:
    marks, terms = content["marks"], content["terms"]
    if unknown := sorted(set(marks) ^ set(MARKS)):
        raise ValueError(f"marks differ from ours: {', '.join(unknown)}")
    weights = {str(term): float(weight) for term, weight in terms.items()}
    linear = Linear(float(content["bias"]), tuple(float(marks[name]) for name in MARKS), weights)
    if not all(map(math.isfinite, (linear.bias, *linear.marks, *weights.values()))):
        raise ValueError("a weight is not finite")
    return linear


def _probability(log_odds: float) -> float:
    # exp() overflows past 709; beyond 40 the result is 0 or 1 in a float anyway.
    return 1.0 / (1.0 + math.exp(-min(max(log_odds, -40.0), 40.0)))
