"""The learners of others in the examples: each is short, and its check refuses nothing."""

from __future__ import annotations

import json

import ledgers
import pytest

from serving.cli.app import run

EXAMPLES = {
    "naive_bayes.py:NaiveBayes": {},
    "deep_forest.py:DeepForest": {"trees": "6", "layers": "2"},
    "tree_of_pairs.py:TreeOfPairs": {},
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_keeps_its_promise(name, capsys):
    place = ledgers.ROOT / "examples" / name
    assert len(place.with_name(name.partition(":")[0]).read_text().splitlines()) < 100
    more = [word for key, value in EXAMPLES[name].items() for word in ("--set", f"{key}={value}")]
    assert run(["learner", "check", str(place), *more, "--neighbours", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
