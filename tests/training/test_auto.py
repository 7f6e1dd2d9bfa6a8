"""`auto`: a public rule chooses the learner, and every door says which it was and why."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accountant.audit.audit import audit_home
from accountant.home import Home
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.store.loading import load_verified
from serving.cli import app
from training.calibration.calibrate import rehearse
from training.datasets.datasets import register
from training.jobs import job
from training.learners import LEARNERS, AutoClassifier, AutoRegressor
from training.learners.boosting.tree_queries import split_tests
from training.learners.choice import (
    CATEGORIES_FROM,
    CURVES_UP_TO,
    FEW,
    MANY,
    MANY_CLASSES_FROM,
    TREES_EACH,
    TREES_FROM,
    choose,
)
from training.learners.job_words import CHOSEN
from training.learners.parameters import learner_of, stored
from training.notebook import Columns
from training.planning import plans
from training.planning.job_views import dataset_to_json
from training.requests import JobRequest, TuningRequest
from training.rows.schema.schema import parse_schema
from training.session.session import Public

pytestmark = pytest.mark.home("made")

ROWS = 80
SCHEMA = """\
targets:
  income: {classes: [low, high]}
  region: {classes: [north, south, east], prevalence: [0.5, 0.4, 0.1]}
  hours: {range: [0, 80]}
records: 80
features:
  age: {type: numeric, range: [0, 80]}
  colour: {type: categorical, values: [red, green]}
  shade: {type: categorical, values: [light, dark]}
