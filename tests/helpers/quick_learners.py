"""Learners that learn for a few rounds: what they make of odd rows, labels and budgets does not depend on how long."""

from __future__ import annotations

from typing import Any

import pytest

from training.learners import auto

FEW = {"rounds": 25, "epochs": 8, "trees": 8}


def few(learner: Any) -> dict[str, int]:
    """Its parameters for that; trees beside curves are of numbers alone, and stay as many as the learner says."""
    names = learner.get_params()
    return {name: few for name, few in FEW.items() if name in names and not (name == "trees" and "epochs" in names)}


@pytest.fixture
def quick_auto(monkeypatch):
    """`auto` does what the learner that it chooses does in a few rounds; it has no parameter to say so."""
    chosen = auto._choose_learner

    def quick(public):
        learner = chosen(public)
        return learner.set_params(**few(learner))

    monkeypatch.setattr(auto, "_choose_learner", quick)
