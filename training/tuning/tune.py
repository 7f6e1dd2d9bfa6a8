"""Private tuning: one job that learns a random number of times with settings drawn from a public grid, scores each run
privately, and keeps the best (docs/privacy/prices.md). It stands among a job's parameters, under one name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import log
from pathlib import Path
from typing import Any

from accountant.home import Home
from dpserve_verify.errors import InputError
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import Budget, from_nano, nano
from dpserve_verify.privacy.selection import Distribution, Poisson, distribution_from_json, logarithmic
from dpserve_verify.system.files import PRIVATE, partial_of, replace_file
from models.features.reading import READING
from training.calibration.calibrate import calibrate, rehearse
from training.calibration.plan_warnings import check_exportable
from training.learners.base.checks import OWN
from training.learners.job_words import CHOSEN, TUNING
from training.learners.parameters import Stored, defaults_of, learner_of, stored
from training.requests import TuningRequest
from training.session.learner import Learner, Recipe
from training.session.session import Public, Selector
from training.tuning.ceilings import Shape, shape_of
from training.tuning.selecting import BestOf, Outcome, most_runs

MOST_SETTINGS = 64
SCORE_SHARE = Fraction(1, 10)  # of what a run costs
RUN_SHARE = Decimal("0.5")  # of a job's epsilon, about what is left for one run (.43 to .59)
DEFAULT = "default"  # in a grid: the learner's own


@dataclass(frozen=True, eq=False)
class Tuned:
    """A learner with a grid of settings: what `training.jobs.job` drives in a learner's stead. Public in all its parts.

    `share`: of the job's epsilon, what a run is told to have, where a public rule of the learner asks for it. It moves
    no price.
    """

    name: str
    fixed: Mapping[str, Stored]
    grid: Mapping[str, Sequence[Stored]]
    distribution: Distribution
    share: Decimal

    @cached_property
    def settings(self) -> tuple[dict[str, Stored], ...]:
        """Return every combination of the grid."""
        return settings_of(self.grid)

    @cached_property
    def learners(self) -> tuple[Learner, ...]:
        """Return a learner for every setting, in their order."""
        return tuple(learner_of(self.name, {**self.fixed, **setting}) for setting in self.settings)

    @cached_property
    def _shapes(self) -> dict[Public, Shape]:
        return {}

    def recipe(self, public: Public) -> Recipe:
        """Check, rehearse and calibrate every setting to the public budget. A run is scored by how many records it gets
        right, which says nothing of a number.
        """
        public.check_priced("tuning draws a Poisson number of runs")
        for learner in self.learners:
            learner.check(self._run(public))
        if public.classes is None:
            raise InputError("tune: runs are scored by the records they get right; the target is a number, not a class")
        recipe = calibrate(self, public, public.budget, self.guess(public))
        for setting in self.best_of(public, recipe.unit).settings:
            check_exportable(setting.learner, self._run(public), setting.blank)
        return recipe

    def guess(self, public: Public) -> Decimal:
        """Guess about where the unit will be, from a run whose epsilon is the one that it is told."""
        shape, run = self._shape(public), float(self._run(public).budget.epsilon)
        if not public.pure:
            run = run * (2 / -log(public.budget.delta)) ** 0.5 / shape.count**0.5
        return from_nano(max(1, int(run / float(shape.size) * 1e9)))

    def learn(self, session: Selector) -> Outcome:
        """Make one private selection among all settings."""
        outcome: Outcome = session.select(self.best_of(session.public, session.unit))
        return outcome

    def best_of(self, public: Public, unit: Decimal) -> BestOf:
        """Return the private selection at this unit: what the dearest setting's standard release may cost, about."""
        ceiling = self._shape(public).at(unit)
        return BestOf(self.learners, self._run(public), ceiling, ceiling.score(SCORE_SHARE), self.distribution, unit)

    def _shape(self, public: Public) -> Shape:
        run = self._run(public)
        if run not in self._shapes:
            plans = [rehearse(learner, run, Decimal(1)) for learner in self.learners]
            self._shapes[run] = shape_of(plans, public.pure)
        return self._shapes[run]

    def _run(self, public: Public) -> Public:
        epsilon = from_nano(max(1, nano(public.budget.epsilon * self.share)))
        return replace(public, budget=Budget(epsilon, public.budget.delta))

    def stored(self) -> dict[str, Stored]:
        """Return the parameters of a request: those that are fixed, and the tuning as one text."""
        grid: dict[str, Any] = {key: list(values) for key, values in self.grid.items()}
        body: dict[str, Any] = {"grid": grid, "runs": self.distribution.to_json(), "share": decimal_string(self.share)}
        return {**self.fixed, TUNING: canonical.encode(body).decode("ascii")}

    def to_json(self, public: Public, unit: Decimal) -> dict[str, Any]:
        """Return the settings and the runs as JSON, before anything is spent."""
        best = self.best_of(public, unit)
        pairs = zip(self.settings, best.settings, strict=True)
        lines = [{**s, "unit": decimal_string(run.unit), "releases": len(run.plan)} for s, run in pairs]
        mean = f"{float(self.distribution.mean):.6g}"
        return {"settings": lines, "runs": {**self.distribution.to_json(), "mean": mean, "made": best.most}}


