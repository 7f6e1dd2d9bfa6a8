"""Describing a job and rehearsing it: what it would cost, what would be left, what would fit. Spends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accountant.home import Home
from accountant.ledger import model_names
from accountant.ledger.archive import require_open
from accountant.ledger.families.block_rows import require_window
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.left import left, roomiest
from accountant.ledger.families.records import ENTERED, Request
from accountant.ledger.families.refusal import refusal
from accountant.ledger.learner_admissions import ADMITTED_BY
from dpserve_verify.certificates.releases import kinds_of
from dpserve_verify.certificates.vouched import word_of
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import Budget, Relation, check_name, from_nano, nano
from dpserve_verify.privacy.filter import Price
from models.parts.forecast import Forecast
from models.store.standing import Standing
from models.store.versions import champion_of
from training.learners import LEARNERS
from training.learners.choice import choose
from training.learners.expected import Measured, expected, signal_of
from training.learners.job_words import CHOSEN, CLOSES, chosen_to_json, window_to_json
from training.learners.others import OF_OTHERS, others
from training.learners.parameters import learner_of, stored
from training.planning import starts
from training.planning.counted_before import as_counted
from training.planning.first_plan import of_part, require_learnable_size
from training.planning.measured_before import measured_before
from training.planning.price_engine import ENGINE, UNKNOWN, fit, floor, offer, price_key, references, without_labels
from training.requests import AUTO, JobRequest
from training.requests.base import request_fields
from training.rows.partitions.rows import MOST_ROWS, most_rows_of
from training.rows.schema.schema import Schema, schema_of, which_target
from training.session.learner import Learner, Recipe
from training.session.session import Public
from training.tuning.tune import Tuned, tuned_of

MAX_TIMES_LEFT = 2  # of what one more job may ask: beyond, a cheap lower bound of the price refuses as a rule
CARRIED = {field.name for field in request_fields(JobRequest)} - {"target"}  # to the entry, as they were asked for
SAY_TARGET = "which one? Say it with --target NAME (over REST: `target`)"


@dataclass(frozen=True)
class Planned:
    """A job that fits: its request, its recipe (unit, plan, claim), its price in each family. Nothing is spent yet."""

    request: Request
    recipe: Recipe
    costs: tuple[Price, ...]
    dataset: Dataset
    tuning: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    becomes: Standing = Standing.CANDIDATE
    replaces: str | None = None
    expected: Forecast | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what `dpserve plan` prints: the price, what would be left after it, and warnings. Decimals are
        text.
        """
        claimed = self.recipe.claim
        after = self.dataset.with_job(self.costs, claimed)
        return {
            "dataset": self.request.dataset,
            "learner": self.request.learner,
            **chosen_to_json(self.request.parameters),
            **({} if self.request.target is None else {"target": self.request.target}),
            **window_to_json(self.dataset),
            **({"start": start} if (start := self.request.parameters.get(starts.PARAMETER)) else {}),
            "epsilon": decimal_string(self.recipe.claim.epsilon),
            "delta": decimal_string(self.recipe.claim.delta),
            "rounds": len(self.recipe.plan),
            "unit": decimal_string(self.recipe.unit),
            "relation": self.dataset.registration.relation.value,
            "left": {**left(after, claimed.delta).to_json(), "jobs": after.jobs_left(self.costs, claimed)},
            "model": self.request.model,
            "becomes": self.becomes.value,
            "replaces": self.replaces,
            "certificate": None,
            "whole": CLOSES in self.warnings,
            "warnings": list(self.warnings),
            "expected": None if self.expected is None else self.expected.to_json(),
            **({} if self.tuning is None else {"tuning": self.tuning}),
        }


