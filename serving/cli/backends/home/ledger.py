"""The ledger of a home: audited where it lies, and copied out of it."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from accountant.audit.audit import audit_place
from accountant.audit.export import export
from accountant.home import TRUST, Home, place
from accountant.log.stored_proofs import consistency
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.seen_checkpoints import Growth, read_growth
from dpserve_verify.log.witnessed import read_witnessed
from models.store.decisions import finish_decisions, undone
from models.store.versions import champions
from serving.cli.backends.abstract import Ledger, Progress
from serving.process.watch.audit_runs import bundles_of


class HomeLedger(Ledger):
    """As `Ledger` says, with the files of the home."""

    def audit(self, seen: list[str], trust: Path | None, progress: Progress) -> tuple[Report, list[str], PublicKeys]:
        """Judge every entry."""
        if trust is not None:
            raise InputError(
                "--trust: a home is judged by its own trust.json; export the ledger to judge it by another"
            )
        home = place(os.environ)[0]
        cosigned = read_witnessed(home)
        notes = [*seen, *([] if cosigned is None else [cosigned])]
        models = home / "models"
        if undone(models):
            with suppress(DpserveError, OSError):  # a home that does not open: the audit says what is amiss
                finish_decisions(Home.open())
        report = audit_place(
            bundles=bundles_of(models), seen=notes, progress=progress, champions=partial(champions, models)
        )
        return report, notes, PublicKeys.from_json((home / TRUST).read_bytes())

    def export(self, out: Path) -> int:
        """Write the ledger into a new folder."""
        return export(Home.open(), out)

    def checkpoint(self) -> str:
        """Return the newest signed tree head."""
        return Home.open().ledger.log.checkpoint()

    def trusted_keys(self) -> PublicKeys:
        """Return the keys of the home's trust file; the rest of the home need not be there."""
        path = place(os.environ)[0] / TRUST
        try:
            return PublicKeys.from_json(path.read_bytes())
        except OSError as error:
            raise InputError(
                f"trust={path}: cannot be read ({error.strerror}); name the pinned keys with --trust"
            ) from None

    def prove_growth(self, origin: str, earlier: int, later: int) -> Growth | None:
        """Return the home's own proof; None where its ledger is another, or has not so many entries."""
        try:
            log = Home.open().ledger.log
            return read_growth(consistency(log.database, earlier, later).to_json()) if log.origin == origin else None
        except DpserveError:
            return None
