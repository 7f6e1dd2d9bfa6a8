"""Processes: how a server starts, forks and prices."""
