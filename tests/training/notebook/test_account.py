"""An account adds up like the ledger, charges before a draw, and is one and the same wherever it is copied to."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import joblib
import numpy as np
import pytest
from sklearn.base import clone

import dpserve_verify.errors
from accountant.privacy.claims import claim, price
from dpserve import errors
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, Release
from dpserve_verify.privacy.filter import Filter
from training.learners import LazyBB
from training.notebook import Account, Columns

DELTA = Decimal("0.000001")


def plan(epsilon: str = "0.1", count: int = 3) -> Plan:
    release = Release("select", "exponential", "range", 2, BoundedRange(Decimal(epsilon)))
    return Plan.of([release] * count)


GAUSSIAN = Plan.of([Release("sum", "discrete-gaussian", "l2", 1, Gaussian(Decimal(9)))])


@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_an_account_admits_what_the_filter_of_a_dataset_admits(delta):
    account, design = Account("1", delta), Filter.design(Budget.of("1", delta))
    cost, used, times = price(plan(), design.orders), design.nothing(), 0
    left = account.fits_left(plan())
    while design.admits(used, cost):
        assert account.admits(plan())
        account.charge(plan())
        used, times = used + cost, times + 1
        assert account.spent == design.epsilon_of(used)
        assert account.share_left == 1 - design.share(used)
    assert (account.fits, left) == (times, times)
    assert times == 3 if delta == "0" else times > 3
    before = repr(account)
    with pytest.raises(BudgetRefused, match="does not fit: epsilon 1, ") as caught:
        account.charge(plan())
    assert repr(account) == before
    assert caught.value.details == account.to_json()


def claiming(epsilon: str) -> Plan:
    """Return a plan of one Gaussian release that claims at most so much, and little less."""
    low, high = 1, 100_000
    while low < high:
        middle = (low + high) // 2
        fits = claim(gaussian(middle), DELTA).epsilon <= Decimal(epsilon)
        low, high = (low, middle) if fits else (middle + 1, high)
    return gaussian(low)


def gaussian(thousandths: int) -> Plan:
    noise = Gaussian(Decimal(thousandths) / 1000)
    return Plan.of([Release("sum", "discrete-gaussian", "l2", 10**6, noise)])


@pytest.mark.parametrize("epsilon", ["1", "0.95"])
def test_a_first_fit_may_take_the_whole_total_and_closes_the_account(epsilon):
    """As a ledger's first job may; the filter, which leaves room for other jobs beside it, takes .922 of 1."""
    whole, small = claiming(epsilon), plan("0.001", 1)
    account = Account("1")
    assert not account._filter.admits(account._filter.nothing(), price(whole, account._filter.orders))
    assert (account.one_fit, account.fits_left(whole), account.admits(claiming("1.01"))) == (1, 1, False)
    account.charge(whole)
    assert account.spent == claim(whole, DELTA).epsilon > Decimal(epsilon) - Decimal("0.01")
    assert (account.share_left, account.one_fit, account.fits_left(small)) == (0, 0, 0)
    with pytest.raises(BudgetRefused, match="1 fit: 100 % of the budget used. No further fit fits"):
        account.charge(small)
    used = Account("1")
    used.charge(small)
    assert not used.admits(whole)
    with pytest.raises(BudgetRefused):
        used.charge(whole)


def test_a_refusal_is_caught_by_one_name_in_a_notebook_a_home_and_a_client():
    """A fit's has what would fit in the form that a service's has."""
    assert errors.BudgetRefused is BudgetRefused is dpserve_verify.errors.BudgetRefused
    body = {"code": "budget_refused", "message": "too much", "details": {"would_fit": {"epsilon": "0.25"}}}
    with pytest.raises(BudgetRefused, match=r"^too much \(budget_refused\)$") as caught:
        raise errors.error_of(403, {"error": body})
    assert isinstance(caught.value, errors.ServiceError)
    assert (caught.value.status, caught.value.message, caught.value.would_fit) == (403, "too much", Decimal("0.25"))
    X = np.random.default_rng(0).uniform(0, 1, (40, 1))
    model = LazyBB(schema=Columns(low=0, high=1, classes=[False, True]), epsilon=3, delta=0, account=Account("2", "0"))
    with pytest.raises(errors.BudgetRefused) as refused:
        model.fit(X, X[:, 0] > 0.5)
    assert refused.value.would_fit <= 2
    model.set_params(epsilon=refused.value.would_fit).fit(X, X[:, 0] > 0.5)


