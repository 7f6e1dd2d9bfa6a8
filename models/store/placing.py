"""Moving `adult@champion`, and taking versions out of serving: each verified first, and written into the ledger before
it happens. What a name answers with afterwards is said each time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger.model_names import PROMOTED, RESTORED, RETIRED, newest_promotion, record
from dpserve_verify.errors import CertificateRevoked, InputError, VerificationError
from models.store.bundle import ModelStore, check_numbered
from models.store.decisions import alone, carry_out, deciding
from models.store.loading import OpenedModel, load_of_home
from models.store.standing import Standing, way_out
from models.store.versions import versions_by_entry
from models.worth.statements import require_worth


@dataclass(frozen=True)
class Placed:
    """What was done. `entry`: of the ledger, where it says so; `champion`: the version that the name alone means now,
    `retired`: those that are kept and not served; `replaces`: what a promoted version took the place of, `worth`: the
    entry of the statement that speaks for it; `serves`: what the name answers with now, where None with the newest
    sound version as `offer`, and the `command` for it."""

    model: str
    entry: int
    champion: int | None
    retired: list[int]
    replaces: str | None
    serves: str | None
    offer: str | None
    command: str | None
    worth: int | None

    def to_json(self) -> dict[str, Any]:
        """Return its fields, by name."""
        return asdict(self)


def promote(
    home: Home, reference: str, reason: str, by: str, if_better: bool = False, although_not_better: bool = False
) -> Placed:
    """Let the name alone mean this version from now on. InputError where no version is named, or it is retired;
    WrongState where it is champion, and as `require_worth` has it; raises as `load_of_home`."""
    if if_better and although_not_better:
        raise InputError("if_better, although_not_better: choose one")
    check_numbered(reference)
    name, version = _version(home, reference)
    with alone(home, name):
        if version in ModelStore(home.models).retired(name):
            raise InputError(f"model={name}@{version}: is retired; restore it first")
        if version == ModelStore(home.models).champion(name):
            raise WrongState(f"model={name}@{version}: is the champion already")
        own = load_of_home(home, home.models / name / str(version), name).certificate.issued
        standings = versions_by_entry(home, name).items()
        before = next(((f"{name}@{each}", at) for at, (each, state) in standings if state is Standing.CHAMPION), None)
        worth = require_worth(home, f"{name}@{version}", own, before, if_better, although_not_better)
        return _place(home, PROMOTED, name, version, reason, by, worth)


def retire(home: Home, reference: str, reason: str, by: str) -> Placed:
    """Serve this version no more; its files stay."""
    name, version = _version(home, reference)
    with alone(home, name):
        return _place(home, RETIRED, name, version, reason, by)


def restore(home: Home, reference: str, reason: str, by: str) -> Placed:
    """Serve a retired version again."""
    name, version = _version(home, reference)
    with alone(home, name):
        return _place(home, RESTORED, name, version, reason, by)


def promote_first(home: Home, name: str, version: int) -> None:
    """Promote the first version of a new name: that follows from the ledger, and is no decision to be written there."""
    store = ModelStore(home.models)
    with alone(home, name):
        if store.champion(name) is None:
            store.promote(name, version)


def promote_once(home: Home, name: str, version: int, issued: int, reason: str, by: str) -> None:
    """Promote what was asked for together with its making: one entry, however often that is cut and gone on with. What
    was decided about the name since its certificate was issued stands, and what was revoked or retired stays."""
    store = ModelStore(home.models)
    with alone(home, name), suppress(CertificateRevoked):
        decided = newest_promotion(home.ledger, name, issued)
        if decided is None and version not in store.retired(name):
            _place(home, PROMOTED, name, version, reason, by)
        elif decided is not None and decided["issued"] == issued:
            store.promote(name, version)


def answering(home: Home, name: str) -> tuple[str | None, int | None]:
    """Return what a name answers with now; where that is nothing, the newest version that verifies and is not
    retired.
    """
    store = ModelStore(home.models)
    champion, retired = store.champion(name), store.retired(name)
    if champion is not None and champion not in retired and _sound(home, name, champion):
        return f"{name}@{champion}", None
    others = (version for version in reversed(store.versions(name)) if version not in (champion, *retired))
    return None, next((version for version in others if _sound(home, name, version)), None)


def open_in(home: Home, name: str) -> OpenedModel:
    """Return a verified model of a home. Raises UnknownName; CertificateRevoked with the version to use instead."""
    folder = ModelStore(home.models).resolve(name)
    model = folder.parent.name
    try:
        return OpenedModel(f"{model}@{folder.name}", str(folder), load_of_home(home, folder, model, runs=False))
    except CertificateRevoked as error:
        _, offer = answering(home, model)
        instead = way_out(model, offer)
        message = f"{error.message}; {instead['command'] or 'no other version verifies'}"
        raise CertificateRevoked(message, **instead) from None


def _sound(home: Home, name: str, version: int) -> bool:
    try:
        load_of_home(home, home.models / name / str(version), name)
    except VerificationError:
        return False
    return True


def _version(home: Home, reference: str) -> tuple[str, int]:
    folder = ModelStore(home.models).resolve(reference)
    return folder.parent.name, int(folder.name)


def _place(home: Home, kind: str, name: str, version: int, reason: str, by: str, worth: int | None = None) -> Placed:
    store = ModelStore(home.models)
    trust = replace(home.trust, revoked=frozenset()) if kind == RETIRED else None  # what was revoked can be put away
    issued = load_of_home(home, store.root / name / str(version), name, trust).certificate.issued
    before = store.champion(name) if kind == PROMOTED else None
    with deciding(home, name):
        entry = record(home.ledger, kind, name, version, issued, reason, by, before, worth)
        carry_out(store, kind, name, version)
    serves, offer = answering(home, name)
    out = way_out(name, offer)
    return Placed(
        f"{name}@{version}",
        entry,
        store.champion(name),
        store.retired(name),
        None if before is None else f"{name}@{before}",
        serves,
        out["offer"],
        out["command"],
        worth,
    )
