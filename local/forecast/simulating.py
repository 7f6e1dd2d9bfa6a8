"""A campaign played on made-up rows: the learners are the real ones, and noise has the law of the real mechanisms, in
floats, for nobody's rows are protected here. It follows from the signed words alone, so that anybody may play it again.

A mean of many reports, and a sum with discrete Gaussian noise, is drawn as what it is told apart from by nothing that a
model shows: normal numbers of the same variance. So a million owners cost what a thousand do: of the made-up ones a
mean is taken, and the noise is that of all.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from local.forecast.made_up import Floats, MadeUp, auroc_of, worth_of_errors
from local.reports.coordinates import Coordinates, embedding_width, whitened_coordinates
from local.reports.definition import Definition
from local.reports.directions import gains
from local.reports.forecast import DIGITS, Forecast
from local.reports.learning import ensemble_of as ensemble_of_direction
from local.reports.question import Question
from local.reports.shared import AGGREGATORS, SharedDefinition
from local.reports.shared_learning import learn_shared
from local.reports.statistics import LEAST_ROWS, own_vectors
from local.rounds.definition import RoundsDefinition
from local.turns.definition import BoostedDefinition
from local.turns.learning import alpha_of, ensemble_of, with_next_voters
from local.turns.lines import Lines, plain_coordinates, radius_for
from local.turns.owned_scores import own_answers
from local.turns.so_far import SoFar
from local.turns.stumps import tests_for
from models.features.features import CategoricalFeature, Feature
from models.forms.additive import AdditiveEnsemble
from models.forms.ensemble import Ensemble
from models.worth.expected_width import normal

if TYPE_CHECKING:
    from local.forecast import rounds
else:
    rounds = later("local.forecast.rounds")  # loads what trains, and owners' programs do without

RUNS = 10
ROWS = 2000  # that are made up for what is learnt, and as many again to look at the model with
OF_A_TURN = 500
WORK = 1 << 22  # numbers of the rows of one run, at most
FEWEST = 100  # rows, however wide they are
MOST_VALUES, MOST_WIDTH = 64, 512  # of a category, and numbers of all features; what is beyond is left out
SOLVED, FEWEST_OWNERS = 10**9, 5  # steps of own regressions, and owners, however long these take
NEAR = Decimal("0.02")  # what logarithms of other machines, rounded otherwise, may come to
Model = Ensemble | None


def forecast_of(definition: Question) -> Forecast:
    """Simulate a campaign, whatever it says of its own forecast."""
    bare = replace(definition, forecast=None)
    name, narrow = bare.digest, narrow_definition(bare)
    worths = [_play(narrow, f"{name} {run}") for run in range(RUNS)]
    metric = "auroc" if definition.classes else "explained"
    mean, spread = (Decimal(str(min(1.0, float(each)))) for each in (np.mean(worths), np.std(worths, ddof=1)))
    return Forecast(metric, mean.quantize(DIGITS), spread.quantize(DIGITS))


def require_worth(definition: Question, least: Decimal) -> None:
    """Raise InputError unless a campaign is forecast to be worth that much, and its signed forecast is what it is
    simulated to here.
    """
    signed = definition.forecast
    if signed is None:
        raise InputError(
            f"forecast: the campaign has none, for an older version opened it; your policy wants {least} (least_worth)"
        )
    if signed.worth < least:
        raise InputError(
            f"forecast: {signed.says}; your policy wants a mean less its spread of at least {least} (least_worth)"
        )
    found = forecast_of(definition)
    if abs(signed.mean - found.mean) > NEAR or abs(signed.spread - found.spread) > NEAR:
        raise InputError(f"forecast: is signed as {signed.says}; simulated here it is {found.says}; do not answer")


def narrow_definition(definition: Question) -> Question:
    """Leave the last values and features out of a definition that is too wide to be simulated within seconds, whoever
    signed it; shares and institutions have bounds of their own.
    """
    if not isinstance(definition, Definition | BoostedDefinition):
        return definition
    features: list[Feature] = []
    for feature in definition.features:
        if isinstance(feature, CategoricalFeature) and len(feature.values) > MOST_VALUES:
            feature = CategoricalFeature(feature.name, feature.values[:MOST_VALUES])
        if sum(map(embedding_width, (*features, feature))) <= MOST_WIDTH:
            features.append(feature)
    narrow = tuple(features)
    if narrow == definition.features:
        return definition
    if isinstance(definition, Definition):
        return replace(definition, features=narrow)
    if not isinstance(definition.basis, Lines):
        return replace(definition, features=narrow, basis=tests_for(narrow, None))
    plain = replace(definition.basis, coordinates=plain_coordinates(narrow))
    return replace(definition, features=narrow, basis=plain)


def _play(definition: Question, name: str) -> float:
    """Return the worth of the model of one run."""
    spans = rounds.spans_of(definition) if isinstance(definition, RoundsDefinition) else ()
    world = MadeUp(definition.features, len(definition.classes), name, spans)
    model = _learn(definition, world)
    codes, answers, labels = world.rows(ROWS // 2, "looked at", None if model is None else model.features)
    if definition.classes:
        return 0.5 if model is None else auroc_of(model.coded_scores(codes), labels, world.classes)
    assert isinstance(model, AdditiveEnsemble)  # whatever learns a number gives one
    assert model.target_range is not None
    low, high = model.target_range
    places = (model.values_of(model.coded_scores(codes)) - low) / (high - low) * 2 - 1
    return worth_of_errors(places - answers[:, 0], answers)


def _learn(definition: Question, world: MadeUp) -> Model:
    match definition:
        case Definition():
            return _at_once(definition, world)
        case BoostedDefinition():
            return _in_turns(definition, world)
        case SharedDefinition():
            return _by_shares(definition, world)
        case RoundsDefinition():
            return rounds.learn(definition, world, ROWS)
    raise InputError(f"campaign={definition.campaign}: is of no kind that this version simulates")


def _rows(definition: Question, most: int) -> int:
    return max(FEWEST, min(most, WORK // definition.row_numbers))


def _owners(asked: Definition | BoostedDefinition, each: int, rows: int) -> int:
    """Return how many owners of so many rows each are made up at most, of so many rows in all."""
    solved = SOLVED // asked.dimension**3 if asked.learner == "local-lr" else rows
    return max(1, min(_rows(asked, rows) // each, max(FEWEST_OWNERS, solved)))


def whiten(features: tuple[Feature, ...], codes: list[NDArray[Any]], most: int) -> Coordinates:
    """Find the coordinates of made-up rows, each turned so that its largest weight is above 0: which way one points is
    left to the machine, and noise is not.
    """
    found = whitened_coordinates(features, codes, most)
    weights, offset = np.array(found.weights, np.int64), np.array(found.offset, np.int64)
    signs = np.sign(weights[np.abs(weights).argmax(axis=0), np.arange(found.size)])
    turned = tuple(tuple(row) for row in (weights * signs).tolist())
    return Coordinates(features, turned, tuple((offset * signs).tolist()))


def noisy_mean(definition: Definition | BoostedDefinition, own: Floats, owners: int, name: str) -> tuple[Floats, float]:
    """Estimate the mean (dimension,) of own vectors as so many reports would, and the deviation of its noise."""
    dimension = own.shape[1]
    gain = float(gains(dimension, definition.candidates, float(definition.epsilon))[definition.favoured - 1])
    deviation = sqrt(max(0.0, 1 / gain**2 - 1) / (owners * dimension))
    return own.mean(axis=0) + deviation * normal(f"{name} noise", dimension), 1 / (gain * sqrt(owners * dimension))


def _at_once(definition: Definition, world: MadeUp) -> Model:
    public, _, _ = world.rows(ROWS, "public")
    coordinates = whiten(definition.features, public, definition.coordinates.size)
    asked, each = replace(definition, coordinates=coordinates), LEAST_ROWS[definition.learner]
    owners = min(asked.owners, _owners(asked, each, 2 * ROWS))
    codes, answers, _ = world.rows(owners * each, "owned")
    own = own_vectors(definition.learner, coordinates.of(codes), answers, np.full(owners, each))
    return ensemble_of_direction(asked, noisy_mean(asked, own, definition.owners, world.name)[0])


def _in_turns(definition: BoostedDefinition, world: MadeUp) -> Model:
    asked, basis = definition, definition.basis
    if definition.public_rows:
        public, _, _ = world.rows(ROWS, "public")
        if isinstance(basis, Lines):
            coordinates = whiten(definition.features, public, basis.coordinates.size)
            asked = replace(definition, basis=Lines(coordinates, basis.own, radius_for(coordinates, public)))
        else:
            asked = replace(definition, basis=tests_for(definition.features, public))
    each, so_far = asked.basis.least_rows, SoFar((), len(definition.classes))
    most = _owners(asked, each, OF_A_TURN * each)
    for turn in range(1, asked.turns + 1):
        if asked.weighs(turn) and not so_far.voters:
            continue
        name, seats = f"{world.name} turn {turn}", asked.asked_in(turn)
        owners = np.arange(min(seats, most))
        codes, answers, _ = world.rows(len(owners) * each, f"turn {turn}")
        own = own_answers(asked, turn, codes, answers, np.full(len(owners), each), so_far, owners)
        if asked.weighs(turn):
            high, low = asked.mechanism_in(turn).weights
            ones = (low + float(own.mean()) * (high - low)) / (high + low)
            ones += sqrt(ones * (1 - ones) / seats) * float(normal(f"{name} noise", 1)[0])
            so_far = so_far.with_alpha(alpha_of(asked, turn, ones))
        else:
            so_far = with_next_voters(asked, so_far, *noisy_mean(asked, own, seats, name))
    return ensemble_of(asked, so_far) if so_far.voters else None


def _by_shares(definition: SharedDefinition, world: MadeUp) -> Model:
    layout, owners = definition.layout, definition.owners
    codes, answers, _ = world.rows(min(owners, _rows(definition, 2 * ROWS)), "owned")
    noise = sqrt(AGGREGATORS) * float(definition.noise_multiplier) * layout.sensitivity
    total = owners * layout.statistic(codes, answers) + noise * normal(f"{world.name} noise", layout.numbers)
    return learn_shared(definition, np.rint(total).astype(np.int64), owners)
