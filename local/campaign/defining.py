"""What a campaign will ask of every owner, from what who opens it says: the schema, public rows, and public rules."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.job_kinds import TRAINING, Evaluation, JobKind, Profile
from accountant.ledger.families.records import HOLDOUT, Request
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decode
from dpserve_verify.privacy.budget import Budget
from local.campaign.questions import LEARNERS
from local.forecast.simulating import forecast_of
from local.reports.definition import Definition
from local.reports.directions import best_favoured
from local.reports.groups import Groups
from local.reports.learning import CANDIDATES, coordinates_for, favoured_for
from local.reports.question import Question
from local.reports.shared import SHARED_LEARNERS, Aggregator, SharedDefinition, aggregator_from_json, multiplier_for
from local.reports.shared_learning import groups_for
from local.rounds import playing
from local.rounds.definition import EVALUATION, PATIENCE, PROFILE, ROUND_ASKED, ROUND_LEARNERS, RoundsDefinition
from local.turns.definition import BOOSTED_LEARNERS, OWN, SEATS, BoostedDefinition
from local.turns.lines import Lines, plain_coordinates, radius_for
from local.turns.stumps import Stumps, tests_for
from models.features.features import Feature, encode_columns
from models.forms.registry import ensemble_bytes
from training.jobs.draw_journal import code
from training.measuring.planning import ALL
from training.measuring.worth.evaluate import bins_for, check_fits, open_model
from training.requests import AUTO
from training.rows.schema.schema import Schema, registered_schema, schema_of
from training.rows.tables.row_files import column_types, read_columns

MOST_MODEL = 300_000  # bytes
ROUNDS = {"local-stump": 16, "local-ncc": 8, "local-lr": 4}  # where nobody says how many; less where owners are few


@dataclass(frozen=True)
class CampaignRequest:
    """What opens a campaign.

    name, model: of the campaign, and of its model (None: the campaign's name).
    population: whose owners are asked. owners: how many may answer. least: below so many nothing is learnt.
    learner, epsilon: what is learnt, and what a report costs its owner.
    public_rows: of reports, rows without labels.
    rounds: of turns, how many base learners at most; None: by the public rule.
    delta, aggregators, groups: of shares, what one costs beside epsilon, the public files of the two aggregators, and
        how many groups a feature has at most; None: by the public rule.
    settings, patience: of institutions, the learner's parameters, and seconds that a round waits for one of them.
    although_noise: open it though its forecast is no better than guessing.
    part: of an evaluation, whose `model` is the one that is measured, the rows that each institution counts.
    """

    name: str
    population: str
    learner: str
    epsilon: str
    owners: int
    public_rows: Path | None = None
    least: int | None = None
    model: str | None = None
    delta: str = "0"
    aggregators: tuple[Path, ...] = ()
    groups: int | None = None
    rounds: int | None = None
    settings: tuple[tuple[str, str], ...] = ()
    patience: int | None = None
    although_noise: bool = False
    part: str = HOLDOUT


def learner_for(dataset: Dataset, named: str | None, evaluate: str | None, profile: bool) -> str:
    """Return what a population is asked by: the learner that is named, a count that institutions are asked for, else
    the usual learner. InputError where several are given.
    """
    if (named is not None) + (evaluate is not None) + profile > 1:
        raise InputError("learner, evaluate, profile: one at a time")
    if named is not None or evaluate is not None or profile:
        return named or (PROFILE if profile else EVALUATION)
    if dataset.registration.institutions is not None:
        return AUTO
    return SHARED_LEARNERS[0] if dataset.delta else "local-linear"


def define(home: Home, dataset: Dataset, asked: CampaignRequest) -> Question:
    """Define what all owners will be asked, with what that is forecast to be worth. Spends nothing. InputError where
    learner, population and what was given do not go together, or where the forecast is no better than guessing and
    `although_noise` does not say so.
    """
    question = _define(home, dataset, asked)
    if isinstance(question, RoundsDefinition) and question.is_counting:
        return question  # no model comes of it
    forecast = forecast_of(question)
    if not forecast.is_better and not asked.although_noise:
        raise InputError(
            f"forecast: {forecast.says}; ask more owners, for more epsilon, about fewer features or in fewer rounds, "
            "or open it with --although-noise"
        )
    if forecast.is_better and asked.although_noise:
        raise InputError(f"although_noise: the forecast is {forecast.says}; open it without --although-noise")
    return replace(question, forecast=replace(forecast, although_noise=asked.although_noise))


def _define(home: Home, dataset: Dataset, asked: CampaignRequest) -> Question:
    if dataset.registration.institutions is not None:
        return _define_rounds(home, dataset, asked, dataset.registration.institutions)
    if asked.learner not in LEARNERS:
        raise InputError(f"learner={asked.learner!r:.60}: owners are asked by one of {', '.join(LEARNERS)}")
    shared, schema = asked.learner in SHARED_LEARNERS, schema_of(home, dataset)
    if shared != bool(dataset.delta):
        kind = "reports, for its delta is 0" if shared else "shares, for its delta is above 0"
        raise InputError(f"population={asked.population}: is asked for {kind}; {asked.learner} is not")
    if not 1 <= asked.owners <= dataset.registration.records:
        raise InputError(f"owners={asked.owners}: the population has {dataset.registration.records}")
    if shared:
        return _define_shares(dataset, schema, asked)
    if schema.classes is None:
        raise InputError(f"target={schema.target}: is a number; {asked.learner} tells classes apart")
    if asked.aggregators:
        raise InputError(f"aggregators: {asked.learner} needs none")
    in_turns = asked.learner in BOOSTED_LEARNERS and (asked.learner != "local-lr" or asked.rounds is not None)
    question = (_define_turns if in_turns else _define_reports)(home, schema, asked)
    question.check_affordable()
    return question


def _seed(home: Home, asked: CampaignRequest, digest: str) -> str:
    parts = [b"campaign", asked.name.encode(), digest.encode(), str(home.ledger.log.size()).encode()]
    return home.keys.commitment(parts)


def _define_reports(home: Home, schema: Schema, asked: CampaignRequest) -> Definition:
    if asked.public_rows is None:
        raise InputError(f"public_rows: {asked.learner} needs rows without labels")
    if asked.rounds is not None:
        raise InputError(f"rounds: {asked.learner} asks all owners at once")
    epsilon = Budget.of(asked.epsilon, "0").epsilon
    codes, digest = public_codes(schema, asked.public_rows)
    coordinates = coordinates_for(schema.features, codes, asked.owners, float(epsilon))
    return Definition(
        asked.name, asked.population, asked.model or asked.name, asked.learner, epsilon, asked.owners,
        asked.least or asked.owners, schema.target, tuple(map(str, schema.classes or ())), schema.features, coordinates,
        digest, _seed(home, asked, digest), CANDIDATES,
        favoured_for(coordinates, float(epsilon), len(schema.classes or ())),
    )  # fmt: skip


def _define_turns(home: Home, schema: Schema, asked: CampaignRequest) -> BoostedDefinition:
    epsilon = Budget.of(asked.epsilon, "0").epsilon
    codes, digest = (None, "") if asked.public_rows is None else public_codes(schema, asked.public_rows)
    rounds = max(1, min(ROUNDS[asked.learner], asked.owners // SEATS)) if asked.rounds is None else asked.rounds
    basis = basis_for(asked.learner, schema.features, codes, asked.owners // max(1, rounds), float(epsilon))
    return BoostedDefinition(
        asked.name, asked.population, asked.model or asked.name, asked.learner, epsilon, asked.owners,
        asked.least or asked.owners, schema.target, tuple(map(str, schema.classes or ())), schema.features, basis,
        digest, _seed(home, asked, digest), rounds, CANDIDATES,
        best_favoured(basis.dimension(len(schema.classes or ()) - 1), CANDIDATES, float(epsilon)),
    )  # fmt: skip


def basis_for(
    learner: str, features: tuple[Feature, ...], codes: list[Any] | None, owners: int, epsilon: float
) -> Stumps | Lines:
    """Choose what owners are asked about, so many in each round, by a public rule of the codes of public rows, if there
    are any, else of the schema alone.
    """
    if learner not in OWN:
        return tests_for(features, codes)
    coordinates = plain_coordinates(features) if codes is None else coordinates_for(features, codes, owners, epsilon)
    return Lines(coordinates, OWN[learner], radius_for(coordinates, codes))


def _define_shares(dataset: Dataset, schema: Schema, asked: CampaignRequest) -> SharedDefinition:
    budget = Budget.of(asked.epsilon, asked.delta)
    if asked.public_rows is not None or asked.rounds is not None:
        raise InputError("public_rows, rounds: shares have neither; the schema alone is public")
    if budget.delta > dataset.delta:
        raise InputError(f"delta={budget.delta}: population {asked.population} has {dataset.delta} in all")
    groups = asked.groups or groups_for(asked.owners, float(budget.epsilon))
    return SharedDefinition(
        asked.name, asked.population, asked.model or asked.name, asked.learner, budget.epsilon, asked.owners,
        asked.least or asked.owners, schema.target, tuple(map(str, schema.classes or ())), schema.features,
        budget.delta, groups, multiplier_for(Groups(schema.features, groups), budget), schema.target_range,
        tuple(map(read_aggregator, asked.aggregators)),
    )  # fmt: skip


def _define_rounds(home: Home, dataset: Dataset, asked: CampaignRequest, institutions: int) -> RoundsDefinition:
    budget = Budget.of(asked.epsilon, asked.delta)
    if asked.learner not in (AUTO, *ROUND_ASKED):
        raise InputError(
            f"learner={asked.learner}: is not asked of institutions; {' and '.join(ROUND_LEARNERS)} ask for sums "
            "alone, to which noise can be added by who sees shares of them; auto is one of these"
        )
    if asked.public_rows is not None or asked.rounds is not None or asked.groups is not None:
        raise InputError("public_rows, rounds, groups: institutions are asked what the learner's plan says")
    if not 1 <= asked.owners <= institutions:
        raise InputError(f"owners={asked.owners}: the population has {institutions} institutions")
    if budget.delta > dataset.delta:
        raise InputError(f"delta={budget.delta}: population {asked.population} has {dataset.delta} in all")
    unit, raw = dataset.registration.unit, registered_schema(home, dataset)
    schema = schema_of(home, dataset)
    given = _settings_for(home, dataset, schema, asked, budget)
    found = playing.rehearse(schema, asked.learner, given, budget, unit.contributions)
    return RoundsDefinition(
        asked.name, asked.population, asked.model or asked.name, found.learner, budget.epsilon, asked.owners,
        asked.least or asked.owners, schema.target, tuple(map(str, schema.classes or ())), schema.features,
        budget.delta, raw.decode(), unit, found.chosen, found.settings, found.recipe.plan, found.recipe.unit,
        found.numbers, asked.patience or PATIENCE, code(), tuple(map(read_aggregator, asked.aggregators)),
    )  # fmt: skip


def _settings_for(
    home: Home, dataset: Dataset, schema: Schema, asked: CampaignRequest, budget: Budget
) -> dict[str, Any]:
    """Return the parameters of a learner; of an evaluation the model and the rows that are counted, of a profile its
    columns, which are all.
    """
    if asked.learner not in (EVALUATION, PROFILE):
        return dict(asked.settings)
    if asked.settings:
        raise InputError(f"settings: {asked.learner} has none")
    if asked.learner == PROFILE:
        return {"columns": "", "pairs": "", "noise": "l2"}
    model = open_model(home, asked.model or "")
    check_fits(model.ensemble, schema, replace(dataset.registration, cells=True))
    public = playing.public_of(schema, budget, dataset.registration.unit.contributions)
    text = ensemble_bytes(model.ensemble).decode()
    if len(text) > MOST_MODEL:
        raise InputError(f"model={asked.model}: {len(text)} bytes; at most {MOST_MODEL} stand in a signed definition")
    if asked.part not in (HOLDOUT, ALL):
        raise InputError(f"part={asked.part!r:.40}: must be {HOLDOUT} or {ALL}")
    about = {"ensemble": text, "evaluates": model.certificate.issued, "part": asked.part}
    return {**about, "noise": "l2", **bins_for(public)}


def request_for(definition: Question) -> Request:
    """Return the job of a campaign: it makes a model, or ends in a statement about counts."""
    kind: JobKind = TRAINING
    budget, model = Budget(definition.epsilon, definition.delta), definition.model
    if isinstance(definition, RoundsDefinition) and definition.learner == EVALUATION:
        kind = Evaluation(int(definition.given["evaluates"]))
    elif isinstance(definition, RoundsDefinition) and definition.learner == PROFILE:
        kind, model = Profile(), ""
    return Request(definition.population, definition.learner, budget, definition.parameters, model, kind=kind)


def read_aggregator(path: Path) -> Aggregator:
    """Read the public file of one, as `dpserve aggregator init` writes it. InputError where it is none."""
    try:
        return aggregator_from_json(decode(path.read_bytes()))
    except OSError:
        raise InputError(f"aggregator={path.name}: cannot be read") from None


def public_codes(schema: Schema, path: Path) -> tuple[list[Any], str]:
    """Return the codes (features, n) of unlabelled public rows, and the file's sha256. InputError where it has the
    target.
    """
    if schema.target in column_types(path, schema.form):
        raise InputError(f"public_rows={path.name}: has the target {schema.target!r}; public rows are without labels")
    parts = [encode_columns(schema.features, columns) for columns in read_columns(path, schema.features, schema)]
    codes = [np.concatenate(batches) for batches in zip(*parts, strict=True)]
    if not codes or len(codes[0]) < 2:
        raise InputError(f"public_rows={path.name}: must have at least two rows")
    return codes, hashlib.sha256(path.read_bytes()).hexdigest()
