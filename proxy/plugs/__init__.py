"""The plugs: what the house asks of a store, a working memory and an embedder.

Each has one contract suite in tests/ that every implementation passes. All methods are synchronous and safe to call
from any thread; writes to the long-term store go through `Store.transact`, on its one writer thread.
"""

from proxy.plugs.embedder import Embedder
from proxy.plugs.finding import AROUND, GLANCED, Candidate, Context, Filters, Found, Glances, Page, Part, SearchSource
from proxy.plugs.keeping import (
    FROZEN,
    SHORT_MARK,
    Carried,
    Cascade,
    Derivation,
    Evidence,
    JournalTurn,
    KeptAnswer,
    Ledger,
    Piece,
    SessionInfo,
    Sighting,
    Survey,
    Surveyed,
    Unembedded,
    Version,
)
from proxy.plugs.store import Store
from proxy.plugs.transaction import Transaction
from proxy.plugs.working import WorkingMemory

__all__ = [
    "AROUND",
    "FROZEN",
    "GLANCED",
    "SHORT_MARK",
    "Candidate",
    "Carried",
    "Cascade",
    "Context",
    "Derivation",
    "Embedder",
    "Evidence",
    "Filters",
    "Found",
    "Glances",
    "JournalTurn",
    "KeptAnswer",
    "Ledger",
    "Page",
    "Part",
    "Piece",
    "SearchSource",
    "SessionInfo",
    "Sighting",
    "Store",
    "Survey",
    "Surveyed",
    "Transaction",
    "Unembedded",
    "Version",
    "WorkingMemory",
]
