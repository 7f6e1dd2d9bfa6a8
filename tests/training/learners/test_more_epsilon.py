"""More epsilon never hurts: not by the rule that chooses a learner, and not by what it reaches."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import r2_score, roc_auc_score

from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature
from training.learners import AutoClassifier, AutoRegressor
from training.learners.choice import choose
from training.rows.schema.column_rules import Columns
from training.rows.schema.schema import parse_schema
from training.session.session import Public

DATA = Path(__file__).resolve().parents[3] / "examples" / "data"
ROWS, FITS = 4000, 3
HALVES = (slice(ROWS), slice(ROWS, None))
FALL = 0.015  # of AUROC or R^2, that the median of three fits may be behind that of a smaller epsilon by chance
ORDER = ("lazybb", "lazybb-tree", "ebm")  # a larger epsilon never leads back


def test_more_epsilon_never_leads_back_to_a_learner_for_less():
    """Of every size, share of categories, number of features, relation and delta: one change over epsilon at most."""
    sizes, epsilons = (300, 3_000, 30_000, 10**6), ("0.05", "0.1", "0.25", "0.5", "1", "2", "4", "8", "16")
    cases = product(sizes, (4, 40, 101, 1014), (0.0, 0.4, 0.6, 1.0), Relation, ("1e-6", "0"), ((), (0.98, 0.02)))
    for records, many, words, relation, delta, prevalence in cases:
        features = words_and_others(many, words)
        budgets = [Budget.of(epsilon, delta) for epsilon in epsilons]
        facts = [Public(features, "y", ("a", "b"), records, relation, each, delta == "0", prevalence=prevalence)
                 for each in budgets]  # fmt: skip
        chosen = [ORDER.index(choose(each).learner) for each in facts]
        assert chosen == sorted(chosen), (records, many, words, relation, delta, prevalence, chosen)


@cache
def words_and_others(many: int, words: float):
    return tuple(
        CategoricalFeature(f"f{at}", ("x", "y")) if at < words * many else BooleanFeature(f"f{at}")
        for at in range(many)
    )


@cache
def useless(seed: int):
    """Five columns that tell, two of them together, among 200 that do not."""
    random = np.random.default_rng(seed)
    columns = {f"x{at}": random.random(2 * ROWS) for at in range(205)}
    score = 6 * columns["x0"] + 4 * columns["x1"] + 8 * (columns["x2"] - 0.5) * (columns["x3"] > 0.5) - 5
    score += 2 * (columns["x4"] > 0.7) - 0.6
    label = np.where(random.random(2 * ROWS) < 1 / (1 + np.exp(-score)), "yes", "no")
    rule = Columns(low=0, high=1, classes=["no", "yes"], bins=16, records=ROWS)
    return columns, label, rule.schema(list(columns)), AutoClassifier


@cache
def adult(seed: int):
    table = pq.read_table(DATA / "adult_train.parquet")
    table = table.take(np.random.default_rng(seed).permutation(len(table))[: 2 * ROWS])
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    schema = (DATA / "adult.schema.yaml").read_text().replace("records: 32561", f"records: {ROWS}")
    return columns, columns.pop("income"), parse_schema(schema.encode()), AutoClassifier


@cache
def number(seed: int):
    random = np.random.default_rng(seed)
    columns = {f"x{at}": random.random(2 * ROWS) for at in range(6)}
    answer = 3 * columns["x0"] + np.sin(6 * columns["x1"]) + 2 * columns["x2"] * columns["x3"] + random.normal(
        0, 0.3, 2 * ROWS
    )  # fmt: skip
    rule = Columns(low=0, high=1, target_range=(-2, 7), records=ROWS)
    return columns, answer, rule.schema(list(columns)), AutoRegressor


def reached(made, epsilon: str, seed: int) -> float:
    """Fit half of the rows, and return what the model reaches on the others. Rows follow from the seed; noise not."""
    columns, answer, schema, learner = made(seed)
    train, test = ({name: values[part] for name, values in columns.items()} for part in HALVES)
    model = learner(schema=schema, epsilon=epsilon).fit(train, answer[HALVES[0]])
    truth = answer[HALVES[1]]
    if learner is AutoRegressor:
        return float(r2_score(truth, model.predict(test)))
    return float(roc_auc_score(truth == model.classes_[1], model.predict_proba(test)[:, 1]))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("made", "epsilons"), [
    (useless, ("2", "4")),
    (adult, ("0.25", "1", "4")),
    (number, ("0.25", "1", "4")),
])  # fmt: skip
def test_more_epsilon_never_reaches_less(made, epsilons):
    """The median of three fits at each epsilon, at most FALL behind the best of the smaller ones. From 2 to 4 .03 was
    lost among useless columns while public splits fell on those.
    """
    medians = [median(reached(made, epsilon, seed) for seed in range(FITS)) for epsilon in epsilons]
    for at, each in enumerate(medians):
        assert each > max(medians[: at + 1]) - FALL, medians
