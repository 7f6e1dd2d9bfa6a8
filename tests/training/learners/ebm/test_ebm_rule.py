"""The default rule of `ebm`: public inputs alone, within range, and monotone in what makes the signal stronger."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from accountant.privacy import gdp
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, NumericFeature
from training.learners.ebm.defaults import CLIP, EbmDefaults, ebm_defaults, mu_of, strength
from training.learners.ebm.ebm import DPEBMClassifier
from training.session.session import Public

EPSILONS = ("0.01", "0.05", "0.1", "0.25", "0.5", "1", "2", "4", "8", "20")
RECORDS = (1, 30, 1_000, 30_000, 1_000_000, 10**9)


def public(records=30_000, epsilon="1", delta="0.000000001", features=10, relation=Relation.ADD_REMOVE, number=False):
    columns = tuple(NumericFeature(f"x{index}", (0.0, 1.0)) for index in range(features))
    budget = Budget.of(epsilon, delta)
    kind = (None, (0.0, 1.0)) if number else (("no", "yes"), None)
    return Public(columns, "y", kind[0], records, relation, budget, budget.delta == 0, target_range=kind[1])


@pytest.mark.slow
@pytest.mark.parametrize("delta", ["0", "0.000000001"])
@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize("records", RECORDS)
def test_every_setting_is_one_that_the_learner_takes(records, number, delta):
    for epsilon in EPSILONS:
        for features in (1, 10, 500):
            asked = public(records, epsilon, delta, features, number=number)
            found = ebm_defaults(asked)
            given = {field.name: getattr(found, field.name) for field in fields(EbmDefaults)}
            DPEBMClassifier(**given).check(asked)
            assert 0 < found.rate <= 0.5
            assert 3 <= found.leaves <= 8
            assert CLIP <= found.clip <= 1
            assert (found.spread > 0) is number


@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize("delta", ["0", "0.000000001"])
def test_more_signal_goes_further_and_clips_less(number, delta):
    by_epsilon = [ebm_defaults(public(epsilon=epsilon, delta=delta, number=number)) for epsilon in EPSILONS]
    by_records = [ebm_defaults(public(records, delta=delta, number=number)) for records in RECORDS]
    for row in (by_epsilon, by_records):
        for name in ("rate", "leaves", "clip", "spread"):
            values = [getattr(each, name) for each in row]
            assert values == sorted(values), name
        assert row[0].rate < row[-1].rate
        assert row[0].leaves < row[-1].leaves


@pytest.mark.parametrize("delta", ["0", "0.000000001"])
def test_replacing_records_more_features_and_rows_of_a_person_weaken_the_signal(delta):
    plain = public(delta=delta)
    twice = replace(plain, contributions=2)
    assert strength(public(delta=delta, relation=Relation.REPLACE_ONE)) == strength(plain) / 2 == strength(twice)
    assert strength(public(delta=delta, features=40)) < strength(plain) < strength(public(delta=delta, features=5))
    assert strength(public(records=60_000, delta=delta)) == pytest.approx(2 * strength(plain))


def test_names_bins_and_labels_are_no_part_of_it():
    plain = public()
    other = replace(
        plain,
        features=tuple(BooleanFeature(f"flag {index}") for index in range(10)),
        target="z",
        classes=(1, 2),
    )
    assert ebm_defaults(other) == ebm_defaults(plain)


def test_where_a_numbers_range_lies_is_no_part_of_it():
    number = public(number=True)
    assert ebm_defaults(replace(number, target_range=(-1e9, 1e6))) == ebm_defaults(number)


def test_pure_budgets_have_fewer_epochs():
    assert ebm_defaults(public(delta="0")).epochs < ebm_defaults(public()).epochs


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_is_the_largest_that_the_budget_carries(epsilon):
    budget = Budget.of(epsilon, "0.000001")
    mu = mu_of(budget)
    assert gdp.delta_of(mu, float(epsilon)) <= 1e-6 < gdp.delta_of(mu * 1.001, float(epsilon))
