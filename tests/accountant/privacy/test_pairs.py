"""The closed table of mechanisms and their prices, and all who read it: each refuses what does not go together."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from accountant.noise import mechanisms
from accountant.noise.objective import ObjectivePerturbation
from accountant.noise.one_of_k import OneOfK
from accountant.privacy.claims import claim, price
from dpserve_verify.certificates.releases import kinds_of
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import BoundedRange, Event, Gaussian, Plan, PureDp, Release
from dpserve_verify.privacy.filter import Filter, price_to_json
from dpserve_verify.privacy.pairs import PAIRS, SELECTION, bound_fault, fault_of, proof_fault
from dpserve_verify.privacy.soundness import judge_price, require_pairs

ROOT = Path(__file__).resolve().parents[3]
HALF = Decimal("0.5")
LOSS = "minimise a convex loss"
VOTE = "select a 1-rule by weighted agreement"
MINIMUM = [
    Release(LOSS, "objective-perturbation", "l2", 1000, Gaussian(Decimal(2))),
    Release(f"{LOSS}: how the loss curves", "objective-perturbation", "l2", 1, PureDp(HALF)),
    Release(f"{LOSS}: how near the minimum is", "objective-perturbation", "l2", 7, Gaussian(Decimal(40))),
]
ORDERS = Filter.design(Budget.of("3", "0.00001")).orders


def runs(mechanism: str, event: Event, norm: str = "range", count: int = 25) -> Plan:
    return Plan(((Release(VOTE, mechanism, norm, 1, event), count),))


BAD = {
    "permute-and-flip as bounded range": runs("permute-and-flip", BoundedRange(HALF)),
    "a choice as Gaussian noise": runs("exponential", Gaussian(Decimal(9))),
    "Laplace as bounded range": runs("discrete-laplace", BoundedRange(HALF), "l1"),
    "Gaussian noise as bounded range": runs("discrete-gaussian", BoundedRange(HALF), "l2"),
    "a choice by its L2": runs("exponential", BoundedRange(HALF), "l2"),
    "Gaussian noise by its L1": runs("discrete-gaussian", Gaussian(Decimal(9)), "l1"),
    "nobody's mechanism": runs("laplace", PureDp(HALF), "l1"),
    "a minimum alone": Plan.of(MINIMUM[:1]),
    "a minimum without curvature": Plan.of([MINIMUM[0], MINIMUM[2]]),
    "a minimum without nearness": Plan.of(MINIMUM[:2]),
    "a minimum with its lines in another order": Plan.of([MINIMUM[0], MINIMUM[2], MINIMUM[1]]),
    "lines of no minimum": Plan.of(MINIMUM[1:]),
    "two minima with the lines of one": Plan(((MINIMUM[0], 2), (MINIMUM[1], 1), (MINIMUM[2], 1))),
    "the lines of another minimum": Plan.of(
        [MINIMUM[0], *(replace(each, purpose=f"other {each.purpose}") for each in MINIMUM[1:])]
    ),
}
GOOD = {
    "a choice": runs("exponential", BoundedRange(HALF)),
    "permute-and-flip": runs("permute-and-flip", PureDp(HALF)),
    "noise": runs("discrete-gaussian", Gaussian(Decimal(9)), "l2"),
    "a minimum": Plan.of(MINIMUM),
    "two minima": Plan.of(MINIMUM * 2),
    "a minimum among others": Plan((*runs("exponential", BoundedRange(HALF)).runs, *((each, 1) for each in MINIMUM))),
}


@pytest.mark.parametrize("name", [*BAD, *GOOD])
def test_who_plans_and_who_audits_refuse_the_same(name):
    plan = {**BAD, **GOOD}[name]
    stated = price_to_json(price(plan, ORDERS), ORDERS)
    if name in GOOD:
        kinds_of(plan)
        judge_price(plan, stated, ORDERS)
        require_pairs(plan, claim(plan, Decimal("0.000001")).bound, Relation.ADD_REMOVE, 1)
        return
    with pytest.raises(InputError, match="plan: "):
        kinds_of(plan)
    with pytest.raises(LedgerInvalid, match="plan: "):
        judge_price(plan, stated, ORDERS)


def test_a_minimum_is_proved_for_one_row_added_or_removed_and_by_one_bound():
    plan = Plan.of(MINIMUM)
    assert fault_of(plan) is proof_fault(plan, Relation.ADD_REMOVE, 1) is bound_fault(plan, "renyi") is None
    for relation, rows, bound in (
        (Relation.REPLACE_ONE, 1, "renyi"),
        (Relation.ADD_REMOVE, 2, "renyi"),
        (Relation.ADD_REMOVE, 1, "gaussian"),
        (Relation.ADD_REMOVE, 1, "pure"),
    ):
        with pytest.raises(LedgerInvalid, match="is not proved for"):
            require_pairs(plan, bound, relation, rows)


def test_every_mechanism_that_draws_has_its_row_and_no_row_is_without():
    unit = HALF
    drawn = [
        each(unit)
        for each in (
            mechanisms.ExponentialSelection,
            mechanisms.ExponentialSelections,
            mechanisms.PermuteAndFlip,
            mechanisms.PermuteAndFlips,
            mechanisms.DiscreteLaplace,
            mechanisms.DiscreteGaussian,
        )
    ]
    drawn += [ObjectivePerturbation(Decimal(2), HALF, Decimal(40), 3, 10), OneOfK(HALF, 3, 1)]
    for each in drawn:
        pair = PAIRS[each.name]
        assert each.norm == pair.norm
        assert type(each.event) in pair.events
        further = [(f": {one.words}", type(one.event)) for one in getattr(each, "charges", ())]
        assert further == [*pair.follows]
    assert PAIRS.keys() - {each.name for each in drawn} == {SELECTION, "vouched-program"}


def test_the_browser_has_the_same_table():
    script = ROOT / "serving" / "pages" / "static" / "verify_claim.js"
    run = f"import({json.dumps(script.as_uri())}).then(({{PAIRS}}) => console.log(JSON.stringify(PAIRS)))"
    found = json.loads(subprocess.run(["node", "-e", run], capture_output=True, text=True, check=True).stdout)
    wanted = {
        name: {
            "norm": pair.norm,
            "events": [event.type for event in pair.events],
            "bounds": [*pair.bounds],
            "follows": [[words, event.type] for words, event in pair.follows],
            "relations": [relation.value for relation in pair.relations],
            "most": pair.most,
        }
        for name, pair in PAIRS.items()
    }
    assert found == wanted


def rows_of_the_table() -> list[str]:
    return [
        "| "
        + " | ".join(
            (
                name,
                pair.norm,
                " or ".join(event.type for event in pair.events),
                ", ".join(f"{words.removeprefix(': ')} ({event.type})" for words, event in pair.follows) or "-",
                ", ".join(pair.relations),
                "any" if pair.most is None else str(pair.most),
                ", ".join(pair.bounds),
            )
        )
        + " |"
        for name, pair in PAIRS.items()
    ]


def test_the_page_of_prices_has_the_same_table():
    page = (ROOT / "docs" / "privacy" / "prices.md").read_text()
    assert "\n".join(rows_of_the_table()) in page
