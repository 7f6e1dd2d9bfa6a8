"""The kinds of entries that this version writes and reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EntryKind:
    """Which keys of an entry lead elsewhere, "" for none: `model`: that of a model's name; `certificate`: that of the
    entry which bound the certificate it is about; `names`: of an entry about no job, that of the dataset or family."""

    model: str = ""
    certificate: str = ""
    names: str = ""


_PLACED = EntryKind(model="name", certificate="issued")
KINDS = {
    "genesis": EntryKind(),
    "dataset-registered": EntryKind(names="dataset"),
    "person-total": EntryKind(names="dataset"),
    "dataset-joined": EntryKind(names="dataset"),
    "dataset-appended": EntryKind(names="dataset"),
    "blocks-dropped": EntryKind(names="dataset"),
    "budget-changed": EntryKind(names="family"),
    "quota-set": EntryKind(names="family"),
    "reserved": EntryKind(model="model"),
    "started": EntryKind(),
    "resumed": EntryKind(),
    "committed": EntryKind(),
    "burned": EntryKind(),
    "released": EntryKind(),
    "issued": EntryKind(model="name"),
    "derived": EntryKind(model="name", certificate="base"),
    "evaluated": EntryKind(model="name"),
    "profiled": EntryKind(),
    "revoked": EntryKind(certificate="issued"),
    "model-promoted": _PLACED,
    "model-retired": _PLACED,
    "model-restored": _PLACED,
    "token-created": EntryKind(),
    "token-revoked": EntryKind(),
    "grant-added": EntryKind(),
    "grant-revoked": EntryKind(),
    "key-added": EntryKind(),
    "key-retired": EntryKind(),
    "key-compromised": EntryKind(),
    "campaign-opened": EntryKind(),
    "campaign-closed": EntryKind(),
    "campaign-round": EntryKind(),
    "rows-compared": EntryKind(names="dataset"),
    "campaign-answered": EntryKind(),
    "schedule-added": EntryKind(),
    "schedule-stopped": EntryKind(),
    "schedule-removed": EntryKind(),
    "dataset-archived": EntryKind(names="dataset"),
    "dataset-unarchived": EntryKind(names="dataset"),
    "model-archived": EntryKind(model="name"),
    "model-unarchived": EntryKind(model="name"),
    "dataset-withdrawn": EntryKind(names="dataset"),
    "charged": EntryKind(names="dataset"),
    "learner-admitted": EntryKind(),
    "learner-removed": EntryKind(),
}
"""Every kind of entry that this version writes, in the order in which versions came to know them: another one goes
behind the last (`accountant.store.version_fence`). What an auditor demands of each stands apart, in `audit.replay`.
"""
_PLACES = {kind: place for place, kind in enumerate(KINDS, 1)}


def place_of(kind: str) -> int:
    """Return how many of `KINDS`, in order, a process must know that goes on after an entry of this kind."""
    return _PLACES[kind]
