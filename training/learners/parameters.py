"""A learner by its name and its public parameters, as JSON and the command line give them and as the ledger keeps
them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from accountant.errors import UnknownName
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from training.learners import LEARNERS
from training.learners.base.checks import OWN, read_parameter
from training.learners.base.estimator import parameters_of
from training.learners.others import OF_OTHERS, others
from training.session.learner import Learner

LATER = {
    "cuts": "auto",
    "bins": None,
    "pairs": "auto",
    "balance": None,
    "engine": "auto",
    "features": "all",
    "without": "",
    "order": "auto",
    "doubt": None,
    "start": "",
}
Stored = str | int | bool | None


def learner_of(name: str, parameters: Mapping[str, Any] | None = None) -> Learner:
    """Return the learner of that name with these public parameters; InputError names what it would take."""
    if name in OF_OTHERS:
        return others().learner_of(name, parameters or {})
    defaults_of(name)  # which says what names there are
    made: Learner = make_learner(LEARNERS[name], parameters)
    return made


def make_learner(kind: type, parameters: Mapping[str, Any] | None = None) -> Any:
    """Make a learner of any class with these public parameters, each read as the type of its default. InputError names
    what it would take.
    """
    arguments = {key: known for key, known in parameters_of(kind).items() if key not in OWN}
    unknown = set(parameters or {}) - set(arguments)
    if unknown:
        raise InputError(
            f"parameters {sorted(unknown)}: {getattr(kind, 'name', kind.__name__)} takes {sorted(arguments)}"
        )
    given = {
        key: read_parameter(key, value, arguments[key].default, "float" in str(arguments[key].annotation))
        for key, value in (parameters or {}).items()
    }
    return kind(**given)


def defaults_of(name: str) -> dict[str, Any]:
    """Return the parameters of the learner of that name, with their defaults."""
    if name not in LEARNERS:
        raise UnknownName(f"learner={name!r}: no such learner; there are {sorted(LEARNERS)}", learner=name)
    return {key: value for key, value in LEARNERS[name]().get_params().items() if key not in OWN}


def stored(learner: Learner) -> dict[str, Stored]:
    """Return every hyper-parameter, defaults included; floats as their shortest decimal text. Those that came later
    only where they are given, so that a request of before is the same one still.
    """
    found = {key: value for key, value in learner.get_params().items() if key not in OWN}
    found = {key: value for key, value in found.items() if key not in LATER or value != LATER[key]}
    return {
        key: decimal_string(Decimal(repr(value)))
        if isinstance(value, float)
        else (json.dumps(value) if isinstance(value, list | tuple) else value)
        for key, value in found.items()
    }