def test_no_pure_price_does_not_fit_a_pure_account():
    account = Account("10", "0")
    assert not account.admits(GAUSSIAN)
    with pytest.raises(BudgetRefused):
        account.charge(GAUSSIAN)
    assert account.spent == 0
    Account("10").charge(GAUSSIAN)


def test_threads_cannot_spend_more_than_there_is():
    account = Account("1", "0")

    def charge(_: int) -> bool:
        try:
            account.charge(plan("0.001", 1))
        except BudgetRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(charge, range(1200))) == 1000 == account.fits
    assert account.share_left == 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: clone(each, safe=False)])
def test_a_copy_is_the_account_itself(copied):
    account = Account(1)
    assert copied(account) is account


def test_what_comes_out_of_another_process_is_closed():
    """joblib's hash of a parameter, which scikit-learn compares, must not move with what is spent either."""
    account = Account("1", "0.000001", "replace-one")
    before = joblib.hash(account)
    account.charge(plan())
    assert joblib.hash(account) == before
    shut = pickle.loads(pickle.dumps(account))
    assert shut.budget == account.budget
    assert "closed" in repr(shut)
    with pytest.raises(BudgetRefused):
        shut.charge(plan())
    with pytest.raises(BudgetRefused, match="another process"):
        shut.check(shut.budget, Relation.REPLACE_ONE)


def test_in_a_forked_child_it_is_closed():
    """The parent would never hear of what the child spends; and a thread of the parent may have held the lock."""
    account = Account("1")
    with account._lock:
        child = os.fork()
        if not child:
            os._exit(refused_in_child(account))
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    account.charge(plan())
    assert account.fits == 1


def refused_in_child(account) -> int:
    signal.alarm(30)  # rather than wait for a lock that nobody will open
    try:
        account.charge(plan())
    except BudgetRefused:
        return 7 if "closed" in repr(account) else 8
    return 9


def test_an_account_says_what_is_spent_and_left():
    account = Account("3", "0", "replace-one")
    told = "0 % of the budget used. Room for one more fit: up to epsilon 3"
    assert repr(account) == f"<Account of epsilon 3, 0 fits: {told}>"
    account.charge(plan())
    told = "10 % of the budget used. Room for one more fit: up to epsilon 2.7"
    assert repr(account) == f"<Account of epsilon 3, 1 fit: {told}>"
    assert account.to_json() == {
        "total": {"epsilon": "3", "delta": "0"}, "spent": "0.3", "fits": 1,
        "share": "0.900000", "one_job": {"epsilon": "2.7", "delta": "0"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"epsilon": 0}, "epsilon=0"),
        ({"epsilon": float("nan")}, "epsilon="),
        ({"epsilon": True}, "epsilon="),
        ({"epsilon": 1, "delta": 1}, "delta=1"),
        ({"epsilon": 1, "delta": "x"}, "delta="),
        ({"epsilon": 1, "relation": "both"}, "relation='both'"),
    ],
)
def test_bad_totals_are_refused(bad, said):
    with pytest.raises(InputError, match=said):
        Account(**bad)


def test_a_fit_for_another_relation_or_a_larger_delta_is_none_of_its_business():
    account = Account("1", "0.000001")
    account.check(Budget.of("50", "0"), Relation.ADD_REMOVE)  # too large a fit is refused when its plan is known
    with pytest.raises(InputError, match="relation=replace-one: the account promises add-remove"):
        account.check(Budget.of("1", "0"), Relation.REPLACE_ONE)
    with pytest.raises(InputError, match="delta=0.001: the account has 0.000001 in all"):
        account.check(Budget.of("1", "0.001"), Relation.ADD_REMOVE)
