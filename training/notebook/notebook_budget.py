"""One budget for many fits in a notebook: every fit is charged before it draws, and what does not fit is refused.

The arithmetic is the ledger's (`dpserve_verify.privacy.filter`); the memory is this process's alone. An auditor who
was not there needs `dpserve train` and its ledger.
"""

from __future__ import annotations

import os
import sys
from decimal import Decimal
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakSet, ref

from accountant.ledger.families.left import left_to_json, left_words
from accountant.privacy.claims import claim, price
from accountant.privacy.one_job import OneJob, one_job, room
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import Budget, Relation, parse_relation
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.filter import Filter, Price
from training.learners.base.checks import read_budget
from training.notebook.fits_ahead import call_that_clones
from training.rows.tables.selections import MADE, Selection

OTHER_ROWS = (
    "account: these are not the rows of its fits before. Splitters by position or class (cv=5, KFold, bagging) move or "
    "repeat rows, so one person coming or going changes many, and nobody has proved what that costs. Take "
    "cv=RowFolds(5) of dpserve.learners; for other people another Account; or, where for each row it depends on that "
    "row alone whether a fit gets it, say Account(..., rowwise=True)"
)

OTHER_WEIGHTS = (
    "account: rows of a fit before weigh otherwise here. Bagging and boosting draw weights from all rows, so one "
    "person coming or going changes many, and nobody has proved what that costs. Fit with one weight for each row; or, "
    "where it depends on that row alone, say Account(..., rowwise=True)"
)

HERE = "fit where the account was made (n_jobs=None, or within joblib.parallel_config('threading'))"