def plan(
    home: Home, asked: JobRequest, by: str | None = None, promotes: bool = True, grown: Dataset | None = None
) -> Planned:
    """Rehearse and price. BudgetRefused where it would not be admitted now, with what would fit. Spends nothing.

    `by`: the analyst, whose quota counts as well, and the model's name must be theirs; `promotes`: or they may promote
    versions of it. Forbidden, with a name that fits, where neither is so. `grown`: the dataset as it would be with a
    block that is still to come; None: as it stands.
    """
    dataset = grown or home.ledger.dataset(asked.dataset, by, None, asked.blocks)
    require_window(dataset, asked.blocks)
    require_open(home.ledger, asked.dataset)
    request, _ = request_of(home, dataset, asked)
    schema = schema_of(home, dataset).question(request.target, request.parameters)
    public = starts.begin(home, public_of(dataset, schema, request.budget), request.learner, request.parameters)
    require_learnable_size(public)
    if (
        asked.tuning is None
        and request.budget.epsilon > MAX_TIMES_LEFT * left(dataset, request.budget.delta).job.epsilon
    ):
        _admit(dataset, request, public, ENGINE.price(floor, *price_key(request), public))
    quote = ENGINE.price(offer, *price_key(request), public)
    recipe = quote.recipe
    kinds_of(recipe.plan)  # what no certificate could put in words is refused while nothing is charged
    costs, takes_whole = _admit(dataset, request, public, recipe)
    word = word_of(recipe.plan, str(request.parameters.get(ADMITTED_BY, "")))
    warnings = (*((CLOSES,) if takes_whole else ()), *quote.warnings, *([f"its price is {word}"] if word else []))
    place: tuple[Standing, str | None] = Standing.CHAMPION, champion_of(home, request.model)
    if by is not None and not model_names.check(home.ledger, request, by, promotes):
        place = Standing.CANDIDATE, None
    hope = None
    if quote.tuning is None and public.start is None:
        there = (dataset.last or 1) - (grown is not None)  # blocks, without the one that is still to come
        with home.ledger.log.sharing():
            known, earlier = as_counted(home, dataset, public), _measured(home, dataset, there, request)
        hope = expected(known, request.learner, earlier)
    return Planned(request, recipe, costs, dataset, quote.tuning, warnings, *place, expected=hope)


def _measured(home: Home, dataset: Dataset, there: int, request: Request) -> list[Measured]:
    """Return what models of the same dataset and target were measured at, with the strength of each. `there`: how many
    blocks have been appended.
    """
    earlier = [*measured_before(home, request)]
    if not earlier:
        return []
    schema, found = schema_of(home, dataset), list[Measured]()
    every = dataset if dataset.last is None else home.ledger.dataset(request.dataset, blocks=(1, there))
    for learnt, ends in earlier:
        first, last = learnt.window or (1, 1)
        then = replace(every, blocks=every.blocks[first - 1 : last]) if dataset.last else dataset
        question = schema.question(learnt.target, learnt.parameters)
        found.append(Measured(signal_of(public_of(then, question, learnt.budget)), *ends))
    return found


def _admit(dataset: Dataset, request: Request, public: Public, recipe: Recipe) -> tuple[tuple[Price, ...], bool]:
    """Return the job's price in each family, and whether it takes the whole total; BudgetRefused where it does not
    fit.
    """
    costs = dataset.costs(recipe.plan)
    takes_whole = dataset.refusing(costs) is not None
    if takes_whole and not dataset.can_close(recipe.claim, costs):
        would_fit = ENGINE.price(fit, *price_key(request), public, dataset, recipe.unit)
        raise refusal(dataset, request, costs, would_fit)
    return costs, takes_whole


def request_of(home: Home, dataset: Dataset, asked: JobRequest) -> tuple[Request, Learner | Tuned]:
    """Return the job as the ledger enters it, and the learner that it asks for; InputError says what is wrong."""
    budget = Budget.of(str(asked.epsilon), str(dataset.delta if asked.delta is None else asked.delta))
    if dataset.registration.remote:
        raise InputError(f"dataset={asked.dataset}: its rows stay with their owners; open a campaign to ask them")
    dataset.check_delta(budget)
    model = check_name("model", asked.dataset if asked.model is None else asked.model)
    target, why = target_of(home, dataset, asked.target), dict[str, str]()
    name, given = asked.learner, asked.parameters
    if asked.public is not None:
        why = {CHOSEN: starts.WHY} if name == AUTO else {}
        name, given = starts.resolve_job(home, asked)
    if asked.attack:
        require_attackable(dataset, name, asked)
    if name in OF_OTHERS:
        if asked.tuning is not None:
            raise InputError(f"learner={name}: learners of others are not tuned privately; leave the grid out")
        given = others().resolve(home, name, given, asked.dataset)
    if name == AUTO:
        schema = schema_of(home, dataset).question(target, given)
        choice = choose(public_of(dataset, schema, budget))
        name, why = choice.learner, {CHOSEN: choice.why}
    learner: Learner | Tuned
    if asked.tuning is not None:
        learner = tuned_of(name, given, asked.tuning, dataset.delta == 0)
        parameters = learner.stored()
    else:
        learner = learner_of(name, given)
        parameters = stored(learner)
    return Request(
        asked.dataset,
        name,
        budget,
        {**parameters, **why},
        model,
        target,
        window=dataset.window,
        made_from=starts.sources_behind(home, name, parameters),
        registered=dataset.seq,
        **{name: getattr(asked, name) for name in ENTERED if name in CARRIED},
    ), learner


