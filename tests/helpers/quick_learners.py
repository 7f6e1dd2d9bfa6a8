"""Learners that learn for a few rounds: what they make of odd rows, labels and budgets does not depend on how long."""

from __future__ import annotations

from typing import Any

import pytest

from training.learners import auto

FEW = {"rounds": 25, "epochs": 8, "trees": 8}


def few(learner: Any) -> dict[str, int]:
    """Its parameters for that."""
    return {name: count for name, count in FEW.items() if name in learner.get_params()}


@pytest.fixture
def quick_auto(monkeypatch):
    """`auto` does what the learner that it chooses does in a few rounds; it has no parameter to say so."""
    chosen = auto._choose_learner

    def quick(public):
        learner = chosen(public)
        return learner.set_params(**few(learner))

    monkeypatch.setattr(auto, "_choose_learner", quick)
