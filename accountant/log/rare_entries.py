"""Entries that are few, and that much depends on: a signed tree is read with all of them at hand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from accountant.keys import key_rows
from accountant.keys.key_rows import KeyRow
from dpserve_verify.log.entry import Entry

CHARGED = "charged"  # the kind of what was released elsewhere
WITHDRAWN = "dataset-withdrawn"  # the kind that ends a registration, as if it had never been
ADMITTED, REMOVED = "learner-admitted", "learner-removed"  # of a learner of others


@dataclass(frozen=True)
class Rare:
    """The genesis, and every entry about keys, revocations, quotas, archives, withdrawals, learners of others and
    charges for releases made elsewhere up to the entry `newest`, the oldest first.
    """

    newest: int = -1
    entries: tuple[Entry, ...] = ()

    @cached_property
    def keys(self) -> dict[str, KeyRow]:
        """Return every key there ever was, by its keyid."""
        return key_rows.stated_keys(self.entries)

    @cached_property
    def revoked(self) -> dict[int, int]:
        """Return the indices of `issued` entries whose certificates were revoked -> of the entries that say so."""
        return {entry.value["issued"]: entry.seq for entry in self.entries if entry.value["type"] == "revoked"}

    @cached_property
    def quotas(self) -> dict[tuple[str, str], Entry]:
        """Return, by family and analyst, the entry that set the quota in force."""
        set_quotas = (entry for entry in self.entries if entry.value["type"] == "quota-set")
        return {(entry.value["family"], entry.value["analyst"]): entry for entry in set_quotas}

    @cached_property
    def archived(self) -> frozenset[tuple[str, str]]:
        """Return what is archived now: (dataset or model, its name)."""
        latest: dict[tuple[str, str], bool] = {}
        for value in (entry.value for entry in self.entries):
            what, _, act = value["type"].partition("-")
            if act.endswith("archived") or value["type"] == WITHDRAWN:
                latest[what, value.get("dataset") or value["name"]] = act == "archived"
        return frozenset(subject for subject, is_archived in latest.items() if is_archived)

    @cached_property
    def charged(self) -> tuple[Entry, ...]:
        """Return the charges for what was released elsewhere, the oldest first."""
        return tuple(entry for entry in self.entries if entry.value["type"] == CHARGED)

    @cached_property
    def admissions(self) -> dict[int, Entry]:
        """Return the admissions of learners of others that stand, by their index, the oldest first."""
        ended = {entry.value["admitted"] for entry in self.entries if entry.value["type"] == REMOVED}
        begun = (entry for entry in self.entries if entry.value["type"] == ADMITTED)
        return {entry.seq: entry for entry in begun if entry.seq not in ended}

    @cached_property
    def withdrawn(self) -> frozenset[int]:
        """Return the entries that registered what was withdrawn since."""
        return frozenset(entry.value["registered"] for entry in self.entries if entry.value["type"] == WITHDRAWN)
