"""Sidemirror: a memory sidecar for LLM calls."""

import os

__version__ = "0.1.0"

# Before numpy is imported: recall's products are small, and OpenBLAS's threads only fight over the cores for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
