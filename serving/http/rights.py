"""Whether who asks may have what a door's path or body names: model, dataset, job; and what of a list they see."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from accountant.access.grants import ASKING, Access
from accountant.errors import Forbidden, UnknownName
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import FamilyRow, families_of
from serving.process.registry import Registry, Served

# What a door's right is about, where its path does not say: on everything there is; on what its body names, which the
# door itself asks for; on anything at all, of which it shows what is granted; and nothing of anybody.
EVERYTHING, NAMED, LISTED, NOTHING = "everything", "named", "listed", "nothing"
_IN_PATH = re.compile(r"/(model|dataset)s/\{name\}|\{(job)\}")


def thing_of(path: str) -> str:
    """What the path of a door names: model, dataset or job; EVERYTHING where it names none, which is the safe side."""
    found = _IN_PATH.search(path)
    return EVERYTHING if found is None else str(found[1] or found[2])


def may_model(access: Access, scopes: Sequence[str], name: str, dataset: str | None) -> bool:
    """Whether one of `scopes` is held on the model of this name, or on the dataset that it was trained on."""
    return access.may(*scopes, model=name) or (dataset is not None and access.may(*scopes, dataset=dataset))


def require_model(access: Access, registry: Registry, scopes: Sequence[str], reference: str) -> None:
    """Forbidden where `reference` (`adult`, `adult@2`) may not be had, or, to who has not all, where there is none."""
    name = reference.partition("@")[0]
    if access.may(*scopes, model=name):
        return
    try:
        dataset = registry.dataset(reference)
    except UnknownName:  # it may be retired
        dataset = registry.any_dataset(name)
    if dataset is None or not access.may(*scopes, dataset=dataset):
        raise access.refusal(scopes, ("model", name))


def allowed(access: Access, find: Callable[[str], Served]) -> Callable[[str], Served]:
    """`find`, for predictions, of models that may be asked alone."""
    if access.may("predict"):
        return find

    def found(reference: str) -> Served:
        name = reference.partition("@")[0]
        try:
            served = find(reference)
        except UnknownName:
            access.require("predict", model=name)
            raise
        if not may_model(access, ("predict",), name, served.verified.certificate.form.dataset.name):
            raise access.refusal(("predict",), ("model", name))
        return served

    return found


def seen_models(access: Access, lines: list[dict[str, Any]], registry: Registry) -> list[dict[str, Any]]:
    """Of the registry's lines, those of models that some scope is held on."""
    if access.everywhere:
        return lines
    return [
        line for line in lines if may_model(access, access.scopes, line["name"], registry.known_dataset(line["model"]))
    ]


def require_job(home: Home, access: Access, seq: int, cancel: bool) -> None:
    """Forbidden unless the job may be seen, or cancelled. UnknownName where there is none."""
    job = home.ledger.job(seq)
    if not (access.may_cancel if cancel else access.may_see)(job):
        raise _anothers(access, seq, "cancel" if cancel else "see")


@contextmanager
def unnamed(access: Access, seq: int) -> Iterator[None]:
    """A refusal within says that it is of job `seq`, and no name: whoever tries all numbers would learn the names."""
    try:
        yield
    except Forbidden:
        raise _anothers(access, seq, "see") from None


def _anothers(access: Access, seq: int, verb: str) -> Forbidden:
    return Forbidden(f"job {seq}: {access.principal} may not {verb} it: it is another's, and no grant names it")


def seen_datasets(access: Access, datasets: Sequence[Dataset]) -> list[Dataset]:
    """Of the datasets, those that a scope is held on which has to do with them."""
    return [each for each in datasets if access.may(*READS, dataset=each.registration.name)]


def seen_families(access: Access, datasets: Sequence[Dataset]) -> list[FamilyRow]:
    """Families with the names of those of their datasets that may be seen; families of which none may are left out."""
    return families_of(seen_datasets(access, datasets))


READS = ("train", "evaluate", "audit", "steward")  # scopes that have to do with datasets
JOBS = (*ASKING, "audit", "steward")


def reach(scopes: Sequence[str], thing: str, path: str, changes: bool, scope: str) -> str:
    """What a scope reaches through a door (`scopes`, `thing` and `path` are the door's; `changes`: it does more than
    show): the cell of the table of `docs/reference.py`. "no": it is refused.
    """
    if not scopes:
        return "open"
    if scope == "admin":
        return "all"
    if scope not in scopes:
        return "no"
    if thing == NOTHING:
        return "yes"
    if thing == EVERYTHING:
        return "on everything"
    jobs = thing == "job" or (thing == LISTED and path.endswith("/jobs"))
    if jobs and scope in ASKING:
        return "own, granted" if scope == "train" else "own"
    return "no" if jobs and changes else "granted"
