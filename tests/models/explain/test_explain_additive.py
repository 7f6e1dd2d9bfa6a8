"""What an additive model says of itself: arithmetic on its released numbers, in its own unit, that adds up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from additive_models import BARE, CLASSES, COLUMNS, COUNTS, ERRORS, LINK, NUMBER, TERMS

from dpserve_verify.errors import InputError
from models.explain.explain import contributions, errors, logits, shapes, unit

AGE_MEAN = (10 * -100 + 20 * 0 + 30 * 300 + 40 * 200) / 100  # the missing bin's count is below 0: no weight


@pytest.mark.parametrize("ensemble", [CLASSES, BARE, NUMBER])
def test_contributions_add_up_to_what_is_answered(ensemble):
    found = contributions(ensemble, COLUMNS)
    total = (found.base + found.votes.sum(axis=1))[:, 0]
    if ensemble.classes:
        np.testing.assert_allclose(total, LINK * ensemble.scores(COLUMNS)[:, 0], atol=1e-12)
        np.testing.assert_allclose(1 / (1 + np.exp(-total)), ensemble.probabilities(COLUMNS)[:, 1], atol=1e-12)
    else:
        np.testing.assert_allclose(np.clip(total, 100, 500), ensemble.values(COLUMNS), atol=1e-9)
    assert not found.votes[:, 3].any()
    assert (logits(ensemble, COLUMNS).votes == found.votes).all()


def test_centred_on_the_released_counts_which_count_from_0():
    age = shapes(CLASSES)[0]
    assert age.feature == "age"
    assert [each.votes for each in age.bins] == pytest.approx([LINK * (term - AGE_MEAN) for term in TERMS[0]])
    assert [each.count for each in age.bins] == list(COUNTS[0])
    assert [each.error for each in age.bins] == pytest.approx([LINK * error for error in ERRORS[0]])
    assert [each.label for each in age.bins] == [
        "up to 18",
        "above 18, up to 27.5",
        "above 27.5, up to 65",
        "above 65",
        "missing",
    ]


def test_importance_is_the_mean_size_over_the_counts():
    shares = np.array([10, 20, 30, 40, 0]) / 100
    assert CLASSES.importances()["age"] == pytest.approx(LINK * shares @ np.abs(np.array(TERMS[0]) - AGE_MEAN))
    assert CLASSES.importances()["work <b>"] == pytest.approx(LINK * (0.6 * 32 + 0.4 * 48))
    assert "idle" not in CLASSES.importances()


def test_without_counts_the_midpoint_and_the_most_it_can_add():
    assert BARE.importances() == pytest.approx({"age": 2.0, "work <b>": 1.7, "owner": 0.2})
    assert {each.error for shape in shapes(BARE) for each in shape.bins} == {None}
    assert errors(BARE) is None


def test_counts_that_are_all_noise_are_passed_over():
    hollow = replace(CLASSES, counts=tuple(tuple(-1 for _ in row) for row in COUNTS))
    assert hollow.importances() == pytest.approx(BARE.importances())


def test_units():
    assert unit(CLASSES) == "log odds of >50K"
    assert unit(NUMBER) == "price"


def test_terms_are_not_votes():
    with pytest.raises(InputError, match="not votes"):
        CLASSES.vote_table()
