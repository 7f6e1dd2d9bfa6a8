"""Class weights from declared shares: what one row moves by exact enumeration, for every query that has them; prices,
which stay; probabilities, which mean what they say; and whatever was asked before, which stays as it was."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import product

import numpy as np
import pytest
from exact_laws import canonical, neighbours, public_of, rows_of

from accountant.errors import PlanMismatch, SchemaError
from dpserve_platform.replay.tapes import moved, share_of
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from models.features.features import BooleanFeature
from training.calibration.calibrate import rehearse
from training.learners import LEARNERS
from training.learners.base.class_weights import ONE, Balance, balance_of, class_weights, mean_weight
from training.learners.boosting import bdpe, bdpe_loss
from training.learners.boosting.lazybb import LazyBB, WeightedAgreement
from training.learners.boosting.leaf_rules import one_rules
from training.learners.boosting.noisy_leaves import ClassWeights, LeafLabels
from training.learners.boosting.probabilities import MIDDLES, fit_link
from training.learners.boosting.reweighting import Scheduled
from training.learners.boosting.tree_queries import LeafRules, LeafVotes, SplitGains, Weighing, split_tests
from training.learners.choice import choose
from training.learners.ebm.queries import LeafSums
from training.learners.ebm.residuals import SCORES, ClassResiduals
from training.learners.parameters import learner_of, stored
from training.notebook import Columns
from training.rows.schema.schema import parse_schema
from training.rows.statistics.tree_rows import Cut, Grown
from training.session.session import Rehearsal, sensitivity_of

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
TWO = (BooleanFeature("a"), BooleanFeature("b"))
TESTS = split_tests(TWO)
CUTS = (Cut(0, "is", 0, 1),)
TREES = (Grown(CUTS, (-3, 3)), Grown((Cut(0, "is", 1, 1),), (-2, 2)))
SHARES = {"last is rare": (0.8, 0.2), "first is rare": (0.1, 0.9)}
ATTAINED = {"WeightedAgreement", "LeafVotes", "LeafRules", "ClassWeights", "LeafLabels", "LeafSums"}
TWICE = Balance(((ONE, 2 * ONE),), (0.0,))  # the bug: the rare class weighs twice what is priced


def asking(public, relation, weighed):
    """Every query that knows class weights, before anything was released and after some votes."""
    votes = tuple(one_rules(TWO).vote(pick, weight) for pick, weight in ((0, 3), (2, 2)))
    for weighting, past in product(("exponential", "logistic"), (0, 2)):
        how, bound = Scheduled(0.4, 0.1, weighting), (0, 3, 5)[past]
        yield WeightedAgreement(one_rules(TWO), how, votes[:past], bound, 1, public, weighed)
        weighing = Weighing(how, TREES[:past], bound, public, weighed)
        yield from (SplitGains(TESTS, weighing, CUTS, "error", best) for best in (False, True))
        yield from (SplitGains(TESTS, weighing, CUTS, "gini", False), LeafVotes(weighing, CUTS))
        yield LeafRules(TESTS, weighing, CUTS)
    for trees, bound in (((), 0), (TREES, 5)):
        yield bdpe.SplitRisks(TESTS, trees, bound, CUTS, 0.5, 1.0, 4, weighed=weighed)
        for norm in ("l1", "l2"):
            table = bdpe.weights(bound, 1.0, weighed)
            yield ClassWeights(CUTS, trees, table, bdpe_loss.WEIGHT_ONE, norm)
    yield LeafLabels(CUTS, weighed)
    for norm, clip in product(("l1", "l2"), (1.0, 0.4)):
        middle, far = -SCORES // 4, SCORES // 2
        residuals = ClassResiduals(middle, middle - 2 * far, middle + 2 * far, clip, relation, norm, weighed)
        terms = (np.array([-far, far, 0]),) * 2
        yield LeafSums(residuals, terms, 0, np.array([0, 1, 1]))


def farthest(relation: Relation, shares, weighed=None) -> dict[str, float]:
    """By query: how much of its sensitivity a neighbour moves it, at most: 1, if the claim is true."""
    public = replace(public_of(relation, 3, features=TWO), prevalence=shares)
    known, found = weighed or class_weights(public, 1.0), dict[str, float]()
    sides = list(neighbours(relation, 1, tuple(product((0, 1), (0, 1), (0, 1)))))
    for query in asking(public, relation, known):
        answer = cache(lambda data, query=query: query(rows_of(data, TWO)))
        changes = (moved(answer(canonical(one)), answer(canonical(other)), query.norm) for one, other in sides)
        most = share_of(max(changes), query.norm, sensitivity_of(query, public))
        name = f"{type(query).__name__} {getattr(query, 'criterion', '')}".strip()
        found[name] = max(found.get(name, 0.0), most)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("shares", SHARES)
def test_no_row_moves_a_weighed_query_further_than_is_priced(shares, relation):
    """All pairs of neighbours with a row in common. What is attained without class weights is with them: a row of the
    rare class weighs as much as any row did. So half of a sensitivity would be exceeded."""
    found = farthest(relation, SHARES[shares])
    assert max(found.values()) <= 1
    assert {name for name, share in found.items() if share > 0.999} == ATTAINED


@pytest.mark.slow
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_a_rare_class_that_weighs_twice_what_is_priced_is_seen(relation, monkeypatch):
    found = farthest(relation, SHARES["last is rare"], TWICE)
    assert min(found[name] for name in ATTAINED - {"ClassWeights", "LeafSums"}) == 2
    assert found["ClassWeights"] > 1.9
    query = next(each for each in asking(public_of(relation), relation, TWICE) if isinstance(each, LeafSums))
    monkeypatch.setattr(ClassResiduals, "worth", 0.5 * query.residuals.worth)
    query = replace(query, residuals=replace(query.residuals))  # whose table is not made yet
    with pytest.raises(PlanMismatch, match="a row could move these sums"):
        query(rows_of([(0, 0, 0)], TWO))


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_three_classes_are_weighed_alike_and_move_no_more(relation):
    public = replace(public_of(relation, 3, classes=("a", "b", "c")), prevalence=(0.7, 0.2, 0.1))
    weighed, rules = class_weights(public, 1.0), one_rules(public.features)
    for own, (others, mine) in zip(public.prevalence, weighed.pairs, strict=True):
        assert own * mine == pytest.approx((1 - own) * others, rel=1e-4)
        assert max(others, mine) == ONE
    worst = 0.0
    votes = tuple(rules.vote(pick, 2, pick % 3) for pick in (0, 1, 5))
    for past, bound in ((0, 0), (3, 2)):
        query = WeightedAgreement(rules, Scheduled(0.4, 0.1), votes[:past], bound, 3, public, weighed)
        for one, other in neighbours(relation, 1, tuple(product((0, 1), (0, 1, 2)))):
            change = query(rows_of(other, public.features, 3)) - query(rows_of(one, public.features, 3))
            worst = max(worst, float(change.max() - change.min()) / sensitivity_of(query, public))
    assert 0.999 <= worst <= 1


# ---- nothing declared: as ever ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in LEARNERS if name != "auto"])
def test_where_no_shares_are_declared_nothing_changes_and_prices_never_do(name):
    public, unit = public_of(ADD, 5000), Decimal("0.1")
    made = LEARNERS[name](leaf="label") if name == "forest" else LEARNERS[name]()
    weighing = LEARNERS[name](**{**made.get_params(), "balance": 0.5})
    rare = replace(public, prevalence=(0.75, 0.25))
    plain, even = rehearse(made, public, unit), rehearse(weighing, replace(public, prevalence=(0.5, 0.5)), unit)
    weighed = rehearse(weighing, rare, unit)
    assert plain == even == rehearse(made, rare, unit)
    assert not any("weighing" in release.purpose for release, _ in plain.runs)
    said = ", rows of the first class weighing 0.5774 and of the second 1"
    assert any(said in release.purpose for release, _ in weighed.runs)
    as_plain = [replace(release, purpose=release.purpose.replace(said, "")) for release, _ in weighed.runs]
    assert as_plain == [release for release, _ in plain.runs] or name in ("ebm", "forest")
    assert [release.event for release, _ in weighed.runs] == [
        release.event for release, _ in plain.runs
    ] or name == "ebm"
    assert "balance" not in stored(made)
    assert stored(learner_of(name, {"balance": 0.25}))["balance"] == "0.25"


def test_the_rule_weighs_rare_classes_where_they_have_rows_enough():
    public = public_of(ADD, 10_000)
    for shares, strength, found in (
        ((), 1e4, 0.0), ((0.96, 0.04), 1e4, 0.5), ((0.04, 0.96), 1e4, 0.5), ((0.96, 0.04), 600.0, 0.0),
        ((0.96, 0.04), 12_400.0, 0.5), ((0.96, 0.04), 12_600.0, 0.0),
        ((0.9, 0.1), 1e3, 0.0), ((0.9, 0.06, 0.04), 1e5, 0.0),
        ((0.9, 0.06, 0.04), 2_400.0, 0.5), ((0.9, 0.06, 0.04), 2_600.0, 0.0), ((0.9, 0.06, 0.04), 600.0, 0.0),
        ((0.84, 0.08, 0.08), 1_000.0, 0.0), ((0.04,) * 25, 2_000.0, 0.0),
    ):  # fmt: skip
        assert balance_of(replace(public, prevalence=shares), strength) == found
    assert LazyBB().class_weights(replace(public, prevalence=(0.96, 0.04))).pairs == ((round(ONE / 24**0.5), ONE),)
    assert LazyBB(balance=0.0).class_weights(replace(public, prevalence=(0.96, 0.04))) is None
    assert LazyBB(reweighting="projected").class_weights(replace(public, prevalence=(0.96, 0.04))) is None
    three = replace(public, classes=("a", "b", "c"), records=2_000, prevalence=(0.8, 0.16, 0.04))
    plans = [rehearse(LazyBB(rounds=3, balance=balance), three, Decimal("0.1")) for balance in (None, 0.5, 0.0)]
    assert plans[0] == plans[1] != plans[2]
    said = ", each class weighing nearer to the others, to the power 0.5 by the declared shares"
    assert all(release.purpose.endswith(said) for release, _ in plans[0].runs)
    assert [release.event for release, _ in plans[0].runs] == [release.event for release, _ in plans[2].runs]
    told = [choose(replace(public, records=40_000, prevalence=shares)) for shares in ((), (0.93, 0.07), (0.95, 0.05))]
    assert {each.learner for each in told} == {"lazybb-tree"}  # declared shares change nothing of the choice


def test_with_balance_0_plans_and_models_are_those_of_nothing_declared():
    public, unit = public_of(ADD, 5000), Decimal("0.1")
    declared = replace(public, prevalence=(0.9, 0.1))
    for name in ("lazybb", "lazybb-tree", "ebm", "bdpe"):
        assert rehearse(LEARNERS[name](balance=0.0), declared, unit) == rehearse(LEARNERS[name](), public, unit)
    assert class_weights(declared, 0.0) is None
    assert mean_weight(declared, None) == 1


def test_what_cannot_be_weighed_is_refused():
    declared = replace(public_of(ADD), prevalence=(0.9, 0.1))
    for learner, public, said in (
        (LazyBB(balance=0.5), public_of(ADD), "declare the target's `prevalence`"),
        (LazyBB(balance=1.5), declared, "balance=1.5: must be between 0 and 1"),
        (LazyBB(balance=0.5, reweighting="projected"), declared, "no class weights"),
        (LEARNERS["forest"](balance=0.5), declared, "with leaf label alone"),
    ):
        with pytest.raises(InputError, match=said):
            learner.check(public)


TARGET = "{{target: {{name: y, {}}}, records: 10, features: {{a: {{type: boolean}}}}}}"


@pytest.mark.parametrize(
    ("written", "shares"),
    [
        ("classes: [a, b], prevalence: 0.25", (0.75, 0.25)),
        ("classes: [a, b], prevalence: [0.75, 0.25]", (0.75, 0.25)),
        ("classes: [a, b, c], prevalence: [0.5, 0.25, 0.25]", (0.5, 0.25, 0.25)),
        ("classes: [a, b]", ()),
        ("range: [0, 1]", ()),
    ],
)
def test_a_schema_may_declare_shares(written, shares):
    assert parse_schema(TARGET.format(written).encode()).prevalence == shares


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("classes: [a, b], prevalence: 0", "prevalence.*greater than or equal"),
        ("classes: [a, b], prevalence: 1", "prevalence.*less than or equal"),
        ("classes: [a, b], prevalence: true", "prevalence"),
        ("classes: [a, b], prevalence: .nan", "prevalence"),
        ("classes: [a, b], prevalence: [0.5, 0.4]", "add up to 0.9; they must add up to 1"),
        ("classes: [a, b], prevalence: [0.5, 0.3, 0.2]", "a share for each of 2 classes"),
        ("classes: [a, b, c], prevalence: 0.2", "must be a list"),
        ("range: [0, 1], prevalence: 0.2", "this target is a number"),
    ],
)
def test_shares_that_make_no_sense_are_refused(written, said):
    with pytest.raises(SchemaError, match=said):
        parse_schema(TARGET.format(written).encode())


# ---- probabilities ---------------------------------------------------------------------------------------------------


def test_probabilities_start_from_the_declared_shares():
    """Of blank counts the public rule is left; many rows say where it is wrong, however far from even classes are."""
    link, offset = 0.02, -5.0
    assert fit_link(np.zeros(2 * MIDDLES.size, np.int64), link, 30.0, offset) == (link, round(offset / link))
    chance = 1 / (1 + np.exp(-(MIDDLES - 4.5)))
    rows = 1_000_000 * np.exp(-(MIDDLES**2) / 4)
    found, constant = fit_link(
        np.rint(np.append(rows * (1 - chance), rows * chance)).astype(np.int64), link, 5.0, offset
    )
    assert (found / link, constant * found) == (pytest.approx(1, abs=0.05), pytest.approx(-4.5, abs=0.1))


RARE = 0.02


@pytest.fixture(scope="module")
def crowd():
    """20,000 rows, two of a hundred in the second class, told apart by one feature of two."""
    random = np.random.default_rng(3)
    truth = random.random(20_000) < RARE
    values = np.stack([random.random(truth.size), np.clip(random.normal(0.35 + 0.3 * truth, 0.15), 0, 1)], axis=1)
    return values, truth.astype(int)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lazybb", "lazybb-tree", "ebm"])
def test_of_a_rare_class_chances_add_up_to_what_there_is(name, crowd):
    """In the mean within half of the base rate, which weighed chances are many times, and better than the base rate
    alone. 40 fits: a mean of .98, .94, 1.02 of it with a deviation of .042, .057, .018, so half is seven of them away;
    the loss is .67 of the rate's, by .006. False alarm: below 1e-9."""
    values, truth = crowd
    rule = Columns(low=0, high=1, classes=[0, 1], records=truth.size, prevalence=RARE)
    model = LEARNERS[name](schema=rule, epsilon=8, balance=1.0).fit(values, truth)
    chance = np.clip(model.predict_proba(values)[:, 1], 1e-9, 1 - 1e-9)
    assert chance.mean() == pytest.approx(truth.mean(), rel=1 / 2)
    loss = -np.log(np.where(truth == 1, chance, 1 - chance)).mean()
    rate = truth.mean()
    assert loss < -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))


def test_of_three_classes_that_say_nothing_the_declared_shares_are_left():
    """Scores alike, and at `balance` 1: chances are the shares. There is no count of scores to mend them."""
    shares = (0.9, 0.07, 0.03)
    public = replace(public_of(ADD, 10_000, classes=("a", "b", "c")), prevalence=shares)
    made = LazyBB(rounds=1, balance=1.0).learn(Rehearsal(public, Decimal("0.1")))
    says = np.exp([made.link * vote.weight for vote in made.votes[1:]])
    assert says / says.sum() == pytest.approx(np.array(shares), rel=0.02)
