"""Check access to what a door's path or body names (model, dataset, job), and filter lists by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accountant.access.grants import ASKING, Access
from accountant.errors import Forbidden, UnknownName
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import FamilyRow, families_of
from dpserve_verify.formats.canonical import whole_number

if TYPE_CHECKING:  # the command line loads no server
    from serving.process.registry import Registry, Served

# What a door's right is about, where its path does not say: on everything there is; on what its body names, which the
# door itself asks for; on anything at all, of which it shows what is granted; and nothing of anybody.
EVERYTHING, NAMED, LISTED, NOTHING = "everything", "named", "listed", "nothing"
_IN_PATH = re.compile(r"/(model|dataset)s/\{name\}|\{(job)\}")


def thing_of(path: str) -> str:
    """Return what the path of a door names: "model", "dataset" or "job"; EVERYTHING, the safe side, where it names
    none.
    """
    match = _IN_PATH.search(path)
    return EVERYTHING if match is None else str(match[1] or match[2])


def may_model(access: Access, scopes: Sequence[str], name: str, dataset: str | None) -> bool:
    """Return whether one of `scopes` is held on the model of this name, or on the dataset that it was trained on."""
    return access.may(*scopes, model=name) or (dataset is not None and access.may(*scopes, dataset=dataset))


DatasetOf = Callable[[str], "str | None"]  # of a model's reference; None where there is no such model


def needs_look(access: Access, scopes: Sequence[str], thing: str) -> bool:
    """Return whether the thing itself must be looked at to tell what the caller may. Forbidden where that is known."""
    if not access.has(*scopes):
        raise access.refusal(scopes)
    if thing == EVERYTHING:
        access.require(*scopes)
    return thing in ("dataset", "model", "job") and not access.may(*(("admin",) if thing == "job" else scopes))


def require_thing(
    home: Home,
    access: Access,
    scopes: Sequence[str],
    thing: str,
    values: Mapping[str, Any],
    changes: bool,
    dataset_of: DatasetOf,
) -> None:
    """Raise Forbidden unless one of `scopes` is held on the dataset, model or job that the `values` of a path name.
    `changes`: more is done than to show it.
    """
    if thing == "dataset":
        access.require(*scopes, dataset=values["name"])
    elif thing == "model":
        version = f"@{values['version']}" if "version" in values else ""
        require_model(access, dataset_of, scopes, values["name"] + version)
    else:
        require_job(home, access, read_number("job", str(values["job"])), changes)


def read_number(name: str, text: str) -> int:
    """Read a number of a path. UnknownName where it is none."""
    number = whole_number(text)
    if number is None:
        raise UnknownName(f"{name}={text[:40]!r}: no such {name}", **{name: text[:40]})
    return number


def require_model(access: Access, dataset_of: DatasetOf, scopes: Sequence[str], reference: str) -> None:
    """Raise Forbidden where `reference` (`adult`, `adult@2`) may not be used, or where it does not exist and the
    caller's scope is not on everything.
    """
    name = reference.partition("@")[0]
    if access.may(*scopes, model=name):
        return
    dataset = dataset_of(reference)
    if dataset is None or not access.may(*scopes, dataset=dataset):
        raise access.refusal(scopes, ("model", name))


def restrict_to_allowed(access: Access, find: Callable[[str], Served]) -> Callable[[str], Served]:
    """Return `find`, restricted to models that the caller may ask for predictions."""
    if access.may("predict"):
        return find

    def find_allowed(reference: str) -> Served:
        name = reference.partition("@")[0]
        try:
            served = find(reference)
        except UnknownName:
            access.require("predict", model=name)
            raise
        if not may_model(access, ("predict",), name, served.verified.certificate.form.dataset.name):
            raise access.refusal(("predict",), ("model", name))
        return served

    return find_allowed


def seen_models(access: Access, lines: list[dict[str, Any]], registry: Registry) -> list[dict[str, Any]]:
    """Return the registry's lines of models that the caller holds a scope on."""
    if access.everywhere:
        return lines
    return [
        line for line in lines if may_model(access, access.scopes, line["name"], registry.known_dataset(line["model"]))
    ]


def require_job(home: Home, access: Access, seq: int, cancel: bool) -> None:
    """Raise Forbidden unless the job may be seen, or cancelled. UnknownName where there is none."""
    job = home.ledger.job(seq)
    if not (access.may_cancel if cancel else access.may_see)(job):
        raise _anothers(access, seq, "cancel" if cancel else "see")


@contextmanager
def hide_name(access: Access, seq: int) -> Iterator[None]:
    """Replace a Forbidden raised within by one that names only job `seq`: who tries all numbers must not learn
    names.
    """
    try:
        yield
    except Forbidden:
        raise _anothers(access, seq, "see") from None


def _anothers(access: Access, seq: int, verb: str) -> Forbidden:
    return Forbidden(f"job {seq}: {access.principal} may not {verb} it: it is another's, and no grant names it")


def seen_datasets(access: Access, datasets: Sequence[Dataset]) -> list[Dataset]:
    """Return the datasets that the caller may see."""
    return [dataset for dataset in datasets if access.may(*READS, dataset=dataset.registration.name)]


def seen_families(access: Access, datasets: Sequence[Dataset]) -> list[FamilyRow]:
    """Return the families that have a dataset which the caller may see, with the names of these datasets alone."""
    return families_of(seen_datasets(access, datasets))


READS = ("train", "evaluate", "audit", "steward")  # scopes that have to do with datasets
JOBS = (*ASKING, "audit", "steward")


def reach(scopes: Sequence[str], thing: str, path: str, changes: bool, scope: str) -> str:
    """Return what a scope reaches through a door (`scopes`, `thing` and `path` are the door's; `changes`: it does more
    than show): the cell of the table of `docs/reference.py`. "no": it is refused.
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
