"""Fits that scikit-learn is about to make one after the other, in a search or a cross-validation, and what they cost in
all: an account asks before the first of them begins.

Only scikit-learn knows what it is about to do, so the calls that led to a clone are looked through, as
`training.learners.base.pipelines` does. A convenience: what is not seen here is charged fit by fit, and refused by the
one that does not fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from types import FrameType
from typing import Any

from accountant.system.lazy_import import load
from dpserve_verify.privacy.budget import Relation
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.filter import Price
from training.calibration.would_fit import would_fit
from training.learners.base.pipelines import check_steps
from training.learners.base.private_learner import PrivateLearner
from training.rows.tables.selections import Selection, row_words

CALLS = {
    "sklearn.model_selection._search": ("evaluate_candidates",),
    "sklearn.model_selection._validation": ("cross_validate", "cross_val_predict", "validation_curve"),
}


@dataclass(frozen=True)
class Call:
    """A call of scikit-learn that is making a clone. `local`: its variables. `mark`: an object of this call alone."""

    name: str
    local: Mapping[str, Any]

    @property
    def mark(self) -> object:
        """Return what tells it from every other call."""
        return self.local["candidate_params" if "candidate_params" in self.local else "parallel"]

    def fits(self) -> FitsAhead:
        """Return what it is about to fit."""
        local, search = self.local, self.local.get("self")
        splits = list(local["cv"].split(local["X"], local["y"], **local["routed_params"].splitter.split))
        if search is not None:
            who, estimator, candidates = type(search).__name__, search.estimator, local["candidate_params"]
        else:
            who, estimator, candidates = self.name, local["estimator"], [{}]
        if "param_range" in local:
            candidates = [{local["param_name"]: value} for value in local["param_range"]]
        jobs = local["n_jobs"] if search is None else search.n_jobs
        again = search is not None and bool(search.refit)
        return FitsAhead(who, estimator, candidates, local["X"], local["y"], splits, again, jobs)


def call_that_clones() -> Call | None:
    """Return the innermost call that fits clones by a plan of its own; None where none of those known here led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in CALLS.get(frame.f_globals.get("__name__", ""), ()):
            return Call(frame.f_code.co_name, frame.f_locals)
        frame = frame.f_back
    return None


@dataclass(frozen=True)
class FitsAhead:
    """What one call is about to fit.

    estimator: whose clones are fitted to (X, y), with each of the candidates' parameters, to the training rows of each
    of `splits`; `again`: then once more to all rows, with the parameters that did best. jobs: how many at once, as its
    user said it.
    """

    who: str
    estimator: Any
    candidates: Sequence[Mapping[str, Any]]
    X: Any
    y: Any
    splits: Sequence[Any]
    again: bool
    jobs: int | None

    @property
    def count(self) -> int:
        """Return how many fits there are."""
        return len(self.candidates) * len(self.splits) + self.again

    @property
    def words(self) -> str:
        """Say which fits there are."""
        several = f"{len(self.candidates)} candidates x " if len(self.candidates) > 1 else ""
        last = ", and the best once more" if self.again else ""
        return f"{self.who}: {self.count} fits ({several}{len(self.splits)} folds{last})"

    @property
    def leaves_this_process(self) -> bool:
        """Return whether they are made in other processes."""
        joblib = load("joblib")
        backend, _ = joblib.parallel.get_active_backend()
        return joblib.effective_n_jobs(self.jobs) > 1 and not getattr(backend, "uses_threads", False)

    def selections(self) -> Iterator[Selection]:
        """Yield which rows each fit gets."""
        words = row_words(self.X)
        yield from (Selection.of(words[train]) for train, _ in self.splits)
        if self.again:
            yield Selection.of(words)

    def price(self, price_of: Callable[[Plan], Price]) -> Price | None:
        """Return what they cost together, of the last one the most that it may cost; None where the estimator is no
        learner, and no Pipeline that ends with one. Raises what a fit would, of its parameters.
        """
        prices, lasts = list[Price](), list[Price]()
        for learner, X in self._learners():
            has_public_rows = learner.relation == Relation.REPLACE_ONE
            sizes = [len(train) if has_public_rows else None for train, _ in self.splits]
            of_size = {size: price_of(learner.recipe_ahead(X, size)[1].plan) for size in dict.fromkeys(sizes)}
            prices += [of_size[size] for size in sizes]
            if self.again:
                lasts.append(price_of(learner.recipe_ahead(X)[1].plan) if has_public_rows else of_size[None])
        return None if not prices else sum([*prices[1:], *([dearest(lasts)] if lasts else [])], prices[0])

    def epsilon_that_fits(self, price_of: Callable[[Plan], Price], holds: Callable[[Price], bool]) -> Decimal | None:
        """Return the epsilon at which all of them would fit; None where there is none, or the candidates name their
        own.
        """
        own, last = "", self.estimator
        while getattr(last, "steps", None):
            name, last = last.steps[-1]
            own += f"{name}__"
        if any(name in (own + "epsilon", own + "delta") for each in self.candidates for name in each):
            return None
        learner, X = next(self._learners())
        public, recipe = learner.recipe_ahead(X)
        fits = would_fit(learner, public, lambda plan: holds(times(price_of(plan), self.count)), recipe.unit)
        cheaper = replace(self, candidates=[{**each, own + "epsilon": fits} for each in self.candidates])
        price = None if fits is None else cheaper.price(price_of)
        return fits if price is not None and holds(price) else None

    def _learners(self) -> Iterator[tuple[PrivateLearner, Any]]:
        """Yield each candidate's learner, and X as the steps before it make it. InputError where one of them learns
        from the rows, unless the account's owner vouches for it.
        """
        clone, pipeline = load("sklearn.base").clone, load("sklearn.pipeline").Pipeline
        for parameters in self.candidates:
            last, X, before = (
                clone(self.estimator).set_params(**clone(dict(parameters), safe=False)),
                self.X,
                list[Any](),
            )
            while isinstance(last, pipeline):
                before, last = [*before, last], last.steps[-1][1]
            if not isinstance(last, PrivateLearner) or last.account is None:
                continue
            for each in before:
                if not last.account.rowwise:
                    check_steps(each)
                X = each[:-1].fit_transform(X, self.y) if len(each.steps) > 1 else X
            yield last, X


def times(price: Price, count: int) -> Price:
    """Return the price of so many at this price."""
    return Price(count * price.pure, count * price.unbounded, tuple(count * figure for figure in price.rdp))


def dearest(prices: Sequence[Price]) -> Price:
    """Return a price that none of these exceeds in any figure."""
    figures = zip(*(price.rdp for price in prices), strict=True)
    return Price(max(each.pure for each in prices), max(each.unbounded for each in prices), tuple(map(max, figures)))
