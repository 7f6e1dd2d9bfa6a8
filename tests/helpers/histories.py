"""Ledgers that grow, fork and are rewritten: what tests of tiles, proofs and witnesses have in common."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import ledgers

from accountant.access import tokens
from accountant.home import Home
from dpserve_verify.keys import verifier_keys
from dpserve_verify.keys.trust import PublicKeys


def new_home(folder: Path, entries: int = 1) -> Home:
    return grown(Home.init(ledgers.place(folder)), entries)


def grown(home: Home, entries: int) -> Home:
    """Append sound entries until there are that many."""
    for number in range(home.ledger.log.size(), entries):
        tokens.create(home.ledger, f"t{number}", ["audit"], ledgers.hexes(str(number)))
    return home


@lru_cache
def _prepared(entries: int) -> Path:
    home = new_home(ledgers.scratch() / (f"history {entries}"), entries)
    home.ledger.log.database.close()
    return home.path


def copied(entries: int, to: Path) -> Home:
    """A home with that many entries, made once a process."""
    return Home.open(ledgers.place(ledgers.copy(_prepared(entries), to)))


def reopened(home: Home) -> Home:
    return Home.open(ledgers.place(home.path))


def rewritten(home: Home, at: int) -> Home:
    """The same home after its operator changed entry `at`, and signed everything anew."""
    leaves = ledgers.bodies(home.path)
    leaves[at] = ledgers.changed(leaves[at], time="2020-01-01T00:00:00Z")
    home.ledger.log.database.close()
    ledgers.rewrite(home.path, leaves)
    return reopened(home)


def pinned(home: Home) -> PublicKeys:
    """What an auditor got by another way."""
    return PublicKeys.from_json((home.path / "trust.json").read_bytes())


def log_vkey(home: Home) -> str:
    return verifier_keys.verifier_key(home.ledger.log.origin, pinned(home).log_key_at(home.ledger.log.size()))
