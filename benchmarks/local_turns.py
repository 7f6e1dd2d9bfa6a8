"""The boosted learners of owners who trust nobody, simulated turn after turn over the platform's own pure functions.

    python -m benchmarks.local_turns synthetic | adult [--seeds 56 18] [--runs 5] [--learners local-ncc ...]

`synthetic`: the paper's set, 20,000 owners of 4 rows (`local-lr`: 5,000 of 80), with 500 unlabelled public rows and
without any. `adult`: one row an owner. Nothing here is certified: splits are seeded.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.metrics import roc_auc_score

from benchmarks.datasets import load, schema_of
from models.features import Feature, NumericFeature, encode_columns
from models.forms.ensemble import Ensemble
from models.forms.registry import ensemble_from_bytes
from training.local.boosted.definition import BoostedDefinition
from training.local.boosted.learning import next_document
from training.local.boosted.owned_scores import scores_in
from training.local.boosted.so_far import NOTHING, read_so_far
from training.local.defining import ROUNDS, basis_for
from training.local.directions import best_favoured
from training.local.learning import CANDIDATES
from training.rows.data import columns_of
from training.rows.schema import parse_schema

Codes = Sequence[NDArray[Any]]
CHUNK = 2048
EPSILONS = (0.5, 1.0, 2.0, 5.0, 7.0)


def defined(
    learner: str, features: tuple[Feature, ...], public: Codes | None, epsilon: float, owners: int, rounds: int
) -> BoostedDefinition:
    """A campaign as the platform would define it, but for names and digests."""
    basis = basis_for(learner, features, None if public is None else list(public), owners // rounds, epsilon)
    favoured = best_favoured(basis.dimension(1), CANDIDATES, epsilon)
    return BoostedDefinition(
        "simulated", "owners", "model", learner, Decimal(str(epsilon)), owners, owners, "label", ("a", "b"), features,
        basis, "", np.random.bytes(32).hex(), rounds, CANDIDATES, favoured,
    )  # fmt: skip


def simulate(definition: BoostedDefinition, codes: Codes, y: NDArray[np.float64], each: int) -> Ensemble:
    """The model of a whole campaign, every owner's report drawn as an owner draws it. Owners have `each` rows."""
    document, numbers = NOTHING, np.arange(definition.owners)
    turns = definition.turns_of(numbers)
    for turn in range(1, definition.turns + 1):
        so_far = read_so_far(document, definition.features)
        here, reports = numbers[turns == turn], []
        if definition.weighs(turn) and not so_far.voters:
            continue
        for start in range(0, len(here), CHUNK):
            part = here[start : start + CHUNK]
            rows = (part[:, np.newaxis] * each + np.arange(each)).ravel()
            count = np.full(len(part), each)
            wanted = scores_in(definition, turn, [code[rows] for code in codes], y[rows], count, so_far, part)
            reports.append(definition.mechanism_in(turn).draw(wanted))
        document = next_document(definition, turn, document, here, np.concatenate(reports))
    return ensemble_from_bytes(document)


def synthetic(seeds: list[int], runs: int, learners: list[str], epsilons: list[float]) -> None:
    """Error on 100,000 rows."""
    features = tuple(NumericFeature(f"x{j}", tuple(np.linspace(-1, 1, 257))) for j in range(20))
    for seed in seeds:
        X, y = make_classification(1_000_000, 20, n_informative=10, n_redundant=10, random_state=seed)
        codes = [feature.encode(X[:, j] / np.abs(X[:, j]).max()) for j, feature in enumerate(features)]
        for learner in learners:
            owners, each = (5_000, 80) if learner == "local-lr" else (20_000, 4)
            for shown in (True, False):
                for epsilon in epsilons:
                    errors = []
                    for run in range(runs):
                        order = np.random.default_rng(run).permutation(len(y))[: 100_500 + owners * each]
                        public, held, test = np.split(order, [500, 500 + owners * each])
                        known = [code[public] for code in codes] if shown else None
                        definition = defined(learner, features, known, epsilon, owners, ROUNDS[learner])
                        model = simulate(definition, [code[held] for code in codes], 2.0 * y[held] - 1, each)
                        answers = model.coded_scores([code[test] for code in codes])[:, 0]
                        errors.append(np.mean((answers > 0) != (y[test] > 0)))
                    print(
                        f"seed {seed} {learner} {'500 public rows' if shown else 'schema alone'} epsilon {epsilon}: "
                        f"error {np.mean(errors):.3f} +- {np.std(errors):.3f}",
                        flush=True,
                    )


def adult(runs: int, learners: list[str], epsilons: list[float]) -> None:
    """AUROC on Adult's own test file; 2,000 public rows without labels, the rest one row an owner."""
    schema, train, test = parse_schema(schema_of("adult")), load("adult"), load("adult_test")
    codes, held_out = (encode_columns(schema.features, columns_of(schema, part.table)) for part in (train, test))
    labels, truth = (np.array(part.table["income"].to_pylist()) == schema.classes[1] for part in (train, test))
    for learner in learners:
        for epsilon in epsilons:
            found = []
            for run in range(runs):
                order = np.random.default_rng(run).permutation(len(labels))
                public, held = [code[order[:2000]] for code in codes], order[2000:]
                definition = defined(learner, schema.features, public, epsilon, len(held), ROUNDS[learner])
                model = simulate(definition, [code[held] for code in codes], np.where(labels[held], 1.0, -1.0), 1)
                found.append(roc_auc_score(truth, model.coded_scores(held_out)[:, 0]))
            print(f"adult {learner} epsilon {epsilon}: AUROC {np.mean(found):.3f} +- {np.std(found):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("synthetic", "adult"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[56, 18])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--learners", nargs="+", default=["local-ncc", "local-stump", "local-lr"], choices=ROUNDS)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    asked = parser.parse_args()
    if asked.what == "synthetic":
        synthetic(asked.seeds, asked.runs, asked.learners, asked.epsilons)
    else:
        adult(asked.runs, [each for each in asked.learners if each != "local-lr"], asked.epsilons)


if __name__ == "__main__":
    main()