class Account:
    """What may be learnt about one group of people, and what was: total (epsilon, delta) under one `relation`.

    Estimators that share an account add up in it, and so do their clones: cross-validation and grid search spend from
    it fold by fold. What adds up is the loss of fits on the same people, so every fit must get the same rows, or a fold
    of them by `training.notebook.RowFolds`; `rowwise=True` says that you see to it that whether a fit gets a row
    depends on that row alone, by another rule (a die for each row, say). Copying or cloning an account gives the
    account itself; a copy in another process, sent there or forked, is closed.
    """

    def __init__(
        self, epsilon: object, delta: object = "0.000001", relation: str = "add-remove", *, rowwise: bool = False
    ) -> None:
        self._filter = Filter.design(read_budget(epsilon, delta))
        self._relation = parse_relation(relation)
        self._used, self._fits = self._filter.nothing(), 0
        self._closing: Decimal | None = None  # the claim of the fit that took the whole total
        self._lock, self._open = Lock(), True
        self._rowwise = rowwise
        self._seen: object = None  # the last call of scikit-learn that was looked ahead of
        self._whole: Selection | None = None  # the rows that every fit is on, or on a fold of
        self._weights: dict[Selection, Selection] = {}  # of rows that were weighed: the rows with what each weighs
        _OPEN.add(self)

    @property
    def budget(self) -> Budget:
        """Return the total: what is promised to the people in the data, whatever was spent of it."""
        return self._filter.budget

    @property
    def relation(self) -> Relation:
        """Return the neighbouring relation of what is promised."""
        return self._relation

    @property
    def rowwise(self) -> bool:
        """Return whether its owner vouches that it depends, for each row, on that row alone what a fit gets of it."""
        return self._rowwise

    @property
    def fits(self) -> int:
        """Return how many fits were charged."""
        return self._fits

    @property
    def spent(self) -> Decimal:
        """Return the epsilon of all fits together, converted at the account's delta, rounded up to 6 digits."""
        return self._filter.epsilon_of(self._used) if self._closing is None else self._closing

    @property
    def share_left(self) -> float:
        """Return how much of what the filter admits is left, in 0..1, by the criterion that lasts longest; 0 where one
        fit took the whole total."""
        return self._share_beside(self._used)

    def _share_beside(self, used: Price) -> float:
        return 0.0 if self._closing is not None else 1 - self._filter.share(used)

    @property
    def one_fit(self) -> Decimal:
        """Return the largest epsilon of one more fit at the account's delta, by Gaussian noise, or, where no noise has
        room, at delta 0; the whole total where nothing was spent; 0 where there is none. Private selection may get more
        or less (docs/budgets.md)."""
        return self._job_beside(self._used).epsilon

    def _job_beside(self, used: Price) -> OneJob:
        if self._closing is not None:
            return OneJob(Decimal(0), Decimal(0))
        if used == self._filter.nothing():
            return OneJob(self.budget.epsilon, self.budget.delta)
        return one_job([room(self._filter, used, self.budget.delta)], self.budget.delta)

    def admits(self, plan: Plan) -> bool:
        """Return whether a fit with this plan would be charged now: beside the fits before, or as the only fit, where
        nothing was spent and it claims no more than the total. The latter closes the account, as a ledger's job does.
        """
        return self._fits_beside(plan) or self._may_close(plan)

    def _fits_beside(self, plan: Plan) -> bool:
        return self._holds(price(plan, self._filter.orders))

    def _may_close(self, plan: Plan) -> bool:
        return self._used == self._filter.nothing() and claim(plan, self.budget.delta).epsilon <= self.budget.epsilon

    def fits_left(self, plan: Plan) -> int:
        """Return how many more fits with this plan (`model.recipe_.plan`) would be admitted."""
        if self._closing is not None:
            return 0
        beside = self._filter.jobs_left(self._used, price(plan, self._filter.orders))
        return max(beside, int(self._may_close(plan)))

    def look_ahead(self) -> None:
        """Say what a search or a cross-validation costs in all that makes its first clone now, and raise where that is
        not here: BudgetRefused, or InputError where its folds are none of this account's. None of its fits begins then.
        """
        call = call_that_clones()
        if call is None or self._seen is call.mark or (isinstance(self._seen, ref) and self._seen() is call.mark):
            return
        self._seen = call.mark if isinstance(call.mark, list) else ref(call.mark)
        ahead = call.fits()
        if ahead.leaves_this_process:
            raise BudgetRefused(f"account: the fits of {ahead.who} would run in other processes; {HERE}")
        if not self._rowwise and len({self._whole_of(rows) for rows in ahead.selections()}) > 1:
            raise InputError(OTHER_ROWS)
        price_of = partial(price, orders=self._filter.orders)
        cost = ahead.price(price_of)
        if cost is None:
            return
        words = f"{ahead.words} cost epsilon {self._filter.epsilon_of(cost)} together"
        if not self._holds(cost):
            fits = ahead.epsilon_that_fits(price_of, self._holds)
            advice = "fewer of them, or less epsilon for each" if fits is None else f"epsilon {fits} for each would fit"
            raise BudgetRefused(
                f"account: {words}, which does not fit: {self.words()}; none has begun; {advice}",
                **self.to_json(),
                would_fit=None if fits is None else {"epsilon": str(fits)},
            )
        print(f"{words}; then {self._left_words(self._used + cost)}", file=sys.stderr)

    def _holds(self, cost: Price) -> bool:
        return self._closing is None and self._filter.admits(self._used, cost)

    def check(self, budget: Budget, relation: Relation) -> None:
        """Raise InputError unless this account can hold a fit of this budget under this relation."""
        if relation is not self._relation:
            raise InputError(f"relation={relation.value}: the account promises {self._relation.value}")
        if budget.delta > self.budget.delta:
            raise InputError(f"delta={budget.delta}: the account has {self.budget.delta} in all")
        if not self._open:
            raise BudgetRefused(
                f"account: this is a copy from another process, which cannot know what is spent; {HERE}"
            )

    def charge(self, plan: Plan, rows: Selection | None = None, weighed: Selection | None = None) -> None:
        """Add the plan's price, or raise BudgetRefused and add nothing. Whoever draws, charges first.

        `rows`: which rows the plan will be played on; `weighed`: with the weights that were handed in beside them, if
        any. InputError where they are neither the rows of the fits before nor a fold of those that one row more or less
        changes by that row alone, or weigh otherwise than in a fit before.
        """
        cost = price(plan, self._filter.orders)
        with self._lock:
            all_rows = self._whole if rows is None or self._rowwise else self._whole_of(rows)
            alike = rows is None or weighed is None or self._weights.get(rows, weighed) == weighed
            if not (alike or self._rowwise):
                raise InputError(OTHER_WEIGHTS)
            if not (self._open and self.admits(plan)):
                raise BudgetRefused(f"account: this fit does not fit: {self.words()}", **self.to_json())
            if not self._fits_beside(plan):
                self._closing = claim(plan, self.budget.delta).epsilon
            self._used, self._fits, self._whole = self._used + cost, self._fits + 1, all_rows
            if rows is not None and weighed is not None:
                self._weights[rows] = weighed

    def _whole_of(self, rows: Selection) -> Selection:
        """Return what these rows are a fold of: themselves, or what RowFolds took them from."""
        origin = MADE.origin(rows)
        if origin is not None and (origin.by == "content") != (self._relation is Relation.ADD_REMOVE):
            required = "content" if self._relation is Relation.ADD_REMOVE else "position"
            raise InputError(
                f"account: under {self._relation.value} folds are right by {required}: RowFolds(by={required!r})"
            )
        all_rows = rows if origin is None else origin.whole
        if self._whole not in (None, all_rows):
            raise InputError(OTHER_ROWS)
        return all_rows

    def words(self) -> str:
        """Describe the total, the fits, what they spent and what is left in one line."""
        times = "1 fit" if self._fits == 1 else f"{self._fits} fits"
        return f"epsilon {self.budget.epsilon}, {times}: {self._left_words(self._used)}"

    def _left_words(self, used: Price) -> str:
        return left_words(left_to_json(self._share_beside(used), self._job_beside(used)), "fit")

    def to_json(self) -> dict[str, Any]:
        """Return the same for programs: `total`, `spent`, `fits`, decimals as text. `share` and `one_job`: what is left
        as a share, and the budget of the largest fit.
        """
        share_fields = left_to_json(self.share_left, self._job_beside(self._used))
        return {
            "total": self.budget.to_json(), "spent": decimal_string(self.spent), "fits": self._fits, **share_fields,
        }  # fmt: skip

    def __repr__(self) -> str:
        closed = "" if self._open else ", closed: a copy from another process"
        return f"<Account of {self.words()}{closed}>"

    def __sklearn_clone__(self) -> Account:
        return self

    def __copy__(self) -> Account:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Account:
        return self

    def __reduce__(self) -> Any:
        """Reduce the account to its total for pickling: what was spent can be known in one place only."""
        return closed_account, (str(self.budget.epsilon), str(self.budget.delta), self._relation.value)


_OPEN: WeakSet[Account] = WeakSet()


def _close_in_child() -> None:
    """Close every account in a child process, whose parent would not learn what it spends. The lock may be held by a
    thread that the child does not have.
    """
    for account in _OPEN:
        account._lock, account._open = Lock(), False


os.register_at_fork(after_in_child=_close_in_child)


def closed_account(epsilon: str, delta: str, relation: str) -> Account:
    """Return an account that admits nothing: what pickling makes of one."""
    account = Account(epsilon, delta, relation)
    account._open = False
    return account
