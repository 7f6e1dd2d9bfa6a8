"""What audits are tried on: `ledgers.filled`, with every type of entry but those of keys; and how to ask for one."""

from __future__ import annotations

import json
from pathlib import Path

from ledgers import bodies, filled, place

from accountant.audit.audit import audit_place
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.keys.trust import PublicKeys

LEAVES = bodies(filled())
COUNT = len(LEAVES)
KINDS = [json.loads(leaf)["type"] for leaf in LEAVES]


def report(home: Path, **options) -> Report:
    return audit_place(place(home), **options)


def trust(home: Path) -> PublicKeys:
    return PublicKeys.from_json((home / "trust.json").read_bytes())
