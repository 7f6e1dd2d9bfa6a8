"""Derived models: a released model that was edited without its data. Post-processing: it costs no privacy.

A `derived` entry (`accountant.ledger.derived_entries`) binds its certificate, which repeats the base's predicate, price
and all, and says in its public part what it supersedes and what was edited. It stands as long as all it came from does:
where a base is revoked, so is it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from accountant.certificates.statement import list_if_short
from dpserve_verify.certificates.predicate import STATEMENT_LIMIT, read_statement
from dpserve_verify.formats import canonical


@dataclass(frozen=True)
class Ancestor:
    """A certified model that another came from: the index of its entry, and the digests of its statement and of its
    ensemble.json, hexadecimal."""

    entry: int
    statement: str
    ensemble: str


def statement_of(
    base: bytes, chain: Sequence[Ancestor], edits: Sequence[Mapping[str, Any]], sha256: str, ensemble: str
) -> bytes:
    """Encode the derived model's statement as canonical bytes. `base`: those of its base's; `chain`: all it came from,
    the released model first; `edits`: every one since then; `sha256`, `ensemble`: digests of its two files."""
    body, _ = read_statement(base)
    public = {
        **body["predicate"]["public"],
        "ensemble": ensemble,
        "supersedes": [asdict(each) for each in chain],
        "edits": list_if_short([dict(each) for each in edits]),
    }
    subject = {**body["subject"][0], "digest": {"sha256": sha256}}
    changed = {**body, "subject": [subject], "predicate": {**body["predicate"], "public": public}}
    return canonical.encode(changed, STATEMENT_LIMIT)
