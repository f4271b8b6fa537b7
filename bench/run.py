"""What every bench is given, and how repeated measurements become one figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    """One bench's surroundings.

    Args:
        folder: An empty folder of its own.
        step: Told how many units of work were done since the last time.
        settings: More of the product's config.yaml.
        litellm_proxy: Version of the litellm proxy to measure as well; None for none.
    """

    folder: Path
    step: Callable[[int], object] = lambda _: None
    settings: Mapping[str, Any] = field(default_factory=dict)
    litellm_proxy: str | None = None


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed.

    >>> percentile([4, 1, 3, 2], 0.5), percentile([4, 1, 3, 2], 0.95)
    (2, 4)
    """
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
