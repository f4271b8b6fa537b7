"""Why a memory that was found is left out, in the words of the ledger and of `--explain`.

A leaf. Each begins with what kept it out, so that programs can tell them apart by what stands before the colon.
"""

from __future__ import annotations

from typing import Final

QUOTA: Final = "quota"
TOP_K: Final = "quota: not among the best top_k"
UNSURE: Final = "threshold: confidence below recall.min_confidence"
UNRELATED: Final = "threshold: not related enough"
BEHIND: Final = "threshold: too far behind the best to stay in the session"
FAR_DOWN: Final = "threshold: not among the candidates that a call looks at"
SAME_TEXT: Final = "duplicate: of a better hit"
SAME_MESSAGE: Final = "duplicate: a memory made from the same message is there"
BUDGET: Final = "budget"
SUPERSEDED: Final = "superseded"
IN_REQUEST: Final = "already in the messages: it was made from one of them"
TOLD: Final = "already in the messages: the session was told before"
DEADLINE: Final = "deadline"
INJECTED: Final = "injected"
"""Of one that is not left out."""
