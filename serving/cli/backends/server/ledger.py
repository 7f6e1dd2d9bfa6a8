"""The ledger of a server: fetched, and judged here by pinned keys; the server's own word counts for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from accountant.audit.audit import Leaf, audit
from accountant.audit.export import write_export
from accountant.audit.judge_models import Bundle
from accountant.audit.tree_of_entries import Report
from accountant.errors import DpserveError, LedgerInvalid
from accountant.keys.trust import PublicKeys
from accountant.log.notes import parse_checkpoint
from dpserve import Client
from serving.cli.backends.server.asking import asking
from serving.cli.backends.server.pins import pinned, seen_checkpoints
from serving.cli.backends.server.released import bundle_of

Heads = list[tuple[int, str]]


def audited(
    seen: list[str], trust: Path | None, progress: Callable[[int, int | None], None]
) -> tuple[Report, list[str], PublicKeys]:
    """The report on the whole of it, the checkpoints that it was held against, and the keys that it was judged by.

    What was seen the last time must be the beginning of what is there now.
    """
    with asking() as service:
        keys = pinned(service) if trust is None else PublicKeys.from_json(trust.read_bytes())
        before, handed = seen_checkpoints().read(keys), seen_checkpoints().unproved(keys)
        notes = [*seen, *([] if before is None else [before.note]), *handed]
        bundles = list(_bundles(service))  # before the checkpoints, which then cover them
        answering = {each.name: each.version for each in service.models() if each.champion}
        heads = _heads(service)
        newest = heads[-1][1]
        report = audit(
            _entries(service, heads), heads, keys, bundles=bundles, seen=[*notes, newest], progress=progress,
            total=heads[-1][0], champions=lambda: answering,
        )  # fmt: skip
    if report.ok:
        seen_checkpoints().forget_unproved(keys)
    return report, [*notes, newest], keys


def exported(out: Path) -> int:
    """Into a new folder, as an auditor takes it; the number of entries."""
    with asking() as service:
        keys, heads = pinned(service), _heads(service)
        return write_export(out, _entries(service, heads), heads, keys, heads[-1][1])


def checkpoint() -> str:
    """The newest signed tree head."""
    with asking() as service:
        return service.checkpoint()


def _heads(service: Client) -> Heads:
    """Every checkpoint, the newest last."""
    heads = list(service.checkpoints())
    if not heads or parse_checkpoint(heads[-1][1]).size != heads[-1][0]:
        raise LedgerInvalid("ledger: the server has signed no checkpoint, or not of the size that it says")
    return heads


def _entries(service: Client, heads: Heads) -> Iterator[Leaf]:
    """The entries that the newest checkpoint covers: what came meanwhile is for the next time."""
    for entry in service.ledger():
        if entry.index >= heads[-1][0]:
            return
        yield entry.index, entry.text.encode()


def _bundles(service: Client) -> Iterator[Bundle]:
    """The files of every version that the server says it has verified; what cannot be had is judged as nothing."""
    for model in service.models():
        if model.raw["verified"]:
            try:
                found = bundle_of(service.bundle(model.reference))
                yield model.reference, found.envelope, found.proof, found.onnx
            except DpserveError:
                yield model.reference, b"", b"", b""