def require_attackable(dataset: Dataset, name: str, asked: JobRequest) -> None:
    """Raise InputError where no attack is proved to bound what the job would release."""
    fails = (
        (asked.tuning is not None, "a tuned job", "leave the grid out"),
        (name in OF_OTHERS, "a learner of others", "take one of dpserve's"),
        (dataset.registration.relation is Relation.REPLACE_ONE, "a dataset under replace-one", "leave it out"),
        (dataset.registration.weight is not None, "rows with weights", "leave it out"),
    )
    for holds, what, remedy in fails:
        if holds:
            raise InputError(f"attack: none can be registered with {what}; {remedy}")


def target_of(home: Home, dataset: Dataset, asked: str | None) -> str | None:
    """Return what the request says of its target: nothing where the dataset has one, so that naming it is no other
    request.
    """
    name, several = dataset.registration.name, dataset.registration.targets
    if asked is None:
        if several:
            which_target(f"dataset {name} has {len(several)}, and a model predicts one", several, SAY_TARGET)
        return None
    names = several or schema_of(home, dataset).target_names
    if asked not in names:
        which_target(f"{asked!r:.80} is none of dataset {name}", names, SAY_TARGET)
    return asked if several else None


def public_of(dataset: Dataset, schema: Schema, budget: Budget) -> Public:
    """Return what a job of this budget on that dataset may know before anything is released."""
    registration = dataset.registration
    public = Public.of(schema, registration.relation, budget, dataset.delta == 0, registration.unit.contributions)
    if not registration.cells:  # its rows are packed as declared alone
        public = replace(public, spans=())
    if dataset.blocks:
        public = replace(public, records=dataset.records, most=most_rows_of(dataset) * public.parts)
        if public.most > MOST_ROWS:
            raise InputError(
                f"blocks: there may be {public.most // public.parts} rows in them, and {MOST_ROWS // public.parts} are "
                "learnt from at once"
            )
    if dataset.holdout is None:
        return public
    share = dataset.holdout if dataset.families[0].part else 1 - dataset.holdout
    return of_part(public, share)


def jobs_left(home: Home, dataset: Dataset) -> dict[str, int]:
    """Return for each learner how many jobs at a tenth of the total epsilon still fit by defaults; of several targets
    that it can learn, the dearest's. Of a dataset that has grown: on the block that `left` speaks of.
    """
    dataset = roomiest(dataset)
    priced = [ENGINE.price(references, *without_labels(public)) for public in _references(home, dataset)]
    return _count_jobs(dataset, priced)


def fitting_learners(home: Home, dataset: Dataset, target: str | None) -> list[str]:
    """Return the learners that take a job on this target, or on any where None is said, at a tenth of the total: by
    public numbers alone.
    """
    if dataset.registration.remote:
        return []
    budget = Budget(from_nano(max(1, nano(dataset.budget.epsilon) // 10)), dataset.delta)
    schema = schema_of(home, dataset)
    questions = [schema.question(name) for name in ([target] if target else schema.target_names)]
    public = [public_of(roomiest(dataset), question, budget) for question in questions]
    return [name for name in LEARNERS if any(_takes(name, each) for each in public)]


def _takes(learner: str, public: Public) -> bool:
    asked: Any = LEARNERS[learner]()
    try:
        asked.check(public)
    except InputError:
        return False
    return bool(asked.is_listed_for(public))


def known_jobs_left(home: Home, dataset: Dataset) -> dict[str, int] | None:
    """Return `jobs_left` at once where its prices are known; None else. It changes with every job: the prices do
    not.
    """
    dataset = roomiest(dataset)
    priced = [ENGINE.recall(references, *without_labels(public)) for public in _references(home, dataset)]
    return None if UNKNOWN in priced else _count_jobs(dataset, priced)


def _references(home: Home, dataset: Dataset) -> list[Public]:
    """Return what such jobs may know, for each target."""
    if dataset.registration.remote:
        return []
    budget = Budget(from_nano(max(1, nano(dataset.budget.epsilon) // 10)), dataset.delta)
    schema = schema_of(home, dataset)
    return [public_of(dataset, schema.question(name), budget) for name in schema.target_names]


def _count_jobs(dataset: Dataset, priced: Sequence[Mapping[str, Recipe]]) -> dict[str, int]:
    return {
        name: min(
            dataset.jobs_left(dataset.costs(recipes[name].plan), recipes[name].claim)
            for recipes in priced
            if name in recipes
        )
        for name in LEARNERS
        if any(name in recipes for recipes in priced)
    }
