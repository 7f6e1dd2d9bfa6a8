"""`attack-started` and `attacked` entries: a registered attack is begun once and stated once, so that no result can be
chosen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from accountant.errors import WrongState
from accountant.keys import key_rows
from accountant.ledger.derived_entries import certifying_entry
from accountant.ledger.job_rows import read_job
from accountant.ledger.ledger import Ledger
from accountant.store.store import body_at
from dpserve_verify.certificates.attack import commitment
from dpserve_verify.log.entry import read_entry

STARTED, ENDED = "attack-started", "attacked"


@dataclass(frozen=True)
class Coins:
    """In which runs the canary is, a bit for each, the first in the lowest; a secret; and the entry that fixes both."""

    bits: int
    coins: str
    secret: str
    entry: int

    @property
    def digest(self) -> str:
        """Return the digest that the entry states."""
        return commitment(self.secret, self.coins)


def start(ledger: Ledger, seq: int, runs: int, by: str) -> Coins:
    """Draw the coins of a job's attack and fix them by their digest, once. WrongState where none was registered, or it
    was begun.
    """
    size = (runs + 7) // 8
    bits, secret = int.from_bytes(os.urandom(size), "little") & (1 << runs) - 1, os.urandom(32).hex()
    coins = bits.to_bytes(size, "little").hex()
    with ledger.log.writing() as writer:
        return Coins(
            bits, coins, secret, writer.append(STARTED, reservation=seq, coins=commitment(secret, coins), by=by)
        )


def enter(ledger: Ledger, seq: int, statement: str, found: dict[str, Any], refuted: bool, signed_by: str) -> int:
    """Bind the signed statement of an attack to its model, once; the index of its entry. `found`: the entry that began
    it (`started`), the digest of its `coins`, how many `runs` and `right` guesses it states. KeyInvalid where the
    key that signed it may not any more.
    """
    with ledger.log.writing() as writer:
        key_rows.require_issuer(writer.connection, signed_by)
        issued = read_job(writer.connection, seq).issued
        if issued is None:
            raise WrongState(f"job {seq}: has made no model yet", job=seq)
        of = certifying_entry(writer.connection, issued).value
        bound = {"reservation": seq, "statement": statement, "model": of["model"], "name": of["name"], **found}
        return writer.append(ENDED, **bound, **({"refuted": True} if refuted else {}))


def attacks(ledger: Ledger) -> list[dict[str, Any]]:
    """Return the entries that begin and state attacks, the oldest first."""
    from accountant.store.entry_index import entry_index  # loads numpy, which most commands do without

    database = ledger.log.database
    with database.sharing(), database.reading() as connection:
        index = entry_index(database, connection)
        numbers = sorted(int(n) for kind in (STARTED, ENDED) for n in index.of_kind(kind).nonzero()[0])
        return [{"entry": n, **read_entry(n, body_at(connection, n)).value} for n in numbers]
