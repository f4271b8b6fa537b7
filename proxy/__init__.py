"""Sidemirror: a memory sidecar for LLM calls."""

__version__ = "0.1.0"
