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
}
Stored = str | int | bool | None


def learner_of(name: str, parameters: Mapping[str, Any] | None = None) -> Learner:
    """Return the learner of that name with these public parameters; InputError names what it would take."""
    defaults = defaults_of(name)
    unknown = set(parameters or {}) - set(defaults)
    if unknown:
        raise InputError(f"parameters {sorted(unknown)}: {name} takes {sorted(defaults)}")
    kinds = parameters_of(LEARNERS[name])
    given = {
        key: read_parameter(key, value, defaults[key], "float" in str(kinds[key].annotation))
        for key, value in (parameters or {}).items()
    }
    return LEARNERS[name](**given)


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
