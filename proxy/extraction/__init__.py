"""Asking a model about memories: the words of the question, the call, and the reading of its answer."""
