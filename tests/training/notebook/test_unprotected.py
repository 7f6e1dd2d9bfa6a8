"""A fit without noise predicts, and is good for nothing else."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from contract_rows import make, table

from dpserve_verify.certificates.bundle import read_bundle
from dpserve_verify.errors import DpserveError
from models.explain.explain import terms
from models.onnx.export import to_onnx
from training.learners import LEARNERS
from training.notebook.without_noise import NotPrivate, Unprotected, unprotected

EVERY = pytest.mark.parametrize("kind", LEARNERS.values(), ids=LEARNERS)


@pytest.mark.slow
@EVERY
def test_it_predicts_without_noise(kind):
    X, y = table()
    learner = make(kind, epsilon="5")
    one, other = (unprotected(learner, X, y) for _ in range(2))
    unseen, truth = table(500, seed=1)
    assert (one.predict(unseen) == truth).mean() > 0.7
    chances = one.predict_proba(unseen)
    assert chances.shape == (500, 2)
    assert (chances == other.predict_proba(unseen)).all()  # there is no chance in it


@EVERY
def test_the_learner_spends_nothing_and_stays_unfitted(kind):
    X, y = table()
    learner = make(kind)
    unprotected(learner, X, y)
    assert not hasattr(learner, "recipe_")
    assert not hasattr(learner, "ensemble_")
    learner.fit(X, y)


@pytest.fixture(scope="module")
def model() -> Unprotected:
    return unprotected(make(LEARNERS["lazybb"]), *table())


def test_it_says_that_it_is_not_private(model):
    assert model.private is False
    assert "NOT PRIVATE" in repr(model)
    assert not issubclass(Unprotected, tuple(LEARNERS.values()))


@pytest.mark.parametrize(
    "name",
    ["ensemble_", "recipe_", "spent_", "to_json", "features", "classes", "trees", "votes", "coded_scores", "fit"],
)
def test_it_has_nothing_that_a_private_model_has(model, name):
    assert not hasattr(model, name)
    with pytest.raises(NotPrivate, match="not private"):
        getattr(model, name)


def test_it_cannot_be_exported_or_written_down(model):
    with pytest.raises(NotPrivate, match="exported, certified or served"):
        to_onnx(model, {})
    with pytest.raises(NotPrivate):
        terms(model)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(NotPrivate):
            pickle.dumps(model, protocol)
    with pytest.raises(NotPrivate):
        copy.deepcopy(model)
    with pytest.raises(TypeError):
        json.dumps(model)


def test_it_cannot_be_served(model, tmp_path):
    """A server loads a bundle, and nothing of an unprotected model makes one."""
    with pytest.raises((DpserveError, OSError)):
        read_bundle(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_budget_or_data_that_would_be_refused_is_refused_here_too():
    X, y = table()
    with pytest.raises(DpserveError):
        unprotected(make(LEARNERS["lazybb"], epsilon="-1"), X, y)
    with pytest.raises(DpserveError):
        unprotected(make(LEARNERS["lazybb"]), X.drop_columns(["age"]), y)


def test_noise_is_what_it_leaves_out():
    """At a tiny epsilon the private fit is close to chance; without noise it is not."""
    X, y = table()
    learner = make(LEARNERS["lazybb"], epsilon="0.001", rounds=5)
    with pytest.warns(UserWarning, match="drowns"):
        noisy = np.mean(
            [(make(LEARNERS["lazybb"], epsilon="0.001", rounds=5).fit(X, y).predict(X) == y).mean() for _ in range(5)]
        )
    assert (unprotected(learner, X, y).predict(X) == y).mean() > max(0.8, noisy)
