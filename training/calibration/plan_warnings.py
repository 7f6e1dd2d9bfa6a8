"""What public numbers alone say about a plan: how many rounds a budget carries, how many of them can be of use, and
what budget would still fit. No row is read, nothing is spent.

A selection of price e among m candidates, each of whose scores one record moves by at most its sensitivity, favours the
best rule there can be (right on every record) over one that is right on half of them by a factor of at most
exp(e * records / 2): the two scores differ by at most half the sensitivity times the records. The m - 1 others
together are then as likely as the perfect rule, or more, where

    e * records / 2  <=  log(m - 1)

and every real rule fares worse. Such a round is drowned in noise: what it adds is close to a draw by lot.

Of a learner that releases noisy sums: if each record moved a sum by its sensitivity, and all in one direction, they
would move it by the sensitivity times the records. Where that, over all releases (in squares), is within one standard
deviation of their noise, the sums tell next to nothing but noise.
"""

from __future__ import annotations

from decimal import Decimal
from math import ceil, exp, log, sqrt
from typing import TYPE_CHECKING

from accountant.privacy.claims import claim
from accountant.system.lazy_import import later
from dpserve_verify.certificates.bundle import FILES
from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.privacy.budget import from_nano, nano
from dpserve_verify.privacy.events import Plan
from models.features.features import CategoricalFeature, Feature
from models.forms.ensemble import Ensemble
from models.forms.registry import ensemble_bytes
from models.onnx.nodes import EXACT
from training.calibration.calibrate import rehearse
from training.session.learner import Learner, Recipe
from training.session.session import Public

if TYPE_CHECKING:
    from models.onnx import export
else:
    export = later("models.onnx.export")  # a price that is known needs no graph

SMALLEST_UNIT = from_nano(1)
SMALL, FEW_TEXTS = 4 << 20, 1000  # of a model: bytes of its JSON, and features that are texts
MAX_NAME_CHARACTERS = FILES["model.onnx"][1]  # characters of categories and cut points
MAX_SHARE_OF_FILE = 0.75  # of what a file may take: the rest is for the digits of released numbers, and for metadata


class PublicWarning(UserWarning):
    """Something that public numbers alone say will not go well. It tells nothing about the data."""


def warnings_of(learner: Learner, public: Public, recipe: Recipe) -> list[str]:
    """Return what to tell the person who asks for this recipe, before it is paid for."""
    first = recipe.first
    text = (
        _warn_sums(learner, public, recipe.plan) if first is None else _warn_selection(learner, public, recipe, *first)
    )
    return [text] if text else []


def _warn_selection(learner: Learner, public: Public, recipe: Recipe, epsilon: Decimal, candidates: int) -> str | None:
    price, rivals = float(epsilon), candidates - 1
    advantage = price * public.records / (2 * public.contributions)
    if rivals < 2 or advantage > log(rivals):
        return None
    chance = 1 / (1 + rivals * exp(-advantage))
    least = from_nano(ceil(nano(recipe.unit) * log(rivals) / advantage))
    useful = rounds_within(learner, public, least) if least < public.budget.epsilon else 0
    instead = f"at most {useful} rounds could be of use" if useful else "not even one could be of use"
    return (
        f"rounds={learner.rounds_for(public)}: the noise drowns the signal. With records={public.records} and "
        f"epsilon={public.budget.epsilon}, even a rule that is right on every record would be picked out of "
        f"{rivals + 1} with probability at most {chance:.2g}; {instead}"
    )


def _warn_sums(learner: Learner, public: Public, plan: Plan) -> str | None:
    signal = public.records / public.contributions
    sums = ((release.event.deviation, count) for release, count in plan.runs if release.norm in ("l1", "l2"))
    deviations = signal * sqrt(sum(count / deviation**2 for deviation, count in sums if deviation is not None))
    if deviations == 0 or deviations > 1:
        return None
    return (
        f"rounds={learner.rounds_for(public)}: the noise drowns the signal. With records={public.records} and "
        f"epsilon={public.budget.epsilon}, even if every record moved every sum as far as one can, they would all stay "
        f"within {max(deviations, 0.01):.2g} standard deviations of the noise"
    )


