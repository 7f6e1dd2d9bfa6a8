"""Datasets and models whose time is over: a decision that the ledger remembers, with who took it and why. Lists leave
them out. A dataset takes no further job, schedule or block until it is taken up again; what was spent on it stays
spent, its models answer, and files are compared with its rows. For a model nothing else follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from accountant.errors import UnknownName, WrongState
from accountant.ledger.families.family_rows import load
from accountant.ledger.families.records import Why
from accountant.store.tables import job_table

if TYPE_CHECKING:
    from accountant.ledger.ledger import Ledger

# What may be archived: the key of its name, the kind that archives it, and the kind that ends that.
KINDS = {
    "dataset": ("dataset", "dataset-archived", "dataset-unarchived"),
    "model": ("name", "model-archived", "model-unarchived"),
}
_CERTIFIED = select(job_table.c.seq).where(job_table.c.model == bindparam("name"), job_table.c.issued.is_not(None))


def archived(ledger: Ledger, what: str) -> frozenset[str]:
    """Return the names that are archived now, of datasets or of models, as it was signed."""
    with ledger.log.signed() as signed:
        return frozenset(name for kind, name in signed.rare().archived if kind == what)


def require_open(ledger: Ledger, dataset: str) -> None:
    """Raise WrongState where a dataset takes no further job."""
    with ledger.log.signed() as signed:
        signed.rare().require_open(dataset)


def archive(ledger: Ledger, what: str, name: str, why: Why, ends: bool = False) -> int:
    """Append the entry that archives a `dataset` or a `model`, or `ends` that; return its index. UnknownName where
    there is none of that name, WrongState where it is so already.
    """
    key, begin, end = KINDS[what]
    with ledger.log.writing() as writer:
        if what == "dataset":
            load(writer.connection, name)
        elif writer.connection.execute(_CERTIFIED, {"name": name}).first() is None:
            raise UnknownName(f"model={name!r}: there is no such model", model=name)
        if ((what, name) in writer.signed.rare().archived) is not ends:
            raise WrongState(f"{what}={name}: is {'not archived' if ends else 'archived already'}")
        return writer.append(end if ends else begin, **{key: name}, reason=why.reason, by=why.by)
