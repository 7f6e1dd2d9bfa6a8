"""From a request to a signed statement of worth: plan, reserve, start, play, commit, sign, enter. As a job that trains.

`evaluations/<number>/` holds the statement and its proof. The same request again is answered by the statement that
stands, for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Any

from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger import evaluations
from accountant.ledger.evaluations import certified_of
from accountant.ledger.families.block_rows import require_kept
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.job_kinds import Evaluation, kind_of
from accountant.ledger.families.left import left
from accountant.ledger.families.records import HOLDOUT, Registration, Request
from dpserve_verify.certificates.certificate import Certificate
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.made_from import MODEL, PROFILE
from models.features.features import Feature
from models.forms.ensemble import Ensemble
from models.profile.figures import laplace_variance
from models.store.bundle import ModelStore
from models.store.loading import VerifiedModel, load_of_home
from models.worth.cover import COVER_BINS, CoverLayout, choose_cover_bins
from models.worth.expected_width import Measurement
from models.worth.layout import BIN_CHOICES, BINS, Layout, choose_bins
from models.worth.scored import ScoredLayout
from models.worth.stated import by_group, layout_of, paired_layout_of
from training.datasets.datasets import ONE_ROW, takes_one_row
from training.measuring.planning import TRAINING, Planned, open_account, require_admitted
from training.measuring.worth.histogram import CellCounts, Evaluator, PairedCounts
from training.planning.counted_before import as_counted
from training.planning.plans import public_of
from training.requests import EvaluationRequest
from training.rows.packed.cells import declared_ranges, tables
from training.rows.schema.schema import Schema, schema_of
from training.session.session import Public, sensitivity_of

NAME = "evaluation"  # stands in the place of a learner
MOST_CELLS = 1 << 14  # of all groups together


@dataclass(frozen=True)
class PlannedWorth(Planned):
    """An evaluation, and what is public of how wide its intervals will be."""

    measurement: Measurement

    def bought(self) -> dict[str, Any]:
        """Return what is measured, and how exactly."""
        return {
            "model": self.request.model,
            "against": self.request.kind.to_json().get("against"),
            "group": self.request.parameters.get("group"),
            "scores": bool(self.request.parameters.get("scores")),
            "cover": bool(self.request.parameters.get("cover")),
            "contributions": self.measurement.contributions,
            "expected": None if self.known is not None else self.measurement.forecast().to_json(),
        }


def plan(home: Home, asked: EvaluationRequest, by: str | None = None) -> PlannedWorth:
    """Rehearse and price. BudgetRefused where it would not be admitted now, with what would fit. Spends nothing."""
    models = [open_model(home, name) for name in (asked.model, asked.against) if name is not None]
    certificates = [model.certificate for model in models]
    if len({certificate.issued for certificate in certificates}) < len(models):
        raise InputError(f"against={asked.against}: is the model itself; name another version, or another model")
    part = _part(home.ledger.dataset(asked.dataset), certificates, asked.part)
    dataset, budget, schema = open_account(home, asked, part, by)
    (target,) = {check_fits(model.ensemble, schema, dataset.registration) for model in models}
    how = _how(asked, models[0].ensemble)
    if asked.cover:
        require_coverable(models[0], schema, dataset, part, asked.group)
    public = public_of(dataset, schema.question(target), budget)
    known = as_counted(home, dataset, public)
    groups = 1 if asked.group is None else schema.group(asked.group).bins
    how |= bins_for(public, groups, asked.scores and asked.against is None, asked.cover)
    if has_one_row(dataset):
        how["rows"], public, known = ONE_ROW, of_one_row(public), of_one_row(known)
    evaluator = evaluator_of([model.ensemble for model in models], schema, how)
    if evaluator.query.size > MOST_CELLS:
        what = "group" if asked.group is not None else "scores"
        raise InputError(f"{what}: {evaluator.query.size} cells, and a statement has room for {MOST_CELLS}")
    request = Request(
        asked.dataset,
        NAME,
        budget,
        {"cells": evaluator.query.size, **how},
        certificates[0].model,
        target if dataset.registration.targets else None,
        Evaluation(*(certificate.issued for certificate in certificates)),
        part,
        blocks=asked.blocks,
        window=dataset.window,
        registered=dataset.seq,
    )
    recipe = evaluator.recipe(public)
    earlier = evaluations.find_same(home.ledger.log.database, request, _in_other_bins(request, models, schema))
    if earlier is None:
        require_kept(dataset, asked.blocks)
        require_admitted(dataset, request, recipe, _smaller(dataset, request))
    return PlannedWorth(request, recipe, dataset, earlier, _measurement(evaluator, public, known, dataset))


def _how(asked: EvaluationRequest, ensemble: Ensemble) -> dict[str, str | bool | int]:
    """Return what of the request says what is counted. InputError where that does not go together."""
    if sum([asked.group is not None or asked.cover, asked.against is not None, asked.scores]) > 1:
        raise InputError(
            "group, against, scores, cover: one at a time, and cover with group; each is an evaluation by itself"
        )
    if asked.scores and len(ensemble.classes) < 3:
        raise InputError("scores: for three or more classes; leave it out, of two classes or a number all is counted")
    how: dict[str, str | bool | int] = {} if asked.group is None else {"group": asked.group}
    return how | ({"scores": True} if asked.scores else {}) | ({"cover": True} if asked.cover else {})


def require_coverable(
    model: VerifiedModel, schema: Schema, dataset: Dataset, part: str | None, group: str | None
) -> None:
    """Raise InputError where nothing can be promised of how answers cover: the rows and those to come must be alike,
    each of a person of its own and none learnt from, and a prediction must know the group.
    """
    about, certificate = dataset.registration, model.certificate
    if seen_by_bins(certificate, dataset, part or TRAINING) or (part != HOLDOUT and learnt_from(certificate, dataset)):
        raise InputError(
            "cover: the model learnt from these rows, whose errors are smaller than those of others; leave --part out, "
            "or ask on a dataset of other people"
        )
    if about.parts > 1 or (about.unit.contributions > 1 and not has_one_row(dataset)):
        raise InputError(
            f"cover: rows of dataset {about.name} have weights, or a person has several that are all read, so that "
            "they are not drawn as those to come; ask on a dataset with one row of each person, without weights"
        )
    if group is not None:
        wanted = schema.group(group)
        named = {feature.name: feature for feature in model.ensemble.features}
        if group not in named or named[group].to_json()["type"] != wanted.to_json()["type"]:
            raise InputError(
                f"group={group}: must be a feature that the model reads, of the same type, so that a prediction knows "
                f"its group; {wanted.name} is none. Leave --group out: the answers then cover in all groups together"
            )


def bins_for(public: Public, groups: int = 1, scores: bool = False, cover: bool = False) -> dict[str, int]:
    """Return `bins`, where noise would drown as many as there are usually; nothing where it would not, nor of a model
    whose probabilities are not counted. `public`: of all rows, as if each person had as many as they may, so that one
    row of each is counted in no more bins than all.
    """
    classes = len(public.classes or ())
    signal = public.records * float(public.budget.epsilon) / public.contributions
    if cover:
        return {"bins": choose_cover_bins(signal / groups)}
    if classes != 2 and not scores:
        return {}
    bins = choose_bins(signal / groups / (3 * classes if scores else 1))
    return {} if bins == BINS else {"bins": bins}


def _in_other_bins(request: Request, models: Sequence[VerifiedModel], schema: Schema) -> list[Request]:
    """Return the same question with the probability counted in other bins, or of all rows: who asked it so has its
    answer already.
    """
    others = []
    choices = COVER_BINS if request.parameters.get("cover") else BIN_CHOICES
    for bins, rows in product(choices, {None, request.parameters.get("rows")}):
        how = {key: value for key, value in request.parameters.items() if key not in ("bins", "cells", "rows")}
        how |= ({} if rows is None else {"rows": rows}) | ({} if bins == BINS else {"bins": bins})
        size = evaluator_of([model.ensemble for model in models], schema, how).query.size
        others.append(replace(request, parameters={"cells": size, **how}))
    return others


def has_one_row(dataset: Dataset) -> bool:
    """Return whether one row of each person is measured: where a column names people who may have several, which of
    them is the first was written down, and no total bounds a person over several blocks by another rule.

    It is never worse: of n rows there are at least n / m people, so that noise of 1 / m moves a figure by no more; and
    as an interval takes the m rows of a person for one, they tell no more than one does.
    """
    return dataset.registration.firsts and dataset.person is None


def of_one_row(public: Public) -> Public:
    """Return what is public where one row of each person is read: about how many people there are, between one row to
    each and as many as one may have.
    """
    return replace(public, contributions=1, records=max(1, round(public.records / public.contributions**0.5)))


def by_one_row(dataset: Dataset, request: Request) -> Dataset:
    """Return the dataset as a job reads it: of one row to a person, where it reads the first of each."""
    if not takes_one_row(request):
        return dataset
    about = dataset.registration
    return replace(dataset, registration=replace(about, unit=replace(about.unit, contributions=1)))


def _measurement(evaluator: Evaluator, public: Public, known: Public, dataset: Dataset) -> Measurement:
    layout = evaluator.query.layout
    sensitivity = sensitivity_of(evaluator.query, public) // public.parts
    return Measurement(
        layout,
        known.records,
        public.contributions,
        float(public.budget.epsilon),
        partial(laplace_variance, sensitivity=sensitivity),
        known.prevalence,
        dataset.registration.unit.column is not None,
    )


def _smaller(dataset: Dataset, request: Request) -> Iterator[Budget]:
    """Yield the budget that is left, if any is."""
    most = left(dataset, Decimal(0)).job.epsilon  # the noise is pure, whatever delta was asked for
    if most:
        yield Budget(most, request.budget.delta)


def plan_following(
    home: Home, training: Request, epsilon: str | float | Decimal, by: str, grown: Dataset | None = None
) -> PlannedWorth:
    """Plan the evaluation of the model that a job will make, on the rows that its dataset keeps aside. It is reserved
    together with the job and gets the job's number then. Raises as `plan`. `grown`: what is kept aside of a dataset, as
    it would be with a block that is still to come; None: as it stands.
    """
    if home.ledger.dataset(training.dataset).holdout is None:
        raise InputError(
            f"evaluate: dataset {training.dataset} keeps no rows aside, which is declared when a family is founded "
            "(dataset register --holdout 0.2). Train, then evaluate on a dataset of other people"
        )
    dataset = grown or home.ledger.dataset(training.dataset, by, HOLDOUT, training.blocks)
    question = schema_of(home, dataset).question(training.target)
    budget = Budget.of(str(epsilon), "0")
    public = public_of(dataset, question, budget)
    known = as_counted(home, dataset, public)
    how: dict[str, int | str] = {**bins_for(public)}
    if has_one_row(dataset):
        how["rows"], public, known = ONE_ROW, of_one_row(public), of_one_row(known)
    # How many cells, whatever the scores mean.
    layout = Layout(tuple(question.classes or ()), 1.0, question.target_range, bins=int(how.get("bins", BINS)))
    request = Request(
        training.dataset, NAME, budget, {"cells": layout.size, **how}, training.model, training.target, Evaluation(0),
        HOLDOUT, blocks=training.blocks, window=dataset.window, registered=dataset.seq,
    )  # fmt: skip
    evaluator = Evaluator(CellCounts(None, layout))
    recipe = evaluator.recipe(public)
    require_admitted(dataset, request, recipe, _smaller(dataset, request))
    return PlannedWorth(request, recipe, dataset, None, _measurement(evaluator, public, known, dataset))


def price_following(home: Home, training: Request, epsilon: str | float | Decimal | None, by: str) -> dict[str, Any]:
    """Return `evaluation`, the price of the evaluation that follows a job, where one is asked for; raises as `plan`."""
    return {} if epsilon is None else {"evaluation": plan_following(home, training, epsilon, by).to_json()}


def evaluator_of(ensembles: Sequence[Ensemble], schema: Schema, how: Mapping[str, Any]) -> Evaluator:
    """Return what measures a model, or compares it with another one. `how`: a request's parameters, among them the
    `group` by which it is measured, or whether its `scores`, or how it covers, are counted, and in how many `bins`.
    """
    plain = layout_of(ensembles[0], int(how.get("bins", BINS)))
    layout = CoverLayout(plain) if how.get("cover") else plain
    if how.get("group") is not None:
        return Evaluator(CellCounts(ensembles[0], by_group(layout, schema.group(str(how["group"])))))
    if how.get("scores"):
        return Evaluator(CellCounts(ensembles[0], ScoredLayout(plain)))
    if len(ensembles) == 1:
        return Evaluator(CellCounts(ensembles[0], layout, str(how.get("noise", "l1"))))
    first, second = ensembles
    return Evaluator(PairedCounts((first, second), paired_layout_of(first, second)))


def is_early(home: Home, seq: int) -> bool:
    """Return whether a job evaluates a model that is still to be made, by the job that it was reserved with."""
    jobs = kind_of(home.ledger.reservation(seq).value).models
    with home.ledger.log.database.reading() as connection:
        return any(certified_of(connection, job) is None for job in jobs)


def measured_models(home: Home, request: Request) -> list[VerifiedModel]:
    """Return the model that an evaluation measures, and the one that it is compared with, if one is. InputError where
    one is not in the home any more; raises as `load_of_home`.
    """
    jobs = request.kind.models
    with home.ledger.log.database.reading() as connection:
        entries = [certified_of(connection, job) for job in jobs]
    if None in entries:
        raise WrongState(f"job {jobs[0]}: has made no model yet, which is to be evaluated")
    issued = [entry for entry in entries if entry is not None]
    return [certified_version(home, home.ledger.log.entry(entry).value["name"], entry) for entry in issued]


def open_model(home: Home, name: str) -> VerifiedModel:
    """Return a model of the home, verified. UnknownName, or VerificationError."""
    folder = ModelStore(home.models).resolve(name)
    return load_of_home(home, folder, folder.parent.name)


def certified_version(home: Home, name: str, issued: int) -> VerifiedModel:
    """Return the version of a model that this entry certifies. InputError where it is not in the home any more."""
    store = ModelStore(home.models)
    for version in reversed(store.versions(name)):
        verified = open_model(home, f"{name}@{version}")
        if verified.certificate.issued == issued:
            return verified
    raise InputError(f"model={name}: the version of entry {issued} is not in this home")


def _part(dataset: Dataset, certificates: Sequence[Certificate], asked: str | None) -> str | None:
    """Return the part to evaluate on: HOLDOUT, or None for the rows that learners read. InputError where it cannot
    be.
    """
    name, has_holdout = dataset.registration.name, dataset.holdout is not None
    if asked == TRAINING:
        return None
    if has_holdout:
        return HOLDOUT
    if asked == HOLDOUT or any(learnt_from(certificate, dataset) for certificate in certificates):
        raise InputError(
            f"dataset={name}: keeps no rows aside, and a model may have learnt from any of them. That is declared when "
            "a family is founded (dataset register --holdout 0.2), never afterwards, for models were trained before. "
            "Evaluate on a dataset of other people, or ask with --part training: the statement is marked as such"
        )
    return None


def learnt_from(certificate: Certificate, dataset: Dataset) -> bool:
    """Return whether the model, or one that it was made from, was learnt from rows of one of the dataset's families:
    all are learnt from the part that is not kept aside.
    """
    form = certificate.form.dataset
    identities = {form.family, *(each.family for each in form.families or ())}
    identities.update(*(source.families for source in form.made_from or () if source.kind == MODEL))
    return not identities.isdisjoint(dataset.identities)


def seen_by_bins(certificate: Certificate, dataset: Dataset, part: str) -> list[int]:
    """List the profiles, by entry, that the model's bins, or what it began from, follow from and that counted rows of
    this part of one of the dataset's families.
    """
    return [
        source.entry
        for source in certificate.form.dataset.made_from or ()
        if source.kind == PROFILE
        and not set(source.families).isdisjoint(dataset.identities)
        and (source.part == HOLDOUT) == (part == HOLDOUT)
    ]


def check_fits(ensemble: Ensemble, schema: Schema, about: Registration) -> str:
    """Return the model's target, where the dataset asks for it as the model answers it, of features in whose bins its
    rows stand, as declared or by their fine cells; else InputError says what differs.
    """
    name = about.name
    if ensemble.target not in schema.target_names:
        raise InputError(f"model: predicts {ensemble.target}, and dataset {name} has {list(schema.target_names)}")
    question = schema.question(ensemble.target)
    if tuple(question.classes or ()) != tuple(ensemble.classes) or question.target_range != ensemble.target_range:
        raise InputError(f"model: {ensemble.target} has other classes, or another range, than in dataset {name}")
    spans = declared_ranges(question.features, question.ends) if about.cells else (None,) * len(question.features)

    def stand(*features: Feature) -> bool:
        try:
            return bool(tables(question.features, spans, features))
        except InputError:
            return False

    if not stand(*ensemble.features):
        differ = sorted(feature.name for feature in ensemble.features if not stand(feature))
        raise InputError(
            f"model: reads features that dataset {name} has otherwise: {differ or 'in another order'}; a model is "
            "evaluated on rows of the schema that it was trained with"
        )
    return ensemble.target