def check_exportable(learner: Learner, public: Public, blank: Ensemble) -> None:
    """Refuse, before anything is spent, a plan whose model could not be exported or stored, whatever comes out.

    `blank`, what its rehearsal released, has as many parts as the real one, all on one rule, where scores are largest;
    its `fullest` takes as much room as any can.
    """
    small, most = _is_small(blank, public.features), blank.largest
    if small and most is not None and most < EXACT:
        return
    problem = f"rounds={learner.rounds_for(public)}: no model of it could be exported"
    try:
        export.to_onnx(blank, {})
    except ModelInvalid as error:
        raise InputError(f"{problem}: {error}") from None
    try:
        _check_room(blank, public.features)
    except ModelInvalid as error:
        fits = _features_that_fit(blank)
        instead = f"its first {fits} features would fit" if fits else "ask for fewer rounds"
        raise InputError(f"{problem}: {error}; {instead}", features=fits) from None


def _is_small(blank: Ensemble, features: tuple[Feature, ...]) -> bool:
    """Return whether it certainly fits its files: exported it takes less than ten times its JSON, for each output, and
    two nodes for each text.
    """
    texts = sum(isinstance(feature, CategoricalFeature) for feature in features)
    return texts <= FEW_TEXTS and len(ensemble_bytes(blank)) * blank.outputs <= SMALL


def _check_room(blank: Ensemble, features: tuple[Feature, ...]) -> None:
    """Raise ModelInvalid where a model of so many parts over these features may be too large for its files. What is
    small enough is not tried.
    """
    if _is_small(blank, features):
        return
    names = (sum(map(len, f.values)) if isinstance(f, CategoricalFeature) else 8 * f.bins for f in features)
    if sum(names) > MAX_NAME_CHARACTERS:  # about as many characters as ensemble.json takes to write them
        raise ModelInvalid("features: their categories and cut points alone are too large")
    full = blank.fullest(features)
    for name, size in (("model.onnx", len(export.to_onnx(full, {}))), ("ensemble.json", len(ensemble_bytes(full)))):
        if size > MAX_SHARE_OF_FILE * FILES[name][1]:
            raise ModelInvalid(f"{name}: may take {size} bytes; at most {int(MAX_SHARE_OF_FILE * FILES[name][1])}")


def _features_that_fit(blank: Ensemble) -> int:
    """Return how many of the first features could be exported; 0 where none could."""
    low, high = 0, len(blank.features)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _check_room(blank, blank.features[:middle])
            low = middle
        except ModelInvalid:
            high = middle
    return low


def rounds_within(learner: Learner, public: Public, unit: Decimal = SMALLEST_UNIT) -> int:
    """Return the largest number of rounds whose plan at `unit` stays within the budget; 0: none."""
    low, high = 0, learner.rounds_for(public) if "rounds" in learner.get_params() else 0
    while high > low:
        middle = (low + high + 1) // 2
        shorter = type(learner)(**{**learner.get_params(), "rounds": middle})
        epsilon = claim(rehearse(shorter, public, unit), public.budget.delta).epsilon
        low, high = (middle, high) if epsilon <= public.budget.epsilon else (low, middle - 1)
    return low


def too_many_rounds(learner: Learner, public: Public) -> InputError | None:
    """Return the error for a plan that this budget cannot carry, naming the largest number of rounds that it can."""
    if "rounds" not in learner.get_params():
        return None
    rounds, budget = learner.rounds_for(public), public.budget
    most = rounds_within(learner, public)
    if most >= rounds:  # something else is wrong with it
        return None
    can = f"it can carry at most {most}" if most else "it cannot carry a single one"
    return InputError(
        f"rounds={rounds}: more than epsilon={budget.epsilon} at delta={budget.delta} can carry; {can}",
        rounds=rounds,
        largest=most,
    )
