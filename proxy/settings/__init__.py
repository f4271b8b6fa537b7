"""The models of config.yaml: every key with its type, default, bounds and description, in the file's own order.

Frozen, and strict about unknown keys. The reference page of the settings is made from this package. Settings that a
later version brings are refused here with "not supported yet"; `proxy.config` reads and merges the files.
"""

from proxy.settings.calling import Alias, Auth, Identity, Key, Model, Server, Upstream
from proxy.settings.recalling import API_DEADLINE_MS, Inject, Quotas, Recall, Session
from proxy.settings.section import is_loopback
from proxy.settings.storing import Backup, Embedding, Index, Redis, Store
from proxy.settings.whole import Config

__all__ = [
    "API_DEADLINE_MS",
    "Alias",
    "Auth",
    "Backup",
    "Config",
    "Embedding",
    "Identity",
    "Index",
    "Inject",
    "Key",
    "Model",
    "Quotas",
    "Recall",
    "Redis",
    "Server",
    "Session",
    "Store",
    "Upstream",
    "is_loopback",
]
