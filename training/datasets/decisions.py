"""What a steward decides about a registered dataset as a whole: to withdraw, retire or restore it, and to charge it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import Any

from accountant.home import Home
from accountant.home.notes import Note, write_note
from accountant.ledger import outside
from accountant.ledger.archive import archive
from accountant.ledger.families.left import describe_budget
from accountant.ledger.families.records import Why
from accountant.ledger.outside import PERSON, ROW, Outside
from accountant.ledger.withdrawal import withdraw
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.outside import KINDS, Curve
from dpserve_verify.system.files import locked
from training.datasets.copy_guard import LOCK
from training.datasets.cost_statements import read_statement
from training.requests import ChargeRequest

WITHDRAW, RETIRE, RESTORE = "withdraw", "retire", "restore"
ACTS = (WITHDRAW, RETIRE, RESTORE)


def decide(home: Home, name: str, act: str, why: Why, holds_keys: bool = False) -> dict[str, Any]:
    """Enter a decision, and return the dataset, what it is now, and the entry that says so.

    Args:
        home: Where the rows are.
        name: The dataset.
        act: `withdraw` ends a registration that nothing was spent on, and deletes its packed rows; `retire` lets it
            take no further job, schedule or block; `restore` takes it up again.
        why: Who decides, and why.
        holds_keys: Whether they hold the home's keys, so that how often they withdraw is not bounded.

    Raises:
        UnknownName: There is no such dataset.
        WrongState: It is so already, or something was spent on what is to be withdrawn.
        InputError: As `accountant.ledger.withdrawal.withdraw`, or there is no such act.
    """
    if act not in ACTS:
        raise InputError(f"act={act!r:.40}: must be one of {', '.join(ACTS)}")
    if act == WITHDRAW:
        return {"dataset": name, "withdrawn": True, "entry": _withdraw(home, name, why, holds_keys)}
    entry = archive(home.ledger, "dataset", name, why, ends=act == RESTORE)
    return {"dataset": name, "archived": act == RETIRE, "entry": entry}


def charge(home: Home, name: str, request: ChargeRequest, by: str) -> dict[str, Any]:
    """Charge a release that was made elsewhere, and return the dataset, the entry that says so, and its budget then.
    Raises as `accountant.ledger.outside.charge`.
    """
    release = _release(home, name, request, by)
    entry = outside.charge(home.ledger, name, release)
    return {"dataset": name, "entry": entry, "budget": describe_budget(home.ledger.dataset(name)), **_named(release)}


def plan_charge(home: Home, name: str, request: ChargeRequest, by: str) -> dict[str, Any]:
    """Return the dataset, and its budget as that charge would leave it; writes nothing. Raises as `charge`."""
    release = _release(home, name, request, by)
    left = outside.rehearse(home.ledger, name, release)
    return {"dataset": name, "budget": describe_budget(left), **_named(release)}


def _named(release: Outside) -> dict[str, Any]:
    """Return the releases that a charge is for, where a signed statement names them."""
    return {name: said for name, said in release.fields().items() if name == "releases"}


def _release(home: Home, name: str, request: ChargeRequest, by: str) -> Outside:
    """Read what is to be charged. InputError where a statement and something beside it say the same."""
    beside = (request.contributions, request.another, request.blocks)
    why = Why(by, request.why)
    if request.statement is None:
        if request.key is not None:
            raise InputError("key: verifies a statement; leave it out, or give one")
        return Outside(Curve.read(request.to_json()), request.mechanism, why, request.document, request.unit, *beside)
    repeated = [field for field in (*KINDS, "delta", "document") if getattr(request, field) is not None]
    if repeated:
        raise InputError(f"{repeated[0]}: follows from the statement; leave it out")
    dataset = home.ledger.dataset(name)
    charged = () if request.another else outside.charged_releases(home.ledger, name)
    stated = read_statement(request.statement, request.key, dataset, home.ledger.log.origin, charged)
    if stated.unit == ROW and request.unit == PERSON:
        raise InputError("unit: the statement protects one record; leave it out")
    return Outside(
        stated.curve, request.mechanism, why, stated.document, stated.unit or request.unit, *beside, stated.releases
    )


def _withdraw(home: Home, name: str, why: Why, holds_keys: bool) -> int:
    home.ledger.dataset(name)
    with locked(home.path / LOCK):  # of several at one time, a file that is compared meanwhile finds all or nothing
        commitment = home.ledger.dataset(name).registration.commitment
        entry = withdraw(home.ledger, name, why, holds_keys)
        if all(commitment not in dataset.commitments for dataset in home.ledger.datasets()):
            shutil.rmtree(home.datasets / commitment, ignore_errors=True)
    with suppress(OSError):  # of a home that cannot be written: it is withdrawn all the same
        write_note(home.path, "dataset", name, Note())  # words of people do not pass to another one of its name
    return entry