"""
WHICH = {"income": "lazybb", "region": "lazybb", "hours": "ebm"}


COLLIDING = tuple(CategoricalFeature(name, ("x", "y")) for name in ("a", "b", "a & b"))  # what a pair would be called


def public_of(records: int, epsilon: str = "1", features: int = 14, **more) -> Public:
    budget = Budget.of(epsilon, more.pop("delta", "1e-6"))
    words = more.pop("words", 0)  # so many features are categories
    names = tuple(
        CategoricalFeature(f"f{i}", ("x", "y", "z")) if i < words else BooleanFeature(f"f{i}") for i in range(features)
    )
    return replace(Public(names, "y", ("a", "b"), records, Relation.ADD_REMOVE, budget, budget.delta == 0), **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("auto")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    draw = np.random.default_rng(7)
    age = draw.uniform(0, 80, ROWS)
    region = np.array(["north", "south", "east"])[(age // 27).astype(int)]
    columns = {"age": age, "income": np.where(age > 40, "high", "low"), "region": region, "hours": age}
    columns |= {"colour": draw.choice(["red", "green"], ROWS), "shade": draw.choice(["light", "dark"], ROWS)}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    (folder / "schema.yaml").write_text(SCHEMA)
    total = Budget.of("4", "1e-5")
    register(home, "d", folder / "rows.parquet", folder / "schema.yaml", total, Relation.ADD_REMOVE, None)
    for target in WHICH:
        job.train(home, JobRequest("d", "auto", "0.9", model=target, target=target), by="test", key=target)
    return home


# ---- the rule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("public", "learner"),
    [
        (public_of(399, features=4), "lazybb"),
        (public_of(400, features=4), "lazybb-tree"),
        (public_of(599, features=9, words=9), "lazybb"),
        (public_of(600, features=9, words=9), "ebm"),
        (public_of(600, features=9, words=2), "lazybb-tree"),
        (public_of(600, features=9, words=3), "ebm"),
        (public_of(10**6, "8", words=3), "lazybb-tree"),
        (public_of(10**6, "8", words=4), "ebm"),
        (public_of(1_500, words=50, features=50), "ebm"),
        (public_of(10**6, "8", words=51, features=51), "lazybb-tree"),
        (public_of(4_040 - 1, features=101), "lazybb"),
        (public_of(4_040, features=101), "lazybb-tree"),
        (public_of(1_999, features=100), "lazybb"),
        (public_of(2_000, features=100), "lazybb-tree"),
        (public_of(39_999, features=1000), "lazybb"),
        (public_of(40_000, features=1000), "lazybb-tree"),
        (public_of(3_999, "0.1", words=4, features=4), "lazybb"),
        (public_of(4_000, "0.1", words=4, features=4), "ebm"),
        (public_of(799, words=4, features=4, relation=Relation.REPLACE_ONE), "lazybb"),
        (public_of(800, words=4, features=4, relation=Relation.REPLACE_ONE), "ebm"),
        (public_of(7_999, words=4, features=4, contributions=20), "lazybb"),
        (public_of(1_333, classes=("a", "b", "c")), "lazybb"),
        (public_of(1_334, classes=("a", "b", "c")), "ebm"),
        (public_of(999, classes=("a", "b", "c", "d")), "lazybb"),
        (public_of(1_000, classes=("a", "b", "c", "d")), "ebm"),
        (public_of(2_999, classes=("a", "b", "c"), delta="0"), "lazybb"),
        (public_of(10**6, classes=("a", "b", "c"), delta="0"), "ebm"),
        (replace(public_of(600, classes=("a", "b", "c"), delta="0"), pure=False), "lazybb"),
        (replace(public_of(90_000, classes=("a", "b", "c"), features=3), features=COLLIDING), "lazybb"),
        (public_of(10**6, classes=None, target_range=(0.0, 1.0)), "ebm-trees"),
        (public_of(10**6, classes=None, target_range=(0.0, 1.0), features=2), "ebm"),
        (public_of(10**6, classes=None, target_range=(0.0, 1.0), delta="0"), "ebm"),
        (public_of(300, classes=None, target_range=(0.0, 1.0)), "ebm"),
        (public_of(800, delta="0", pure=False, words=8), "lazybb-tree"),
        (public_of(2_999, delta="0"), "lazybb"),
        (public_of(3_000, delta="0"), "lazybb-tree"),
        (public_of(4_000, words=14, delta="0"), "lazybb-tree"),
        (public_of(100_000, words=14, delta="0"), "lazybb-tree"),
        (public_of(10_000, words=1000, features=1000), "lazybb"),
        (replace(public_of(10_000, words=2, features=2), features=COLLIDING), "lazybb-tree"),
    ],
)
def test_the_rule_reads_public_numbers_alone(public, learner):
    found = choose(public)
    assert found.learner == learner
    assert (
        public.classes is None or len(public.classes) != 2 or found == choose(replace(public, prevalence=(0.99, 0.01)))
    )
    assert found.why.endswith(learner)
    assert not hasattr(public, "rows")


def test_the_pages_say_the_constants_of_the_rule():
    docs, share = Path(__file__).parents[2] / "docs", f"{100 * CATEGORIES_FROM:.0f} %"
    trees = f"from {FEW} · √features on; from {TREES_EACH} for each of more than {MANY} features"
    curves = f"{share} of the features or more categories, at most {CURVES_UP_TO} features"
    many = f"from {MANY_CLASSES_FROM:,} over the classes on; from {TREES_FROM:,} where delta is 0"
    rows = {
        f"| two classes | below {FEW} · √features | `lazybb` |",
        f"| two classes | {trees}; from {TREES_FROM:,} where delta is 0 | `lazybb-tree` |",
        f"| two classes, {curves} | as for trees | `ebm`, with a delta |",
        f"| three classes or more | {many} | `ebm` |",
    }
    assert rows <= set((docs / "learners.md").read_text("utf-8").splitlines())
    found = (docs / "results" / "measured.md").read_text("utf-8")
    assert (
        f"1-rules below records x epsilon of {FEW} times the root of the features, "
        f"curves of `ebm` where {share} of at most {CURVES_UP_TO} " in found
    )


SPELLINGS = {
    "category": {"type": "categorical", "values": ["0", "1"]},
    "boolean": {"type": "boolean"},
    "range": {"type": "numeric", "range": [0, 1], "bins": 2},
    "edges": {"type": "numeric", "edges": [0.5]},
}


@pytest.mark.parametrize("records", [100, 700, 5_000, 60_000])
@pytest.mark.parametrize("spelling", [each for each in SPELLINGS if each != "boolean"])
def test_what_has_two_values_is_one_feature_however_it_is_declared(spelling, records):
    """To the rule, to each learner, and to the price: `found` cut points and noise of categories alike."""

    def plans_of(kind):
        names = {f"t{at}": SPELLINGS[kind] for at in range(6)} | {"x": {"type": "numeric", "range": [0, 90]}}
        names |= {f"c{at}": {"type": "categorical", "values": ["a", "b", "c"]} for at in range(3)}
        body = {"target": {"name": "y", "classes": [0, 1]}, "records": records, "features": names}
        schema = parse_schema(json.dumps(body).encode())
        public = Public.of(schema, Relation.ADD_REMOVE, Budget.of("1", "1e-6"), False)
        recipes = [LEARNERS[name]().recipe(public) for name in ("ebm", "lazybb", "lazybb-tree")]
        tests = [test for test in split_tests(schema.features[:1]).intervals.tolist() if test[1] <= 1]  # of the values
        codes = schema.features[0].encode(["0", "1"] if kind == "category" else [0.0, 1.0]).tolist()
        releases = [[(release.purpose, many) for release, many in each.plan.runs] for each in recipes]
        return choose(public), [each.unit for each in recipes], releases, tests, codes, public.spans

    assert plans_of(spelling) == plans_of("boolean")


def test_of_many_features_less_is_asked():
    """Fewer rounds, each of which tells more, and fewer epochs; of few, as many as ever."""
    few, many = public_of(26_000), public_of(26_000, features=1000)
    numbers = tuple(NumericFeature(f"x{at}", tuple(range(32))) for at in range(1000))
    assert LEARNERS["lazybb"]().rounds_for(few) == LEARNERS["lazybb"]().rounds_for(many) == 204
    assert 60 < LEARNERS["lazybb"]().rounds_for(replace(many, features=numbers)) < 100
    assert (LEARNERS["ebm"]().rounds_for(few), LEARNERS["ebm"]().rounds_for(many)) == (40, 3)


def test_the_rate_of_trees_changes_no_plan():
    """A job that was reserved by the rule of before, at a rate of .6, is played as it was."""
    public, trees = public_of(39_999, "2", features=3), LEARNERS["lazybb-tree"]
    assert (trees().settings(public).weighting, trees().settings(public).rate) == ("logistic", 0.15)
    assert LEARNERS["lazybb"]().settings(public).rate == 0.6
    unit = Decimal("0.01")
    assert rehearse(trees(rounds=5), public, unit) == rehearse(trees(rounds=5, rate=0.6), public, unit)
    assert stored(trees()) == stored(learner_of("lazybb-tree"))


@pytest.mark.parametrize(
    "few", [BooleanFeature("f"), CategoricalFeature("f", ("x", "y", "z")), CategoricalFeature("f", ("x", "y"))]
)
def test_of_mixed_features_trees_vote_by_smaller_steps(few):
    """From a strength of 3,000 on where a tenth of the features have few values; 1-rules have one rate for all."""

    def rates(learner, *features):
        publics = [replace(public_of(records), features=features) for records in (2_999, 3_000, 29_999, 30_000, 39_999)]
        return [LEARNERS[learner]().settings(public).rate for public in publics]

    numbers = tuple(NumericFeature(f"x{at}", (0.0, 1.0, 2.0)) for at in range(9))
    assert rates("lazybb-tree", *numbers, few) == [0.2, 0.15, 0.15, 0.15, 0.15]
    assert rates("lazybb-tree", *numbers, *numbers[:1], few) == [0.2, 0.3, 0.3, 0.3, 0.3]
    assert rates("lazybb", *numbers, few) == [0.2, 0.3, 0.3, 0.6, 0.6]


def test_of_many_records_trees_are_fewer_and_each_says_more():
    numbers = tuple(NumericFeature(f"x{at}", (0.0, 1.0, 2.0)) for at in range(14))
    few, many, strong = (replace(public_of(size, "8"), features=numbers) for size in (39_999, 40_000, 10**7))
    trees, rules = LEARNERS["lazybb-tree"](), LEARNERS["lazybb"]()
    assert [(trees.settings(each).rounds, trees.settings(each).rate) for each in (few, many)] == [
        (400, 0.3),
        (250, 0.4),
    ]
    assert [learner.rounds_for(strong) for learner in (trees, rules)] == [250, 400]


def test_what_no_learner_takes_is_refused_by_the_chosen_one():
    with pytest.raises(InputError, match="learner ebm: .* without a public range"):
        choose(public_of(100, classes=None))


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("records", [500, 9_000])
def test_its_plan_and_its_price_are_those_of_the_chosen_learner(records, relation):
    public = public_of(records, relation=relation, features=3)
    own, chosen = AutoClassifier().recipe(public), LEARNERS[choose(public).learner]().recipe(public)
    assert (own.plan, own.unit, own.claim) == (chosen.plan, chosen.unit, chosen.claim)


def test_an_estimator_says_what_it_was():
    x = np.linspace(0, 1, 400)[:, None]
    labels = AutoClassifier(schema=Columns(0, 1, [0, 1], records=400), epsilon="4").fit(x, (x[:, 0] > 0.5).astype(int))
    numbers = AutoRegressor(schema=Columns(0, 1, target_range=(0, 1), records=400), epsilon="4").fit(x, x[:, 0])
    assert (labels.choice_.learner, numbers.choice_.learner) == ("lazybb-tree", "ebm")
    assert "1,600" in labels.choice_.why
    assert labels.score(x, (x[:, 0] > 0.5).astype(int)) > 0.8
    assert numbers.score(x, x[:, 0]) > 0.5
    assert labels.spent_.epsilon <= 4
    with pytest.raises(AttributeError):
        _ = AutoClassifier().choice_


# ---- the platform ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("target", WHICH)
def test_job_ledger_and_certificate_say_which_it_was_and_why(home, target):
    found = load_verified(home.models / target / "1", home.trust)
    public, entry = found.certificate.form.public, home.ledger.reservation(found.certificate.reservation).value
    assert public.learner == entry["learner"] == WHICH[target]
    assert public.hyperparameters[CHOSEN] == entry["parameters"][CHOSEN]
    assert public.hyperparameters[CHOSEN].endswith(WHICH[target])
    told = job.train(home, JobRequest("d", "auto", "0.9", model=target, target=target), by="test", key=target)
    assert (told["learner"], told["chosen_by_auto"]) == (WHICH[target], entry["parameters"][CHOSEN])


def test_certificate_and_audit_have_the_class_weights(home):
    """`region` has a declared prevalence, which nobody but who asks for `balance` uses."""
    asked = JobRequest("d", "lazybb", "0.2", parameters={"balance": "1", "rounds": 3}, model="w", target="region")
    planned = plans.plan(home, replace(asked, parameters={"rounds": 3}))
    assert [release.purpose for release, _ in planned.recipe.plan.runs][-1] == "select a 1-rule by weighted agreement"
    told = job.train(home, asked, by="test", key="weighed")
    found = load_verified(home.models / "w" / "1", home.trust)
    assert "each class weighing as much as the others by the declared shares" in json.dumps(
        found.certificate.form.to_json()
    )
    assert found.certificate.form.public.hyperparameters["balance"] == "1"
    assert told["epsilon"] == "0.2"


def test_the_audit_prices_it_anew(home):
    found = audit_home(home)
    assert (found.ok, list(found.problems)) == (True, [])


def test_the_learner_by_its_name_costs_the_same_and_is_another_request(home):
    asked = [plans.plan(home, JobRequest("d", name, "0.2", target="income")) for name in ("auto", "lazybb")]
    assert asked[0].recipe.plan == asked[1].recipe.plan
    assert asked[0].request.digest != asked[1].request.digest
    assert "chosen_by_auto" in asked[0].to_json()
    assert "chosen_by_auto" not in asked[1].to_json()


def test_a_parameter_goes_to_the_chosen_learner_or_is_refused(home):
    found = plans.plan(home, JobRequest("d", "auto", "0.2", target="income", parameters={"rounds": 3}))
    assert found.request.parameters["rounds"] == 3
    with pytest.raises(InputError, match=r"\['depth'\]: lazybb takes"):
        plans.plan(home, JobRequest("d", "auto", "0.2", target="income", parameters={"depth": 3}))


def test_what_would_fit_fits(home):
    """Asked for less, the rule may choose another learner."""
    with pytest.raises(BudgetRefused) as caught:
        plans.plan(home, JobRequest("d", "auto", "50", target="income"))  # a strength of 4,000
    fits = caught.value.details["would_fit"]["epsilon"]
    found = plans.plan(home, JobRequest("d", "auto", fits, target="income"))
    assert found.recipe.claim.epsilon <= Decimal(fits)
    assert found.request.learner == "lazybb"


@pytest.mark.slow
def test_tuning_tries_settings_of_the_chosen_learner(home):
    asked = JobRequest("d", "auto", "0.3", target="region", tuning=TuningRequest({"rounds": [3, 5]}, 2))
    found = job.train(home, asked, by="test")
    assert (found["learner"], found["state"]) == ("lazybb", "issued")
    assert found["chosen_by_auto"].startswith("3 classes")


def test_the_command_line_needs_no_learner(home, capsys):
    assert app.run(["plan", "d", "--epsilon", "0.1", "--target", "income"]) == 0
    assert "chosen" in capsys.readouterr().out
    assert app.run(["plan", "d", "--epsilon", "0.1", "--target", "hours", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["learner"], told["chosen_by_auto"]) == ("ebm", "the target is a number: ebm")


def test_what_is_left_is_told_of_learners_and_not_of_the_rule(home):
    assert sorted(dataset_to_json(home, home.ledger.dataset("d"))["budget"]["jobs_left"]) == sorted(
        set(LEARNERS) - {"auto"}
    )
