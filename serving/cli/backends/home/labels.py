"""Jobs that name labels wait for a worker, also those that are asked for where the home is."""

from __future__ import annotations

from accountant.ledger.families.records import check_labels
from serving.cli.backends.abstract import Note, Request


def note_labels(note: Note, request: Request) -> None:
    """Say which worker runs a job that names labels. Raises InputError for labels that are none."""
    if request.get("labels"):
        check_labels(request["labels"])
        flags = " ".join(f"--label {label}" for label in request["labels"])
        note(f"once admitted, it waits in the queue for a worker that has its labels: dpserve worker {flags}")
