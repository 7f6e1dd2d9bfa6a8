"""`dpserve.learners`: what outsiders import of the learners, each from its own module when it is named."""

from __future__ import annotations

import subprocess
import sys

import pytest
from small_home import ROOT

import dpserve.learners
from training import learners, notebook


def test_every_public_name_of_learners_and_notebooks_is_there():
    inner = {"LEARNERS", "PrivateClassifier"}  # for whoever writes a learner
    assert set(dpserve.learners.__all__) == {*learners.__all__, *notebook.__all__} - inner
    for name in dpserve.learners.__all__:
        assert getattr(dpserve.learners, name) is getattr(learners if name in learners.__all__ else notebook, name)
    with pytest.raises(AttributeError, match="has no Nothing"):
        _ = dpserve.learners.Nothing


def test_a_name_is_loaded_when_it_is_looked_up():
    look = "import sys, dpserve.learners; rooms = {'training', 'numpy'}; print(sorted(rooms & sys.modules.keys())); "
    look += "from dpserve.learners import LazyBB; print(LazyBB.__module__)"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "training.learners.boosting.lazybb"]
