"""Whom a command asks: the home of this machine, or a server."""