def settings_of(grid: Mapping[str, Sequence[Stored]]) -> tuple[dict[str, Stored], ...]:
    """Return every combination of the grid, in the order of its keys."""
    return tuple(dict(zip(grid, values, strict=True)) for values in product(*grid.values()))


def fits_of(name: str, parameters: Mapping[str, Any]) -> Learner | Tuned:
    """Return what a request's parameters stand for."""
    fixed = {key: value for key, value in parameters.items() if key not in (TUNING, CHOSEN)}
    if TUNING not in parameters:
        return learner_of(name, fixed)
    body = _read_tuning(parameters)
    return Tuned(name, fixed, body["grid"], distribution_from_json(body["runs"]), Decimal(body["share"]))


def runs_of(parameters: Mapping[str, Any]) -> int | None:
    """Return how many runs a tuned job makes (`training.tuning.selecting`), a public number; None where it is not
    tuned.
    """
    return most_runs(distribution_from_json(_read_tuning(parameters)["runs"])) if TUNING in parameters else None


def _read_tuning(parameters: Mapping[str, Any]) -> dict[str, Any]:
    fields: Any = canonical.decode_canonical(str(parameters[TUNING]).encode())
    return canonical.exact_object(fields, ("grid", "runs", "share"), TUNING)


def tuned_of(name: str, parameters: Mapping[str, Any] | None, tuning: TuningRequest, pure: bool) -> Tuned:
    """Check a grid and settle what it leaves open by public rules. InputError says what is wrong."""
    parameters_given = dict(parameters or {})
    learner = learner_of(name, parameters_given)
    grid = {key: _values(name, parameters_given, key, values) for key, values in sorted(tuning.grid.items())}
    count = 1
    for values in grid.values():
        count *= len(values)
    if not 2 <= count <= MOST_SETTINGS:
        raise InputError(f"grid: has {count} settings; from 2 to {MOST_SETTINGS}, or there is nothing to tune")
    fixed = {key: value for key, value in stored(learner).items() if key not in grid}
    runs = Decimal(min(8, max(5, 2 * count)) if tuning.runs is None else tuning.runs)
    distribution = _logarithmic(runs) if pure else Poisson(runs)
    return Tuned(name, fixed, grid, distribution, RUN_SHARE)


def _values(name: str, given: Mapping[str, Any], key: str, values: Sequence[Any]) -> list[Stored]:
    """Return the values of one key as the ledger keeps them."""
    defaults = defaults_of(name)
    if key in OWN:
        raise InputError(f"grid {key}: says what the promise is, and that is never tuned")
    if key in READING:
        raise InputError(f"grid {key}: all runs of a job read the same columns; name them once, beside the grid")
    if key in given or key not in defaults:
        why = "is fixed as well" if key in given else f"{name} takes {sorted(defaults)}"
        raise InputError(f"grid {key}: {why}")
    if isinstance(values, str) or not values:
        raise InputError(f"grid {key}: must have values, {key}=a,b,c")
    meant = [defaults[key] if value == DEFAULT else value for value in values]
    stored_values = [stored(learner_of(name, {**given, key: value}))[key] for value in meant]
    if len(set(map(repr, stored_values))) < len(stored_values):
        raise InputError(f"grid {key}: a value stands there twice")
    return stored_values


def _logarithmic(runs: Decimal) -> Distribution:
    """Return the logarithmic law with that mean: it has a pure price, twice that of a run, whatever the mean."""
    low, high = 1, 10**9 - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if logarithmic(from_nano(middle)).mean > runs else (low, middle)
    return logarithmic(from_nano(high))


def keep_choice(home: Home, seq: int, parameters: Mapping[str, Any], outcome: Outcome) -> None:
    """Put on disk, before it is committed, what came out beside the model: the setting (None where nothing was run) and
    its noisy score."""
    settings, none = settings_of(_read_tuning(parameters)["grid"]), outcome.setting is None
    chosen = {"setting": None if none else settings[outcome.setting or 0], "score": None if none else outcome.score}
    path = _choice(home, seq)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_file(path, json.dumps(chosen).encode(), PRIVATE, alone=True)


def choice_of(home: Home, seq: int) -> dict[str, Any] | None:
    """Return the chosen setting of a job; None where it is not in this home."""
    path = _choice(home, seq)
    choice: dict[str, Any] | None = json.loads(path.read_text("utf-8")) if path.exists() else None
    return choice


def forget_choice(home: Home, seq: int) -> None:
    """Remove the chosen setting: a burned job released nothing."""
    for path in (_choice(home, seq), partial_of(_choice(home, seq))):
        path.unlink(missing_ok=True)


def _choice(home: Home, seq: int) -> Path:
    return home.jobs / f".{seq}.chosen.json"
