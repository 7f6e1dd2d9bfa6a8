"""The audit of a home (`dpserve_verify.audit.audit`): its entries, and beside them its database's index and subtrees,
its high-water mark, its keys and its models; and which files that were paid for are not there any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from accountant import home as homes
from accountant.audit.stored_ledger import StoredLedger
from accountant.home import TRUST, Home
from accountant.log.last_seen import HighWater
from accountant.store.store import Store, checkpoints, leaves, size
from dpserve_verify.audit.audit import Progress, audit
from dpserve_verify.audit.judge_models import Bundle, Champions
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.errors import KeyInvalid, LedgerInvalid, VerificationError
from dpserve_verify.keys.trust import PublicKeys


def audit_home(home: Home, bundles: Iterable[Bundle] = (), seen: Iterable[str] = ()) -> Report:
    """Audit an open home: evidence, index, high-water mark, trust file, and the models given.

    `bundles`, `seen`: as for `audit`. Raises LedgerUnavailable where the database cannot be read.
    """
    try:
        trust = home.trust
    except VerificationError:  # rows that are not what was signed are for the report to name
        trust = _trust_file(home.path)
    return _audit_store(home.ledger.log.database, home.path, trust, bundles, seen, None)


def audit_place(
    environment: Mapping[str, str] = os.environ,
    bundles: Iterable[Bundle] = (),
    seen: Iterable[str] = (),
    progress: Progress | None = None,
    champions: Champions = dict,
) -> Report:
    """Audit as `audit_home` does, a home that may refuse to open: needs its trust file and no private key. The ledger
    is read as it stands now: `bundles` and `seen` are of before, or what is issued meanwhile counts as missing.

    `environment`: names home and database (`accountant.home.settings`). Raises KeyInvalid where the trust file is not
    to be had, LedgerUnavailable where the database cannot be read, InputError where another version made its tables.
    """
    path, url = homes.place(environment)
    database = Store(url)
    try:
        return _audit_store(database, path, _trust_file(path), bundles, seen, progress, champions)
    finally:
        database.close()


def _audit_store(
    database: Store,
    path: Path,
    trust: PublicKeys,
    bundles: Iterable[Bundle],
    seen: Iterable[str],
    progress: Progress | None,
    champions: Champions = dict,
) -> Report:
    problems, mark = _beside(path, trust)  # the mark first: it may only lag behind the snapshot
    try:
        with database.auditing() as connection:
            stored = StoredLedger(connection, path)
            report = audit(
                leaves(connection),
                checkpoints(connection),
                trust, bundles=bundles, seen=seen, mark=mark, stored=stored,
                progress=progress, total=size(connection), champions=champions,
            )  # fmt: skip
    except TypeError as error:  # the database itself checks no types
        raise LedgerInvalid(f"ledger database: a column holds something of another type ({error})") from error
    return replace(report, problems=(*report.problems, *problems), lost=stored.lost)


def _beside(path: Path, trust: PublicKeys) -> tuple[list[str], tuple[int, bytes] | None]:
    """Check the files beside the ledger: return the problems with them, and the high-water mark."""
    problems, mark = [], None
    try:
        if _trust_file(path) != trust:
            problems.append(f"{TRUST}: names other keys than those in use")
    except KeyInvalid as error:
        problems.append(error.message)
    try:
        mark = HighWater(homes.mark(path)).read()
        if mark is None:
            problems.append("high-water mark: is gone; a rolled-back ledger would not be found")
    except VerificationError as error:
        problems.append(error.message)
    return problems, mark


def _trust_file(path: Path) -> PublicKeys:
    try:
        return PublicKeys.from_json((path / TRUST).read_bytes())
    except OSError as error:
        raise KeyInvalid(f"{TRUST}: cannot be read ({error.strerror})") from error
