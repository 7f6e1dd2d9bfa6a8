"""The ledger of a server: fetched, and judged here by pinned keys; the server's own word counts for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from accountant.audit.export import write_export
from dpserve import Client
from dpserve_verify.audit.audit import Leaf, audit
from dpserve_verify.audit.judge_models import Bundle
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.errors import DpserveError, LedgerInvalid, VerificationError
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.notes import parse_checkpoint
from dpserve_verify.log.seen_checkpoints import Growth, read_growth
from serving.cli.backends.abstract import Ledger, Progress
from serving.cli.backends.server.bundles import bundle_of
from serving.cli.backends.server.connection import AtServer

Heads = list[tuple[int, str]]


class ServerLedger(AtServer, Ledger):
    """As `Ledger` says, over REST."""

    def audit(self, seen: list[str], trust: Path | None, progress: Progress) -> tuple[Report, list[str], PublicKeys]:
        """Judge every entry. What was seen the last time must be the beginning of what is there now."""
        checkpoints = self.connection.pins.seen_checkpoints()
        with self.connection.asking() as service:
            keys = self.connection.trusted_keys(service) if trust is None else PublicKeys.from_json(trust.read_bytes())
            before, handed = checkpoints.read(keys), checkpoints.unproved(keys)
            notes = [*seen, *([] if before is None else [before.note]), *handed]
            bundles = list(_bundles(service))  # before the checkpoints, which then cover them
            answering = {model.name: model.version for model in service.models() if model.champion}
            heads = _heads(service)
            newest = heads[-1][1]
            report = audit(
                _entries(service, heads), heads, keys, bundles=bundles, seen=[*notes, newest], progress=progress,
                total=heads[-1][0], champions=lambda: answering,
            )  # fmt: skip
        if report.ok:
            checkpoints.forget_unproved(keys)
        return report, [*notes, newest], keys

    def export(self, out: Path) -> int:
        """Write the ledger into a new folder."""
        with self.connection.asking() as service:
            keys, heads = self.connection.trusted_keys(service), _heads(service)
            return write_export(out, _entries(service, heads), heads, keys, heads[-1][1])

    def checkpoint(self) -> str:
        """Return the newest signed tree head."""
        with self.connection.asking() as service:
            return service.checkpoint()

    def trusted_keys(self) -> PublicKeys:
        """Return the keys that were pinned, on first use those that the server names."""
        with self.connection.asking() as service:
            return self.connection.trusted_keys(service)

    def prove_growth(self, origin: str, earlier: int, later: int) -> Growth | None:
        """Return the server's proof; None where it is away, keeps another ledger, or has not so many entries."""
        try:
            with self.connection.asking() as service:
                same = self.connection.trusted_keys(service).origin == origin
                return read_growth(service.consistency(earlier, later)) if same else None
        except VerificationError:
            raise
        except DpserveError:
            return None


def _heads(service: Client) -> Heads:
    """Return every checkpoint, the newest last."""
    heads = list(service.checkpoints())
    if not heads or parse_checkpoint(heads[-1][1]).size != heads[-1][0]:
        raise LedgerInvalid("ledger: the server has signed no checkpoint, or not of the size that it says")
    return heads


def _entries(service: Client, heads: Heads) -> Iterator[Leaf]:
    """Yield the entries that the newest checkpoint covers: what came meanwhile is for the next time."""
    for entry in service.ledger():
        if entry.index >= heads[-1][0]:
            return
        yield entry.index, entry.text.encode()


def _bundles(service: Client) -> Iterator[Bundle]:
    """Yield the files of every version that the server says it has verified; none of what cannot be had."""
    for model in service.models():
        if model.raw["verified"]:
            try:
                bundle = bundle_of(service.bundle(model.reference))
                yield model.reference, bundle.envelope, bundle.proof, bundle.onnx
            except DpserveError:
                yield model.reference, b"", b"", b""
