"""Recall measured on a file of cases, offline: cases in, a run out, a table of figures."""
