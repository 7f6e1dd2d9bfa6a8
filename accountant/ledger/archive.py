"""Datasets and models whose time is over: a decision that the ledger remembers, with who took it and why. Lists leave
them out. A dataset takes no further job, schedule or block until it is taken up again; what was spent on it stays
spent, its models answer, and files are compared with its rows. For a model nothing else follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accountant.errors import WrongState
from accountant.ledger.families.records import Why
from dpserve_verify.entries import datasets
from dpserve_verify.errors import InputError

if TYPE_CHECKING:
    from accountant.ledger.ledger import Ledger

# What may be archived: the key of its name, the kind that archives it, and the kind that ends that.
KINDS = {
    "dataset": ("dataset", "dataset-archived", "dataset-unarchived"),
    "model": ("name", "model-archived", "model-unarchived"),
}


def archived(ledger: Ledger, what: str) -> frozenset[str]:
    """Return the names that are archived now, of datasets or of models, as it was signed."""
    with ledger.log.signed() as signed:
        return frozenset(name for kind, name in signed.rare().archived if kind == what)


def require_open(ledger: Ledger, dataset: str) -> None:
    """Raise WrongState where a dataset takes no further job."""
    with ledger.log.signed() as signed:
        try:
            datasets.require_open(signed.rare().archived, dataset)
        except InputError as error:
            raise WrongState(error.message) from None


def archive(ledger: Ledger, what: str, name: str, why: Why, ends: bool = False) -> int:
    """Append the entry that archives a `dataset` or a `model`, or `ends` that; return its index. UnknownName where
    there is none of that name, WrongState where it is so already.
    """
    key, begin, end = KINDS[what]
    with ledger.log.writing() as writer:
        return writer.append(end if ends else begin, **{key: name}, reason=why.reason, by=why.by)
