"""Backups: made while the proxy runs, proved by reading them back, restored whole, and once a day by themselves."""
